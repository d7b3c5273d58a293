//! Reviews: verdicts, patches, denials, warnings, and requests that are not a review.

mod context;
mod denials;
mod patches;
mod recorded;
mod requests;
mod warnings;

use serde_json::{Value, json};
use sidecar_injector::config::{Source, Sources};
use sidecar_injector::inject::{Injector, Options, Request, functions};
use sidecar_injector::pod::workload::Workload;
use sidecar_injector::webhook::admission::Response;

use crate::builtin::{self, deployment, injector};
use crate::reviews::{UID, response, sent};

/// The pod as the injector returns it, without `managedFields`.
fn injected(pod: &Value) -> Value {
    let pod = unmanaged(pod);
    let workload = Workload::of_pod(&pod, "shop");
    injector().inject(Request { pod: &pod, workload: &workload, context: &builtin::native() }).unwrap().pod
}

fn unmanaged(pod: &Value) -> Value {
    let mut pod = pod.clone();
    pod["metadata"].as_object_mut().unwrap().shift_remove("managedFields");
    pod
}

/// A pod with its own settings for the proxy, which mounts the token too.
fn customised() -> Value {
    let mut pod = deployment();
    let own = json!({"name": "istio-proxy", "image": "auto", "env": [{"name": "EXTRA", "value": "1"}]});
    pod["spec"]["containers"].as_array_mut().unwrap().insert(0, own);
    sent(&pod)
}

fn denied(answer: &Response) -> (u64, String, String) {
    let response = response(answer);
    assert_eq!((&response["allowed"], &response["uid"]), (&json!(false), &json!(UID)));
    assert_eq!(response.get("patch"), None);
    assert_eq!(
        response["auditAnnotations"],
        json!({"decision": "denied", "reason": answer.verdict.reason()})
    );
    assert_eq!(answer.verdict.outcome(), "denied");
    let status = &response["status"];
    let text = |key: &str| status[key].as_str().unwrap().to_owned();
    (status["code"].as_u64().unwrap(), text("reason"), text("message"))
}

fn with_config(text: &str) -> Injector {
    let config = Some(Source { name: "config".to_owned(), text: text.to_owned() });
    let sources = Sources { config, ..Sources::default() };
    Injector::new(sources.load(&functions(|_| None)).unwrap(), Options::default())
}
