//! Which pods are injected: the API server's selectors and the webhook, against what `check` predicts.

use serde_json::{Map, Value, json};
use sidecar_injector::cli::{self, Environment};

use crate::control_plane::Cluster;
use crate::installation::{Installation, is_injected, manifests, pod};
use crate::replica::Replica;

const RUN: &str = "end-to-end.test/run";

pub(crate) fn check_predicts_the_api_server(cluster: &Cluster) {
    let mut installation = Installation::new(cluster, &[]);
    let replica = Replica::start(&installation, 1);
    let ready = installation.injected_namespace("ready");
    installation.until_injecting(&ready);
    let by_default = default_revision(&installation);
    installation.apply(&by_default);
    let revision = installation.revision.clone();
    let namespaces = combinations(&[
        ("istio-injection", &["", "enabled", "disabled", "other"]),
        ("istio.io/rev", &["", &revision, "no-such"]),
    ]);
    let (mut seen, mut injected) = (0, 0);
    for (number, mut labels) in namespaces.into_iter().enumerate() {
        let namespace = format!("{revision}-{number}");
        labels.insert(RUN.to_owned(), json!(revision));
        installation.namespace(&namespace, &json!(labels));
        let pods = pods(&namespace, &revision);
        // The API server learns of the second configuration, and of namespaces, in its own time.
        if number == 0 {
            let mut asks = pod(&namespace);
            asks["metadata"]["labels"] = json!({"sidecar.istio.io/inject": "true"});
            crate::api::until("the default revision injects", || {
                cluster.api.dry_run(&asks).is_ok_and(|pod| is_injected(&pod))
            });
        }
        let predicted = check(&installation, &namespace, &pods);
        for (pod, predicted) in pods.iter().zip(predicted) {
            let admitted = cluster.api.dry_run(pod).unwrap_or_else(|rejected| panic!("{pod}: {rejected:?}"));
            assert_eq!(is_injected(&admitted), predicted, "{labels:?}: {pod}");
            seen += 1;
            injected += usize::from(predicted);
        }
    }
    assert!(seen == 432 && injected > 60 && injected < 300, "{injected} of {seen}");
    drop(replica);
}

/// The webhooks of the default revision, for namespaces of this run only, served by this installation.
fn default_revision(installation: &Installation<'_>) -> Value {
    let mut objects = manifests(&[
        "--namespace",
        &installation.namespace,
        "--replace-istiod",
        "--enable-namespaces-by-default",
    ]);
    let mut object = objects.pop().expect("the webhook configuration");
    object["metadata"]["name"] = json!(format!("{}-default", installation.name()));
    let bundle = installation.ca_bundles().remove(0);
    for hook in object["webhooks"].as_array_mut().expect("webhooks") {
        hook["clientConfig"]["caBundle"] = json!(bundle);
        hook["clientConfig"]["service"]["name"] = json!(installation.name());
        let own = json!({"key": RUN, "operator": "In", "values": [installation.revision]});
        hook["namespaceSelector"]["matchExpressions"].as_array_mut().expect("a selector").push(own);
    }
    object
}

/// All combinations of labels; the empty value is none.
fn combinations(keys: &[(&str, &[&str])]) -> Vec<Map<String, Value>> {
    keys.iter().fold(vec![Map::new()], |all, (key, values)| {
        let with = |labels: &Map<String, Value>, value: &str| {
            let mut labels = labels.clone();
            if !value.is_empty() {
                labels.insert((*key).to_owned(), json!(value));
            }
            labels
        };
        all.iter().flat_map(|labels| values.iter().map(move |value| with(labels, value))).collect()
    })
}

fn pods(namespace: &str, revision: &str) -> Vec<Value> {
    let labels = combinations(&[
        ("sidecar.istio.io/inject", &["", "true", "false"]),
        ("istio.io/rev", &["", revision, "no-such"]),
    ]);
    let mut pods = Vec::new();
    for labels in labels {
        for (annotations, host) in [
            (json!({}), false),
            (json!({"sidecar.istio.io/inject": "false"}), false),
            (json!({"sidecar.istio.io/inject": "true"}), false),
            (json!({}), true),
        ] {
            let mut pod = pod(namespace);
            pod["metadata"]["labels"] = json!(labels);
            pod["metadata"]["annotations"] = annotations;
            if host {
                pod["spec"]["hostNetwork"] = json!(true);
            }
            pods.push(pod);
        }
    }
    pods
}

/// What `check` says of each, given the objects of the API server.
fn check(installation: &Installation<'_>, namespace: &str, pods: &[Value]) -> Vec<bool> {
    let api = &installation.cluster.api;
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, value: &Value| {
        let path = directory.path().join(name);
        std::fs::write(&path, value.to_string()).expect("written");
        path.display().to_string()
    };
    let hooks = |name: &str| {
        let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
        api.get(&format!("{path}/{name}")).expect("the configuration")
    };
    let hooks = json!({"kind": "List", "apiVersion": "v1", "items": [
        hooks(&installation.name()), hooks(&format!("{}-default", installation.name()))]});
    let object = api.get(&format!("/api/v1/namespaces/{namespace}")).expect("the namespace");
    let files = [
        write("hooks.json", &hooks),
        write("namespace.json", &object),
        write("pods.json", &json!({"kind": "List", "apiVersion": "v1", "items": pods})),
    ];
    let arguments = [
        "sidecar-injector",
        "check",
        "--webhooks",
        &files[0],
        "--namespace-file",
        &files[1],
        "-f",
        &files[2],
        "-o",
        "json",
    ];
    let output = cli::run(arguments.iter().map(Into::into), &Environment::default());
    let output = output.unwrap_or_else(|failure| panic!("{failure}"));
    let answers: Value = serde_json::from_str(&output.text).expect("JSON");
    answers.as_array().expect("a list").iter().map(|answer| answer["injected"] == true).collect()
}
