//! The command, with files.

use serde_json::{Value, json};
use sidecar_injector::cli::{self, Environment, Exit, Failure, Output};

use super::healthy::{cluster, plain_pod};

fn run(arguments: &[&str]) -> Result<Output, Failure> {
    let arguments = ["sidecar-injector", "doctor"].iter().chain(arguments);
    cli::run(arguments.map(Into::into), &Environment::default())
}

fn save(folder: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The clock is the machine's here: certificates are left out.
fn timeless() -> Vec<Value> {
    cluster().into_iter().filter(|object| object["kind"] != "Secret").collect()
}

#[test]
fn a_healthy_cluster_is_a_zero() {
    let folder = tempfile::tempdir().unwrap();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": timeless()});
    let file = save(&folder, "cluster.json", &list.to_string());
    let output = run(&["-f", &file]).unwrap();
    assert!(!output.refused, "{}", output.text);
    assert!(output.text.contains("no problem found in"), "{}", output.text);
    assert!(output.text.contains("not checked: the certificate"), "{}", output.text);
    let items = save(&folder, "items.json", &list["items"].to_string());
    assert_eq!(run(&["-f", &items]).unwrap().text, output.text);
}

#[test]
fn files_of_both_kinds_and_a_broken_cluster_is_a_one() {
    let folder = tempfile::tempdir().unwrap();
    for (at, object) in timeless().iter().enumerate() {
        if object["kind"] == "Service" {
            continue;
        }
        let yaml = at % 2 == 0;
        let text = if yaml { sidecar_injector::yaml::write(object) } else { object.to_string() };
        save(&folder, &format!("{at}.{}", if yaml { "yaml" } else { "json" }), &text);
    }
    save(
        &folder,
        "other.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: kubernetes, namespace: default}\n",
    );
    let path = folder.path().to_str().unwrap();
    let output = run(&["-f", path]).unwrap();
    assert!(output.refused);
    assert!(
        output.text.contains("broken   service-missing: Service istio-system/istio-sidecar-injector\n"),
        "{}",
        output.text
    );
    let output = run(&["-f", path, "-o", "json"]).unwrap();
    assert!(output.refused);
    let found: Value = serde_json::from_str(&output.text).unwrap();
    assert_eq!(found["broken"], true);
    assert_eq!(found["findings"][0]["problem"], "service-missing");
    assert_eq!(found["findings"][0]["severity"], "broken");
    assert!(found["findings"][0]["fix"].as_str().unwrap().contains("kubectl apply"));
}

#[test]
fn empty_input_is_not_a_cluster() {
    let folder = tempfile::tempdir().unwrap();
    for text in ["", "null", "[]", "{}", "a: 1\n", "---\n---\n", "{\"kind\": \"List\", \"items\": []}"] {
        let file = save(&folder, "e.json", text);
        let failure = run(&["-f", &file]).unwrap_err();
        assert_eq!(failure.exit, Exit::Data, "{text:?}");
        let message = failure.to_string();
        assert!(message.starts_with(&format!("error: {file}: no Kubernetes objects")), "{message}");
        assert!(message.contains("kubectl get -A -o json"), "{message}");
    }
}

#[test]
fn pods_alone_are_not_called_a_broken_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let pods = timeless().into_iter().filter(|object| object["kind"] == "Pod").collect::<Vec<_>>();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": pods});
    let output = run(&["-f", &save(&folder, "pods.json", &list.to_string())]).unwrap();
    assert!(!output.refused, "{}", output.text);
    assert!(
        output.text.contains("not checked: MutatingWebhookConfigurations: none among"),
        "{}",
        output.text
    );
}

/// As many pods as a large cluster has, with what `kubectl` saves of each.
#[test]
fn a_real_cluster_fits() {
    let folder = tempfile::tempdir().unwrap();
    let mut items = timeless();
    let mut pod = plain_pod("shop", "api");
    pod["metadata"]["managedFields"] = json!([{"fieldsV1": {"f:spec": "x".repeat(3000)}}]);
    items.extend(std::iter::repeat_n(pod, 6000));
    let text = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    assert!(text.len() > 17 << 20, "{}", text.len());
    let output = run(&["-f", &save(&folder, "cluster.json", &text)]).unwrap();
    assert!(output.text.contains("sidecar-missing: Deployment shop/api (6000 pods)"), "{}", output.text);

    let failure = run(&["-f", &save(&folder, "cut.json", &text[..17 << 20])]).unwrap_err();
    assert_eq!(failure.exit, Exit::Data);
    let message = failure.to_string();
    assert!(message.contains("cut.json: EOF while parsing") && !message.contains("in parts"), "{message}");
    let large = save(&folder, "large.json", "");
    std::fs::OpenOptions::new().write(true).open(&large).unwrap().set_len((1 << 30) + 1).unwrap();
    let failure = run(&["-f", &large]).unwrap_err();
    assert_eq!(failure.exit, Exit::Data);
    let expected = "large.json: larger than 1024 MiB, the most that is read: save large clusters in parts";
    assert!(failure.to_string().contains(expected), "{failure}");
}

#[test]
fn what_cannot_be_read_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let failure = run(&["--kubeconfig", "/nowhere"]).unwrap_err();
    assert!(failure.to_string().contains("/nowhere"), "{failure}");
    assert_eq!(failure.exit, Exit::NoInput);
    let broken = save(&folder, "kubeconfig", "clusters: 5");
    let failure = run(&["--kubeconfig", &broken]).unwrap_err();
    assert_eq!(failure.exit, Exit::Unavailable);
    assert!(failure.to_string().contains(&format!("kubeconfig {broken}: ")), "{failure}");
    let cut = save(&folder, "cut.json", "{\"kind\": \"Li");
    let failure = run(&["-f", &cut]).unwrap_err();
    assert_eq!(failure.exit, Exit::Data);
    assert!(failure.to_string().contains("cut.json"), "{failure}");
    assert_eq!(run(&["-f", "/nowhere.json"]).unwrap_err().exit, Exit::NoInput);
}

#[test]
fn names_of_namespaces_are_looked_at() {
    for flag in ["-n", "--istio-namespace"] {
        let failure = run(&["-f", "/dev/null", flag, "Bad NS"]).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        let message = failure.to_string();
        assert!(
            message.contains("\"Bad NS\" is not accepted, expected at most 63")
                && message.contains("amespace"),
            "{message}"
        );
    }
}

#[test]
fn the_documentation_has_every_problem() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/webhook.md");
    let text = std::fs::read_to_string(path).unwrap();
    for problem in sidecar_injector::doctor::Problem::ALL {
        let slug = format!("`{}`", problem.slug());
        let row = text.lines().find(|line| line.split('|').nth(1).is_some_and(|cell| cell.contains(&slug)));
        let row = row.unwrap_or_else(|| panic!("{} is not in docs/webhook.md", problem.slug()));
        assert!(row.contains(&format!("| {} |", problem.severity())), "{row}");
    }
}

#[test]
fn namespaces_that_do_not_exist_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": timeless()});
    let file = save(&folder, "cluster.json", &list.to_string());
    let failure = run(&["-f", &file, "-n", "nosuch"]).unwrap_err();
    assert_eq!(failure.exit, Exit::Data);
    assert!(
        failure.problems[0].starts_with("--namespace nosuch: there is no such namespace, expected one of: "),
        "{failure}"
    );
    assert!(run(&["-f", &file, "-n", "shop"]).is_ok());
}

#[test]
fn a_label_in_another_case_is_broken() {
    let folder = tempfile::tempdir().unwrap();
    let mut objects = timeless();
    let shop = objects
        .iter_mut()
        .find(|object| object["kind"] == "Namespace" && object["metadata"]["name"] == "shop");
    shop.unwrap()["metadata"]["labels"] = json!({"istio-injection": "Enabled"});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let file = save(&folder, "cluster.json", &list.to_string());
    let output = run(&["-f", &file, "-n", "shop"]).unwrap();
    assert!(output.refused && output.text.contains("istio-injection=Enabled"), "{}", output.text);
    assert!(output.text.contains("only enabled switches injection on"), "{}", output.text);
}

#[test]
fn context_and_url_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}, {"name": "two", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}], "users": [{"name": "u", "user": {}}],
    });
    let file = save(&folder, "kubeconfig", &kubeconfig.to_string());
    let failure = run(&["--kubeconfig", &file, "--context", "three"]).unwrap_err();
    let expected =
        format!("kubeconfig {file}, context three: there is no such context, expected one of: one, two");
    assert_eq!(failure.problems, [expected]);
    let failure = run(&["--kubeconfig", &file, "--context", "two"]).unwrap_err();
    assert_eq!(failure.exit, Exit::Unavailable);
    let start = format!("kubeconfig {file}, context two, https://127.0.0.1:1/: ");
    assert!(failure.problems[0].starts_with(&start), "{failure}");
}
