//! The objects of an installation, made from a few options by the template `installation.yaml`. No I/O.

mod dns;
mod image;
mod names;
pub mod node_agent;
mod options;

use gotemplate::{Functions, Limits, Template, Value as Data};
use serde_json::{Value, json};

pub use dns::{InstalledRevision, NameError, Namespace, Revision, ServiceName, Subdomain};
pub use image::{Image, ImageError};
pub use names::Names;
pub use options::{Certificates, FailurePolicy, Options, Platform, Replicas, Texts};

use crate::decide::{SYSTEM_NAMESPACES, webhook_selectors};
use crate::yaml;

/// The address of the webhook.
const HTTPS_PORT: u16 = 15017;
/// The address of health and metrics.
const MONITORING_PORT: u16 = 15014;

/// Every object, in the order in which to apply them.
///
/// # Errors
///
/// A template that cannot be rendered, which a test excludes.
pub fn objects(options: &Options) -> Result<Vec<Value>, String> {
    render("installation", include_str!("installation.yaml"), &data(options))
}

/// The objects of a template.
fn render(name: &str, text: &str, data: &Value) -> Result<Vec<Value>, String> {
    let mut functions = Functions::builtin();
    functions.add_sprig();
    let template = Template::parse(name, text, &functions, gotemplate::Options::default());
    let rendered = template.as_ref().map_err(ToString::to_string)?.render(Data::any(data), Limits::default());
    let rendered = rendered.map_err(|error| error.to_string())?.text;
    let documents = yaml::read_documents(rendered.as_bytes()).map_err(|error| error.to_string())?;
    Ok(documents.into_iter().map(|document| document.value).collect())
}

/// What the template reads.
fn data(options: &Options) -> Value {
    let names = Names::new(&options.revision);
    // The cluster's own pods, and the injector's, must come up while no injector runs.
    let namespace = options.namespace.as_str();
    let mut except = SYSTEM_NAMESPACES.to_vec();
    if !except.contains(&namespace) {
        except.push(namespace);
    }
    json!({
        "namespace": namespace,
        "revision": options.revision.label(),
        "injector": names.injector(),
        "mesh": names.mesh(),
        "secret": names.secret(),
        "managedSecret": names.managed_secret(),
        "clusterRole": names.in_cluster(options),
        "image": options.image.as_str(),
        "minReplicas": options.replicas,
        "maxReplicas": options.replicas.saturating_add(3),
        "failurePolicy": options.failure_policy.as_str(),
        "certManager": options.certificates == Certificates::CertManager,
        "openshift": options.platform == Platform::Openshift,
        "validatingPolicy": options.validating_policy,
        "texts": {"config": options.texts.config, "values": options.texts.values, "mesh": options.texts.mesh},
        "httpsPort": HTTPS_PORT,
        "monitoringPort": MONITORING_PORT,
        "webhooks": webhook_selectors::of_revision(options.revision.as_str(), options.by_default, &except),
    })
}

/// The objects as YAML, one document each.
#[must_use]
pub fn to_yaml(objects: &[Value]) -> String {
    objects.iter().map(yaml::write).collect::<Vec<_>>().join("---\n")
}

/// The name under which the injector owns objects and fields.
pub(crate) const MANAGER: &str = "sidecar-injector";
/// The label of the Secret that the injector makes, with that value.
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The annotation of a Secret that cert-manager makes.
pub(crate) const CERTIFICATE: &str = "cert-manager.io/certificate-name";

/// What an uninstallation deletes if it belongs to the installation, in this order: first the webhook
/// configuration, so that no pod is rejected, and last the Secrets, which nothing writes again without its
/// roles. The namespace and the mesh config of the default revision stay: a control plane may use them.
///
/// # Errors
///
/// As [`objects`].
pub fn uninstall(options: &Options) -> Result<Vec<Value>, String> {
    let names = Names::new(&options.revision);
    let secret = |name: String, map: &str, key: &str, value: &str| {
        let namespace = options.namespace.as_str();
        let metadata = json!({"name": name, "namespace": namespace, (map): {(key): value}});
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    };
    let (injector, ca) = (names.injector(), format!("{}-ca", names.injector()));
    let secrets = [
        secret(names.secret(), "labels", MANAGED_BY, MANAGER),
        secret(names.managed_secret(), "annotations", CERTIFICATE, &injector),
        secret(ca.clone(), "annotations", CERTIFICATE, &ca),
    ];
    let default = options.revision.as_str().is_empty();
    let shared = |object: &Value| default && object.pointer("/metadata/name") == Some(&json!(names.mesh()));
    let objects = objects(options)?.into_iter().rev().filter(|object| !shared(object));
    Ok(objects.chain(secrets).collect())
}

/// An object by its kind and name, as `kubectl delete` takes it.
#[must_use]
pub fn by_name(mut object: Value) -> Value {
    for (pointer, kept) in
        [("", ["apiVersion", "kind", "metadata"]), ("/metadata", ["name", "namespace", ""])]
    {
        if let Some(map) = object.pointer_mut(pointer).and_then(Value::as_object_mut) {
            map.retain(|key, _| kept.contains(&key.as_str()));
        }
    }
    object
}

/// Without labels of its own: the namespace may hold a control plane, whose labels count.
#[must_use]
pub fn namespace(name: &Namespace) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name.as_str()}})
}
