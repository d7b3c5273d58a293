//! The injector's Service, endpoints, Deployment and HorizontalPodAutoscaler.

use serde_json::Value;

use super::cluster::{Cluster, labels, list, name, service_selects, text, title};
use super::hooks::{Installation, ServiceRef};
use super::{Context, Diagnosis, Finding, Problem};

/// Reported where no Pods were saved.
pub(super) const PODS: &str = "Pods: none among the objects";

/// The endpoints of a Service, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct Backend<'a> {
    pub(super) service: Option<&'a Value>,
    pub(super) deployment: Option<&'a Value>,
    /// A pod of it: a running one, or the Deployment's template.
    pub(super) pod: Option<&'a Value>,
    /// The port of the container, by its number.
    pub(super) port: Option<u64>,
}

pub(super) fn examine<'a>(context: &mut Context<'a>, installation: &Installation<'_>) -> Backend<'a> {
    let (cluster, diagnosis) = (context.cluster, &mut context.diagnosis);
    let mut backend = Backend::default();
    let Some(called) = installation.service else {
        diagnosis.not_checked(format!("{} calls a URL: Service and certificate", installation.title()));
        return backend;
    };
    let Some(service) = cluster.find("Service", called.namespace, called.name) else {
        missing(context, installation, called);
        return backend;
    };
    backend.service = Some(service);
    let workloads = cluster.within("Deployment", called.namespace);
    backend.deployment = workloads
        .into_iter()
        .find(|deployment| service_selects(service, &labels(deployment, "/spec/template/metadata/labels")));
    let mut pods = cluster.within("Pod", called.namespace);
    let pod = pods.find(|pod| service_selects(service, &labels(pod, "/metadata/labels")));
    backend.pod = pod.or_else(|| backend.deployment?.pointer("/spec/template"));
    if backend.deployment.is_none() && !cluster.knows("Deployment") {
        diagnosis.not_checked("Deployments: none among the objects");
    }
    if backend.pod.is_some() {
        backend.port = port(called, service, &backend, diagnosis);
        availability(context, installation, &backend);
    } else if cluster.knows("Pod") {
        selector(service, diagnosis);
        return backend;
    } else {
        diagnosis.not_checked(PODS);
    }
    endpoints(context, service, called, &backend);
    backend
}

fn missing(context: &mut Context<'_>, installation: &Installation<'_>, called: ServiceRef<'_>) {
    if !context.cluster.knows("Service") {
        return context.diagnosis.not_checked("Services: none among the objects");
    }
    context.diagnosis.found(Finding {
        problem: Problem::ServiceMissing,
        object: format!("Service {}/{}", called.namespace, called.name),
        seen: format!("{} calls it, but it does not exist", installation.title()),
        cause: "every call fails; with failurePolicy Fail no pod of a labelled namespace is created"
            .to_owned(),
        fix: installation.install(),
    });
}

fn selector(service: &Value, diagnosis: &mut Diagnosis) {
    let selector = service.pointer("/spec/selector").map(Value::to_string).unwrap_or_default();
    let namespace = text(service, "/metadata/namespace");
    diagnosis.found(Finding {
        problem: Problem::ServiceSelector,
        object: title(service),
        seen: format!("its selector {selector} matches no pod"),
        cause: "the Service has no endpoints: every call fails".to_owned(),
        fix: format!(
            "kubectl -n {namespace} get pods --show-labels   # then: kubectl -n {namespace} edit service {}",
            name(service)
        ),
    });
}

/// The container's port behind the one that is called.
fn port(
    called: ServiceRef<'_>,
    service: &Value,
    backend: &Backend<'_>,
    diagnosis: &mut Diagnosis,
) -> Option<u64> {
    let mut bad = |seen: String, cause: &str| {
        diagnosis.found(Finding {
            problem: Problem::ServicePort,
            object: title(service),
            seen,
            cause: cause.to_owned(),
            fix: format!("kubectl -n {} edit service {}", called.namespace, called.name),
        });
        None
    };
    let ports = list(service, "/spec/ports");
    let number = |port: &Value, key: &str| port.get(key).and_then(Value::as_u64);
    let Some(port) = ports.iter().find(|port| number(port, "port") == Some(called.port)) else {
        let there: Vec<String> =
            ports.iter().filter_map(|port| number(port, "port")).map(|port| port.to_string()).collect();
        let seen = format!("the webhook calls port {}, the Service has {}", called.port, there.join(", "));
        return bad(seen, "the Service has no such port: every call fails");
    };
    let target = port.get("targetPort").filter(|target| !target.is_null()).or_else(|| port.get("port"))?;
    let containers = backend.pod.map(|pod| list(pod, "/spec/containers")).unwrap_or_default();
    let open: Vec<&Value> = containers.iter().flat_map(|container| list(container, "/ports")).collect();
    if open.is_empty() {
        return number(port, "targetPort").or(Some(called.port)); // declaring ports is optional
    }
    let key = if target.is_string() { "name" } else { "containerPort" };
    let wanted = |open: &&&Value| open.get(key) == Some(target);
    let found = open.iter().find(wanted).and_then(|open| number(open, "containerPort"));
    if found.is_none() {
        let there: Vec<String> = open
            .iter()
            .map(|open| {
                format!(
                    "{} {}",
                    open.get("name").and_then(Value::as_str).unwrap_or_default(),
                    number(open, "containerPort").unwrap_or_default()
                )
                .trim()
                .to_owned()
            })
            .collect();
        let seen =
            format!("port {} goes to targetPort {target}, the pods have {}", called.port, there.join(", "));
        return bad(seen, "connections go to a port on which no pod listens: every call is refused");
    }
    found
}

/// The autoscaler of a Deployment, which owns its number of replicas.
fn autoscaler<'a>(cluster: &Cluster<'a>, deployment: &Value) -> Option<&'a Value> {
    let mut all = cluster.within("HorizontalPodAutoscaler", text(deployment, "/metadata/namespace"));
    all.find(|scaler| {
        text(scaler, "/spec/scaleTargetRef/kind") == "Deployment"
            && text(scaler, "/spec/scaleTargetRef/name") == name(deployment)
    })
}

fn availability(context: &mut Context<'_>, installation: &Installation<'_>, backend: &Backend<'_>) {
    let Some(deployment) = backend.deployment else { return };
    let (cluster, diagnosis) = (context.cluster, &mut context.diagnosis);
    let namespace = text(deployment, "/metadata/namespace");
    let scaler = autoscaler(cluster, deployment);
    let least = scaler.map(|scaler| scaler.pointer("/spec/minReplicas").and_then(Value::as_u64).unwrap_or(1));
    let number = |pointer: &str| deployment.pointer(pointer).and_then(Value::as_u64);
    let wanted = number("/spec/replicas").unwrap_or(1);
    if deployment.get("status").is_some() && number("/status/availableReplicas").unwrap_or(0) == 0 {
        diagnosis.found(Finding {
            problem: Problem::Unavailable,
            object: title(deployment),
            seen: format!("0 of {wanted} replicas are available"),
            cause: if wanted == 0 { "it was scaled to zero" } else { "the pods do not start, or are not ready" }.to_owned(),
            fix: if wanted == 0 {
                format!("kubectl -n {namespace} scale deployment {} --replicas=2", name(deployment))
            } else {
                format!("kubectl -n {namespace} describe deployment {0}; kubectl -n {namespace} logs deployment/{0}", name(deployment))
            },
        });
    } else if least.unwrap_or(wanted) == 1 && installation.fails_closed() {
        diagnosis.found(Finding {
            problem: Problem::SingleReplica,
            object: title(deployment),
            seen: match scaler {
                Some(scaler) => format!("{} allows one replica, and failurePolicy is Fail", title(scaler)),
                None => "one replica, and failurePolicy is Fail".to_owned(),
            },
            cause: "while that one is restarted or its node is drained, no pod of a labelled namespace is created".to_owned(),
            fix: match scaler {
                Some(scaler) => format!(
                    "kubectl -n {namespace} patch horizontalpodautoscaler {} -p '{{\"spec\":{{\"minReplicas\":2}}}}'",
                    name(scaler)
                ),
                None => format!("kubectl -n {namespace} scale deployment {} --replicas=2", name(deployment)),
            },
        });
    }
}

/// The selector of a Service, as kubectl takes it.
pub(super) fn selected_labels(service: &Value) -> String {
    let labels = service.pointer("/spec/selector").and_then(Value::as_object).into_iter().flatten();
    let each = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    each.collect::<Vec<_>>().join(",")
}

/// Whether any endpoint is ready; `None` when no endpoints are among the objects.
pub(super) fn ready(cluster: &Cluster<'_>, called: ServiceRef<'_>) -> Option<bool> {
    let slices: Vec<&Value> = cluster
        .within("EndpointSlice", called.namespace)
        .filter(|slice| text(slice, "/metadata/labels/kubernetes.io~1service-name") == called.name)
        .collect();
    if !slices.is_empty() {
        return Some(
            slices.iter().flat_map(|slice| list(slice, "/endpoints")).any(|endpoint| {
                endpoint.pointer("/conditions/ready").and_then(Value::as_bool).unwrap_or(true)
            }),
        );
    }
    if let Some(endpoints) = cluster.find("Endpoints", called.namespace, called.name) {
        return Some(list(endpoints, "/subsets").iter().any(|subset| !list(subset, "/addresses").is_empty()));
    }
    (cluster.knows("EndpointSlice") || cluster.knows("Endpoints")).then_some(false)
}

fn endpoints(context: &mut Context<'_>, service: &Value, called: ServiceRef<'_>, backend: &Backend<'_>) {
    let diagnosis = &mut context.diagnosis;
    match ready(context.cluster, called) {
        None => diagnosis.not_checked("EndpointSlices: none among the objects"),
        Some(true) => {}
        Some(false) => diagnosis.found(Finding {
            problem: Problem::NoEndpoints,
            object: title(service),
            seen: "it has no ready endpoint".to_owned(),
            cause: match backend.deployment {
                Some(_) => "the pods behind it are not ready: config not loaded, no valid certificate, or they do not start",
                None => "no pod runs behind it",
            }
            .to_owned(),
            fix: format!(
                "kubectl -n {0} get pods -l {1}; kubectl -n {0} logs -l {1} --tail=50",
                called.namespace,
                selected_labels(service)
            ),
        }),
    }
}
