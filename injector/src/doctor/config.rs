//! The ConfigMaps that the injector reads.

use serde_json::{Value, json};

use super::cluster::{Cluster, command_line, list, name, text, title};
use super::hooks::Installation;
use super::serving::Backend;
use super::{Context, Finding, Problem};
use crate::config::{Settings, Source, Sources};
use crate::decide::Policy;
use crate::inject::validate;
use crate::inject::{InjectionContext, Injector, Options, Request, functions};
use crate::pod::workload::Workload;

/// The ConfigMap with the injector config.
pub(super) fn map<'a>(cluster: &Cluster<'a>, installation: &Installation<'_>) -> Option<&'a Value> {
    let namespace = installation.service?.namespace;
    cluster.find("ConfigMap", namespace, &format!("istio-sidecar-injector{}", installation.suffix()))
}

/// Config, values and mesh config as the injector reads them; the problems, if it cannot.
pub(super) fn settings(
    cluster: &Cluster<'_>,
    installation: &Installation<'_>,
    map: &Value,
) -> Result<Settings, Vec<String>> {
    let mesh = cluster.find(
        "ConfigMap",
        text(map, "/metadata/namespace"),
        &format!("istio{}", installation.suffix()),
    );
    let source = |map: &Value| {
        let data = map.get("data").cloned().and_then(|data| serde_json::from_value(data).ok());
        Source::of_config_map(text(map, "/metadata/namespace"), name(map), data.unwrap_or_default())
    };
    let sources = Sources::of_cluster(source(map), mesh.map(source));
    let problems = sources.load(&functions(|_| None));
    problems.map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

pub(super) fn examine(context: &mut Context<'_>, installation: &Installation<'_>, backend: &Backend<'_>) {
    let (cluster, diagnosis) = (context.cluster, &mut context.diagnosis);
    let Some(called) = installation.service else {
        return;
    };
    let containers = backend.pod.map(|pod| list(pod, "/spec/containers")).unwrap_or_default();
    if containers.iter().flat_map(command_line).any(|word| word.starts_with("--inject-config")) {
        return diagnosis.not_checked(format!("the config of {}: it comes from a file", called.host()));
    }
    let Some(map) = map(cluster, installation) else {
        if !cluster.knows("ConfigMap") {
            return diagnosis.not_checked("ConfigMaps: none among the objects");
        }
        return diagnosis.found(Finding {
            problem: Problem::ConfigMissing,
            object: format!("ConfigMap {}/istio-sidecar-injector{}", called.namespace, installation.suffix()),
            seen: "it is not there".to_owned(),
            cause: "the injector has no config and does not become ready".to_owned(),
            fix: installation.install(),
        });
    };
    let edit = format!("kubectl -n {} edit configmap {}", called.namespace, name(map));
    let problems = match settings(cluster, installation, map) {
        Ok(settings) => {
            if let Policy::Unknown(policy) = &settings.injector.rules.policy {
                return diagnosis.found(Finding {
                    problem: Problem::PolicyUnknown,
                    object: title(map),
                    seen: format!("policy is {policy:?}"),
                    cause: "the policy is enabled or disabled: with any other one no pod is injected"
                        .to_owned(),
                    fix: edit,
                });
            }
            validate::inject(&Injector::new(settings, Options::default()))
        }
        Err(problems) => problems,
    };
    if !problems.is_empty() {
        diagnosis.found(Finding {
            problem: Problem::ConfigBroken,
            object: title(map),
            seen: problems.join("; "),
            cause: "the last valid config stays active; a replica that starts now has none".to_owned(),
            fix: format!("{edit}   # check it with: sidecar-injector lint --inject-config FILE"),
        });
    }
}

/// A pod with one restricted container, as the installation injects it; none without a usable config.
pub(super) fn sample(cluster: &Cluster<'_>, installation: &Installation<'_>) -> Option<(Value, Settings)> {
    let settings = settings(cluster, installation, map(cluster, installation)?).ok()?;
    let pod = json!({
        "metadata": {"name": "sample", "namespace": "sample"},
        "spec": {
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "sample", "image": "sample"}],
        },
    });
    let injector = Injector::new(settings, Options::default());
    let (workload, context) = (Workload::default(), InjectionContext::default());
    let request = Request { pod: &pod, workload: &workload, context: &context };
    let injected = injector.inject(request).ok()?.pod;
    Some((injected, injector.settings))
}
