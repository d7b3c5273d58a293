//! NetworkPolicies in front of the injector. API servers call from the network of their node, which no
//! selector of pods or namespaces names.

use serde_json::Value;

use super::cluster::{labels, list, name, text, title};
use super::hooks::Installation;
use super::serving::Backend;
use super::{Context, Finding, Problem};
use crate::decide::Selector;

pub(super) fn examine(context: &mut Context<'_>, installation: &Installation<'_>, backend: &Backend<'_>) {
    let (cluster, diagnosis) = (context.cluster, &mut context.diagnosis);
    let (Some(called), Some(pod), Some(port)) = (installation.service, backend.pod, backend.port) else {
        return;
    };
    if !cluster.knows("NetworkPolicy") {
        return diagnosis.not_checked("NetworkPolicies: none among the objects");
    }
    let labels = labels(pod, "/metadata/labels");
    let selects = |policy: &Value| {
        let empty = Value::Null;
        let selector = Selector::parse(policy.pointer("/spec/podSelector").unwrap_or(&empty));
        selector.is_ok_and(|selector| selector.matches(&labels))
    };
    let types = |policy: &Value| {
        let types = list(policy, "/spec/policyTypes");
        types.is_empty() || types.iter().any(|kind| kind == "Ingress")
    };
    let policies = cluster.within("NetworkPolicy", called.namespace);
    let policies: Vec<&Value> = policies.filter(|policy| selects(policy) && types(policy)).collect();
    let open = |policy: &&Value| list(policy, "/spec/ingress").iter().any(|rule| lets_in(rule, port, pod));
    if policies.is_empty() || policies.iter().any(open) {
        return;
    }
    let names: Vec<&str> = policies.iter().map(|policy| name(policy)).collect();
    diagnosis.found(Finding {
        problem: Problem::PolicyBlocks,
        object: policies.first().map(|policy| title(policy)).unwrap_or_default(),
        seen: format!(
            "no rule of {} allows sources outside of the pod network to reach port {port}",
            names.join(", ")
        ),
        cause:
            "API servers call from the network of their node: the calls time out (context deadline exceeded)"
                .to_owned(),
        fix: format!("{}   # its NetworkPolicy opens the port", installation.install()),
    });
}

fn lets_in(rule: &Value, port: u64, pod: &Value) -> bool {
    let ports = list(rule, "/ports");
    let from = list(rule, "/from");
    let reaches = ports.is_empty() || ports.iter().any(|entry| covers(entry, port, pod));
    let anyone = from.is_empty() || from.iter().any(|peer| peer.get("ipBlock").is_some());
    reaches && anyone
}

fn covers(entry: &Value, port: u64, pod: &Value) -> bool {
    if !matches!(text(entry, "/protocol"), "" | "TCP") {
        return false;
    }
    match entry.get("port") {
        None | Some(Value::Null) => true,
        Some(Value::String(wanted)) => {
            list(pod, "/spec/containers").iter().flat_map(|container| list(container, "/ports")).any(|open| {
                text(open, "/name") == wanted
                    && open.get("containerPort").and_then(Value::as_u64) == Some(port)
            })
        }
        Some(first) => first.as_u64().is_some_and(|first| {
            let last = entry.get("endPort").and_then(Value::as_u64).unwrap_or(first);
            (first..=last).contains(&port)
        }),
    }
}
