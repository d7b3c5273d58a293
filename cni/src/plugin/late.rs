//! The decision of ADD about a pod that the runtime has set up without this plugin, and what ADD of it gets.

use std::collections::BTreeMap;
use std::path::PathBuf;

use istio_iptables::kernel::process::SystemHost;
use serde_json::{Value, json};

use super::Context;
use super::add::{self, Decided};
use crate::capture::CaptureOptions;
use crate::deadline::Deadline;
use crate::environment::{Attachment, AttachmentId, PodName};
use crate::error::CniError;
use crate::netconf::{NetConf, POD_ANNOTATIONS};
use crate::version::Version;

/// A pod as ADD would get it.
pub(crate) struct LatePod {
    /// The configuration.
    pub(crate) conf: Value,
    pub(crate) id: AttachmentId,
    pub(crate) pod: PodName,
}

impl LatePod {
    /// With our entry of the network configuration, the name of the network, and the annotations that the
    /// runtime passed.
    pub(crate) fn new(
        entry: &Value,
        (id, pod): (AttachmentId, PodName),
        network: &str,
        annotations: Option<&BTreeMap<String, String>>,
    ) -> Self {
        let mut conf = entry.clone();
        if let Some(keys) = conf.as_object_mut() {
            let version = Version::NEWEST.name();
            let of_runtime = annotations.map(|all| ("runtimeConfig", json!({ POD_ANNOTATIONS: all })));
            let of_list = [
                ("name", json!(network)),
                ("cniVersion", json!(version)),
                ("prevResult", json!({ "cniVersion": version })),
            ];
            keys.extend(of_list.into_iter().chain(of_runtime).map(|(key, value)| (key.to_owned(), value)));
        }
        Self { conf, id, pod }
    }

    /// The options with which ADD would capture it; `None`: it would not.
    ///
    /// # Errors
    /// ADD would fail: the pod is not known, or an option is invalid.
    pub(crate) fn options(&self, machine: &SystemHost) -> Result<Option<CaptureOptions>, CniError> {
        let text = self.conf.to_string();
        let conf = &NetConf::parse(text.as_bytes())?;
        let deadline = &Deadline::without_signals();
        deadline.set(conf.deadline()?);
        let netns = PathBuf::new();
        let attachment =
            Attachment { id: self.id.clone(), netns, pod: Some(self.pod.clone()), late_netns: None };
        let Ok(pod) = add::included(conf, &attachment)? else { return Ok(None) };
        let context = Context { conf, version: Version::NEWEST, deadline, machine };
        match add::options(&context, &conf.settings()?, pod)? {
            Decided::Capture(options) => Ok(Some(options)),
            Decided::NotCaptured(_) | Decided::Unknown(_) => Ok(None),
        }
    }
}
