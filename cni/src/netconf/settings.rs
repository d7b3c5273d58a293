//! Settings of the network configuration that captured pods need.

use istio_iptables::cli::{Key, OptionValue, Origin};
use serde_json::Value;

use super::{NetConf, invalid, not_accepted};
use crate::error::CniError;

/// Where the facts of a pod come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// The annotations that the runtime passes.
    Annotations,
    /// The agent's socket: pods of the node that it knows, and others from the API server.
    Agent,
    /// The API server, by the agent's socket: only the agent has a client.
    Api,
}

impl SourceKind {
    /// The kinds, in the order in which they are asked by default.
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

/// What happens to a pod that no source knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnknown {
    /// The runtime shall try again.
    Fail,
    /// The pod is not captured.
    Pass,
}

/// Options of pods whose annotations do not carry them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// What happens to a pod that none of them knows.
    pub on_unknown: OnUnknown,
    /// Options that the annotations may lack.
    pub defaults: Defaults,
    /// The backend, as an option of the init binary, if it is configured.
    pub backend: Option<(Key, OptionValue)>,
}

impl NetConf<'_> {
    /// What captured pods need.
    ///
    /// # Errors
    /// Code 7.
    pub fn settings(&self) -> Result<Settings, CniError> {
        // Of a wrong type they say that something else is meant.
        self.standalone()?;
        self.wants_annotations()?;
        if self.flag("ambient_enabled")? {
            return Err(invalid("ambient_enabled", "true is not accepted: ambient mode is not supported"));
        }
        let sources: Option<Vec<String>> = self.value(SOURCE, &a_list_of_sources())?;
        let sources = sources.map_or_else(|| Ok(SourceKind::ALL.to_vec()), |names| sources_of(&names))?;
        let on_unknown = match self.value::<String>(ON_UNKNOWN, FAIL_OR_PASS)?.as_deref() {
            None | Some("fail") => OnUnknown::Fail,
            Some("pass") => OnUnknown::Pass,
            Some(other) => return Err(not_accepted(ON_UNKNOWN, &format!("{other:?}"), FAIL_OR_PASS)),
        };
        let capture: Option<Value> = self.value(CAPTURE, CAPTURE_KEYS)?;
        let defaults = capture.as_ref().map_or_else(|| Ok(Defaults::default()), defaults_of)?;
        let native = self.flag("native_nftables")?.then(|| "nftables".to_owned());
        let native = native.map(|text| OptionValue { text, origin: Origin::Document(Key::Backend) });
        self.value::<String>(BACKEND, A_BACKEND)?;
        let backend = self.option(Key::Backend, BACKEND).or(native).map(|given| (Key::Backend, given));
        Ok(Settings { sources, on_unknown, defaults, backend })
    }
}

const SOURCE: &str = "source";
const ON_UNKNOWN: &str = "on_unknown";
const FAIL_OR_PASS: &str = "fail or pass";
const BACKEND: &str = "backend";
const A_BACKEND: &str = "the name of a backend, such as \"nftables\"";
const CAPTURE: &str = "capture";
const CAPTURE_KEYS: &str = "an object with dns, dual_stack, uid and gid";

/// Not derived: that would accept a list of the values, too, and name no key.
fn defaults_of(value: &Value) -> Result<Defaults, CniError> {
    let refused = |what: &str, value: &dyn std::fmt::Display, accepted: &str| {
        not_accepted(CAPTURE, &format!("{what}{value}"), accepted)
    };
    let Value::Object(keys) = value else { return Err(refused("", value, CAPTURE_KEYS)) };
    let flag = |key: &str, value: &Value| {
        value.as_bool().ok_or_else(|| refused(&format!("{key}: "), value, "true or false"))
    };
    // The kernel has no user and no group of the largest number.
    let id = |key: &str, value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok()).filter(|id| *id != u32::MAX);
        let accepted = format!("a number from 0 to {}", u32::MAX - 1);
        id.map(Some).ok_or_else(|| refused(&format!("{key}: "), value, &accepted))
    };
    let mut defaults = Defaults::default();
    for (key, value) in keys.iter().filter(|(_, value)| !value.is_null()) {
        match key.as_str() {
            "dns" => defaults.dns = flag(key, value)?,
            "dual_stack" => defaults.dual_stack = flag(key, value)?,
            "uid" => defaults.uid = id(key, value)?,
            "gid" => defaults.gid = id(key, value)?,
            _ => return Err(refused("key ", &Value::from(key.as_str()), "dns, dual_stack, uid or gid")),
        }
    }
    Ok(defaults)
}

fn a_list_of_sources() -> String {
    format!("a list of {}", SourceKind::ALL.map(SourceKind::name).join(", "))
}

fn sources_of(names: &[String]) -> Result<Vec<SourceKind>, CniError> {
    if names.is_empty() {
        return Err(not_accepted(SOURCE, "an empty list", &a_list_of_sources()));
    }
    let source = |name: &String| {
        let kind = SourceKind::ALL.into_iter().find(|kind| kind.name() == name);
        kind.ok_or_else(|| not_accepted(SOURCE, &format!("{name:?}"), &a_list_of_sources()))
    };
    names.iter().map(source).collect()
}
