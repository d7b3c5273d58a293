//! The network configuration on standard input. Each key is read when it is needed, so that pods that are not captured do
//! not depend on the others.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use istio_iptables::cli::{Given, Key, Origin};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::environment::{AttachmentId, PodName};
use crate::error::{CniError, Code};
use crate::version::Version;

/// Size of the largest configuration, in bytes.
pub const LARGEST: usize = 8 << 20;

/// The run directory of the node agent, as in Istio.
pub const RUN_DIR: &str = "/var/run/istio-cni";

/// How long a command may take.
pub const DEADLINE: Duration = Duration::from_secs(5);

/// The longest deadline that is accepted: kubelet gives up on a sandbox after 4 minutes.
const LONGEST_DEADLINE: Duration = Duration::from_secs(240);

/// The capability under which the runtime hands over a pod's annotations.
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

/// Where the facts of a pod come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// The annotations that the runtime hands over.
    Annotations,
    /// The agent's socket: pods of the node that it knows, and others from the API server.
    Agent,
    /// The API server, by the agent's socket: only the agent has a client.
    Api,
}

impl SourceKind {
    /// All of them, in the order in which they are asked by default.
    pub const ALL: [Self; 3] = [Self::Annotations, Self::Agent, Self::Api];

    /// As it is written in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Annotations => "annotations",
            Self::Agent => "agent",
            Self::Api => "api",
        }
    }
}

/// What becomes of a pod that no source knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnknown {
    /// The runtime shall try again.
    Fail,
    /// It is not captured.
    Pass,
}

/// Options of pods whose annotations do not carry them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Defaults {
    /// DNS capture.
    pub dns: bool,
    /// IPv6 too, as soon as the pod has such an address.
    pub dual_stack: bool,
    /// The proxy's user; 1337 if unset.
    pub uid: Option<u32>,
    /// The proxy's group; 1337 if unset.
    pub gid: Option<u32>,
}

/// What captured pods need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Sources, in their order.
    pub sources: Vec<SourceKind>,
    /// What becomes of a pod that none of them knows.
    pub on_unknown: OnUnknown,
    /// Options that the annotations may lack.
    pub defaults: Defaults,
    /// The backend, as an option of the init binary, if it is configured.
    pub backend: Option<(Key, Given)>,
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

    /// What captured pods need.
    ///
    /// # Errors
    /// Code 7.
    pub fn settings(&self) -> Result<Settings, CniError> {
        if self.flag("ambient_enabled")? {
            return Err(invalid("ambient_enabled", "true is not accepted: ambient mode is not supported"));
        }
        let sources: Option<Vec<String>> = self.value("source")?;
        let sources = sources.map_or_else(|| Ok(SourceKind::ALL.to_vec()), |names| sources_of(&names))?;
        let on_unknown = match self.value::<String>("on_unknown")?.as_deref() {
            None | Some("fail") => OnUnknown::Fail,
            Some("pass") => OnUnknown::Pass,
            Some(other) => {
                return Err(invalid(
                    "on_unknown",
                    &format!("{other:?} is not accepted, expected fail or pass"),
                ));
            }
        };
        let defaults = self.value("capture")?.unwrap_or_default();
        let text: Option<String> = self.value("backend")?;
        let native = self.flag("native_nftables")?;
        let text = text.or_else(|| native.then(|| "nftables".to_owned()));
        let backend = text.map(|text| (Key::Backend, Given { text, origin: Origin::Document(Key::Backend) }));
        Ok(Settings { sources, on_unknown, defaults, backend })
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

fn sources_of(names: &[String]) -> Result<Vec<SourceKind>, CniError> {
    let accepted = SourceKind::ALL.map(SourceKind::name).join(", ");
    if names.is_empty() {
        let problem = format!("an empty list is not accepted, expected a list of {accepted}");
        return Err(invalid("source", &problem));
    }
    let source = |name: &String| {
        SourceKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            invalid("source", &format!("{name:?} is not accepted, expected a list of {accepted}"))
        })
    };
    names.iter().map(source).collect()
}

fn invalid(key: &str, problem: &str) -> CniError {
    CniError::new(Code::InvalidConfig, format!("configuration key {key}: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn msg<T: std::fmt::Debug>(result: Result<T, CniError>) -> String {
        let error = result.unwrap_err();
        assert_eq!(error.code, Code::InvalidConfig, "{error:?}");
        error.msg
    }

    fn parse(text: &str) -> NetConf<'_> {
        NetConf::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn what_is_no_object_is_not_decoded() {
        for bad in [&b""[..], b"x", b"[]", b"{", b"{} {}", b"\xff", b"null", b"{\"a\":}"] {
            assert_eq!(NetConf::parse(bad).unwrap_err().code, Code::Decoding, "{bad:?}");
        }
    }

    #[test]
    fn previous_result_keeps_its_bytes() {
        let result = "{ \"b\":1.50,\n\t\"a\" : [ 1 ],\"\\u0041\":1e400}";
        let text = format!("{{\"name\":\"x\", \"prevResult\" : {result} ,\"cniVersion\":\"1.0.0\"}}");
        assert_eq!(parse(&text).prev_result(), Ok(Some(result)));
        assert_eq!(parse("{\"prevResult\": null}").prev_result(), Ok(None));
        assert!(msg(parse("{\"prevResult\": []}").prev_result()).contains("not a JSON object"));
    }

    #[test]
    fn versions_are_those_of_the_list() {
        for version in Version::ALL {
            assert_eq!(parse(&format!("{{\"cniVersion\": {:?}}}", version.name())).version(), Ok(version));
        }
        for bad in ["{}", "{\"cniVersion\": \"0.2.0\"}", "{\"cniVersion\": \"1.2.0\"}"] {
            assert_eq!(parse(bad).version().unwrap_err().code, Code::IncompatibleVersion, "{bad}");
        }
    }

    #[test]
    fn defaults_are_safe() {
        let settings = parse("{}").settings().unwrap();
        assert_eq!(settings.on_unknown, OnUnknown::Fail);
        assert_eq!(settings.sources, [SourceKind::Annotations, SourceKind::Agent, SourceKind::Api]);
        assert_eq!((settings.defaults, settings.backend), (Defaults::default(), None));
        assert_eq!(parse("{}").run_dir(), Ok("/var/run/istio-cni".into()));
        assert_eq!(parse("{}").deadline(), Ok(DEADLINE));
    }

    #[test]
    fn refusals_name_key_value_and_what_is_accepted() {
        for (text, part) in [
            (
                r#"{"source": ["annotations", "kubelet"]}"#,
                "key source: \"kubelet\" is not accepted, expected a list of annotations, agent, api",
            ),
            (r#"{"source": []}"#, "key source: an empty list"),
            (r#"{"source": "annotations"}"#, "key source: invalid type"),
            (r#"{"on_unknown": "ignore"}"#, "\"ignore\" is not accepted, expected fail or pass"),
            (r#"{"ambient_enabled": true}"#, "ambient mode is not supported"),
            (r#"{"capture": {"mtu": 1}}"#, "key capture: unknown field `mtu`"),
            (r#"{"native_nftables": "yes"}"#, "key native_nftables: invalid type"),
        ] {
            assert!(msg(parse(text).settings()).contains(part), "{text}");
        }
        assert!(msg(parse(r#"{"deadline_ms": 0}"#).deadline()).contains("expected 1 to 240000"));
        assert!(msg(parse(r#"{"cni_agent_run_dir": "run"}"#).run_dir()).contains("absolute path"));
        assert!(
            msg(parse(r#"{"runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"a": 1}}}"#)
                .pod_annotations())
            .contains("invalid type")
        );
        assert!(msg(parse("{}").valid_attachments()).contains("missing"));
    }

    #[test]
    fn agent_and_excluded_namespaces_are_recognized() {
        let conf =
            parse(r#"{"pod_namespace": "istio-system", "exclude_namespaces": ["kube-system"], "source": 1}"#);
        let of = |namespace: &str, name: &str| {
            let pod = PodName { namespace: namespace.to_owned(), name: name.to_owned(), uid: String::new() };
            conf.excludes(&pod).unwrap()
        };
        assert_eq!(of("istio-system", "istio-cni-node-abcde"), Some("pod of the node agent"));
        assert_eq!(of("default", "istio-cni-node-abcde"), None);
        assert_eq!(of("istio-system", "productpage-v1-abcde"), None);
        assert_eq!(of("kube-system", "x"), Some("excluded namespace"));
        assert_eq!(of("default", "x"), None);
    }

    #[test]
    fn native_nftables_is_a_backend() {
        let backend =
            |text: &'static str| parse(text).settings().unwrap().backend.map(|(_, given)| given.text);
        assert_eq!(backend("{}"), None);
        assert_eq!(backend(r#"{"native_nftables": true}"#).as_deref(), Some("nftables"));
        assert_eq!(backend(r#"{"native_nftables": true, "backend": "auto"}"#).as_deref(), Some("auto"));
    }

    #[test]
    fn unknown_keys_are_listed() {
        let conf = parse(r#"{"name": "x", "type": "y", "cni.dev/attachments": [], "sourse": []}"#);
        assert_eq!(conf.unknown_keys().collect::<Vec<_>>(), ["sourse"]);
    }
}
