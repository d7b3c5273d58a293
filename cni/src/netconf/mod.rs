//! The network configuration on standard input. Each key is read when it is needed, so that pods that are not
//! captured do not depend on the others.

mod settings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use istio_iptables::cli::{Key, OptionValue, Origin};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::environment::{AttachmentId, PodName};
use crate::error::{CniError, Code, shortened};
use crate::go_json;
use crate::version::Version;

pub use settings::{Defaults, OnUnknown, Settings, SourceKind};

/// Size of the largest configuration, in bytes.
pub const LARGEST: usize = 8 << 20;

/// The run directory of the node agent, as in Istio.
pub const RUN_DIR: &str = "/var/run/istio-cni";

/// Timeout of a command: several times as long as each of all ADDs of a node needs that starts its pods at
/// once, and far less than kubelet (4 minutes) and CRI-O (5) wait for a sandbox.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// The longest deadline that is accepted: kubelet gives up on a sandbox after 4 minutes.
const LONGEST_DEADLINE: Duration = Duration::from_secs(240);

/// The capability under which the runtime passes a pod's annotations.
pub const POD_ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";

/// Keys of Istio's plugin and our own: `docs/cni.md` says what they mean.
pub const KEYS: [&str; 13] = [
    "ambient_enabled",
    "backend",
    "capabilities",
    "capture",
    "cni_agent_run_dir",
    "deadline_ms",
    "exclude_namespaces",
    "native_nftables",
    "on_unknown",
    LOG_LEVEL,
    "pod_namespace",
    "source",
    "standalone",
];

/// Keys that Istio's plugin does not have; the node agent writes `on_unknown` into each entry.
pub const OWN_KEYS: [&str; 6] = ["backend", "capture", "deadline_ms", "on_unknown", "source", "standalone"];

/// Keys of the specification, and those of Istio's plugin that have no effect here.
const IGNORED: [&str; 14] = [
    "args",
    "cniVersion",
    "disableCheck",
    "disableGC",
    "dns",
    "enable_ambient_detection_retry",
    "enablement_selectors",
    "ipMasq",
    "ipam",
    "loadOnlyInlinedPlugins",
    "name",
    "prevResult",
    "runtimeConfig",
    "type",
];

/// The configuration, as text by key.
#[derive(Debug)]
pub struct NetConf<'a> {
    keys: BTreeMap<String, &'a RawValue>,
}

/// The attachments that are there, for GC.
#[derive(Debug, Deserialize)]
struct ValidAttachment {
    #[serde(rename = "containerID")]
    container: String,
    #[serde(rename = "ifname")]
    interface: String,
}

impl<'a> NetConf<'a> {
    /// Splits the configuration into its keys.
    ///
    /// # Errors
    /// Code 6: it is not a JSON object.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, CniError> {
        let bad = |problem: String| {
            CniError::new(
                Code::Decoding,
                format!("standard input: {problem}, expected a network configuration in JSON"),
            )
        };
        let text = std::str::from_utf8(bytes).map_err(|error| bad(error.to_string()))?;
        let keys = serde_json::from_str(text).map_err(|error| match text.trim_start().chars().next() {
            None => bad("empty".to_owned()),
            Some('{') => bad(error.to_string()),
            Some(_) => bad("not a JSON object".to_owned()),
        })?;
        go_json::require(text).map_err(bad)?;
        Ok(Self { keys })
    }

    /// The value of a key; `null` is none.
    fn raw(&self, key: &str) -> Option<&'a RawValue> {
        self.keys.get(key).copied().filter(|value| value.get() != "null")
    }

    fn value<T: Deserialize<'a>>(&self, key: &str, accepted: &str) -> Result<Option<T>, CniError> {
        self.raw(key).map(|value| read(key, value, accepted)).transpose()
    }

    /// Boolean keys are false unless they are set.
    fn flag(&self, key: &str) -> Result<bool, CniError> {
        Ok(self.value(key, "true or false")?.unwrap_or_default())
    }

    /// A value that the parser of the init binary's options reads, and refuses: what is not a string is not
    /// accepted in any form.
    fn option(&self, key: Key, name: &str) -> Option<OptionValue> {
        let raw = self.raw(name)?.get();
        let text = serde_json::from_str(raw).unwrap_or_else(|_| raw.to_owned());
        Some(OptionValue { text, origin: Origin::Document(key) })
    }

    /// The version of the specification; of those before 0.3.0 none is supported.
    ///
    /// # Errors
    /// Code 1: an unsupported one.
    pub fn version(&self) -> Result<Version, CniError> {
        let accepted = format!("one of {}", Version::ALL.map(Version::name).join(", "));
        let text: Option<String> = self.value("cniVersion", &accepted)?;
        let given = text.as_deref().unwrap_or("0.1.0"); // before the key was mandatory
        Version::by_name(given).ok_or_else(|| {
            CniError::new(
                Code::IncompatibleVersion,
                format!("cniVersion: {given:?} is not supported, expected {accepted}"),
            )
        })
    }

    /// The version as it is written.
    #[must_use]
    pub fn version_text(&self) -> Option<String> {
        self.value("cniVersion", "").ok().flatten()
    }

    /// The name of the network.
    ///
    /// # Errors
    /// Code 7: none.
    pub fn name(&self) -> Result<String, CniError> {
        const ACCEPTED: &str = "the network's name";
        let name: Option<String> = self.value("name", ACCEPTED)?;
        name.filter(|name| !name.is_empty())
            .ok_or_else(|| invalid("name", &format!("missing, expected {ACCEPTED}")))
    }

    /// The result of the plugins before this one, byte for byte.
    ///
    /// # Errors
    /// Code 7: it is not an object.
    pub fn prev_result(&self) -> Result<Option<&'a str>, CniError> {
        const KEY: &str = "prevResult";
        let result = self.raw(KEY).map(RawValue::get);
        match result.filter(|text| !text.starts_with('{')) {
            Some(text) => Err(not_accepted(KEY, text, "a JSON object")),
            None => Ok(result),
        }
    }

    /// Whether ADD may be the first of its list: multus calls it alone.
    ///
    /// # Errors
    /// Code 7.
    pub fn standalone(&self) -> Result<bool, CniError> {
        self.flag("standalone")
    }

    /// Why a pod is not captured, independent of its facts; `None` if these decide.
    ///
    /// # Errors
    /// Code 7.
    pub fn excludes(&self, pod: &PodName) -> Result<Option<&'static str>, CniError> {
        const AGENT: &str = "istio-cni-node-";
        let own: Option<String> = self.value("pod_namespace", "the name of a namespace")?;
        if pod.name.starts_with(AGENT) && own.is_some_and(|own| own == pod.namespace) {
            return Ok(Some("pod of the node agent"));
        }
        let excluded: Option<Vec<String>> =
            self.value("exclude_namespaces", "a list of names of namespaces")?;
        Ok(excluded.unwrap_or_default().contains(&pod.namespace).then_some("excluded namespace"))
    }

    /// The directory for state.
    ///
    /// # Errors
    /// Code 7.
    pub fn run_dir(&self) -> Result<PathBuf, CniError> {
        const KEY: &str = "cni_agent_run_dir";
        const ACCEPTED: &str = "an absolute path";
        let given: Option<String> = self.value(KEY, ACCEPTED)?;
        match given.filter(|path| !path.is_empty()) {
            Some(path) if !path.starts_with('/') => Err(not_accepted(KEY, &format!("{path:?}"), ACCEPTED)),
            path => Ok(path.map_or_else(|| RUN_DIR.into(), PathBuf::from)),
        }
    }

    /// Timeout of the command.
    ///
    /// # Errors
    /// Code 7.
    pub fn deadline(&self) -> Result<Duration, CniError> {
        const KEY: &str = "deadline_ms";
        let accepted = format!("1 to {}", LONGEST_DEADLINE.as_millis());
        let Some(ms) = self.value::<u64>(KEY, &accepted)? else { return Ok(DEADLINE) };
        let given = Duration::from_millis(ms);
        if (Duration::from_millis(1)..=LONGEST_DEADLINE).contains(&given) {
            return Ok(given);
        }
        Err(not_accepted(KEY, &ms.to_string(), &accepted))
    }

    /// The log level, as an option of the init binary.
    #[must_use]
    pub fn log_level(&self) -> Option<OptionValue> {
        self.option(Key::LogOutputLevel, LOG_LEVEL)
    }

    /// Keys that are not known.
    pub fn unknown_keys(&self) -> impl Iterator<Item = &str> {
        let keys = self.keys.keys().map(String::as_str);
        keys.filter(|key| !KEYS.contains(key) && !IGNORED.contains(key) && !key.starts_with("cni.dev/"))
    }

    /// Whether the runtime is asked to pass annotations.
    ///
    /// # Errors
    /// Code 7.
    pub fn wants_annotations(&self) -> Result<bool, CniError> {
        // Libcni takes null for false.
        let capabilities: Option<BTreeMap<String, Option<bool>>> =
            self.value("capabilities", "an object of booleans")?;
        Ok(capabilities.is_some_and(|all| all.get(POD_ANNOTATIONS) == Some(&Some(true))))
    }

    /// The annotations of the pod, if the runtime hands them over.
    ///
    /// # Errors
    /// Code 7.
    pub fn pod_annotations(&self) -> Result<Option<BTreeMap<String, String>>, CniError> {
        const KEY: &str = "runtimeConfig";
        let runtime: Option<BTreeMap<String, &'a RawValue>> = self.value(KEY, "a JSON object")?;
        let key = || format!("{KEY}[{POD_ANNOTATIONS:?}]");
        let annotations = runtime.as_ref().and_then(|runtime| runtime.get(POD_ANNOTATIONS));
        let annotations: Option<Option<_>> =
            annotations.map(|value| read(&key(), value, "an object of strings")).transpose()?;
        Ok(annotations.flatten())
    }

    /// The attachments of this network that are there. Libcni writes `null` if there are none.
    ///
    /// # Errors
    /// Code 7: the runtime does not list them, or one has names that no attachment can have: the state of the
    /// one that is meant must stay.
    pub fn valid_attachments(&self) -> Result<Vec<AttachmentId>, CniError> {
        const KEY: &str = "cni.dev/valid-attachments";
        const ACCEPTED: &str = "a list of objects with containerID and ifname";
        let missing = || invalid(KEY, &format!("missing, expected {ACCEPTED}"));
        let value = self.keys.get(KEY).copied().ok_or_else(missing)?;
        let listed: Option<Vec<&RawValue>> = read(KEY, value, ACCEPTED)?;
        let id = |one: &RawValue| {
            // Serde reads a list as an object, too.
            let names: Option<ValidAttachment> = serde_json::from_str(one.get()).ok();
            let names = names.filter(|_| one.get().starts_with('{'));
            let id = names.and_then(|names| AttachmentId::new(&names.container, &names.interface).ok());
            id.ok_or_else(|| not_accepted(KEY, one.get(), ACCEPTED))
        };
        listed.into_iter().flatten().map(id).collect()
    }
}

/// The beginning of messages about a key.
pub const KEY: &str = "configuration key ";

/// The key of the log level.
pub const LOG_LEVEL: &str = "plugin_log_level";

/// Maximum length of a value in messages.
const SHOWN: usize = 80;

/// serde's messages name Rust types.
fn read<'a, T: Deserialize<'a>>(key: &str, value: &'a RawValue, accepted: &str) -> Result<T, CniError> {
    serde_json::from_str(value.get()).map_err(|_| not_accepted(key, value.get(), accepted))
}

fn not_accepted(key: &str, value: &str, accepted: &str) -> CniError {
    invalid(key, &format!("{} is not accepted, expected {accepted}", shortened(value, SHOWN)))
}

fn invalid(key: &str, problem: &str) -> CniError {
    CniError::new(Code::InvalidConfig, format!("{KEY}{key}: {problem}"))
}
