//! The objects of an installation: what Kubernetes knows of them, what hangs together, what `deploy/` holds.

mod coherence;
mod command;
mod deploy;
mod helm;
mod monitoring;
mod node_agent;
mod node_agent_helm;
mod quick_start;
mod schema;
mod webhooks;

use serde_json::Value;
use sidecar_injector::config::{BUILTIN_CONFIG, BUILTIN_MESH, BUILTIN_VALUES};
use sidecar_injector::manifests::{Certificates, FailurePolicy, Options, Platform, Texts};

fn objects(options: &Options) -> Vec<Value> {
    sidecar_injector::manifests::objects(options).unwrap()
}

fn options() -> Options {
    Options {
        namespace: "istio-system".parse().unwrap(),
        revision: "".parse().unwrap(),
        image: concat!("localhost/sidecar-injector:", env!("CARGO_PKG_VERSION")).parse().unwrap(),
        replicas: 2.try_into().unwrap(),
        failure_policy: FailurePolicy::Fail,
        by_default: false,
        certificates: Certificates::SelfSigned,
        platform: Platform::Kubernetes,
        validating_policy: true,
        texts: Texts {
            config: BUILTIN_CONFIG.to_owned(),
            values: BUILTIN_VALUES.to_owned(),
            mesh: BUILTIN_MESH.to_owned(),
        },
    }
}

fn canary() -> Options {
    Options { revision: "canary".parse().unwrap(), ..options() }
}

fn cert_manager() -> Options {
    Options { certificates: Certificates::CertManager, ..options() }
}

fn openshift() -> Options {
    Options { platform: Platform::Openshift, ..options() }
}

/// Installations that differ in every option.
fn all() -> Vec<Options> {
    let other = Options {
        namespace: "mesh".parse().unwrap(),
        replicas: 1.try_into().unwrap(),
        failure_policy: FailurePolicy::Ignore,
        by_default: true,
        validating_policy: false,
        ..options()
    };
    let both = Options { platform: Platform::Openshift, certificates: Certificates::CertManager, ..canary() };
    vec![options(), canary(), cert_manager(), openshift(), other, both]
}

/// The object of this kind; panics unless there is exactly one.
fn only<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let found: Vec<&Value> = objects.iter().filter(|object| object["kind"] == kind).collect();
    assert_eq!(found.len(), 1, "{kind}");
    found[0]
}
