//! The manifests are applied, an injector runs, and `doctor` reads the cluster.

use serde_json::{Value, json};
use sidecar_injector::cli::{self, Environment, Exit, Failure, Output};

use super::fake::Fake;
use super::replica::{HOOKS, NAME, NAMESPACE, Replica, ca_bundle, until};

fn command(arguments: &[&str]) -> Result<Output, Failure> {
    cli::run(["sidecar-injector"].iter().chain(arguments).map(Into::into), &Environment::default())
}

async fn doctor(fake: &Fake, arguments: &'static [&'static str]) -> Result<Output, Failure> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), fake.kubeconfig()).expect("written");
    let path = file.path().to_str().expect("a path").to_owned();
    // It has a runtime of its own, as the program has.
    let run = move || command(&[&["doctor", "--kubeconfig", &path], arguments].concat());
    tokio::task::spawn_blocking(run).await.expect("no panic")
}

async fn installed() -> Fake {
    let fake = Fake::start().await;
    let text = command(&["manifests", "--replace-istiod"]).expect("manifests").text;
    for document in sidecar_injector::yaml::read_documents(text.as_bytes()).expect("YAML") {
        let mut object = document.value;
        if object["kind"] == "Deployment" {
            // The autoscaler's.
            object["spec"]["replicas"] = json!(2);
            object["status"] = json!({"availableReplicas": 2});
            let mut pod = object["spec"]["template"].clone();
            pod["apiVersion"] = json!("v1");
            pod["kind"] = json!("Pod");
            pod["metadata"]["name"] = json!("injector-1");
            pod["metadata"]["namespace"] = json!(NAMESPACE);
            fake.put("kubelet", pod);
        }
        fake.put("kubectl", object);
    }
    fake.put(
        "controller",
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "x", "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": NAME}},
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}],
        }),
    );
    fake.put("kubectl", json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "istiod", "namespace": NAMESPACE}}));
    let labels = json!({"istio-injection": "enabled"});
    fake.put(
        "kubectl",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": labels}}),
    );
    fake
}

fn shown(result: Result<Output, Failure>) -> Output {
    result.unwrap_or_else(|failure| panic!("{failure}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_is_healthy_once_an_injector_has_run() {
    let fake = installed().await;
    let output = shown(doctor(&fake, &[]).await);
    assert!(output.refused && output.text.contains("ca-empty"), "{}", output.text);

    let replica = Replica::self_signed(&fake, &[NAME]).await;
    until("a caBundle", || !ca_bundle(&fake).is_empty()).await;
    replica.end().await;
    let output = shown(doctor(&fake, &["--namespace", "shop"]).await);
    assert!(output.text.contains("no problem found"), "{}", output.text);
    assert!(!output.refused && !output.text.contains("not checked"), "{}", output.text);
    assert_eq!(output.notes, Vec::<String>::new());

    let pod = json!({"containers": [{"name": "istio-proxy", "image": "auto"}]});
    fake.put("kubectl", json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "shop"}, "spec": pod}));
    // Without a namespace: this API server does not list across all of them.
    fake.put(
        "controller",
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "FailedCreate",
            "message": "failed calling webhook \"namespace.sidecar-injector.istio.io\": context deadline exceeded",
        }),
    );
    let output = shown(doctor(&fake, &["--namespace", "shop", "-o", "json"]).await);
    let found: Value = serde_json::from_str(&output.text).expect("JSON");
    let problems: Vec<&Value> =
        found["findings"].as_array().expect("a list").iter().map(|one| &one["problem"]).collect();
    assert_eq!(problems, ["call-failed", "image-auto"]);
    assert!(output.refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_kinds_are_not_reported_missing() {
    let fake = installed().await;
    fake.fail("GET", "mutatingwebhookconfigurations", 403, 1);
    let failure = doctor(&fake, &[]).await.expect_err("no answer");
    assert_eq!(failure.exit, Exit::Unavailable);
    assert!(failure.to_string().contains("mutatingwebhookconfigurations"), "{failure}");
    // Of another namespace, nothing was read.
    let output = shown(doctor(&fake, &["--istio-namespace", "mesh"]).await);
    assert!(!output.text.contains("missing:"), "{}", output.text);
    let expected = "only namespace mesh was read; --istio-namespace istio-system reads its own";
    assert!(output.text.contains(expected), "{}", output.text);
    // Read, and there is none: that is an answer.
    let empty = Fake::start().await;
    let output = shown(doctor(&empty, &[]).await);
    assert!(output.refused && output.text.contains("webhook-missing"), "{}", output.text);
    fake.fail("GET", "endpointslices", 403, 1);
    let output = shown(doctor(&fake, &[]).await);
    assert!(output.notes[0].contains("endpointslices"), "{:?}", output.notes);
    assert!(output.text.contains("not checked: EndpointSlices"), "{}", output.text);
    fake.fail("GET", "/secrets", 403, 1);
    let output = shown(doctor(&fake, &[]).await);
    let expected = format!("the certificate that is served: the Secrets in {NAMESPACE} cannot be read");
    assert!(output.text.contains(&expected) && !output.text.contains("no Secret"), "{}", output.text);
    assert!(fake.object(HOOKS).is_some());
    fake.stop().await;
    assert_eq!(doctor(&fake, &[]).await.expect_err("no response").exit, Exit::Unavailable);
}
