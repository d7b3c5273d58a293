//! A config on trial: what only shows when a pod is injected with it.

use serde_json::json;

use crate::decide::Policy;
use crate::inject::{Injector, Place, Request};
use crate::pod::workload::Workload;

/// What is wrong with a policy: anything but `enabled` and `disabled` injects nobody.
#[must_use]
pub fn policy(policy: &Policy) -> Option<String> {
    match policy {
        Policy::Unknown(text) => Some(format!(
            "policy: {text:?} is not accepted, expected enabled or disabled: nobody is injected"
        )),
        Policy::Enabled | Policy::Disabled => None,
    }
}

/// Injects a sample pod: tells of values that templates miss, and of output that is no pod.
#[must_use]
pub fn inject(injector: &Injector) -> Vec<String> {
    let pod = json!({
        "metadata": {"name": "sample", "labels": {"app": "sample"}},
        "spec": {"containers": [{"name": "sample", "image": "sample", "ports": [{"containerPort": 8080}]}]},
    });
    let workload = Workload::of_pod(&pod, "default");
    let mut problems = Vec::new();
    for native_sidecars in [true, false] {
        let place = Place { native_sidecars, ..Place::default() };
        let request = Request { pod: &pod, workload: &workload, place: &place };
        if let Err(error) = injector.inject(request) {
            let problem = format!("a pod with one container cannot be injected: {error}");
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
    }
    problems
}
