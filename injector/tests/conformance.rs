//! Properties over Istio's own config and cases, where they are at hand: `CONFORMANCE_DATA` names the folder with
//! `inject-config.yaml`, `inject-values.json`, `mesh-config.yaml` and `inject/`.
//!
//! Whether the results are those of Istio is checked from outside, by the conformance runner; here: what must hold
//! whatever the result is.

mod common;

use common::{Case, cases, comparable};
use serde_json::Value;
use sidecar_injector::inject::Request;
use sidecar_injector::object::{self, Shape};
use sidecar_injector::pod::ids::Ids;
use sidecar_injector::pod::workload::Workload;

/// Every pod of a case with its workload, as the case would inject it.
fn pods(case: &Case, visit: &mut dyn FnMut(&Value, &Workload)) {
    fn each(object: &Value, visit: &mut dyn FnMut(&Value, &Workload)) {
        for item in object::items(object).into_iter().flatten() {
            each(item, visit);
        }
        if let Some(shape) = Shape::of(object) {
            let namespace = object
                .pointer("/metadata/namespace")
                .and_then(Value::as_str)
                .unwrap_or_default();
            visit(&shape.pod(object), &Workload::of_object(object, namespace));
        }
    }
    for document in &case.documents {
        each(document, visit);
    }
}

#[test]
#[ignore = "needs CONFORMANCE_DATA"]
fn a_second_injection_changes_no_byte() {
    let mut seen = 0;
    for case in cases() {
        pods(&case, &mut |pod, workload| {
            let request = |pod| Request {
                pod,
                workload,
                ids: case.ids,
            };
            let once = case
                .injector
                .inject(request(pod))
                .unwrap_or_else(|error| panic!("{}: {error}", case.name));
            let twice = case
                .injector
                .inject(request(&once.pod))
                .unwrap_or_else(|error| panic!("{}: {error}", case.name));
            assert_eq!(twice.pod.to_string(), once.pod.to_string(), "{}", case.name);
            seen += 1;
        });
    }
    assert!(seen > 60, "only {seen} pods: is CONFORMANCE_DATA complete?");
}

#[test]
#[ignore = "needs CONFORMANCE_DATA"]
fn what_is_taken_out_was_put_in() {
    let mut seen = 0;
    for case in cases() {
        pods(&case, &mut |pod, workload| {
            let annotation = |key: &str| {
                pod.pointer("/metadata/annotations")
                    .and_then(|all| all.get(key)?.as_str())
            };
            let templates = annotation("inject.istio.io/templates").unwrap_or("sidecar");
            if annotation("sidecar.istio.io/status").is_some() || !matches!(templates, "sidecar" | "gateway")
            {
                return;
            }
            let request = |pod| Request {
                pod,
                workload,
                ids: case.ids,
            };
            let injected = case
                .injector
                .inject(request(pod))
                .unwrap_or_else(|error| panic!("{}: {error}", case.name));
            let out = case
                .injector
                .uninject(request(&injected.pod))
                .unwrap()
                .expect("it was injected");
            assert_eq!(
                comparable(&out.pod),
                comparable(pod),
                "{}: {:?}",
                case.name,
                out.left
            );
            seen += 1;
        });
    }
    assert!(seen > 50, "only {seen} pods: is CONFORMANCE_DATA complete?");
}

#[test]
#[ignore = "needs CONFORMANCE_DATA"]
fn every_namespace_range_is_used() {
    let openshift: Vec<Case> = cases()
        .into_iter()
        .filter(|case| case.ids != Ids::default())
        .collect();
    assert_eq!(openshift.len(), 1);
}
