//! Settings of the network configuration that captured pods need.

use istio_iptables::cli::{Given, Key, Origin};
use serde_json::Value;

use super::{NetConf, invalid};
use crate::error::CniError;

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
    /// What becomes of a pod that none of them knows.
    pub on_unknown: OnUnknown,
    /// Options that the annotations may lack.
    pub defaults: Defaults,
    /// The backend, as an option of the init binary, if it is configured.
    pub backend: Option<(Key, Given)>,
}

impl NetConf<'_> {
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
        let defaults =
            self.value("capture")?.as_ref().map_or_else(|| Ok(Defaults::default()), defaults_of)?;
        let text: Option<String> = self.value("backend")?;
        let native = self.flag("native_nftables")?;
        let text = text.or_else(|| native.then(|| "nftables".to_owned()));
        let backend = text.map(|text| (Key::Backend, Given { text, origin: Origin::Document(Key::Backend) }));
        Ok(Settings { sources, on_unknown, defaults, backend })
    }
}

/// Not derived: that would accept a list of the values, too, and name no key.
fn defaults_of(value: &Value) -> Result<Defaults, CniError> {
    const KEYS: &str = "an object with dns, dual_stack, uid and gid";
    let refused = |what: &str, value: &dyn std::fmt::Display, accepted: &str| {
        invalid("capture", &format!("{what}{value} is not accepted, expected {accepted}"))
    };
    let Value::Object(keys) = value else { return Err(refused("", value, KEYS)) };
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
            _ => return Err(refused("", &Value::from(key.as_str()), KEYS)),
        }
    }
    Ok(defaults)
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
