//! `inject` with the config of a cluster, and `list`.

use serde_json::{Value, json};
use sidecar_injector::cli::{self, Environment, Exit, Failure, Output};
use sidecar_injector::config::{BUILTIN_CONFIG, BUILTIN_MESH, BUILTIN_VALUES};

use super::fake::Fake;
use super::replica::{NAME, NAMESPACE};

const POD: &str = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec: {containers: [{name: web, image: w}]}\n";

async fn run(fake: &Fake, arguments: &[&str]) -> Result<Output, Failure> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), fake.kubeconfig()).expect("written");
    let path = file.path().to_str().expect("a path");
    let arguments = [&["sidecar-injector"], arguments, &["--kubeconfig", path]].concat();
    let arguments: Vec<std::ffi::OsString> = arguments.iter().map(Into::into).collect();
    // It has a runtime of its own, as the program has.
    let run = move || cli::run(arguments, &Environment::default());
    tokio::task::spawn_blocking(run).await.expect("no panic")
}

fn config_map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE}, "data": data})
}

fn install(fake: &Fake, tag: &str) {
    let values = BUILTIN_VALUES.replace("  tag: 1.28.0", &format!("  tag: {tag}"));
    assert_ne!(values, BUILTIN_VALUES);
    fake.put("kubectl", config_map(NAME, &json!({"config": BUILTIN_CONFIG, "values": values})));
    fake.put(
        "kubectl",
        config_map("istio", &json!({"mesh": format!("{BUILTIN_MESH}\ntrustDomain: live.example\n")})),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn inject_takes_the_config_of_the_cluster() {
    let fake = Fake::start().await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), POD).expect("written");
    let path = file.path().to_str().expect("a path");
    let missing = run(&fake, &["inject", "-f", path]).await.expect_err("no ConfigMap");
    assert_eq!(missing.exit, Exit::Unavailable);
    let text = missing.to_string();
    assert!(
        text.contains(&format!("ConfigMap {NAMESPACE}/{NAME} does not exist")) && text.contains("context"),
        "{text}"
    );
    fake.put("kubectl", config_map("istio", &json!({"mesh": BUILTIN_MESH})));
    fake.put("kubectl", config_map(NAME, &json!({"config": BUILTIN_CONFIG})));
    let without_values = run(&fake, &["inject", "-f", path]).await.expect_err("no values");
    assert!(without_values.to_string().contains("has no key \"values\""), "{without_values}");
    install(&fake, "live-tag");
    let injected = run(&fake, &["inject", "-f", path]).await.expect("a cluster").text;
    assert!(injected.contains(":live-tag") && injected.contains("live.example"), "{injected}");
    // A file counts more than the cluster, for what it holds.
    let mesh = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(mesh.path(), "trustDomain: file.example\n").expect("written");
    let mesh = mesh.path().to_str().expect("a path");
    let injected = run(&fake, &["inject", "-f", path, "--mesh-config", mesh]).await.expect("a cluster").text;
    assert!(injected.contains(":live-tag") && injected.contains("file.example"), "{injected}");
    let other =
        run(&fake, &["inject", "-f", path, "--revision", "canary"]).await.expect_err("another revision");
    assert!(
        other.to_string().contains(&format!("ConfigMap {NAMESPACE}/{NAME}-canary does not exist"))
            && other
                .to_string()
                .trim_end()
                .ends_with("give --istio-namespace or --revision; installed: default"),
        "{other}"
    );
    assert!(run(&fake, &["check", "-f", path]).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn list_names_the_pods_whose_sidecar_is_outdated() {
    let fake = Fake::start().await;
    install(&fake, "one");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), POD).expect("written");
    let path = file.path().to_str().expect("a path");
    let text = run(&fake, &["inject", "-f", path, "-q"]).await.expect("a cluster").text;
    let mut pod = sidecar_injector::yaml::read(&text).expect("YAML");
    // What the cluster adds is not a difference.
    pod["spec"]["nodeName"] = json!("node");
    pod["status"] = json!({"phase": "Running"});
    fake.put("kubelet", pod.clone());
    pod["metadata"]["name"] = json!("done");
    pod["status"] = json!({"phase": "Succeeded"});
    fake.put("kubelet", pod.clone());
    let status = pod["metadata"]["annotations"]["sidecar.istio.io/status"].as_str().expect("a status");
    pod["metadata"]["annotations"]["sidecar.istio.io/status"] =
        json!(status.replace("\"revision\":\"default\"", "\"revision\":\"canary\""));
    pod["metadata"]["name"] = json!("of-canary");
    pod["status"] = json!({"phase": "Running"});
    fake.put("kubelet", pod.clone());
    pod["metadata"]["name"] = json!("plain");
    pod["metadata"]["annotations"] = json!({});
    fake.put("kubelet", pod);

    let arguments = ["list", "-n", "shop"];
    let output = run(&fake, &arguments).await.expect("a cluster");
    assert!(
        output.text.contains("Pod \"shop/web\": ") && output.text.contains(": current\n"),
        "{}",
        output.text
    );
    assert!(
        output.text.ends_with("1 pod with a sidecar of revision default, 0 outdated; 1 of other revisions\n"),
        "{}",
        output.text
    );
    assert!(!output.refused && output.notes.is_empty(), "{:?}", output.notes);
    install(&fake, "two");
    let output = run(&fake, &arguments).await.expect("a cluster");
    assert!(output.refused && output.text.contains("outdated: istio-proxy image "), "{}", output.text);
    assert!(output.text.contains(":one -> ") && output.text.contains(":two"), "{}", output.text);
    let output = run(&fake, &["list", "-n", "shop", "-o", "json"]).await.expect("a cluster").text;
    let rows: Value = serde_json::from_str(&output).expect("JSON");
    assert_eq!(
        (rows[0]["pod"].as_str(), rows[0]["error"].is_null()),
        (Some("Pod \"shop/web\""), true),
        "{rows}"
    );
    fake.fail("GET", "/pods", 403, 9);
    assert_eq!(run(&fake, &arguments).await.expect_err("forbidden").exit, Exit::Unavailable);
}

/// The overlay deploy/overlays/images gives it to the webhook in a variable.
#[tokio::test(flavor = "multi_thread")]
async fn list_takes_the_init_image_of_the_running_webhook() {
    let fake = Fake::start().await;
    install(&fake, "one");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), POD).expect("written");
    let path = file.path().to_str().expect("a path");
    let inject = ["inject", "-f", path, "-q", "--init-image", "registry.example/init:2"];
    let text = run(&fake, &inject).await.expect("a cluster").text;
    fake.put("kubelet", sidecar_injector::yaml::read(&text).expect("YAML"));
    let list = ["list", "-n", "shop"];
    let output = run(&fake, &list).await.expect("a cluster");
    assert!(output.refused && output.text.contains("outdated: istio-init image "), "{}", output.text);
    let given = ["list", "-n", "shop", "--init-image", "registry.example/init:2"];
    let output = run(&fake, &given).await.expect("a cluster");
    assert!(!output.refused, "{}", output.text);
    for arguments in [
        json!(["webhook", "--init-image=$(INIT_IMAGE)"]),
        json!(["webhook", "--init-image", "registry.example/init:2", "--native-sidecars=auto"]),
    ] {
        let env = json!([{"name": "OTHER", "value": "x"}, {"name": "INIT_IMAGE", "value": "registry.example/init:2"}]);
        let container = json!({"name": "injector", "image": "i", "args": arguments, "env": env});
        fake.put("kubectl", json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME, "namespace": NAMESPACE},
            "spec": {"template": {"spec": {"containers": [container]}}},
        }));
        let output = run(&fake, &list).await.expect("a cluster");
        assert!(!output.refused && output.notes.is_empty(), "{} {:?}", output.text, output.notes);
    }
    fake.fail("GET", "/deployments/", 403, 9);
    let output = run(&fake, &list).await.expect("a cluster");
    assert!(output.refused && output.notes.len() == 1, "{} {:?}", output.text, output.notes);
    assert!(output.notes[0].contains("give --init-image IMAGE"), "{:?}", output.notes);
}

#[tokio::test(flavor = "multi_thread")]
async fn list_compares_a_generated_name_as_at_admission() {
    let fake = Fake::start().await;
    install(&fake, "one");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), POD.replace("name: web, namespace", "generateName: web-, namespace"))
        .expect("written");
    let path = file.path().to_str().expect("a path");
    let text = run(&fake, &["inject", "-f", path, "-q"]).await.expect("a cluster").text;
    let mut pod = sidecar_injector::yaml::read(&text).expect("YAML");
    assert_eq!(pod["metadata"]["generateName"], "web-", "{pod}");
    // The API server generates it after the admission.
    pod["metadata"]["name"] = json!("web-x7k2p");
    fake.put("kubelet", pod);
    let text = run(&fake, &["list", "-n", "shop"]).await.expect("a cluster").text;
    assert!(text.starts_with("Pod \"shop/web-x7k2p\": ") && text.contains(": current\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn list_reads_one_namespace_or_all() {
    let fake = Fake::start().await;
    install(&fake, "one");
    let status =
        json!({"initContainers": ["istio-init"], "containers": ["istio-proxy"], "revision": "default"});
    for namespace in ["shop", "bank"] {
        fake.put(
            "kubectl",
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        );
        fake.put(
            "kubelet",
            json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "istio-proxy", "image": "p"}]},
                "metadata": {"name": "web", "namespace": namespace,
                    "annotations": {"sidecar.istio.io/status": status.to_string()}}}),
        );
    }
    let pods = async |arguments: &[&str]| {
        let output =
            run(&fake, &[&["list", "-o", "json"], arguments].concat()).await.expect("a cluster").text;
        let rows: Value = serde_json::from_str(&output).expect("JSON");
        rows.as_array().expect("rows").iter().map(|row| row["pod"].to_string()).collect::<Vec<_>>()
    };
    let shop = r#""Pod \"shop/web\"""#;
    assert_eq!(pods(&["-n", "shop"]).await, [shop]);
    let all = pods(&["-A"]).await;
    assert!(all.len() == 2 && all.iter().any(|pod| pod == shop), "{all:?}");
    assert_eq!(pods(&[]).await, all, "all namespaces are the default");
    assert_eq!(run(&fake, &["list", "-A", "-n", "shop"]).await.expect_err("one of them").exit, Exit::Usage);
    let missing = run(&fake, &["list", "-n", "shpo"]).await.expect_err("no such namespace");
    let text = missing.to_string();
    assert!(
        missing.exit == Exit::Data
            && text.contains("--namespace shpo: there is no such namespace, expected one of: "),
        "{text}"
    );
}

fn pod_of(text: &str) -> Value {
    sidecar_injector::yaml::read(text).expect("YAML")
}

#[tokio::test(flavor = "multi_thread")]
async fn check_reads_a_pod_of_the_cluster() {
    let fake = Fake::start().await;
    let arguments = ["check", "pod/web", "-n", "shop"];
    let missing = run(&fake, &arguments).await.expect_err("no pod");
    assert_eq!(missing.exit, Exit::Unavailable);
    assert!(missing.to_string().contains("pod shop/web: "), "{missing}");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), POD).expect("written");
    let inject = ["sidecar-injector", "inject", "-f", file.path().to_str().expect("a path")];
    let injected = cli::run(inject.map(Into::into), &Environment::default()).expect("injected").text;
    let mut pod = pod_of(&injected);
    pod["status"] = json!({"podIPs": [{"ip": "10.9.8.7"}]});
    fake.put("kubectl", pod);
    // The config in force says nothing about an injected pod: without it the pod's own options are still
    // there.
    let found = run(&fake, &arguments).await.expect("a pod");
    assert!(
        found.text.starts_with(
            "Pod \"shop/web\": injected, by revision default; captured by container istio-init\n"
        )
    );
    assert!(
        found.text.contains("option   istio-inbound-ports=*  (values global.proxy.includeInboundPorts)"),
        "{}",
        found.text
    );
    assert!(!found.refused && !found.text.contains("addresses are not known"), "{}", found.text);
    assert!(found.notes.iter().any(|note| note.contains("the built-in config is used")), "{:?}", found.notes);
}

/// The config is that of the revision that has injected the pod, or whose webhook is called for it.
#[tokio::test(flavor = "multi_thread")]
async fn check_reads_the_config_of_the_pod_s_revision() {
    let fake = Fake::start().await;
    let manifests =
        ["sidecar-injector", "manifests", "--revision", "canary", "--set", "global.tag=of-canary"];
    let objects = cli::run(manifests.map(Into::into), &Environment::default()).expect("manifests").text;
    for document in sidecar_injector::yaml::read_documents(objects.as_bytes()).expect("YAML") {
        fake.put("kubectl", document.value);
    }
    let labels = json!({"istio.io/rev": "canary"});
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": labels}});
    fake.put("kubectl", namespace);
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), POD).expect("written");
    let path = file.path().to_str().expect("a path");
    let injected =
        run(&fake, &["inject", "-f", path, "-q", "--revision", "canary"]).await.expect("a cluster");
    for pod in [POD, &injected.text] {
        fake.put("kubectl", pod_of(pod));
        let found = run(&fake, &["check", "pod/web", "-n", "shop"]).await.expect("a pod");
        assert_eq!(found.notes, [""; 0], "{}", found.text);
        assert!(!found.text.contains("may not be its own"), "{}", found.text);
    }
    let asked = run(&fake, &["check", "pod/web", "-n", "shop", "--revision", "other"]).await.expect("a pod");
    assert!(asked.notes.iter().any(|note| note.contains("-other does not exist")), "{:?}", asked.notes);
    let asked =
        run(&fake, &["check", "pod/web", "-n", "shop", "--revision", "default"]).await.expect("a pod");
    assert!(
        asked.notes.iter().any(|note| note.contains("istio-sidecar-injector does not exist")),
        "{:?}",
        asked.notes
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn check_decides_about_a_pod_by_what_the_cluster_has() {
    let fake = Fake::start().await;
    install(&fake, "live-tag");
    fake.put("kubectl", pod_of(POD));
    let namespace = |labels: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": labels}});
    fake.put("kubectl", namespace(json!({})));
    let check = ["check", "pod/web", "-n", "shop"];
    let found = run(&fake, &check).await.expect("a pod");
    assert!(found.refused && found.text.contains("no webhook is called for it"), "{}", found.text);
    let manifests = ["sidecar-injector", "manifests", "--replace-istiod"];
    let text = cli::run(manifests.map(Into::into), &Environment::default()).expect("manifests").text;
    let objects = sidecar_injector::yaml::read_documents(text.as_bytes()).expect("YAML").into_iter();
    let hooks =
        objects.map(|object| object.value).find(|object| object["kind"] == "MutatingWebhookConfiguration");
    fake.put("kubectl", hooks.expect("the configuration"));
    fake.put("kubectl", namespace(json!({"istio-injection": "enabled"})));
    let found = run(&fake, &check).await.expect("a pod");
    assert!(!found.refused && found.notes.is_empty(), "{} {:?}", found.text, found.notes);
    assert!(found.text.contains("is called"), "{}", found.text);
}

/// The pod as the config of the cluster injects it.
async fn injected(fake: &Fake) -> Output {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), POD).expect("written");
    let path = file.path().to_str().expect("a path");
    run(fake, &["inject", "-f", path, "-q"]).await.expect("a cluster")
}

/// A tag of istiod with the labels of this installation: the second webhook is named, also for a pod that is
/// injected already.
#[tokio::test(flavor = "multi_thread")]
async fn check_names_the_second_webhook_of_an_injected_pod() {
    let fake = Fake::start().await;
    install(&fake, "live-tag");
    let injected = injected(&fake).await;
    fake.put("kubectl", pod_of(&injected.text));
    let labels = json!({"istio-injection": "enabled"});
    fake.put(
        "kubectl",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": labels}}),
    );
    let manifests = ["sidecar-injector", "manifests", "--replace-istiod"];
    let text = cli::run(manifests.map(Into::into), &Environment::default()).expect("manifests").text;
    let objects = sidecar_injector::yaml::read_documents(text.as_bytes()).expect("YAML").into_iter();
    let mut hooks = objects
        .map(|object| object.value)
        .find(|object| object["kind"] == "MutatingWebhookConfiguration")
        .expect("the configuration");
    fake.put("kubectl", hooks.clone());
    let check = ["check", "pod/web", "-n", "shop"];
    let found = run(&fake, &check).await.expect("a pod");
    assert!(!found.text.contains("the last one wins"), "{}", found.text);
    hooks["metadata"]["name"] = json!("istio-revision-tag-default");
    fake.put("kubectl", hooks);
    let found = run(&fake, &check).await.expect("a pod");
    let warning = found.text.lines().find(|line| line.contains("the last one wins"));
    assert!(
        warning.is_some_and(|line| line.contains("istio-revision-tag-default") && line.contains(NAME)),
        "{}",
        found.text
    );
    let found = run(&fake, &["check", "pod/web", "-n", "shop", "-o", "json"]).await.expect("a pod");
    assert!(found.text.contains("the last one wins"), "{}", found.text);
}

/// The options of an injected pod are its own.
#[tokio::test(flavor = "multi_thread")]
async fn check_reports_an_injected_pod_beside_an_invalid_config() {
    let fake = Fake::start().await;
    install(&fake, "live-tag");
    let injected = injected(&fake).await;
    let config = "policy: enabled\ntemplates: {sidecar: '{{ .Nope'}\n";
    fake.put("kubectl", config_map(NAME, &json!({"config": config, "values": BUILTIN_VALUES})));
    let check = ["check", "pod/web", "-n", "shop"];
    fake.put("kubectl", pod_of(POD));
    assert_eq!(run(&fake, &check).await.expect_err("no config").exit, Exit::Data);
    fake.put("kubectl", pod_of(&injected.text));
    let found = run(&fake, &check).await.expect("a pod");
    assert!(found.text.starts_with("Pod \"shop/web\": injected, by revision default; "), "{}", found.text);
    assert!(found.text.contains("option   istio-inbound-ports=*"), "{}", found.text);
    assert!(found.refused, "the config is invalid");
    assert!(
        found.notes.iter().any(|note| note.starts_with("error: ") && note.contains("sidecar line 1")),
        "{:?}",
        found.notes
    );
}
