//! Pods that are injected: the patch, and pods that come twice.

use serde_json::{Value, json};
use sidecar_injector::webhook::verdict::Outcome;

use crate::builtin::{deployment, injector};
use crate::reviews::{UID, admission, ask, patched, response, review, sent, steps};
use crate::{customised, injected, unmanaged};

#[test]
fn both_versions_get_the_injected_pod() {
    for (version, pod) in
        [("v1", sent(&deployment())), ("v1beta1", sent(&deployment())), ("v1", customised())]
    {
        let mut asked = review(&pod);
        asked["apiVersion"] = json!(format!("admission.k8s.io/{version}"));
        let answer = ask(&admission(injector(), 0), &asked);
        assert_eq!((answer.status, answer.content_type), (200, "application/json"));
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["kind"], "AdmissionReview");
        assert_eq!(body["apiVersion"], asked["apiVersion"]);
        let response = response(&answer);
        assert_eq!(response["uid"], UID);
        assert_eq!(response["allowed"], true);
        assert_eq!(response["auditAnnotations"], json!({"decision": "injected", "reason": "policy"}));
        assert_eq!(unmanaged(&patched(&pod, &answer)), injected(&pod));
        assert_eq!(patched(&pod, &answer)["metadata"]["managedFields"], pod["metadata"]["managedFields"]);
        let record = &answer.record;
        assert_eq!((record.outcome, record.reason), (Outcome::Injected, "policy"));
        assert_eq!((record.uid.as_str(), record.namespace.as_str()), (UID, "shop"));
        assert_eq!((record.owner.as_str(), record.cached), ("Deployment/web", false));
    }
}

#[test]
fn the_patch_leaves_what_is_the_user_s_alone() {
    let steps = steps(&ask(&admission(injector(), 0), &review(&sent(&deployment()))));
    let paths: Vec<&str> =
        steps.as_array().unwrap().iter().map(|step| step["path"].as_str().unwrap()).collect();
    assert!(paths.contains(&"/spec/initContainers"), "{paths:?}");
    for path in paths {
        assert!(!path.starts_with("/spec/containers") && !path.contains("managedFields"), "{path}");
    }
}

#[test]
fn the_request_s_namespace_counts_and_stays_out_of_the_patch() {
    let mut pod = sent(&deployment());
    let expected = injected(&pod);
    pod["metadata"].as_object_mut().unwrap().shift_remove("namespace");
    let answer = ask(&admission(injector(), 0), &review(&pod));
    let mut patched = unmanaged(&patched(&pod, &answer));
    assert_eq!(patched["metadata"].get("namespace"), None);
    patched["metadata"]["namespace"] = json!("shop");
    assert_eq!(patched, expected);
    let mut asked = review(&sent(&deployment()));
    asked["request"]["namespace"] = json!("kube-system");
    assert_eq!(ask(&admission(injector(), 0), &asked).record.reason, "system-namespace");
    asked["request"].as_object_mut().unwrap().shift_remove("namespace");
    assert_eq!(ask(&admission(injector(), 0), &asked).record.namespace, "shop");
}

#[test]
fn a_pod_that_is_as_it_should_be_gets_no_patch() {
    let admission = admission(injector(), 0);
    let pod = sent(&deployment());
    let once = patched(&pod, &ask(&admission, &review(&pod)));
    let answer = ask(&admission, &review(&once));
    let response = response(&answer);
    assert_eq!((response.get("patch"), response.get("patchType")), (None, None));
    assert_eq!(response["allowed"], true);
    assert_eq!((answer.record.outcome, answer.record.reason), (Outcome::Skipped, "unchanged"));
}

/// What other webhooks do to an injected pod.
fn foreign(pod: &Value) -> Value {
    let mut pod = pod.clone();
    let spec = &mut pod["spec"];
    for container in spec["initContainers"].as_array_mut().unwrap() {
        container.as_object_mut().unwrap().shift_remove("restartPolicy");
        if let Some(env) = container.get_mut("env").and_then(Value::as_array_mut) {
            env.insert(0, json!({"name": "FOREIGN", "value": "1"}));
        }
    }
    spec["initContainers"].as_array_mut().unwrap().reverse();
    spec["initContainers"].as_array_mut().unwrap().insert(1, json!({"name": "fetch", "image": "fetch:1"}));
    spec["containers"].as_array_mut().unwrap().insert(0, json!({"name": "agent", "image": "agent:1"}));
    spec["volumes"].as_array_mut().unwrap().reverse();
    pod
}

#[test]
fn a_second_round_repairs_what_other_webhooks_have_broken() {
    let admission = admission(injector(), 0);
    let f = |pod: &Value| patched(pod, &ask(&admission, &review(pod)));
    for pod in [sent(&deployment()), customised()] {
        let repaired = f(&foreign(&f(&pod)));
        let init = repaired["spec"]["initContainers"].as_array().unwrap();
        let names: Vec<&str> = init.iter().map(|container| container["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["istio-init", "istio-proxy", "fetch"]);
        assert_eq!(init[1]["restartPolicy"], "Always");
        let env = init[1]["env"].as_array().unwrap();
        assert_eq!(env.iter().filter(|variable| variable["name"] == "FOREIGN").count(), 1);
        let apps = repaired["spec"]["containers"].as_array().unwrap();
        assert!(apps.iter().any(|container| container["name"] == "agent"));
        assert!(!apps.iter().any(|container| container["name"] == "istio-proxy"));
        assert_eq!(f(&repaired), repaired);
    }
}
