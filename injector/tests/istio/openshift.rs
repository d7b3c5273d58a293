//! OpenShift assigns the first user of the namespace's range to every container, also to a customized proxy:
//! kept, it would make the app the proxy's equal, and exempt it from capture.

use serde_json::{Value, json};
use sidecar_injector::cluster::ClusterState;
use sidecar_injector::inject::{InjectionContext, Request};
use sidecar_injector::pod::ids::Ids;
use sidecar_injector::webhook::admission::Admission;

use crate::builtin::{deployment, injector, workload};
use crate::reviews::{config_store, patched, review, send, sent};

const ASSIGNED: i64 = 1_000_620_000;
const OWN: i64 = 1_000_629_999;
const IDS: Ids = Ids { uid: Some(OWN), gid: Some(OWN) };

/// A pod with a customized proxy, as it is when OpenShift has assigned the users.
fn pod(proxy: &Value) -> Value {
    let mut pod = deployment();
    pod["spec"]["containers"][0]["securityContext"] = json!({"runAsUser": ASSIGNED});
    let proxy = json!({"name": "istio-proxy", "image": "auto", "securityContext": proxy});
    pod["spec"]["containers"].as_array_mut().unwrap().push(proxy);
    pod
}

/// The proxy's user and group, what `-u` says, and the user that the overrides note.
fn outcome(pod: &Value) -> (Value, Value, Option<String>, Value) {
    let lists = ["containers", "initContainers"].map(|list| pod["spec"][list].as_array().unwrap());
    let find = |name: &str| lists.iter().flat_map(|list| list.iter()).find(|item| item["name"] == name);
    let proxy = find("istio-proxy").unwrap();
    let args = find("istio-init").map(|init| init["args"].as_array().unwrap());
    let at = args.and_then(|args| args.iter().position(|arg| arg == "-u"));
    let exempt = at.map(|at| args.unwrap()[at + 1].as_str().unwrap().to_owned());
    let noted = pod["metadata"]["annotations"]["proxy.istio.io/overrides"].as_str().unwrap();
    let noted: Value = serde_json::from_str(noted).unwrap();
    let all = ["containers", "initContainers"].map(|list| noted[list][0]["securityContext"].clone());
    let noted = all.into_iter().find(|context| !context.is_null()).unwrap_or_default();
    let context = &proxy["securityContext"];
    (context["runAsUser"].clone(), context["runAsGroup"].clone(), exempt, noted["runAsUser"].clone())
}

fn by_engine(pod: &Value, ids: Ids, native_sidecars: bool) -> Value {
    let context = InjectionContext { ids, native_sidecars, ..InjectionContext::default() };
    let injector = injector();
    let inject =
        |pod: &Value| injector.inject(Request { pod, workload: &workload(), context: &context }).unwrap();
    let once = inject(pod);
    assert!(!once.warnings.iter().any(|warning| warning.contains("not captured")), "{:?}", once.warnings);
    assert_eq!(inject(&once.pod).pod.to_string(), once.pod.to_string());
    once.pod
}

#[test]
fn an_assigned_user_is_not_the_proxy_s() {
    let pod = pod(&json!({"runAsUser": ASSIGNED, "runAsGroup": ASSIGNED, "runAsNonRoot": true}));
    for native in [false, true] {
        let own = OWN.to_string();
        let expected = (json!(OWN), json!(OWN), Some(own), Value::Null);
        assert_eq!(outcome(&by_engine(&pod, IDS, native)), expected, "native: {native}");
    }
}

#[test]
fn the_webhook_replaces_an_assigned_user() {
    let store = config_store(injector());
    let namespaces = [("shop".to_owned(), Ok(IDS))].into();
    store.set_cluster_state(ClusterState {
        native_sidecars: true,
        namespaces,
        namespaces_required: true,
        ..ClusterState::default()
    });
    let pod = sent(&pod(&json!({"runAsUser": ASSIGNED, "runAsGroup": ASSIGNED})));
    let answer = send(&Admission::new(store), &review(&pod));
    assert_eq!(
        outcome(&patched(&pod, &answer)),
        (json!(OWN), json!(OWN), Some(OWN.to_string()), Value::Null)
    );
}

#[test]
fn another_user_is_the_author_s_choice() {
    let pod = pod(&json!({"runAsUser": 5000}));
    let expected = (json!(5000), json!(OWN), Some("5000".to_owned()), json!(5000));
    assert_eq!(outcome(&by_engine(&pod, IDS, true)), expected);
}

/// Istio compares the proxy with the last of the apps only.
#[test]
fn any_app_with_the_same_user_counts() {
    let mut pod = pod(&json!({"runAsUser": ASSIGNED}));
    let other = json!({"name": "other", "image": "o", "securityContext": {"runAsUser": 5000}});
    pod["spec"]["containers"].as_array_mut().unwrap().push(other);
    assert_eq!(outcome(&by_engine(&pod, IDS, true)).0, json!(OWN));
}

#[test]
fn a_group_without_a_user_is_the_author_s_choice() {
    let mut pod = pod(&json!({"runAsGroup": 2000}));
    pod["spec"]["containers"][0]["securityContext"] = json!({"runAsUser": 0});
    let other = json!({"name": "other", "image": "o", "securityContext": {"runAsUser": 5000}});
    pod["spec"]["containers"].as_array_mut().unwrap().push(other);
    assert_eq!(outcome(&by_engine(&pod, IDS, true)).1, json!(2000));
}

#[test]
fn the_validation_container_gets_the_proxy_s_own_user() {
    let mut pod = pod(&json!({"runAsUser": ASSIGNED, "runAsGroup": ASSIGNED}));
    let validation = json!({"name": "istio-validation", "image": "v", "args": ["-u", "1337"],
        "securityContext": {"runAsUser": OWN, "runAsGroup": OWN}});
    pod["spec"]["initContainers"] = json!([validation]);
    let injected = by_engine(&pod, IDS, false);
    let init = injected["spec"]["initContainers"].as_array().unwrap();
    let found = init.iter().find(|item| item["name"] == "istio-validation").unwrap();
    assert_eq!(*found, validation);
}

#[test]
fn elsewhere_the_author_has_chosen_it() {
    let context = InjectionContext::default();
    let pod = pod(&json!({"runAsUser": ASSIGNED}));
    let injected =
        injector().inject(Request { pod: &pod, workload: &workload(), context: &context }).unwrap();
    assert_eq!(outcome(&injected.pod).0, json!(ASSIGNED));
}
