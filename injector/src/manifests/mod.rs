//! The objects of an installation, made from a few options. No I/O.
//!
//! The order is that in which they can be applied: what others need comes first, the webhook configuration last.

mod access;
mod certificates;
mod config;
mod dns;
mod hooks;
mod image;
mod names;
mod network;
mod options;
mod policy;
mod workload;

use serde_json::{Value, json};

pub use dns::{InstalledRevision, NameError, Namespace, Revision, ServiceName, Subdomain};
pub use image::{Image, ImageError};
pub use names::{HTTPS_PORT, MONITORING_PORT, Names};
pub use options::{Certificates, FailurePolicy, Flavour, Options, Replicas, Texts};

use crate::yaml;

/// Every object, in the order in which to apply them.
#[must_use]
pub fn objects(options: &Options) -> Vec<Value> {
    let names = Names::new(&options.revision);
    let mut objects = vec![namespace(options)];
    objects.extend(access::objects(options, &names));
    objects.extend(config::objects(options, &names));
    if options.certificates == Certificates::CertManager {
        objects.extend(certificates::objects(options, &names));
    }
    objects.push(network::service(options, &names));
    objects.push(workload::deployment(options, &names));
    objects.push(workload::disruption_budget(options, &names));
    objects.push(workload::autoscaler(options, &names));
    objects.push(network::policy(options, &names));
    if options.validating_policy {
        objects.extend(policy::objects(&names));
    }
    objects.push(hooks::configuration(options, &names));
    objects
}

/// The objects as YAML, one document each.
#[must_use]
pub fn to_yaml(objects: &[Value]) -> String {
    objects.iter().map(yaml::write).collect::<Vec<_>>().join("---\n")
}

/// Without labels of its own: the namespace may hold a control plane, whose labels count.
fn namespace(options: &Options) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": options.namespace.as_str()}})
}
