//! Ports of containers, which are one only with the same number and protocol: DNS listens on 53/UDP and
//! 53/TCP. Kubernetes' own merge matches them by number alone; this is a step around it.
//!
//! A port without a protocol is TCP. If the original has no such port of the other protocol, a port without a
//! protocol also matches that of another one: a template that says only `53`, or `53/UDP` over the user's
//! `53`, means the same port.

use std::collections::HashMap;

use gotemplate::Schema;
use serde_json::{Value, json};

use super::directive::{PATCH, SET_ORDER};
use crate::path::Lookup as _;
use crate::schema;

const KEY: &str = "containerPort";
const LISTS: [&str; 2] = ["containers", "initContainers"];

/// Makes numbers of ports texts like `53/UDP` where a merge by number would join ports of two protocols.
/// Returns whether it has changed anything: [`restore`] is needed then.
pub(super) fn distinguish(original: &mut Value, patch: &mut Value, of: &'static Schema) -> bool {
    let mut changed = false;
    if std::ptr::eq(of, &schema::CONTAINER) {
        return container(original, patch);
    }
    for list in LISTS {
        let patched = patch.get_mut("spec").and_then(|spec| spec.get_mut(list)?.as_array_mut());
        let mut patched: HashMap<String, &mut Value> = patched
            .into_iter()
            .flatten()
            .filter(|item| item.lookup("ports").is_some())
            .filter_map(|item| Some((item.lookup("name")?.as_str()?.to_owned(), item)))
            .collect();
        if patched.is_empty() {
            continue;
        }
        let items = original.get_mut("spec").and_then(|spec| spec.get_mut(list)?.as_array_mut());
        for item in items.into_iter().flatten() {
            let name = item.lookup("name").and_then(Value::as_str);
            if let Some(patch) = name.and_then(|name| patched.remove(name)) {
                changed |= container(item, patch);
            }
        }
    }
    changed
}

/// Makes them numbers again.
pub(super) fn restore(merged: &mut Value, of: &'static Schema) {
    if std::ptr::eq(of, &schema::CONTAINER) {
        return numbers(merged);
    }
    for list in LISTS {
        let items = merged.get_mut("spec").and_then(|spec| spec.get_mut(list)?.as_array_mut());
        items.into_iter().flatten().for_each(numbers);
    }
}

fn numbers(container: &mut Value) {
    let ports = container.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(|port| port.get_mut(KEY)) {
        let number = port.as_str().and_then(|text| text.split_once('/')?.0.parse::<i64>().ok());
        if let Some(number) = number {
            *port = json!(number);
        }
    }
}

fn container(original: &mut Value, patch: &mut Value) -> bool {
    if patch.get(format!("{SET_ORDER}ports")).is_some() {
        return false;
    }
    let Some(Value::Array(new)) = patch.get_mut("ports") else { return false };
    let mut none = Vec::new();
    let old = match original.get_mut("ports") {
        Some(Value::Array(old)) => old,
        _ => &mut none,
    };
    let shared = numbers_of_several(old, new);
    for number in &shared {
        tag(old, new, *number);
    }
    !shared.is_empty()
}

/// The numbers that the patch has, and that have two protocols.
fn numbers_of_several(old: &[Value], new: &[Value]) -> Vec<i64> {
    let mut all: HashMap<i64, (&str, bool)> = HashMap::with_capacity(new.len());
    for port in new {
        if let Some(number) = number(port) {
            let own = protocol(port);
            let (first, several) = all.entry(number).or_insert((own, false));
            *several |= *first != own;
        }
    }
    for port in old {
        if let Some((first, several)) = number(port).and_then(|number| all.get_mut(&number)) {
            *several |= *first != protocol(port);
        }
    }
    let mut numbers: Vec<i64> =
        all.into_iter().filter(|(_, (_, several))| *several).map(|(number, _)| number).collect();
    numbers.sort_unstable();
    numbers
}

/// Tags the ports of one number: first pairs of one protocol, then what has none with what is left.
fn tag(old: &mut [Value], new: &mut Vec<Value>, wanted: i64) {
    let is_wanted = |port: &Value| number(port) == Some(wanted);
    let mut before: Vec<(&mut Value, bool)> =
        old.iter_mut().filter(|port| is_wanted(port)).map(|port| (port, false)).collect();
    let everywhere = |port: &Value| port.get(PATCH).and_then(Value::as_str) == Some("delete") && !has(port);
    let mut deletions = Vec::new();
    new.retain(|port| {
        let all = is_wanted(port) && everywhere(port);
        if all {
            deletions.push(port.clone());
        }
        !all
    });
    let mut rest = Vec::new();
    for port in new.iter_mut().filter(|port| is_wanted(port)) {
        match before.iter_mut().find(|(old, _)| protocol(old) == protocol(port)) {
            Some((_, paired)) => {
                *paired = true;
                let own = protocol(port).to_owned();
                set(port, wanted, &own);
            }
            None => rest.push(port),
        }
    }
    for port in rest {
        let other = before.iter_mut().find(|(old, paired)| !(*paired || has(old) && has(port)));
        let own = protocol(port).to_owned();
        match other {
            Some((old, paired)) => {
                *paired = true;
                let name = if has(port) { own } else { protocol(old).to_owned() };
                set(old, wanted, &name);
                set(port, wanted, &name);
            }
            None => set(port, wanted, &own),
        }
    }
    for (old, _) in before {
        if number(old).is_some() {
            let own = protocol(old).to_owned();
            set(old, wanted, &own);
        }
        if let (Some(deletion), Some(tagged)) = (deletions.first(), old.get(KEY)) {
            let mut deletion = deletion.clone();
            if let Some(fields) = deletion.as_object_mut() {
                fields.insert(KEY.to_owned(), tagged.clone());
            }
            new.push(deletion);
        }
    }
}

fn set(port: &mut Value, number: i64, protocol: &str) {
    if let Some(fields) = port.as_object_mut() {
        fields.insert(KEY.to_owned(), json!(format!("{number}/{protocol}")));
    }
}

fn number(port: &Value) -> Option<i64> {
    port.get(KEY)?.as_i64()
}

fn given(port: &Value) -> Option<&str> {
    port.lookup("protocol")?.as_str().filter(|text| !text.is_empty())
}

fn has(port: &Value) -> bool {
    given(port).is_some()
}

/// The protocol; TCP if there is none.
fn protocol(port: &Value) -> &str {
    given(port).unwrap_or("TCP")
}

#[cfg(test)]
mod tests {
    use super::super::merge_over;
    use super::*;

    fn ports(text: &str) -> Value {
        let port = |text: &str| {
            let (number, protocol) = text.split_once('/').unwrap_or((text, ""));
            let mut port = json!({"containerPort": number.parse::<i64>().unwrap()});
            if let Some(name) = protocol.strip_suffix('-') {
                port["$patch"] = json!("delete");
                if !name.is_empty() {
                    port["protocol"] = json!(name);
                }
            } else if !protocol.is_empty() {
                port["protocol"] = json!(protocol);
            }
            port
        };
        text.split_whitespace().map(port).collect()
    }

    #[test]
    fn ports_match_by_number_and_protocol() {
        for (old, new, expected) in [
            ("53/UDP 53/TCP", "53/TCP", "53/UDP 53/TCP"),
            ("53/UDP", "53/TCP", "53/TCP 53/UDP"),
            ("53", "53/TCP", "53/TCP"),
            ("53/TCP", "53", "53/TCP"),
            // A template's 53/UDP over the user's 53: one port, as Istio has it.
            ("53", "53/UDP", "53/UDP"),
            ("53/UDP", "53", "53/UDP"),
            ("53/UDP 53/TCP", "53", "53/UDP 53/TCP"),
            // The patch adds both.
            ("", "53 53/UDP", "53 53/UDP"),
            ("80", "53/UDP 53", "53/UDP 53 80"),
            ("53", "53/UDP 53/TCP", "53/UDP 53/TCP"),
            ("53", "53/UDP 53/SCTP", "53/UDP 53/SCTP"),
            ("53/UDP 53/TCP 80", "53/UDP-", "53/TCP 80"),
            ("53/UDP 53/TCP 80", "53/-", "80"),
            ("80 81/UDP", "81/UDP 82", "80 81/UDP 82"),
        ] {
            let mut container = json!({"name": "a", "ports": ports(old)});
            if old.is_empty() {
                container.as_object_mut().unwrap().remove("ports");
            }
            let patch = json!({"name": "a", "ports": ports(new)});
            let pod = |container: &Value| json!({"spec": {"containers": [container]}});
            let (mut in_pod, of_pod) = (pod(&container), pod(&patch));
            merge_over(&mut in_pod, of_pod, &schema::POD).unwrap();
            merge_over(&mut container, patch, &schema::CONTAINER).unwrap();
            assert_eq!(container["ports"], ports(expected), "{new} over {old}");
            assert_eq!(in_pod, pod(&container), "{new} over {old}");
        }
    }

    #[test]
    fn the_matched_port_gets_the_patch_s_fields() {
        let mut container = json!({"ports": [
            {"containerPort": 53, "protocol": "UDP", "name": "dns"}, {"containerPort": 53, "protocol": "TCP", "name": "dns-tcp"},
        ]});
        let patch = json!({"ports": [{"containerPort": 53, "hostPort": 53}]});
        merge_over(&mut container, patch, &schema::CONTAINER).unwrap();
        assert_eq!(
            container["ports"],
            json!([
                {"containerPort": 53, "protocol": "UDP", "name": "dns"},
                {"containerPort": 53, "protocol": "TCP", "name": "dns-tcp", "hostPort": 53},
            ])
        );
    }
}
