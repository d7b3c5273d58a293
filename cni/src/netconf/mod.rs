//! The network configuration on standard input. Each key is read when it is needed, so that pods that are not captured do
//! not depend on the others.

mod settings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use istio_iptables::cli::{Given, Key, Origin};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::environment::{AttachmentId, PodName};
use crate::error::{CniError, Code};
use crate::version::Version;

pub use settings::{Defaults, OnUnknown, Settings, SourceKind};

/// Size of the largest configuration, in bytes.
pub const LARGEST: usize = 8 << 20;

/// The run directory of the node agent, as in Istio.
pub const RUN_DIR: &str = "/var/run/istio-cni";

/// How long a command may take: several times as long as each of all ADDs of a node needs that starts its pods at once, and far
/// less than kubelet (4 minutes) and CRI-O (5) wait for a sandbox.
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
    "plugin_log_level",
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
    /// Code 6: it is no JSON object.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, CniError> {
        let bad = |problem: String| {
            CniError::new(
                Code::Decoding,
                format!("standard input: {problem}, expected a network configuration in JSON"),
            )
        };
        let text = std::str::from_utf8(bytes).map_err(|error| bad(error.to_string()))?;
        let keys = serde_json::from_str(text).map_err(|error| bad(error.to_string()))?;
        Ok(Self { keys })
    }

    /// The value of a key; `null` is none.
    fn raw(&self, key: &str) -> Option<&'a RawValue> {
        self.keys.get(key).copied().filter(|value| value.get() != "null")
    }

    fn value<T: Deserialize<'a>>(&self, key: &str) -> Result<Option<T>, CniError> {
        let read = self.raw(key).map(|value| serde_json::from_str(value.get()));
        read.transpose().map_err(|error| invalid(key, &error.to_string()))
    }

    /// Boolean keys are false unless they are set.
    fn flag(&self, key: &str) -> Result<bool, CniError> {
        Ok(self.value(key)?.unwrap_or_default())
    }

    /// The version of the specification; of those before 0.3.0 none is supported.
    ///
    /// # Errors
    /// Code 1: an unsupported one.
    pub fn version(&self) -> Result<Version, CniError> {
        let text: Option<String> = self.value("cniVersion")?;
        let given = text.as_deref().unwrap_or("0.1.0"); // before the key was mandatory
        Version::by_name(given).ok_or_else(|| {
            let names = Version::ALL.map(Version::name).join(", ");
            CniError::new(
                Code::IncompatibleVersion,
                format!("cniVersion: {given:?} is not supported, expected one of {names}"),
            )
        })
    }

    /// The version as it is written.
    #[must_use]
    pub fn version_text(&self) -> Option<String> {
        self.value("cniVersion").ok().flatten()
    }

    /// The name of the network.
    ///
    /// # Errors
    /// Code 7: none.
    pub fn name(&self) -> Result<String, CniError> {
        let name: Option<String> = self.value("name")?;
        name.filter(|name| !name.is_empty())
            .ok_or_else(|| invalid("name", "missing, expected the network's name"))
    }

    /// The result of the plugins before this one, byte for byte.
    ///
    /// # Errors
    /// Code 7: it is no object.
    pub fn prev_result(&self) -> Result<Option<&'a str>, CniError> {
        let result = self.raw("prevResult").map(RawValue::get);
        if result.is_some_and(|text| !text.starts_with('{')) {
            return Err(invalid("prevResult", "not a JSON object"));
        }
        Ok(result)
    }

    /// Whether ADD may be the first of its list: multus calls it alone.
    ///
    /// # Errors
    /// Code 7.
    pub fn standalone(&self) -> Result<bool, CniError> {
        self.flag("standalone")
    }

    /// Why a pod is not captured, whatever it is; `None` if that has to be found out.
    ///
    /// # Errors
    /// Code 7.
    pub fn excludes(&self, pod: &PodName) -> Result<Option<&'static str>, CniError> {
        const AGENT: &str = "istio-cni-node-";
        let own: Option<String> = self.value("pod_namespace")?;
        if pod.name.starts_with(AGENT) && own.is_some_and(|own| own == pod.namespace) {
            return Ok(Some("pod of the node agent"));
        }
        let excluded: Vec<String> = self.value("exclude_namespaces")?.unwrap_or_default();
        Ok(excluded.contains(&pod.namespace).then_some("excluded namespace"))
    }

    /// The directory for state.
    ///
    /// # Errors
    /// Code 7.
    pub fn run_dir(&self) -> Result<PathBuf, CniError> {
        let given: Option<PathBuf> = self.value("cni_agent_run_dir")?;
        let path = given.filter(|path| !path.as_os_str().is_empty()).unwrap_or_else(|| RUN_DIR.into());
        if path.is_absolute() { Ok(path) } else { Err(invalid("cni_agent_run_dir", "not an absolute path")) }
    }

    /// How long the command may take in all.
    ///
    /// # Errors
    /// Code 7.
    pub fn deadline(&self) -> Result<Duration, CniError> {
        let Some(ms) = self.value("deadline_ms")? else { return Ok(DEADLINE) };
        let given = Duration::from_millis(ms);
        let accepted = Duration::from_millis(1)..=LONGEST_DEADLINE;
        if accepted.contains(&given) {
            return Ok(given);
        }
        Err(invalid(
            "deadline_ms",
            &format!("{ms} is not accepted, expected 1 to {}", LONGEST_DEADLINE.as_millis()),
        ))
    }

    /// The log level, as an option of the init binary.
    #[must_use]
    pub fn log_level(&self) -> Option<Given> {
        let text: Option<String> = self.value("plugin_log_level").ok().flatten();
        text.map(|text| Given { text, origin: Origin::Document(Key::LogOutputLevel) })
    }

    /// Keys that are not known.
    pub fn unknown_keys(&self) -> impl Iterator<Item = &str> {
        let keys = self.keys.keys().map(String::as_str);
        keys.filter(|key| !KEYS.contains(key) && !IGNORED.contains(key) && !key.starts_with("cni.dev/"))
    }

    /// Whether the runtime is asked to hand over annotations.
    #[must_use]
    pub fn wants_annotations(&self) -> bool {
        let capabilities: Option<BTreeMap<String, bool>> = self.value("capabilities").ok().flatten();
        capabilities.is_some_and(|all| all.get(POD_ANNOTATIONS) == Some(&true))
    }

    /// The annotations of the pod, if the runtime hands them over.
    ///
    /// # Errors
    /// Code 7.
    pub fn pod_annotations(&self) -> Result<Option<BTreeMap<String, String>>, CniError> {
        let runtime: BTreeMap<String, &RawValue> = self.value("runtimeConfig")?.unwrap_or_default();
        let annotations = runtime.get(POD_ANNOTATIONS).map(|value| serde_json::from_str(value.get()));
        let key = || format!("runtimeConfig[{POD_ANNOTATIONS:?}]");
        let annotations: Option<Option<_>> =
            annotations.transpose().map_err(|error| invalid(&key(), &error.to_string()))?;
        Ok(annotations.flatten())
    }

    /// The attachments of this network that are there. Those with names that no attachment can have are not listed.
    ///
    /// # Errors
    /// Code 7: the runtime does not list them.
    pub fn valid_attachments(&self) -> Result<Vec<AttachmentId>, CniError> {
        const KEY: &str = "cni.dev/valid-attachments";
        let listed: Option<Vec<ValidAttachment>> = self.value(KEY)?;
        let listed =
            listed.ok_or_else(|| invalid(KEY, "missing, expected the attachments that are there"))?;
        Ok(listed.iter().filter_map(|one| AttachmentId::new(&one.container, &one.interface).ok()).collect())
    }
}

/// How messages about a key begin.
pub const KEY: &str = "configuration key ";

fn invalid(key: &str, problem: &str) -> CniError {
    CniError::new(Code::InvalidConfig, format!("{KEY}{key}: {problem}"))
}
