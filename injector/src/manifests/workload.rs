//! What runs: the Deployment, how it is spread, and how many of it may be missing.

use serde_json::{Value, json};

use super::names::{HTTPS_PORT, MONITORING_PORT, Names};
use super::options::{Certificates, Flavour, Options};
use crate::decide::INJECT;

/// Seconds in which requests under way are finished.
const GRACE: u16 = 20;
/// Longer than that: what is left is killed afterwards.
const TERMINATION: u16 = GRACE + 10;
/// Where cert-manager's Secret is mounted.
const CERTIFICATE: &str = "/etc/sidecar-injector/tls";
/// The image's user; any other one that is not root will do.
const USER: u16 = 65532;

/// Without `replicas`: they are the autoscaler's, which brings a new Deployment to its least within seconds, and whoever
/// applies this again does not take back what it has added.
pub(super) fn deployment(options: &Options, names: &Names) -> Value {
    let mut labels = names.labels();
    // The injector must come up before anything can be injected.
    labels.insert(INJECT.to_owned(), json!("false"));
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": names.metadata(options, &names.injector()),
        "spec": {
            "selector": {"matchLabels": names.labels()},
            // A new pod is ready before an old one goes.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"metadata": {"labels": labels}, "spec": pod(options, names)},
        },
    })
}

fn pod(options: &Options, names: &Names) -> Value {
    let mut security = json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    // OpenShift chooses from the namespace's range, and rejects any other user.
    if options.flavour == Flavour::Kubernetes {
        put(&mut security, "runAsUser", json!(USER));
        put(&mut security, "runAsGroup", json!(USER));
    }
    let spread = |key: &str| {
        json!({
            "labelSelector": {"matchLabels": names.labels()}, "maxSkew": 1, "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
        })
    };
    let mut pod = json!({
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "podAffinityTerm": {
                "labelSelector": {"matchLabels": names.labels()}, "topologyKey": "kubernetes.io/hostname",
            },
            "weight": 100,
        }]}},
        "containers": [container(options, names)],
        "securityContext": security,
        "serviceAccountName": names.injector(),
        "terminationGracePeriodSeconds": TERMINATION,
        "topologySpreadConstraints": [spread("topology.kubernetes.io/zone")],
    });
    if options.certificates == Certificates::CertManager {
        let volume = json!([{"name": "certificate", "secret": {"secretName": names.managed_secret()}}]);
        put(&mut pod, "volumes", volume);
    }
    pod
}

fn container(options: &Options, names: &Names) -> Value {
    let probe = |path: &str, period: u16, failures: u16| {
        json!({
            "failureThreshold": failures, "httpGet": {"path": path, "port": "http-monitoring"},
            "periodSeconds": period, "timeoutSeconds": 3,
        })
    };
    let port = |name: &str, port: u16| json!({"containerPort": port, "name": name, "protocol": "TCP"});
    let mut container = json!({
        "name": "sidecar-injector",
        "image": options.image.as_str(),
        "imagePullPolicy": "IfNotPresent",
        "args": arguments(options, names),
        "env": [{"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
        "ports": [port("https-webhook", HTTPS_PORT), port("http-monitoring", MONITORING_PORT)],
        "startupProbe": probe("/healthz", 1, 60),
        "livenessProbe": probe("/healthz", 10, 3),
        "readinessProbe": probe("/readyz", 3, 3),
        // No limit of processor time: a throttled injector makes every pod of the cluster wait.
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "privileged": false,
            "readOnlyRootFilesystem": true,
        },
    });
    if options.certificates == Certificates::CertManager {
        let mount = json!([{"mountPath": CERTIFICATE, "name": "certificate", "readOnly": true}]);
        put(&mut container, "volumeMounts", mount);
    }
    container
}

fn arguments(options: &Options, names: &Names) -> Vec<String> {
    let name = names.injector();
    let mut arguments = vec![
        "webhook".to_owned(),
        format!("--https-addr=:{HTTPS_PORT}"),
        format!("--monitoring-addr=:{MONITORING_PORT}"),
        format!("--watch-configmap=$(POD_NAMESPACE)/{name}"),
    ];
    match options.certificates {
        Certificates::SelfSigned => arguments.extend([
            "--self-signed".to_owned(),
            "--namespace=$(POD_NAMESPACE)".to_owned(),
            format!("--service={name}"),
            format!("--webhook-config={name}"),
        ]),
        Certificates::CertManager => arguments.extend([
            "--ca-managed-externally".to_owned(),
            format!("--tls-cert={CERTIFICATE}/tls.crt"),
            format!("--tls-key={CERTIFICATE}/tls.key"),
        ]),
    }
    if !options.revision.as_str().is_empty() {
        arguments.push(format!("--revision={}", options.revision.as_str()));
    }
    if options.flavour == Flavour::Openshift {
        arguments.push("--platform=openshift".to_owned());
    }
    arguments.extend([
        "--native-sidecars=auto".to_owned(),
        format!("--grace={GRACE}"),
        "--log-format=json".to_owned(),
    ]);
    arguments
}

/// As `maxUnavailable`: a single replica never keeps a node from being drained.
pub(super) fn disruption_budget(options: &Options, names: &Names) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": names.metadata(options, &names.injector()),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": names.labels()}},
    })
}

pub(super) fn autoscaler(options: &Options, names: &Names) -> Value {
    let least = options.replicas.get();
    json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": names.metadata(options, &names.injector()),
        "spec": {
            "maxReplicas": least.saturating_add(3), "minReplicas": least,
            "metrics": [{
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
            }],
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": names.injector()},
        },
    })
}

fn put(object: &mut Value, key: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(key.to_owned(), value);
    }
}
