//! Reviews as a real API server has sent them.

use std::path::PathBuf;

use serde_json::Value;
use sidecar_injector::inject::Request;
use sidecar_injector::pod::workload::Workload;

use super::unmanaged;
use crate::builtin;
use crate::builtin::injector;
use crate::reviews::{admission, patched, response, send_bytes};

/// The folder with recorded reviews: below `CONFORMANCE_DATA`, or beside this repository.
fn recorded() -> Option<PathBuf> {
    let beside = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data"));
    let folder = std::env::var_os("CONFORMANCE_DATA").map_or_else(beside, PathBuf::from).join("k8s");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("NOT TESTED: {} is not there; CONFORMANCE_DATA names the folder above it", folder.display());
    None
}

#[test]
fn recorded_reviews_are_answered() {
    let Some(folder) = recorded() else { return };
    for (file, owner) in
        [("admissionreview-sample.json", "Pod/hello"), ("admissionreview-deployment.json", "Deployment/dep")]
    {
        let body = std::fs::read(folder.join(file)).unwrap();
        let asked: Value = serde_json::from_slice(&body).unwrap();
        let pod = &asked["request"]["object"];
        let answer = send_bytes(&admission(injector()), &body).unwrap();
        assert_eq!(answer.owner, owner);
        assert_eq!(response(&answer)["uid"], asked["request"]["uid"]);
        let patched = patched(pod, &answer);
        let expected = {
            let pod = unmanaged(pod);
            let workload = Workload::of_pod(&pod, "demo");
            let request = Request { pod: &pod, workload: &workload, context: &builtin::native() };
            injector().inject(request).unwrap().pod
        };
        assert_eq!(unmanaged(&patched), expected);
    }
}
