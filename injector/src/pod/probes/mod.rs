//! Probe rewrite: probes and lifecycle hooks go through the proxy's agent, which calls the app from inside
//! the pod.
//!
//! The original of each one is in the proxy's `ISTIO_KUBE_APP_PROBERS`, a JSON object by URL path. A probe
//! that points to its own such path was rewritten before and is not changed, so rewriting twice changes
//! nothing.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::path::Lookup as _;

use super::list::{List, containers, containers_mut, name};
use super::{PROXY, env, list};
use crate::annotations::keys;
use crate::schema::HANDLERS;

/// The proxy's variable with the originals.
pub(crate) const VARIABLE: &str = "ISTIO_KUBE_APP_PROBERS";

/// Originals by URL path.
pub(crate) type Probers = BTreeMap<String, Value>;

const PROBES: [(&str, &str); 3] =
    [("readinessProbe", "readyz"), ("livenessProbe", "livez"), ("startupProbe", "startupz")];
const HOOKS: [(&str, &str); 2] = [("postStart", "poststartz"), ("preStop", "prestopz")];

/// Rewrites every probe and hook that the agent can call, to `port`, and notes the originals in the proxy's
/// environment. `own_port` is the mesh's status port: a probe to it is the agent's already. Does nothing
/// without a proxy.
pub(crate) fn rewrite(pod: &mut Value, port: i64, own_port: i64) -> Rewritten {
    let mut rewritten = Rewritten::default();
    if list::proxy(pod).is_none() {
        return rewritten;
    }
    let mut originals = Probers::new();
    for list in List::BOTH {
        for container in containers_mut(pod, list).iter_mut().filter(|container| name(container) != PROXY) {
            rewrite_container(container, port, own_port, &mut originals, &mut rewritten);
        }
    }
    let Some(proxy) = list::proxy_mut(pod) else { return rewritten };
    // What an earlier injection noted is kept: by now the pod holds only the rewritten probe.
    for (path, prober) in noted(proxy) {
        originals.insert(path, prober);
    }
    if originals.is_empty() {
        return rewritten;
    }
    env::remove(proxy, VARIABLE);
    env::push(proxy, VARIABLE, &json!(originals).to_string());
    rewritten
}

/// What [`rewrite`] reports.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Rewritten {
    /// What the agent cannot call.
    pub warnings: Vec<String>,
    /// Names of ports that are numbers now, by the path of the probe or hook.
    pub names: BTreeMap<String, String>,
    /// What the agent has no original of, or not all, by the same path: its action.
    pub unnoted: Probers,
}

/// What the proxy's environment says about the originals.
pub(crate) fn noted(proxy: &Value) -> Probers {
    env::value(proxy, VARIABLE).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Puts the originals back, where a probe still points to the agent.
pub(crate) fn restore(pod: &mut Value, originals: &Probers) {
    if originals.is_empty() {
        return;
    }
    for list in List::BOTH {
        for container in containers_mut(pod, list) {
            for slot in slots(name(container)) {
                let Some(original) = originals.get(&slot.path) else { continue };
                let probe =
                    slot.find(container).filter(|probe| is_rewritten(probe.lookup("httpGet"), &slot.path));
                if let Some(probe) = probe {
                    put_back(probe, original);
                }
            }
        }
    }
}

/// Puts the names of ports back, where the port of that name still has the probe's number.
pub(crate) fn restore_names(pod: &mut Value, names: &BTreeMap<String, String>) {
    if names.is_empty() {
        return;
    }
    for list in List::BOTH {
        for container in containers_mut(pod, list) {
            let ports = named_ports(container);
            for slot in slots(name(container)) {
                let Some(word) = names.get(&slot.path) else { continue };
                let actions = slot.find(container).into_iter().flat_map(Map::values_mut);
                for port in actions.filter_map(|action| action.get_mut("port")) {
                    if ports.get(word).is_some_and(|number| port.as_i64() == Some(*number)) {
                        *port = json!(word);
                    }
                }
            }
        }
    }
}

/// Drops what the probes and hooks of `old` do other than those of `fresh`: each does one thing only.
pub(crate) fn drop_other_handlers(old: &mut Value, fresh: &Value) {
    for slot in slots(name(fresh)) {
        let new = slot.of(fresh).filter(|new| HANDLERS.iter().any(|key| new.lookup(key).is_some()));
        if let (Some(new), Some(old)) = (new, slot.find(old)) {
            old.retain(|key, _| !HANDLERS.contains(&key.as_str()) || new.lookup(key).is_some());
        }
    }
}

/// The paths of probes that point to the agent.
pub(crate) fn rewritten_paths(pod: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    for list in List::BOTH {
        for container in containers(pod, list) {
            for slot in slots(name(container)) {
                if slot.of(container).is_some_and(|probe| is_rewritten(probe.lookup("httpGet"), &slot.path)) {
                    paths.push(slot.path);
                }
            }
        }
    }
    paths
}

/// One place in a container that may hold a probe or a hook.
struct Slot {
    parent: Option<&'static str>,
    key: &'static str,
    path: String,
}

impl Slot {
    fn find<'a>(&self, container: &'a mut Value) -> Option<&'a mut Map<String, Value>> {
        let parent = match self.parent {
            Some(parent) => container.get_mut(parent)?,
            None => container,
        };
        parent.get_mut(self.key)?.as_object_mut()
    }

    fn of<'a>(&self, container: &'a Value) -> Option<&'a Value> {
        self.parent.map_or(Some(container), |parent| container.lookup(parent))?.lookup(self.key)
    }
}

fn slots(container: &str) -> impl Iterator<Item = Slot> + use<> {
    let probes =
        PROBES.map(|(key, end)| Slot { parent: None, key, path: format!("/app-health/{container}/{end}") });
    let hooks = HOOKS.map(|(key, end)| Slot {
        parent: Some("lifecycle"),
        key,
        path: format!("/app-lifecycle/{container}/{end}"),
    });
    probes.into_iter().chain(hooks)
}

/// Whether this `httpGet` is the agent's.
fn is_rewritten(action: Option<&Value>, path: &str) -> bool {
    action.and_then(|action| action.lookup("path")?.as_str()) == Some(path)
}

fn rewrite_container(
    container: &mut Value,
    port: i64,
    own_port: i64,
    originals: &mut Probers,
    rewritten: &mut Rewritten,
) {
    let ports = named_ports(container);
    for slot in slots(name(container)) {
        if let Some(protocol) = slot.of(container).and_then(unserved) {
            rewritten.warnings.push(format!(
                "container {}: {} uses {protocol}, which the agent does not: it is not rewritten, and fails where the app \
                 accepts mutual TLS only; expected HTTP/1.1 or plaintext, or its port in annotation {}",
                name(container),
                slot.key,
                keys::EXCLUDE_INBOUND_PORTS
            ));
            continue;
        }
        let Some(probe) = slot.find(container) else {
            continue;
        };
        if is_rewritten(probe.lookup("httpGet"), &slot.path) {
            continue;
        }
        match original(probe, &ports, own_port) {
            Original::NotOurs => continue,
            Original::Agent => {
                rewritten.unnoted.insert(slot.path.clone(), action(probe));
            }
            Original::App(word) => {
                rewritten.names.extend(word.map(|word| (slot.path.clone(), word)));
                let (prober, action) = (prober(probe), action(probe));
                if !is_complete(&prober, &action) {
                    rewritten.unnoted.insert(slot.path.clone(), action);
                }
                originals.insert(slot.path.clone(), prober);
            }
        }
        to_agent(probe, &slot.path, port);
    }
}

/// The protocol of a probe that the agent cannot call: it speaks HTTP/1.1, and gRPC without TLS.
fn unserved(probe: &Value) -> Option<&'static str> {
    let text = |kind: &str, key: &str| probe.lookup(kind)?.lookup(key)?.as_str();
    if text("httpGet", "protocol").is_some_and(|protocol| protocol.contains('2')) {
        return Some("HTTP/2");
    }
    (text("grpc", "mode") == Some("TLS")).then_some("gRPC with TLS")
}

fn named_ports(container: &Value) -> BTreeMap<String, i64> {
    let ports = container.lookup("ports").and_then(Value::as_array);
    let named = ports.into_iter().flatten().filter_map(|port| {
        let name = port.lookup("name")?.as_str().filter(|name| !name.is_empty())?;
        Some((name.to_owned(), port.lookup("containerPort")?.as_i64()?))
    });
    named.collect()
}

enum Original {
    /// Runs a command, or is one that Kubernetes does not accept or cannot call: it stays, so that the
    /// injected pod fails as the pod does.
    NotOurs,
    /// Calls the agent already, to whose port there is no gRPC.
    Agent,
    /// Calls the app; with the name of its port, if it was given by name.
    App(Option<String>),
}

/// Where the probe goes. A named port is replaced by its number in the probe itself.
#[inline(never)]
fn original(probe: &mut Map<String, Value>, ports: &BTreeMap<String, i64>, own_port: i64) -> Original {
    let is_set = |kind: &&&str| probe.lookup(kind).is_some_and(|handler| !handler.is_null());
    let mut given = HANDLERS.iter().filter(is_set);
    let (Some(kind), None) = (given.next(), given.next()) else { return Original::NotOurs };
    let Some(action) = probe.get_mut(*kind).and_then(Value::as_object_mut) else { return Original::NotOurs };
    let port = match action.lookup("port") {
        Some(Value::String(text)) => ports.get(text).copied(),
        Some(Value::Number(number)) => number.as_i64(),
        _ => None,
    };
    let is_named = action.lookup("port").is_some_and(Value::is_string);
    match port.filter(|port| (1..=65535).contains(port)) {
        Some(port) if port == own_port && !is_named && *kind != "grpc" => Original::Agent,
        Some(port) => {
            let before = action.insert("port".to_owned(), json!(port));
            Original::App(before.and_then(|port| port.as_str().map(str::to_owned)))
        }
        None => Original::NotOurs,
    }
}

const ACTIONS: [&str; 3] = ["httpGet", "tcpSocket", "grpc"];

/// What the probe or hook does, as it is.
#[inline(never)]
fn action(probe: &Map<String, Value>) -> Value {
    let of = |key: &&str| Some(((*key).to_owned(), probe.lookup(key)?.clone()));
    Value::Object(ACTIONS.iter().filter_map(of).collect())
}

/// The original as the agent reads it.
#[inline(never)]
fn prober(probe: &Map<String, Value>) -> Value {
    let fields: [(&str, &[&str]); 3] = [
        ("httpGet", &["path", "port", "host", "scheme", "httpHeaders", "protocol"]),
        ("tcpSocket", &["port", "host"]),
        ("grpc", &["port", "service", "mode"]),
    ];
    let mut entry = Map::new();
    for (kind, keys) in fields {
        let Some(action) = probe.lookup(kind).and_then(Value::as_object) else {
            continue;
        };
        let mut copy = Map::new();
        for key in keys {
            match action.lookup(key) {
                Some(value) if !is_empty(value) || *key == "port" || *key == "service" => {
                    copy.insert((*key).to_owned(), value.clone())
                }
                _ if *key == "service" => copy.insert((*key).to_owned(), Value::Null),
                _ => None,
            };
        }
        entry.insert(kind.to_owned(), Value::Object(copy));
        break;
    }
    if let Some(timeout) = probe.lookup("timeoutSeconds").filter(|seconds| seconds.as_i64() != Some(0)) {
        entry.insert("timeoutSeconds".to_owned(), timeout.clone());
    }
    Value::Object(entry)
}

/// Whether the agent's record is all of what a probe does: it leaves out what is empty or not known to it.
#[inline(never)]
fn is_complete(prober: &Value, action: &Value) -> bool {
    ACTIONS.iter().all(|kind| match (prober.lookup(kind), action.lookup(kind)) {
        (Some(Value::Object(noted)), Some(Value::Object(given))) => {
            given.iter().all(|(key, value)| noted.lookup(key) == Some(value))
        }
        (noted, given) => noted == given,
    })
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

/// The agent listens with plain HTTP; everything else about an HTTP probe stays.
fn to_agent(probe: &mut Map<String, Value>, path: &str, port: i64) {
    let mut action = match probe.shift_remove("httpGet") {
        Some(Value::Object(action)) => action,
        _ => Map::new(),
    };
    probe.shift_remove("tcpSocket");
    probe.shift_remove("grpc");
    action.insert("path".to_owned(), json!(path));
    action.insert("port".to_owned(), json!(port));
    if action.lookup("scheme").and_then(Value::as_str) == Some("HTTPS") {
        action.insert("scheme".to_owned(), json!("HTTP"));
    }
    probe.insert("httpGet".to_owned(), Value::Object(action));
}

fn put_back(probe: &mut Map<String, Value>, original: &Value) {
    probe.shift_remove("httpGet");
    for kind in ACTIONS {
        if let Some(action) = original.lookup(kind) {
            let mut action = action.clone();
            if action.lookup("service").is_some_and(Value::is_null) {
                action.as_object_mut().map(|action| action.shift_remove("service"));
            }
            probe.insert(kind.to_owned(), action);
        }
    }
}
