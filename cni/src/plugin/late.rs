//! ADD of a pod that the runtime has set up without this plugin, by the node agent: the same decision, and
//! the same rules.

use std::collections::BTreeMap;
use std::path::PathBuf;

use istio_iptables::kernel::process::SystemHost;
use serde_json::{Value, json};

use super::Context;
use super::add::{self, Decided, Wanted};
use crate::capture::CaptureOptions;
use crate::deadline::Deadline;
use crate::environment::{Attachment, AttachmentId, PodName};
use crate::error::CniError;
use crate::netconf::{NetConf, POD_ANNOTATIONS};
use crate::version::Version;

/// A pod as ADD would get it.
pub(crate) struct LatePod {
    conf: String,
    id: AttachmentId,
    pod: PodName,
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
            keys.insert("name".to_owned(), json!(network));
            let of_runtime = annotations.map(|all| json!({ POD_ANNOTATIONS: all }));
            keys.extend(of_runtime.map(|value| ("runtimeConfig".to_owned(), value)));
        }
        Self { conf: conf.to_string(), id, pod }
    }

    fn run<T>(
        &self,
        machine: &SystemHost,
        netns: PathBuf,
        run: impl FnOnce(&Context<'_>, &Attachment) -> Result<T, CniError>,
    ) -> Result<T, CniError> {
        let conf = NetConf::parse(self.conf.as_bytes())?;
        let deadline = Deadline::without_signals();
        deadline.set(conf.deadline()?);
        let context = Context { conf: &conf, version: Version::NEWEST, deadline: &deadline, machine };
        run(&context, &Attachment { id: self.id.clone(), netns, pod: Some(self.pod.clone()) })
    }

    /// The options with which ADD would capture it; `None`: it would not.
    ///
    /// # Errors
    /// ADD would fail: the pod is not known, or an option is invalid.
    pub(crate) fn options(&self, machine: &SystemHost) -> Result<Option<CaptureOptions>, CniError> {
        self.run(machine, PathBuf::new(), |context, attachment| {
            let Ok(pod) = add::included(context.conf, attachment)? else { return Ok(None) };
            match add::options(context, &context.conf.settings()?, pod)? {
                Decided::Capture(options) => Ok(Some(options)),
                Decided::NotCaptured(_) | Decided::Unknown(_) => Ok(None),
            }
        })
    }

    /// Writes rules and state as ADD does. Without the tools of the backend, rules are native.
    ///
    /// # Errors
    /// As of ADD.
    pub(crate) fn capture(
        &self,
        machine: &SystemHost,
        netns: PathBuf,
        options: &CaptureOptions,
    ) -> Result<(), CniError> {
        self.run(machine, netns, |context, attachment| {
            let settings = &context.conf.settings()?;
            add::capture(context, attachment, &self.pod, &Wanted { options, settings, native: true })
        })
    }
}
