//! The roles that let the injector read its config.

use serde_json::Value;

use super::cluster::{list, text};
use super::hooks::Installation;
use super::serving::Backend;
use super::{Context, Finding, Problem};

/// Replicas that run keep what they have read: a missing binding shows at the next start.
pub(super) fn examine(context: &mut Context<'_>, installation: &Installation<'_>, backend: &Backend<'_>) {
    let (cluster, diagnosis) = (context.cluster, &mut context.diagnosis);
    let (Some(called), Some(pod)) = (installation.service, backend.pod) else { return };
    if !reads_config_maps(pod) {
        return;
    }
    if !cluster.knows("RoleBinding") {
        return diagnosis.not_checked("RoleBindings: none among the objects");
    }
    let account = match text(pod, "/spec/serviceAccountName") {
        "" => "default",
        account => account,
    };
    let binds = |binding: &Value| {
        list(binding, "/subjects").iter().any(|subject| {
            let is = |key: &str, wanted: &str| subject.get(key).and_then(Value::as_str) == Some(wanted);
            is("kind", "ServiceAccount") && is("name", account) && is("namespace", called.namespace)
        })
    };
    if cluster.within("RoleBinding", called.namespace).any(binds) {
        return;
    }
    diagnosis.found(Finding {
        problem: Problem::RoleMissing,
        object: format!("ServiceAccount {}/{account}", called.namespace),
        seen: format!("no RoleBinding in namespace {} has it as a subject", called.namespace),
        cause: "the injector cannot read its ConfigMaps and its Secret: replicas that start are never ready"
            .to_owned(),
        fix: installation.install(),
    });
}

fn reads_config_maps(pod: &Value) -> bool {
    let containers = list(pod, "/spec/containers");
    let mut arguments =
        containers.iter().flat_map(|container| list(container, "/args")).filter_map(Value::as_str);
    arguments.any(|argument| argument.starts_with("--watch-configmap"))
}
