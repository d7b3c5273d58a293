//! Functions over annotations, labels and the mesh config.

use super::{ValueResult, field, map_of, sprint_one, str_arg, types};
use gotemplate::{Call, Functions, Map, Str, TextBuilder, Type, Value, arg};
use serde_json::Value as Json;

use crate::path::at;
use crate::pod::PROXY;

pub(super) fn register(f: &mut Functions) {
    f.add("isset", &[Type::StrMap, Type::Str], None, |_, args| {
        let key = str_arg(args, 1);
        Ok(Value::Bool(map_of(arg(args, 0)).is_some_and(|map| map.get(key).is_some())))
    });
    f.add("annotation", &[Type::Struct(types::OBJECT_META), Type::Str, Type::Any], None, |call, args| {
        let annotations = field(arg(args, 0), "Annotations");
        match map_of(&annotations).and_then(|map| map.get(str_arg(args, 1))) {
            Some(value) => Ok(value),
            None => sprint_one(call, arg(args, 2)).map(Value::Str),
        }
    });
    f.limit_reads("annotation", &["Annotations"]);
    f.add("appendMultusNetwork", &[Type::Str, Type::Str], None, multus);
    f.add(
        "otelResourceAttributes",
        &[Type::Message, Type::StrMap, Type::StrMap, Type::Str, Type::Structs(types::CONTAINER)],
        None,
        otel,
    );
    f.limit_reads("otelResourceAttributes", &["Name", "Image"]);
}

/// Adds a network to the list that Multus reads: JSON or comma-separated.
fn multus<'a>(call: &mut Call<'_>, args: &[Value<'a>]) -> ValueResult<'a> {
    let (Value::Str(old), Value::Str(network)) = (arg(args, 0), arg(args, 1)) else {
        return Ok(Value::Nil);
    };
    let (text, name) = (old.as_str(), network.as_str());
    let mut out = call.text();
    if text.is_empty() {
        out.push(network)?;
    } else if let Some(end) = text.rfind(']') {
        let networks = serde_json::from_str::<Vec<serde_json::Map<String, Json>>>(text);
        let Ok(networks) = networks else {
            return Ok(Value::Str(old.clone()));
        };
        let slash = name.find('/');
        let (namespace, bare) = name.split_at(slash.map_or(0, |at| at + 1));
        let namespace = namespace.trim_end_matches('/');
        let here = |n: &serde_json::Map<String, Json>| {
            let text = |key| n.get(key).and_then(Json::as_str).unwrap_or_default();
            text("name") == name || text("name") == bare && text("namespace") == namespace
        };
        if networks.iter().any(here) {
            return Ok(Value::Str(old.clone()));
        }
        out.push(&old.slice(0, end))?;
        out.plain(", {\"name\": \"")?;
        out.push(&network.slice(name.len() - bare.len(), name.len()))?;
        out.plain("\"")?;
        if let Some(at) = slash {
            out.plain(", \"namespace\": \"")?;
            out.push(&network.slice(0, at))?;
            out.plain("\"")?;
        }
        out.plain("}")?;
        out.push(&old.slice(end, text.len()))?;
    } else {
        if text.split(',').any(|n| n.trim() == name) {
            return Ok(Value::Str(old.clone()));
        }
        out.push(old)?;
        out.plain(", ")?;
        out.push(network)?;
    }
    Ok(Value::Str(out.finish()))
}

/// OpenTelemetry's resource attributes of the workload, if a tracing provider of the mesh requires them.
fn otel<'a>(call: &mut Call<'_>, args: &[Value<'a>]) -> ValueResult<'a> {
    if !wants_attributes(arg(args, 0)) {
        return Ok(Value::string(""));
    }
    let namespace = match arg(args, 3) {
        Value::Str(s) if !s.as_str().is_empty() => s.clone(),
        _ => Str::borrowed("default"),
    };
    let container = app_container(arg(args, 4));
    let name = container
        .as_ref()
        .and_then(|c| field(c, "Name").as_str().cloned())
        .unwrap_or_else(|| Str::borrowed(""));
    let image = container.as_ref().and_then(|c| field(c, "Image").as_str().cloned());
    let annotation = |key: &str| entry(arg(args, 1), key);
    let namespace = annotation("resource.opentelemetry.io/service.namespace").unwrap_or(namespace);
    let version = annotation("resource.opentelemetry.io/service.version")
        .or_else(|| entry(arg(args, 2), "app.kubernetes.io/version"))
        .or_else(|| image.as_ref().and_then(image_tag));
    let mut out = call.text();
    pair(&mut out, "service.namespace", &namespace)?;
    if let Some(version) = version {
        pair(&mut out, "service.version", &version)?;
    }
    out.plain(",service.instance.id=")?;
    match annotation("resource.opentelemetry.io/service.instance.id") {
        Some(id) => out.push(&id)?,
        None => {
            out.push(&namespace)?;
            out.plain(".$(POD_NAME).")?;
            out.push(&name)?;
        }
    }
    Ok(Value::Str(out.finish()))
}

fn pair<'a>(out: &mut TextBuilder<'a>, key: &str, value: &Str<'a>) -> Result<(), String> {
    if !out.is_empty() {
        out.plain(",")?;
    }
    out.plain(key)?;
    out.plain("=")?;
    out.push(value)
}

/// A provider of the mesh config with `serviceAttributeEnrichment: OTEL_SEMANTIC_CONVENTIONS`.
fn wants_attributes(mesh: &Value<'_>) -> bool {
    let Value::Struct(mesh) = mesh else { return false };
    let providers = mesh.json.and_then(|json| json.get("extensionProviders")).and_then(Json::as_array);
    providers.is_some_and(|providers| {
        providers.iter().any(|provider| {
            let enrichment = at(provider, "/opentelemetry/serviceAttributeEnrichment");
            enrichment.and_then(Json::as_str) == Some("OTEL_SEMANTIC_CONVENTIONS")
        })
    })
}

fn app_container<'a>(containers: &Value<'a>) -> Option<Value<'a>> {
    let Value::List(list) = containers else {
        return None;
    };
    list.to_vec().into_iter().find(|c| field(c, "Name").as_str().is_none_or(|n| n.as_str() != PROXY))
}

fn entry<'a>(map: &Value<'a>, key: &str) -> Option<Str<'a>> {
    let map: &Map<'a> = map_of(map)?;
    map.get(key)?.as_str().filter(|s| !s.as_str().is_empty()).cloned()
}

/// The tag of an image reference.
fn image_tag<'a>(image: &Str<'a>) -> Option<Str<'a>> {
    let text = image.as_str();
    let without_digest = text.split('@').next()?;
    let (_, tag) = without_digest.rsplit_once(':')?;
    (!tag.contains('/')).then(|| image.part(tag))
}
