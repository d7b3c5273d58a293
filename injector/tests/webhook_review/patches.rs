//! Patches, of new pods and on reinvocation.

use serde_json::{Value, json};

use super::{customised, injected, unmanaged};
use crate::builtin::{deployment, injector};
use crate::reviews::{UID, admission, operations, patched, response, review, send, sent};

#[test]
fn both_versions_get_the_injected_pod() {
    for (version, pod) in
        [("v1", sent(&deployment())), ("v1beta1", sent(&deployment())), ("v1", customised())]
    {
        let mut asked = review(&pod);
        asked["apiVersion"] = json!(format!("admission.k8s.io/{version}"));
        let answer = send(&admission(injector()), &asked);
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["kind"], "AdmissionReview");
        assert_eq!(body["apiVersion"], asked["apiVersion"]);
        let response = response(&answer);
        assert_eq!(response["uid"], UID);
        assert_eq!(response["allowed"], true);
        assert_eq!(response["auditAnnotations"], json!({"decision": "injected", "reason": "policy"}));
        assert_eq!(unmanaged(&patched(&pod, &answer)), injected(&pod));
        assert_eq!(patched(&pod, &answer)["metadata"]["managedFields"], pod["metadata"]["managedFields"]);
        assert_eq!((answer.verdict.outcome(), answer.verdict.reason()), ("injected", "policy"));
        assert_eq!((answer.uid.as_str(), answer.namespace.as_str()), (UID, "shop"));
        assert_eq!(answer.owner.as_str(), "Deployment/web");
    }
}

/// The API server generates the name after admission.
#[test]
fn pod_without_owner_and_name_is_logged_by_its_prefix() {
    let mut pod = sent(&deployment());
    let metadata = pod["metadata"].as_object_mut().unwrap();
    metadata.retain(|key, _| !matches!(key.as_str(), "name" | "ownerReferences"));
    metadata.insert("generateName".to_owned(), json!("run-"));
    assert_eq!(send(&admission(injector()), &review(&pod)).owner, "Pod/run-");
}

#[test]
fn the_patch_does_not_touch_user_containers() {
    let operations = operations(&send(&admission(injector()), &review(&sent(&deployment()))));
    let paths: Vec<&str> =
        operations.as_array().unwrap().iter().map(|step| step["path"].as_str().unwrap()).collect();
    assert!(paths.contains(&"/spec/initContainers"), "{paths:?}");
    for path in paths {
        assert!(!path.starts_with("/spec/containers") && !path.contains("managedFields"), "{path}");
    }
}

#[test]
fn the_namespace_of_the_request_counts_and_is_not_patched_in() {
    let mut pod = sent(&deployment());
    let expected = injected(&pod);
    pod["metadata"].as_object_mut().unwrap().shift_remove("namespace");
    let answer = send(&admission(injector()), &review(&pod));
    let mut patched = unmanaged(&patched(&pod, &answer));
    assert_eq!(patched["metadata"].get("namespace"), None);
    patched["metadata"]["namespace"] = json!("shop");
    assert_eq!(patched, expected);
    let mut asked = review(&sent(&deployment()));
    asked["request"]["namespace"] = json!("kube-system");
    assert_eq!(send(&admission(injector()), &asked).verdict.reason(), "system-namespace");
    asked["request"].as_object_mut().unwrap().shift_remove("namespace");
    assert_eq!(send(&admission(injector()), &asked).namespace, "shop");
}

#[test]
fn an_injected_pod_gets_no_patch() {
    let admission = admission(injector());
    let pod = sent(&deployment());
    let once = patched(&pod, &send(&admission, &review(&pod)));
    let answer = send(&admission, &review(&once));
    let response = response(&answer);
    assert_eq!((response.get("patch"), response.get("patchType")), (None, None));
    assert_eq!(response["allowed"], true);
    assert_eq!((answer.verdict.outcome(), answer.verdict.reason()), ("skipped", "unchanged"));
}

/// Changes of other webhooks to an injected pod.
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
fn reinvocation_repairs_changes_of_other_webhooks() {
    let admission = admission(injector());
    let f = |pod: &Value| patched(pod, &send(&admission, &review(pod)));
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
