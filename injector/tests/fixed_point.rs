//! A pod that is injected stays as it is when it is injected again, whatever its author wrote: by the engine,
//! and by the patch that the API server applies.

use std::sync::{Arc, LazyLock};

use crate::builtin::{self, deployment, injector};
use crate::reviews::{operations, patched, response, review, send, sent};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use sidecar_injector::annotations::{KeyKind, TABLE};
use sidecar_injector::cluster::ClusterState;
use sidecar_injector::inject::{InjectionContext, Injector, Request};
use sidecar_injector::pod::workload::Workload;
use sidecar_injector::webhook::admission::Admission;
use sidecar_injector::webhook::config_store::ConfigStore;

/// Usual values and hostile ones.
const VALUES: &[&str] = &[
    "",
    " ",
    "true",
    "false",
    "TRUE",
    "yes",
    "0",
    "1",
    "80",
    "080",
    "+80",
    " 80",
    "443",
    "1024",
    "3000",
    "5432",
    "8080",
    "9100",
    "27017",
    "65535",
    "80,90",
    "80,,90",
    "15020",
    "015020",
    "0.1",
    "1e3",
    "1024Ki",
    "*",
    "10.0.0.0/8",
    "NONE",
    "REDIRECT",
    "TPROXY",
    "gateway",
    "sidecar",
    "sidecar,sidecar",
    "sidecar,",
    "my/proxy:1",
    "web",
    "/metrics",
    "/stats/prometheus",
    "8080:/metrics,9100:/other",
    ":,8080:",
    ",",
    "null",
    "[]",
    "{}",
    "\"8080\"",
    "{\"a\": 1, \"a\": 2}",
    "{\"extra\": {\"emptyDir\": {}}}",
    "{\"extra\": {\"mountPath\": \"/extra\"}}",
    "{\"extra\": {\"mountPath\": \"/extra\"}, \"more\": {\"mountPath\": \"/extra\"}}",
    "{\"extra\": {\"mountPath\": \"/etc/istio/proxy\"}}",
    "[{\"name\": \"extra\", \"emptyDir\": {}}, {\"name\": \"extra\", \"secret\": {}}]",
    "{\"istio-data\": {\"emptyDir\": {}}}",
    "concurrency: 2",
    "holdApplicationUntilProxyStarts: true",
    "interceptionMode: NONE",
    "statusPort: 15021",
    "{\"containers\":null,\"initContainers\":7}",
    "{\"containers\":[{\"name\":\"istio-proxy\",\"image\":\"x\"}]}",
    "{\"containers\":[{\"name\":\"istio-proxy\"},{\"name\":\"istio-proxy\",\"image\":\"y\"}]}",
    "{\"containers\":[{\"name\":\"istio-proxy\",\"env\":7}]}",
    "{\"containers\":[{\"name\":\"istio-proxy\",\"resources\":{\"limits\":{\"cpu\":\"x\"}}}]}",
    "{\"containers\":[{\"name\":\"web\",\"image\":\"x\"}]}",
    "{\"containers\":[{\"name\":\"other\",\"image\":\"x\"}]}",
    "{\"containers\":[{\"image\":\"x\"}]}",
    "{\"initContainers\":[{\"name\":\"istio-init\",\"image\":\"x\"},{\"name\":\"istio-proxy\",\"tty\":true}]}",
    "{\"containers\":[\"istio-proxy\"],\"initContainers\":[\"istio-init\"]}",
    "{\"containers\":[\"web\"],\"volumes\":[\"own\"],\"revision\":1}",
    "{\"initContainers\":[\"istio-init\",\"istio-proxy\"],\"volumes\":[\"istio-envoy\"]}",
];

fn contexts() -> [InjectionContext; 2] {
    [InjectionContext::default(), builtin::native()]
}

fn admission(context: &InjectionContext) -> Admission {
    let state = ClusterState { native_sidecars: context.native_sidecars, ..ClusterState::default() };
    Admission::new(Arc::new(ConfigStore::new(injector(), state)))
}

static INJECTOR: LazyLock<Injector> = LazyLock::new(injector);
static ADMISSIONS: LazyLock<[Admission; 2]> = LazyLock::new(|| contexts().each_ref().map(admission));

/// Whether the engine takes the pod; if so, it changes no byte of what it has made.
fn by_the_engine(pod: &Value, context: &InjectionContext) -> Result<bool, String> {
    let workload = Workload::of_pod(pod, "shop");
    let inject = |pod: &Value| INJECTOR.inject(Request { pod, workload: &workload, context });
    let Ok(once) = inject(pod) else {
        return Ok(false);
    };
    match inject(&once.pod) {
        Ok(twice) => {
            let (one, other) = (once.pod.to_string(), twice.pod.to_string());
            if one == other {
                return Ok(true);
            }
            Err(format!("{pod}: {}", first_difference("", &once.pod, &twice.pod)))
        }
        Err(error) => Err(format!("{pod}: refused: {error}")),
    }
}

/// Whether the webhook takes the pod; if so, what it has patched it allows without a patch.
fn by_the_webhook(pod: &Value, admission: &Admission) -> Result<bool, String> {
    let answer = send(admission, &review(pod));
    if response(&answer)["allowed"] == false {
        return Ok(false);
    }
    let once = patched(pod, &answer);
    let again = send(admission, &review(&once));
    if response(&again)["allowed"] == true && response(&again).get("patch").is_none() {
        return Ok(true);
    }
    Err(format!("{pod}: {} {}", response(&again)["status"], operations(&again)))
}

/// Where two values differ, and how: pods are long.
fn first_difference(path: &str, one: &Value, other: &Value) -> String {
    let inner = match (one, other) {
        (Value::Object(one), Value::Object(other)) if one.keys().eq(other.keys()) => {
            let pairs = one.iter().zip(other.values());
            pairs
                .map(|((key, one), other)| (key.clone(), one, other))
                .find(|(_, one, other)| one.to_string() != other.to_string())
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let pairs = one.iter().zip(other).enumerate();
            pairs
                .map(|(at, (one, other))| (at.to_string(), one, other))
                .find(|(_, one, other)| one.to_string() != other.to_string())
        }
        _ => None,
    };
    match inner {
        Some((key, one, other)) => first_difference(&format!("{path}/{key}"), one, other),
        None => format!("{path} is {other}, and was {one}"),
    }
}

fn keys(label: bool) -> Vec<&'static str> {
    let wanted = |place: KeyKind| match place {
        KeyKind::Annotation => !label,
        KeyKind::Both => true,
        KeyKind::Label => label,
        KeyKind::NamespaceLabel => false,
    };
    TABLE.iter().filter(|row| wanted(row.place)).map(|row| row.key).collect()
}

/// Annotations that a second injection finds as the first one has left them, or acts upon.
const READ_BACK: &[&str] = &[
    "prometheus.io/path",
    "prometheus.io/port",
    "prometheus.io/scrape",
    "prometheus_io_port",
    "prometheus.istio.io/scrape-targets",
    "proxy.istio.io/config",
    "proxy.istio.io/overrides",
    "sidecar.istio.io/nativeSidecar",
    "sidecar.istio.io/status",
];

#[test]
fn what_an_injection_reads_back_may_have_any_value() {
    let (mut taken, mut refused, mut problems) = (0, 0, Vec::new());
    for key in READ_BACK {
        for value in VALUES {
            let pod = builtin::with(&deployment(), &json!({*key: value}));
            let [classic, native] = contexts();
            let found = [
                by_the_engine(&pod, &classic),
                by_the_engine(&pod, &native),
                by_the_webhook(&sent(&pod), &ADMISSIONS[1]),
            ];
            for found in found {
                match found {
                    Ok(true) => taken += 1,
                    Ok(false) => refused += 1,
                    Err(problem) => problems.push(format!("{key}: {value:?}: {problem}")),
                }
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(taken > 1000 && refused > 100, "taken {taken}, refused {refused}");
}

/// The status says that an injection added the user's own proxy, in a list that may not be the one of the
/// templates.
#[test]
fn own_proxy_that_the_status_lists_is_a_fixed_point() {
    let own = json!({"name": "istio-proxy", "image": "own", "securityContext": {"runAsUser": 0}, "args": []});
    let statuses = [
        r#"{"containers":["istio-proxy"],"initContainers":["istio-init"]}"#,
        r#"{"initContainers":["istio-init","istio-proxy"]}"#,
        r#"{"containers":["istio-proxy"],"initContainers":["istio-proxy"]}"#,
    ];
    for (status, list) in
        statuses.into_iter().flat_map(|status| ["containers", "initContainers"].map(|list| (status, list)))
    {
        let mut pod = builtin::with(&deployment(), &json!({"sidecar.istio.io/status": status}));
        let mut items = deployment()["spec"][list].as_array().cloned().unwrap_or_default();
        items.push(own.clone());
        pod["spec"][list] = json!(items);
        for (context, admission) in contexts().iter().zip(ADMISSIONS.iter()) {
            assert_eq!(by_the_engine(&pod, context), Ok(true), "{status}, {list}");
            assert_eq!(by_the_webhook(&sent(&pod), admission), Ok(true), "{status}, {list}");
        }
    }
}

/// `kubectl debug --copy-to` keeps the containers of an injected pod, and no annotation.
#[test]
fn a_copy_of_an_injected_pod_is_a_fixed_point() {
    let probe = json!({"httpGet": {"port": "http", "path": "/ready"}});
    for key in [&["sidecar.istio.io/status"][..], &["prometheus.io/port"], &[]] {
        for probed in [true, false] {
            let mut pod = builtin::with(&deployment(), &json!({"prometheus.io/port": "8080"}));
            if probed {
                pod["spec"]["containers"][0]["readinessProbe"] = probe.clone();
            }
            for (context, admission) in contexts().iter().zip(ADMISSIONS.iter()) {
                let workload = Workload::of_pod(&pod, "shop");
                let mut copy =
                    INJECTOR.inject(Request { pod: &pod, workload: &workload, context }).unwrap().pod;
                match key {
                    [] => copy["metadata"]["annotations"] = json!({}),
                    [status] if *status == "sidecar.istio.io/status" => {
                        copy["metadata"]["annotations"].as_object_mut().unwrap().shift_remove(*status);
                    }
                    _ => copy["metadata"]["annotations"] = json!({"prometheus.io/port": "8080"}),
                }
                assert_eq!(by_the_engine(&copy, context), Ok(true), "{key:?}, {probed}");
                assert_eq!(by_the_webhook(&sent(&copy), admission), Ok(true), "{key:?}, {probed}");
            }
        }
    }
}

/// The patch changes the order of the annotations, two of which are spellings of one.
#[test]
fn spellings_of_an_annotation_are_a_fixed_point() {
    let annotations = json!({"istio-iptables/injected-fields": "", "prometheus.io/port": "", "prometheus_io_port": "15020"});
    let pod = builtin::with(&deployment(), &annotations);
    for admission in ADMISSIONS.iter() {
        assert_eq!(by_the_webhook(&sent(&pod), admission), Ok(true));
    }
}

fn some(keys: Vec<&'static str>, most: usize) -> impl Strategy<Value = Value> {
    let pair = (prop::sample::select(keys), prop::sample::select(VALUES));
    prop::collection::vec(pair, 0..=most).prop_map(|pairs| {
        let pairs = pairs.into_iter().map(|(key, value)| (key.to_owned(), json!(value)));
        Value::Object(pairs.collect::<Map<_, _>>())
    })
}

pub(crate) fn pods() -> impl Strategy<Value = Value> {
    let read_back = some(READ_BACK.to_vec(), 3);
    let own_proxy = prop::sample::select(vec![
        json!({"name": "istio-proxy", "image": "auto", "env": [{"name": "A", "value": ""}]}),
        json!({"name": "istio-proxy", "image": "own", "securityContext": {"runAsUser": 0}, "args": []}),
        json!({"name": "istio-proxy", "lifecycle": {"postStart": {"exec": {"command": ["x"]}}}}),
    ]);
    (
        some(keys(false), 4),
        read_back,
        some(keys(true), 3),
        prop::option::weighted(0.3, own_proxy),
        any::<bool>(),
    )
        .prop_map(|(annotations, read_back, labels, own_proxy, probed)| {
            let mut pod = deployment();
            for (of, more) in [("annotations", annotations), ("annotations", read_back), ("labels", labels)] {
                for (key, value) in more.as_object().unwrap() {
                    pod["metadata"][of][key] = value.clone();
                }
            }
            if probed {
                pod["spec"]["containers"][0]["livenessProbe"] =
                    json!({"httpGet": {"port": "http", "path": "/live"}});
            }
            pod["spec"]["containers"].as_array_mut().unwrap().extend(own_proxy);
            pod
        })
}

proptest! {
    #[test]
    fn whatever_is_taken_is_a_fixed_point(pod in pods()) {
        for (context, admission) in contexts().iter().zip(ADMISSIONS.iter()) {
            by_the_engine(&pod, context).map_err(TestCaseError::fail)?;
            by_the_webhook(&sent(&pod), admission).map_err(TestCaseError::fail)?;
        }
    }
}
