//! `manifests --check`: which objects belong to others.

use serde_json::{Value, json};
use sidecar_injector::cli::{self, Environment, Exit, Failure, Output};

use crate::fake::Fake;
use crate::replica::{NAME, NAMESPACE};

async fn check(fake: &Fake, arguments: &'static [&'static str]) -> Result<Output, Failure> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), fake.kubeconfig()).expect("written");
    let path = file.path().to_str().expect("a path").to_owned();
    // It has a runtime of its own, as the program has.
    let run = move || {
        let arguments =
            [&["sidecar-injector", "manifests", "--check", "--kubeconfig", &path], arguments].concat();
        cli::run(arguments.iter().map(Into::into), &Environment::default())
    };
    tokio::task::spawn_blocking(run).await.expect("no panic")
}

fn istiod_s(kind: &str, name: &str, metadata: Value) -> Value {
    let mut object =
        json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}});
    object["metadata"]
        .as_object_mut()
        .expect("an object")
        .extend(metadata.as_object().expect("an object").clone());
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_others_are_listed_with_their_owner() {
    let fake = Fake::start().await;
    let empty = check(&fake, &["--revision", "canary"]).await.expect("a cluster");
    assert!(
        !empty.refused
            && empty.text.ends_with(" objects are new, 0 belong to this installation, 0 to others\n"),
        "{}",
        empty.text
    );
    fake.put(
        "helm",
        istiod_s("ConfigMap", "istio", json!({"annotations": {"meta.helm.sh/release-name": "istiod"}})),
    );
    fake.put(
        "helm",
        istiod_s("ConfigMap", NAME, json!({"labels": {"operator.istio.io/component": "Pilot"}})),
    );
    fake.put("someone", istiod_s("Service", NAME, json!({"managedFields": [{"manager": "kubectl"}]})));
    let found = check(&fake, &[]).await.expect("a cluster");
    assert!(found.refused);
    for line in [
        format!("ConfigMap \"{NAMESPACE}/istio\": it belongs to Helm release istiod\n"),
        format!("ConfigMap \"{NAMESPACE}/{NAME}\": it belongs to Istio's component Pilot\n"),
        format!("Service \"{NAMESPACE}/{NAME}\": it belongs to what "),
    ] {
        assert!(found.text.contains(&line), "{line}: {}", found.text);
    }
    assert!(found.text.ends_with(", 3 to others\n"), "{}", found.text);
    // Another revision has other names.
    assert!(!check(&fake, &["--revision", "canary"]).await.expect("a cluster").refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_installation_is_no_conflict() {
    let fake = Fake::start().await;
    let arguments = ["sidecar-injector", "manifests", "--replace-istiod"];
    let text = cli::run(arguments.map(Into::into), &Environment::default()).expect("manifests").text;
    let mut count = 0;
    for document in sidecar_injector::yaml::read_documents(text.as_bytes()).expect("YAML") {
        fake.put("kubectl", document.value);
        count += 1;
    }
    let found = check(&fake, &[]).await.expect("a cluster");
    assert_eq!(
        (found.refused, found.text),
        (false, format!("0 objects are new, {count} belong to this installation, 0 to others\n"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_cluster_is_an_error() {
    let fake = Fake::start().await;
    fake.fail("GET", "serviceaccounts", 403, 9);
    let failure = check(&fake, &["--revision", "canary"]).await.expect_err("forbidden");
    assert_eq!(failure.exit, Exit::Unavailable);
    assert!(
        failure.problems[0].contains("ServiceAccount") && failure.problems[0].contains("context"),
        "{failure}"
    );
}

fn agent_s(namespace: &str, name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": namespace, "labels": {"operator.istio.io/component": "Cni"}},
        "spec": {"template": {"metadata": {"labels": labels}}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn another_node_agent_is_an_obstacle_wherever_it_is() {
    let fake = Fake::start().await;
    fake.put("other", agent_s("kube-system", "flannel", &json!({"k8s-app": "flannel"})));
    assert!(!check(&fake, &["--cni"]).await.expect("a cluster").refused);
    for (namespace, name) in [("kube-system", "istio-cni-node"), ("mesh", "istio-cni-node-agent")] {
        fake.put("helm", agent_s(namespace, name, &json!({"k8s-app": "istio-cni-node"})));
    }
    let found = check(&fake, &["--cni"]).await.expect("a cluster");
    assert!(found.refused, "{}", found.text);
    for title in ["kube-system/istio-cni-node", "mesh/istio-cni-node-agent"] {
        let line = format!(
            "DaemonSet \"{title}\": it installs a plugin istio-cni on the same nodes, and belongs to Istio's component Cni"
        );
        assert!(found.text.contains(&line), "{line}: {}", found.text);
    }
    assert!(
        found.text.contains(" objects are new, 0 belong to this installation, 0 to others\n"),
        "{}",
        found.text
    );
    assert!(
        !check(&fake, &["--revision", "canary"]).await.expect("a cluster").refused,
        "the injector is not affected"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn namespace_that_rejects_the_agent_is_an_obstacle() {
    let fake = Fake::start().await;
    let namespace = |level: &str| {
        let labels = json!({"pod-security.kubernetes.io/enforce": level});
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
    };
    for (level, refused) in [("privileged", false), ("baseline", true), ("restricted", true)] {
        fake.put("kubectl", namespace(level));
        let found = check(&fake, &["--cni"]).await.expect("a cluster");
        assert_eq!(found.refused, refused, "{}", found.text);
        assert_eq!(
            found.text.contains(&format!("enforce={level} rejects the agent's pods")),
            refused,
            "{}",
            found.text
        );
    }
    fake.fail("GET", "apps/v1/daemonsets", 403, 9);
    let failure = check(&fake, &["--cni"]).await.expect_err("forbidden");
    assert_eq!(failure.exit, Exit::Unavailable);
    assert!(failure.problems[0].contains("daemonsets"), "{failure}");
}

/// A tag of istiod's has another name than the objects of the revision, and selects the same pods.
#[tokio::test(flavor = "multi_thread")]
async fn webhooks_that_select_the_same_pods_are_listed() {
    let fake = Fake::start().await;
    let configuration = |name: &str, webhook: &str, selector: Value| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name, "labels": {"operator.istio.io/component": "Pilot"}},
            "webhooks": [{"name": webhook, "namespaceSelector": selector}]})
    };
    let tag = json!({"matchLabels": {"istio.io/rev": "prod"}});
    fake.put(
        "istioctl",
        configuration("istio-revision-tag-prod", "rev.namespace.sidecar-injector.istio.io", tag.clone()),
    );
    // Called for the same pods, and injects nothing.
    fake.put("kyverno", configuration("policies", "mutate.example.com", Value::Null));
    let found = check(&fake, &["--revision", "prod"]).await.expect("a cluster");
    assert!(found.refused);
    let line = "MutatingWebhookConfiguration \"istio-revision-tag-prod\": it is called for pods with istio.io/rev=prod on the \
                namespace, too, which would be injected twice; it belongs to Istio's component Pilot\n";
    assert!(found.text.starts_with(line) && !found.text.contains("policies"), "{}", found.text);
    let other = check(&fake, &["--revision", "canary"]).await.expect("a cluster");
    assert!(!other.refused, "{}", other.text);
}
