//! What policies in CEL, of the kinds that clusters have, find in injected pods: the table of
//! docs/injection.md.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};
use sidecar_injector::cli::{self, Environment};

use crate::api::until;
use crate::control_plane::Cluster;
use crate::installation::Installation;

/// Each with what it requires of every container `c`, or of the pod.
const POLICIES: &[(&str, &str)] = &[
    ("capabilities", "c.?securityContext.?capabilities.?add.orValue([]).size() == 0"),
    ("non-root", "c.?securityContext.?runAsNonRoot.orValue(false)"),
    ("read-only-root", "c.?securityContext.?readOnlyRootFilesystem.orValue(false)"),
    ("escalation", "!c.?securityContext.?allowPrivilegeEscalation.orValue(true)"),
    ("drop-all", "c.?securityContext.?capabilities.?drop.orValue([]).exists(x, x == 'ALL')"),
    ("seccomp", "has(c.securityContext.seccompProfile)"),
    ("high-user", "c.?securityContext.?runAsUser.orValue(10000) >= 10000"),
    ("resources", "has(c.resources.limits) && has(c.resources.requests)"),
    ("ephemeral-storage", "'ephemeral-storage' in c.?resources.?limits.orValue({})"),
    ("probes", "has(c.readinessProbe) && has(c.livenessProbe)"),
    ("pull-always", "c.?imagePullPolicy.orValue('') == 'Always'"),
    ("registry", "c.image.startsWith('registry.example.com/')"),
    ("digest", "c.image.contains('@sha256:')"),
    (
        "memory-volumes",
        "volumes.all(v, !has(v.emptyDir) || v.emptyDir.?medium.orValue('') == '' || has(v.emptyDir.sizeLimit))",
    ),
    (
        "volume-kinds",
        "volumes.all(v, has(v.configMap) || has(v.secret) || has(v.emptyDir) || has(v.projected))",
    ),
    (
        "tokens",
        "volumes.all(v, !has(v.projected) || v.projected.sources.all(s, !has(s.serviceAccountToken)))",
    ),
    ("labels", "object.metadata.?labels['team'].orValue('') == 'a'"),
];

const IMAGE: &str =
    "registry.example.com/a@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn policy(name: &str, key: &str) -> [Value; 2] {
    let validations = POLICIES.iter().map(|(message, expression)| {
        let expression = match *expression {
            one if one.starts_with("object.") => one.to_owned(),
            one => match one.strip_prefix("volumes.") {
                Some(rest) => format!("object.spec.?volumes.orValue([]).{rest}"),
                None => {
                    format!(
                        "(object.spec.containers + object.spec.?initContainers.orValue([])).all(c, {one})"
                    )
                }
            },
        };
        json!({"expression": expression, "message": format!("policy {message}")})
    });
    let of = |kind: &str, spec: Value| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let rules =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]);
    let selector = json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
    [
        of(
            "ValidatingAdmissionPolicy",
            json!({"failurePolicy": "Fail", "validations": validations.collect::<Vec<_>>(),
                "matchConstraints": {"namespaceSelector": selector, "resourceRules": rules}}),
        ),
        of("ValidatingAdmissionPolicyBinding", json!({"policyName": name, "validationActions": ["Warn"]})),
    ]
}

/// A pod that satisfies all of them.
fn pod(namespace: &str) -> Value {
    let probe = json!({"tcpSocket": {"port": 80}});
    let resources = json!({"cpu": "10m", "memory": "16Mi", "ephemeral-storage": "1Mi"});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": namespace, "labels": {"team": "a"}},
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "web", "image": IMAGE, "imagePullPolicy": "Always", "readinessProbe": probe, "livenessProbe": probe,
                "resources": {"requests": resources, "limits": resources},
                "securityContext": {"runAsNonRoot": true, "runAsUser": 10001, "readOnlyRootFilesystem": true,
                    "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}},
            }],
        },
    })
}

fn injected(pod: &Value, flags: &[&str]) -> String {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), pod.to_string()).expect("written");
    let path = file.path().to_str().expect("a path");
    let arguments = [&["sidecar-injector", "inject", "-f", path, "--init-image", IMAGE], flags].concat();
    let output = cli::run(arguments.iter().map(Into::into), &Environment::default());
    output.unwrap_or_else(|failure| panic!("{failure}")).text
}

/// The policies that the API server warns of when the pod is created.
fn violated(cluster: &Cluster, pod: &str) -> BTreeSet<&'static str> {
    let mut kubectl = cluster.kubectl();
    kubectl.args(["create", "--dry-run=server", "--validate=false", "-f", "-"]);
    let child = kubectl.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("kubectl");
    child.stdin.take().expect("a pipe").write_all(pod.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("kubectl");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    let named = |name: &&str| text.lines().any(|line| line.ends_with(&format!("policy {name}")));
    POLICIES.iter().map(|(name, _)| *name).filter(named).collect()
}

pub(crate) fn injected_pods_violate_what_the_docs_say(cluster: &Cluster) {
    let mut installation = Installation::new(cluster, &[]);
    let name = format!("{}-policies", installation.revision);
    let key = format!("end-to-end.test/{name}");
    installation.namespace(&name, &json!({&key: "yes"}));
    policy(&name, &key).iter().for_each(|object| installation.apply(object));
    let pod = pod(&name);
    let plain = pod.to_string();
    let of_init = ["capabilities", "non-root", "read-only-root"];
    let always = ["ephemeral-storage", "high-user", "memory-volumes", "probes", "tokens", "volume-kinds"];
    let images = ["digest", "pull-always", "registry"];
    let expected =
        |parts: &[&[&'static str]]| -> BTreeSet<&'static str> { parts.concat().into_iter().collect() };
    let by_init = injected(&pod, &[]);
    until("the policies are in force", || !violated(cluster, &by_init).is_empty());
    assert_eq!(violated(cluster, &plain), BTreeSet::new());
    assert_eq!(violated(cluster, &by_init), expected(&[&of_init, &always, &images]));
    let by_plugin = injected(&pod, &["--set", "pilot.cni.enabled=true"]);
    assert_eq!(violated(cluster, &by_plugin), expected(&[&always, &images]));
    let own = format!("global.proxy.image={IMAGE},global.imagePullPolicy=Always");
    let by_plugin = injected(&pod, &["--set", "pilot.cni.enabled=true", "--set", &own]);
    assert_eq!(violated(cluster, &by_plugin), expected(&[&always]));
}
