//! State files: one for each captured attachment, `<run_dir>/state/<container>.<interface>.json`.

mod dir;

use std::collections::BTreeMap;

use istio_iptables::cli::{Key, OptionValue, Origin};
use istio_iptables::model::Backend;
use serde::{Deserialize, Serialize};

use crate::environment::AttachmentId;

pub(crate) use dir::is_at;
pub use dir::{FileStamp, StateDir};

/// The version of the files.
const VERSION: u32 = 1;

/// Known facts about a captured attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    version: u32,
    /// Version of the plugin that wrote it.
    pub plugin: String,
    /// The network's name.
    pub network: String,
    /// `CNI_CONTAINERID`.
    pub container: String,
    /// `CNI_IFNAME`.
    pub interface: String,
    /// The pod's namespace and name.
    pub pod: String,
    /// The pod's uid; may be empty.
    pub uid: String,
    /// Inode of the network namespace.
    pub netns: u64,
    /// Capture options by name.
    pub options: BTreeMap<String, String>,
    /// Digest of the rules that were written; empty in files of earlier versions.
    #[serde(default)]
    rules: String,
    /// What holds them, as the option has it; empty in files of earlier versions.
    #[serde(default)]
    backend: String,
    /// The file name of the network namespace, of a pod that the agent has captured from outside. CRI-O calls
    /// DEL with the plugins of ADD, so ours is not called for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_netns: Option<String>,
}

impl State {
    /// The state of an attachment.
    #[must_use]
    pub fn new(network: String, id: &AttachmentId, pod: String, uid: String, netns: u64) -> Self {
        Self {
            version: VERSION,
            plugin: env!("CARGO_PKG_VERSION").to_owned(),
            network,
            container: id.container.clone(),
            interface: id.interface.clone(),
            pod,
            uid,
            netns,
            options: BTreeMap::new(),
            rules: String::new(),
            backend: String::new(),
            late_netns: None,
        }
    }

    /// With the digest of the rules, if they are exactly those that ADD writes, and what holds them.
    #[must_use]
    pub fn with_rules(mut self, digest: Option<u64>, backend: Backend) -> Self {
        self.rules = digest.map(hexadecimal).unwrap_or_default();
        self.backend = backend.to_string();
        self
    }

    /// The option that chooses what held the rules when they were written, if that is known.
    #[must_use]
    pub fn backend(&self) -> Option<(Key, OptionValue)> {
        let text = Some(self.backend.clone()).filter(|text| !text.is_empty())?;
        Some((Key::Backend, OptionValue { text, origin: Origin::Document(Key::Backend) }))
    }

    /// Whether rules with this digest were written.
    #[must_use]
    pub fn has_rules(&self, digest: u64) -> bool {
        self.rules == hexadecimal(digest)
    }

    /// With these options.
    #[must_use]
    pub fn with_options(mut self, options: &BTreeMap<Key, String>) -> Self {
        self.options = options.iter().map(|(key, text)| (key.spec().name.to_owned(), text.clone())).collect();
        self
    }

    /// The options; `None` if one is not known: another version wrote the file.
    #[must_use]
    pub fn options(&self) -> Option<BTreeMap<Key, String>> {
        let known = |(name, text): (&String, &String)| Some((Key::by_name(name)?, text.clone()));
        self.options.iter().map(known).collect()
    }
}

/// JSON numbers have 53 bits.
fn hexadecimal(digest: u64) -> String {
    format!("{digest:016x}")
}
