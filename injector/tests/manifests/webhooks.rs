//! Which pods the webhooks match: the table of labels, with the objects that are applied.

use serde_json::{Map, Value, json};
use sidecar_injector::decide::{Called, SYSTEM_NAMESPACES, Webhooks};
use sidecar_injector::manifests::Options;

use super::{all, canary, objects, only, options};

fn labels(text: &str) -> Map<String, Value> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), json!(value))).collect()
}

fn installed(options: &[&Options]) -> Webhooks {
    let objects: Vec<Value> = options.iter().flat_map(|options| objects(options)).collect();
    Webhooks::parse(&objects).unwrap()
}

fn called(webhooks: &Webhooks, namespace: &str, name: &str, pod: &str) -> Option<String> {
    let mut namespace = labels(namespace);
    namespace.insert("kubernetes.io/metadata.name".to_owned(), json!(name));
    match webhooks.called(&namespace, &labels(pod)) {
        Called::By(webhook, _) => webhook.revision,
        Called::ByNone(_) => None,
    }
}

/// Labels of the namespace, labels of the pod, the revision that injects.
const TABLE: [(&str, &str, Option<&str>); 12] = [
    ("istio-injection=enabled", "", Some("default")),
    ("istio-injection=enabled", "sidecar.istio.io/inject=false", None),
    ("istio-injection=disabled", "", None),
    ("istio-injection=disabled", "sidecar.istio.io/inject=true", None),
    ("", "sidecar.istio.io/inject=true", Some("default")),
    ("", "", None),
    ("istio-injection=enabled", "sidecar.istio.io/inject=true", Some("default")),
    ("istio.io/rev=canary", "", Some("canary")),
    ("istio.io/rev=canary", "istio.io/rev=other", Some("canary")),
    ("istio.io/rev=canary", "sidecar.istio.io/inject=false", None),
    ("", "istio.io/rev=canary", Some("canary")),
    ("istio-injection=enabled,istio.io/rev=canary", "", Some("default")),
];

#[test]
fn the_table_of_labels() {
    let webhooks = installed(&[&options(), &canary()]);
    for (namespace, pod, expected) in TABLE {
        let found = called(&webhooks, namespace, "shop", pod);
        assert_eq!(found.as_deref(), expected, "namespace {namespace}, pod {pod}");
        let calls = webhooks.all_called(&labels(namespace), &labels(pod)).count();
        assert_eq!(calls, usize::from(expected.is_some()), "namespace {namespace}, pod {pod}: called once");
    }
    let by_default = installed(&[&Options { by_default: true, ..options() }]);
    assert_eq!(called(&by_default, "", "shop", "").as_deref(), Some("default"));
    for (namespace, pod) in [
        ("istio-injection=disabled", ""),
        ("istio-injection=disabled", "sidecar.istio.io/inject=true"),
        ("", "sidecar.istio.io/inject=false"),
    ] {
        assert_eq!(called(&by_default, namespace, "shop", pod), None, "namespace {namespace}, pod {pod}");
    }
}

#[test]
fn the_cluster_and_the_injector_itself_come_up_without_it() {
    for options in all() {
        let webhooks = installed(&[&options]);
        let asks = ["", "sidecar.istio.io/inject=true", "istio.io/rev=canary", "istio.io/rev=default"];
        for name in SYSTEM_NAMESPACES.iter().copied().chain([options.namespace.as_str()]) {
            for namespace in ["", "istio-injection=enabled", "istio.io/rev=default", "istio.io/rev=canary"] {
                for pod in asks {
                    assert_eq!(called(&webhooks, namespace, name, pod), None, "{name} {namespace} {pod}");
                }
            }
        }
        // Even if the namespace's name were not looked at: the injector's pods refuse.
        let mine = objects(&options);
        let pod = only(&mine, "Deployment")["spec"]["template"]["metadata"]["labels"].as_object().unwrap();
        for namespace in ["istio-injection=enabled", "istio.io/rev=canary", ""] {
            assert!(matches!(webhooks.called(&labels(namespace), pod), Called::ByNone(_)), "{namespace}");
        }
    }
}

#[test]
fn the_webhooks_are_istio_s_except_for_excluded_namespaces() {
    for options in all() {
        let mine = objects(&options);
        let own = Webhooks::of_revision(options.revision.as_str(), options.by_default).unwrap();
        let webhooks = only(&mine, "MutatingWebhookConfiguration")["webhooks"].as_array().unwrap();
        let names: Vec<&str> = webhooks.iter().map(|webhook| webhook["name"].as_str().unwrap()).collect();
        assert_eq!(names, own.all.iter().map(|webhook| webhook.name.as_str()).collect::<Vec<_>>());
        for webhook in webhooks {
            assert_eq!(webhook["clientConfig"]["service"]["path"], "/inject");
            assert_eq!(webhook["clientConfig"].get("caBundle"), None);
            assert_eq!(webhook["failurePolicy"], options.failure_policy.as_str());
            assert_eq!(webhook["reinvocationPolicy"], "IfNeeded");
            assert_eq!(webhook["timeoutSeconds"], 10);
            assert_eq!(webhook["sideEffects"], "None");
            assert_eq!(webhook["admissionReviewVersions"], json!(["v1", "v1beta1"]));
        }
    }
}
