//! `manifests --check`: which objects belong to others.

use serde_json::{Value, json};
use sidecar_injector::cli::{self, Environment, Exit, Failure, Output};

use super::fake::Fake;
use super::replica::{NAME, NAMESPACE};

async fn check(fake: &Fake, arguments: &'static [&'static str]) -> Result<Output, Failure> {
    manifests(fake, "--check", arguments).await
}

async fn manifests(
    fake: &Fake,
    mode: &'static str,
    arguments: &'static [&'static str],
) -> Result<Output, Failure> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), fake.kubeconfig()).expect("written");
    let path = file.path().to_str().expect("a path").to_owned();
    // It has a runtime of its own, as the program has.
    let run = move || {
        let arguments = [&["sidecar-injector", "manifests", mode, "--kubeconfig", &path], arguments].concat();
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
async fn same_installation_is_not_a_conflict() {
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

/// What a run of `manifests` without a cluster prints.
fn printed(arguments: &[&str]) -> Vec<Value> {
    let all = ["sidecar-injector", "manifests"].iter().chain(arguments).map(Into::into);
    read(&cli::run(all, &Environment::default()).expect("manifests").text)
}

fn read(text: &str) -> Vec<Value> {
    let documents = sidecar_injector::yaml::read_documents(text.as_bytes()).expect("YAML");
    documents.into_iter().map(|document| document.value).filter(|object| !object.is_null()).collect()
}

fn titles(objects: &[Value]) -> Vec<String> {
    let title =
        |object: &Value| format!("{} {}", object["kind"], object["metadata"]["name"]).replace('"', "");
    objects.iter().map(title).collect()
}

/// The options of the installation need not be known.
#[tokio::test(flavor = "multi_thread")]
async fn uninstalling_deletes_the_validating_policy_that_is_there() {
    let fake = Fake::start().await;
    const FLAGS: [&str; 2] = ["--revision", "canary"];
    let installed = printed(&[&FLAGS[..], &["--validating-policy"]].concat());
    installed.iter().for_each(|object| fake.put("kubectl", object.clone()));
    let output = manifests(&fake, "--uninstall", &FLAGS).await.expect("a cluster");
    let mut expected = titles(&installed);
    expected.reverse();
    assert_eq!(titles(&read(&output.text)), expected);
    assert!(
        expected.iter().any(|title| title.starts_with("ValidatingAdmissionPolicyBinding ")),
        "{expected:?}"
    );
}

/// istiod of the same revision has objects of the same names.
#[tokio::test(flavor = "multi_thread")]
async fn uninstalling_deletes_no_object_of_istiod() {
    let fake = Fake::start().await;
    let uninstall = async || {
        let output = manifests(&fake, "--uninstall", &["--revision", "canary"]).await.expect("a cluster");
        (read(&output.text), output.notes)
    };
    let (deleted, notes) = uninstall().await;
    assert_eq!((deleted.len(), notes.len()), (0, 1), "{notes:?}");
    assert!(notes[0].starts_with("nothing to delete: "), "{notes:?}");

    let installed = printed(&["--revision", "canary"]);
    installed.iter().for_each(|object| fake.put("kubectl", object.clone()));
    let secret = |name: &str, metadata: Value| {
        let mut secret = istiod_s("Secret", name, metadata);
        secret["type"] = json!("kubernetes.io/tls");
        fake.put("sidecar-injector", secret);
    };
    secret(
        "istio-sidecar-injector-canary-tls",
        json!({"labels": {"app.kubernetes.io/managed-by": "sidecar-injector"}}),
    );
    secret("istio-sidecar-injector-canary-ca", json!({"labels": {"team": "another"}}));
    let (deleted, notes) = uninstall().await;
    let mut expected = titles(&installed);
    expected.reverse();
    expected.push("Secret istio-sidecar-injector-canary-tls".to_owned());
    assert_eq!(titles(&deleted), expected);
    assert!(
        deleted.iter().all(|object| object.as_object().is_some_and(|object| object.len() == 3)),
        "by name"
    );
    assert!(
        notes.len() == 1
            && notes[0].starts_with("not deleted: Secret \"istio-system/istio-sidecar-injector-canary-ca\"")
    );

    // As the chart of istiod has them.
    let rev = |more: Value| {
        let mut labels =
            json!({"istio.io/rev": "canary", "operator.istio.io/component": "Pilot", "release": "istiod"});
        labels.as_object_mut().expect("labels").extend(more.as_object().expect("labels").clone());
        json!({"labels": labels, "annotations": {"meta.helm.sh/release-name": "istiod-canary"}})
    };
    fake.put("helm", istiod_s("ConfigMap", "istio-canary", rev(json!({}))));
    fake.put("helm", istiod_s("ConfigMap", "istio-sidecar-injector-canary", rev(json!({}))));
    let mut hooks = istiod_s("x", "istio-sidecar-injector-canary", rev(json!({"app": "sidecar-injector"})));
    hooks["apiVersion"] = json!("admissionregistration.k8s.io/v1");
    hooks["kind"] = json!("MutatingWebhookConfiguration");
    hooks["metadata"].as_object_mut().expect("metadata").shift_remove("namespace");
    fake.put("helm", hooks);
    let (deleted, notes) = uninstall().await;
    expected.retain(|title| {
        !title.starts_with("ConfigMap ") && !title.starts_with("MutatingWebhookConfiguration ")
    });
    assert_eq!(titles(&deleted), expected);
    assert_eq!(notes.len(), 4, "{notes:?}");
    assert_eq!(
        notes
            .iter()
            .filter(|note| note.starts_with("not deleted: ") && note.ends_with("Helm release istiod-canary"))
            .count(),
        3,
        "{notes:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstalling_the_default_revision_keeps_its_mesh_config() {
    let fake = Fake::start().await;
    let arguments = ["sidecar-injector", "manifests", "--replace-istiod"];
    let text = cli::run(arguments.map(Into::into), &Environment::default()).expect("manifests").text;
    let installed = read(&text);
    installed.iter().for_each(|object| fake.put("kubectl", object.clone()));
    let output = manifests(&fake, "--uninstall", &["--replace-istiod"]).await.expect("a cluster");
    let mut expected = titles(&installed);
    expected.retain(|title| title != "ConfigMap istio");
    expected.reverse();
    assert_eq!((titles(&read(&output.text)), output.notes), (expected.clone(), Vec::new()));
    // Applied over istiod's: labels of its chart stay.
    let hooks =
        installed.iter().find(|object| object["kind"] == "MutatingWebhookConfiguration").expect("hooks");
    let mut over = hooks.clone();
    over["metadata"]["labels"]["operator.istio.io/component"] = json!("Pilot");
    fake.put("kubectl", over);
    let output = manifests(&fake, "--uninstall", &["--replace-istiod"]).await.expect("a cluster");
    assert_eq!(titles(&read(&output.text)), expected);
    assert!(
        output.notes.len() == 1
            && output.notes[0].starts_with(
                "warning: MutatingWebhookConfiguration \"istio-sidecar-injector\": Istio's chart made it"
            ),
        "{:?}",
        output.notes
    );
}

/// Objects of the whole cluster whose names have no namespace.
#[tokio::test(flavor = "multi_thread")]
async fn webhooks_of_an_installation_in_another_namespace_are_foreign() {
    let fake = Fake::start().await;
    let flags = ["--replace-istiod", "--validating-policy"];
    for object in printed(&[&flags[..], &["--namespace", "mesh"]].concat()) {
        fake.put("kubectl", object);
    }
    let mut foreign = [
        ("MutatingWebhookConfiguration", "istio-sidecar-injector"),
        ("ValidatingAdmissionPolicy", "istio-sidecar-injector-image-auto"),
        ("ValidatingAdmissionPolicyBinding", "istio-sidecar-injector-image-auto"),
    ]
    .map(|(kind, name)| format!("{kind} {name:?}: it belongs to the installation in namespace mesh"))
    .to_vec();
    let found = check(&fake, &["--replace-istiod", "--validating-policy"]).await.expect("a cluster");
    let mut lines: Vec<&str> = found.text.lines().collect();
    let count = lines.pop().expect("the count");
    lines.sort_unstable();
    assert_eq!((found.refused, lines), (true, foreign.iter().map(String::as_str).collect()), "{count}");
    assert!(count.ends_with(" objects are new, 0 belong to this installation, 3 to others"), "{count}");
    let output = manifests(&fake, "--uninstall", &["--replace-istiod", "--validating-policy"]);
    let mut output = output.await.expect("a cluster");
    output.notes.sort_unstable();
    foreign.iter_mut().for_each(|line| line.insert_str(0, "not deleted: "));
    foreign.push("nothing to delete: no object of this installation is in the cluster".to_owned());
    assert_eq!((read(&output.text), output.notes), (Vec::new(), foreign));
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstalling_node_agents_deletes_no_daemon_set_of_istio_s() {
    let fake = Fake::start().await;
    let installed = printed(&["--cni"]);
    installed.iter().for_each(|object| fake.put("kubectl", object.clone()));
    let deleted = async || {
        let output = manifests(&fake, "--uninstall", &["--cni"]).await.expect("a cluster");
        (titles(&read(&output.text)), output.notes)
    };
    let mut expected = titles(&installed);
    expected.reverse();
    assert_eq!(deleted().await, (expected.clone(), Vec::new()));
    let own = installed.iter().find(|object| object["kind"] == "DaemonSet").expect("a DaemonSet");
    let name = own["metadata"]["name"].as_str().expect("a name");
    fake.put("helm", agent_s(NAMESPACE, name, &json!({"k8s-app": "istio-cni-node"})));
    let (left, notes) = deleted().await;
    assert_eq!(left, expected[1..]);
    assert!(notes.len() == 1 && notes[0].ends_with("it belongs to Istio's component Cni"), "{notes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_cluster_is_an_error() {
    let fake = Fake::start().await;
    fake.fail("GET", "serviceaccounts", 403, 9);
    for mode in ["--check", "--uninstall"] {
        let failure = manifests(&fake, mode, &["--revision", "canary"]).await.expect_err("forbidden");
        assert_eq!(failure.exit, Exit::Unavailable);
        assert!(
            failure.problems[0].contains("ServiceAccount") && failure.problems[0].contains("context"),
            "{failure}"
        );
    }
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
