//! Who owns the objects that an installation would write.

use kube::Client;
use kube::api::{ApiResource, GroupVersionKind};
use serde_json::Value;

use super::fetch::webhook_configurations;
use crate::decide::Webhooks;
use crate::manifests::{CERTIFICATE, MANAGED_BY};
use crate::{object, path};
use apiclient::{RequestFailed, get};

/// Labels and annotations by which an object of the same installation is known, as far as it has them.
const MARKS: [(&str, &[&str]); 2] =
    [("labels", &["app", "istio", "istio.io/rev", MANAGED_BY]), ("annotations", &[CERTIFICATE])];

const WEBHOOKS: &str = "MutatingWebhookConfiguration";
/// Kinds without a namespace, of which installations of one revision in two namespaces have the same names.
const SHARED_NAMES: [&str; 3] = [WEBHOOKS, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];

/// The objects of an installation that exist in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// The number of missing objects.
    pub new: usize,
    /// Objects of the same installation, as they were given.
    pub own: Vec<Value>,
    /// The objects of the installation that Istio's chart made, and this installation has overwritten.
    pub overwritten: Vec<String>,
    /// Objects of others that applying would overwrite, each with its owner.
    pub foreign: Vec<String>,
}

/// Reads each object from the cluster.
///
/// # Errors
///
/// The first one that cannot be read.
pub async fn owners(client: &Client, objects: &[Value]) -> Result<Owners, String> {
    let mut found = Owners::default();
    let elsewhere = elsewhere(client, objects).await?;
    for object in objects {
        let Some(live) = read(client, object).await? else {
            found.new += 1;
            continue;
        };
        let other = elsewhere.as_ref().filter(|_| SHARED_NAMES.contains(&kind(object)));
        let owner = match other {
            _ if !is_same(object, &live) => object::owner(&live),
            Some(namespace) => Some(format!("the installation in namespace {namespace}")),
            None => {
                found.own.push(object.clone());
                if live.pointer("/metadata/labels/operator.istio.io~1component").is_some() {
                    found.overwritten.push(object::title(object));
                }
                continue;
            }
        };
        let owner = owner.unwrap_or_else(|| "an unknown owner".to_owned());
        found.foreign.push(format!("{}: it belongs to {owner}", object::title(object)));
    }
    Ok(found)
}

/// The namespace of another installation of this revision: the one that its webhooks call.
async fn elsewhere(client: &Client, objects: &[Value]) -> Result<Option<String>, String> {
    let Some(object) = objects.iter().find(|object| kind(object) == WEBHOOKS) else { return Ok(None) };
    let Some(live) = read(client, object).await? else { return Ok(None) };
    let called = |object| path::text(object, "/webhooks/0/clientConfig/service/namespace").to_owned();
    let namespace = called(&live);
    let differs = !namespace.is_empty() && namespace != called(object);
    Ok((differs && is_same(object, &live)).then_some(namespace))
}

/// Webhook configurations of others that are called for pods of this revision, with their owners: such pods
/// would be injected twice.
///
/// # Errors
///
/// They cannot be read, or a selector of one.
pub async fn overlapping(client: &Client, objects: &[Value], revision: &str) -> Result<Vec<String>, String> {
    let own = Webhooks::parse(objects)?;
    let live = webhook_configurations(client).await?;
    let is_own = |live: &Value| own.all.iter().any(|webhook| webhook.configuration == name(live));
    let others: Vec<Value> = live.into_iter().filter(|live| !is_own(live)).collect();
    let webhooks = Webhooks::parse(&others)?;
    let overlaps = own.overlaps(&webhooks, revision);
    let line = |(configuration, labels): (&str, String)| {
        let owner = others.iter().find(|live| name(live) == configuration).and_then(object::owner);
        format!(
            "MutatingWebhookConfiguration {configuration:?}: it is called for pods with {labels}, too, which would be injected \
             twice; it belongs to {}",
            owner.unwrap_or_else(|| "an unknown owner".to_owned())
        )
    };
    Ok(overlaps.into_iter().map(line).collect())
}

fn name(object: &Value) -> &str {
    path::text(object, "/metadata/name")
}

fn kind(object: &Value) -> &str {
    path::text(object, "/kind")
}

async fn read(client: &Client, object: &Value) -> Result<Option<Value>, String> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("/apiVersion").rsplit_once('/').unwrap_or(("", text("/apiVersion")));
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("/kind")));
    let namespace = Some(text("/metadata/namespace")).filter(|namespace| !namespace.is_empty());
    match get(client, &kind, namespace, text("/metadata/name")).await {
        Ok(live) => Ok(Some(live)),
        Err(RequestFailed { code: 404, .. }) => Ok(None),
        Err(failed) => Err(format!("{}: {}", object::title(object), failed.problem)),
    }
}

/// Whether the live object has every mark of the object, which has at least one.
fn is_same(object: &Value, live: &Value) -> bool {
    let marks = |(map, keys): (&str, &[&str])| -> Vec<(String, Value)> {
        let own = object.get("metadata").and_then(|metadata| metadata.get(map)?.as_object());
        let own = own.into_iter().flatten().filter(|(key, _)| keys.contains(&key.as_str()));
        own.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let has = |map: &str, key: &str| live.get("metadata").and_then(|metadata| metadata.get(map)?.get(key));
    let mut any = false;
    MARKS.into_iter().all(|(map, keys)| {
        let marks = marks((map, keys));
        any |= !marks.is_empty();
        marks.iter().all(|(key, value)| has(map, key) == Some(value))
    }) && any
}
