//! The selectors of the webhooks of an installation: which pods are injected by the labels `istio.io/rev` (a
//! revision) and `istio-injection`, `sidecar.istio.io/inject`. The one place where they are written.

use serde_json::{Value, json};

use super::{INJECT, SYSTEM_NAMESPACES};

pub use crate::annotations::keys::{NAMESPACE_INJECTION as INJECTION, REVISION};
/// The label that every namespace has, with its name.
pub const NAME: &str = "kubernetes.io/metadata.name";
/// What the names of all webhooks end with.
pub(crate) const SUFFIX: &str = "sidecar-injector.istio.io";

/// `name`, `namespaceSelector` and `objectSelector` of every webhook; the empty revision is the default one.
///
/// No webhook is called for pods in the namespaces of `except`, whatever their labels say.
#[must_use]
pub fn of_revision(revision: &str, by_default: bool, except: &[&str]) -> Vec<Value> {
    let named = if revision.is_empty() { "default" } else { revision };
    let expression = |key: &str, operator: &str, values: &[&str]| json!({"key": key, "operator": operator, "values": values});
    let without = |key: &str| json!({"key": key, "operator": "DoesNotExist"});
    let not_refused = || expression(INJECT, "NotIn", &["false"]);
    let rev = || expression(REVISION, "In", &[named]);
    let unlabelled = || vec![without(INJECTION), without(REVISION)];
    let mut hooks = vec![
        ("rev.namespace", vec![rev(), without(INJECTION)], vec![not_refused()]),
        ("rev.object", unlabelled(), vec![not_refused(), rev()]),
    ];
    if revision.is_empty() {
        let enabled = expression(INJECTION, "In", &["enabled"]);
        let asks = expression(INJECT, "In", &["true"]);
        hooks.push(("namespace", vec![enabled], vec![not_refused()]));
        hooks.push(("object", unlabelled(), vec![asks, without(REVISION)]));
    }
    if revision.is_empty() && by_default {
        hooks.push(("auto", unlabelled(), vec![without(INJECT), without(REVISION)]));
    }
    let webhook = |(name, mut namespaces, objects): (&str, Vec<Value>, Vec<Value>)| {
        let system: &[&str] = if name == "auto" { &SYSTEM_NAMESPACES } else { &[] };
        let more = except.iter().filter(|name| !system.contains(name));
        let kept_out: Vec<&str> = system.iter().chain(more).copied().collect();
        if !kept_out.is_empty() {
            namespaces.push(expression(NAME, "NotIn", &kept_out));
        }
        json!({
            "name": format!("{name}.{SUFFIX}"),
            "namespaceSelector": {"matchExpressions": namespaces},
            "objectSelector": {"matchExpressions": objects},
        })
    };
    hooks.into_iter().map(webhook).collect()
}
