//! Pods, and the injector with what is built in.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    dead_code,
    reason = "for tests only, each of which uses a part of it"
)]

use serde_json::{Value, json};
use sidecar_injector::config::Sources;
use sidecar_injector::inject::{
    InjectError, Injected, InjectionContext, Injector, Options, Request, functions,
};
use sidecar_injector::pod::workload::Workload;

pub(crate) fn injector() -> Injector {
    let settings = Sources::default().load(&functions(|_| None)).unwrap();
    Injector::new(settings, Options::default())
}

/// Where the proxy is a native sidecar.
pub(crate) fn native() -> InjectionContext {
    InjectionContext { native_sidecars: true, ..InjectionContext::default() }
}

pub(crate) fn workload() -> Workload {
    Workload {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: "web".to_owned(),
        namespace: "shop".to_owned(),
    }
}

pub(crate) fn inject(injector: &Injector, pod: &Value) -> Result<Injected, InjectError> {
    injector.inject(Request { pod, workload: &workload(), context: &native() })
}

/// The pod template of a Deployment.
pub(crate) fn deployment() -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "web:1", "ports": [{"name": "http", "containerPort": 80}]}]},
    })
}

/// A pod with other annotations.
pub(crate) fn with(pod: &Value, annotations: &Value) -> Value {
    let mut pod = pod.clone();
    pod["metadata"]["annotations"] = annotations.clone();
    pod
}
