//! `list`: pods with a sidecar, and what an injection would change in them now.

use std::sync::Arc;

use clap::Args as ClapArgs;
use serde_json::{Value, json};

use super::args::Format;
use super::connect::{ClusterArgs, unavailable, with_cluster};
use super::doctor::known;
use super::{Environment, Exit, Failure, Output};
use crate::annotations::keys;
use crate::cluster;
use crate::config::ProxyConfig;
use crate::inject::{InjectionContext, Injector, Options, Request, functions};
use crate::manifests::{Image, Namespace, Platform, Revision};
use crate::object;
use crate::path::text;
use crate::pod::ids::Ids;
use crate::pod::list::{self, List, containers, find};
use crate::pod::status::Status;
use crate::pod::workload::Workload;
use crate::webhook::url;

#[derive(ClapArgs, Clone, Debug)]
pub(super) struct ListArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Namespaces of the pods; may be repeated. Default: all
    #[arg(short, long, value_name = "NAME")]
    namespace: Vec<Namespace>,
    /// List pods of all namespaces (the default)
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Revision of the injector whose config to use; pods of other revisions are only counted
    #[arg(short, long, default_value = "", hide_default_value = true)]
    revision: Revision,
    /// Init container's image, over that of the injector's Deployment or ConfigMap
    #[arg(long, value_name = "IMAGE")]
    init_image: Option<Image>,
    /// Platform; with openshift, users and groups come from the namespace
    #[arg(long, value_enum, value_name = "NAME")]
    platform: Option<Platform>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// A pod with a sidecar.
struct Row {
    pod: String,
    image: String,
    /// What an injection would change; what keeps it from being done.
    changes: Result<Vec<String>, String>,
}

pub(super) fn run(args: &ListArgs, environment: &Environment) -> Result<Output, Failure> {
    let name = args.cluster.config_map(&args.revision);
    let namespaces: Vec<&str> = args.namespace.iter().map(Namespace::as_str).collect();
    let openshift = args.platform == Some(Platform::Openshift);
    let flags = (args.cluster.kubeconfig.as_deref(), args.cluster.context.as_deref());
    let (sources, mut objects, init_image, notes) =
        with_cluster(flags.0, flags.1, async |client, target| {
            let in_target = |problem: String| format!("{target}: {problem}");
            let sources =
                cluster::sources(&client, &name).await.map_err(|problem| unavailable(in_target(problem)))?;
            let (objects, mut notes) = cluster::fetch_sidecars(&client, &namespaces, openshift).await;
            let image = init_image(args, &client, &name, &mut notes).await;
            Ok((sources, objects, image, notes.into_iter().map(in_target).collect::<Vec<_>>()))
        })?;
    if !notes.is_empty() && !objects.iter().any(|object| kind(object) == "Pod") {
        return Err(Failure::new(Exit::Unavailable, notes));
    }
    known(&objects, &namespaces)?;
    // Elsewhere a namespace has no range of users.
    objects.retain(|object| openshift || kind(object) != "Namespace");
    let variables = environment.clone();
    let settings = sources
        .load(&functions(move |name| Some(variables.get(name).to_owned())))
        .map_err(|problems| Failure::new(Exit::Data, problems.iter().map(ToString::to_string).collect()))?;
    let options = Options { revision: args.revision.label().to_owned(), init_image, ..Options::default() };
    let injector = Injector::new(settings, options);
    let context = injection_context(&objects, &name.name);
    let (mut rows, mut others) = (Vec::new(), 0);
    for pod in objects.iter().filter(|object| kind(object) == "Pod") {
        let ended = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
        let Some(status) = Status::of(pod).filter(|_| !ended) else { continue };
        if own_revision(&status.revision) == own_revision(args.revision.as_str()) {
            rows.push(row(&injector, &context, &objects, pod));
        } else {
            others += 1;
        }
    }
    let outdated =
        rows.iter().filter(|row| row.changes.as_ref().map_or(true, |changes| !changes.is_empty())).count();
    let notes = notes.into_iter().map(|note| format!("warning: {note}")).collect();
    let text = match args.output {
        Format::Json => as_json(&rows),
        Format::Text => format!(
            "{}{} with a sidecar of revision {}, {outdated} outdated; {others} of other revisions\n",
            rows.iter().map(line).collect::<String>(),
            if rows.len() == 1 { "1 pod".to_owned() } else { format!("{} pods", rows.len()) },
            own_revision(args.revision.as_str())
        ),
    };
    Ok(Output { text, notes, refused: outdated > 0, target: "-".to_owned(), ..Output::default() })
}

/// The init image that the running webhook uses instead of that of the ConfigMap, if it has one.
async fn init_image(
    args: &ListArgs,
    client: &kube::Client,
    name: &cluster::ConfigMapName,
    notes: &mut Vec<String>,
) -> Option<String> {
    if let Some(image) = &args.init_image {
        return Some(image.as_str().to_owned());
    }
    match cluster::init_image(client, &name.namespace, &name.name).await {
        Ok(image) => image,
        Err(problem) => {
            notes.push(format!(
                "{problem}: without its --init-image, the init image is that of the ConfigMap: give --init-image IMAGE"
            ));
            None
        }
    }
}

fn own_revision(revision: &str) -> &str {
    if revision.is_empty() { "default" } else { revision }
}

/// What the cluster prescribes: ProxyConfig resources, and the variables of the webhook's URL.
fn injection_context(objects: &[Value], configuration: &str) -> InjectionContext {
    let configs = objects.iter().filter(|object| ProxyConfig::is_one(object));
    // One that is invalid does not count, as in the webhook.
    let configs = configs.filter_map(|object| {
        Some((text(object, "/metadata/namespace").to_owned(), ProxyConfig::of_object(object).ok()?))
    });
    let called = objects.iter().find(|object| {
        kind(object) == "MutatingWebhookConfiguration" && text(object, "/metadata/name") == configuration
    });
    let path = called.map(|object| text(object, "/webhooks/0/clientConfig/service/path")).unwrap_or_default();
    InjectionContext {
        environment: url::variables(path).unwrap_or_default(),
        proxy_configs: Arc::new(configs.collect()),
        ..InjectionContext::default()
    }
}

fn row(injector: &Injector, context: &InjectionContext, objects: &[Value], pod: &Value) -> Row {
    let namespace = text(pod, "/metadata/namespace");
    let of_namespace = objects
        .iter()
        .find(|object| kind(object) == "Namespace" && text(object, "/metadata/name") == namespace);
    let native = find(containers(pod, List::InitContainers), crate::pod::PROXY).is_some();
    let ids = of_namespace.map_or(Ok(Ids::default()), Ids::of_namespace);
    let changes = ids.and_then(|ids| {
        // As it is: a change of the nodes alone makes no sidecar outdated.
        let context = InjectionContext { ids, native_sidecars: native, ..context.clone() };
        let mut admitted = pod.clone();
        // The API server generates a name after the admission.
        if let Some(metadata) = admitted.get_mut("metadata").and_then(Value::as_object_mut)
            && metadata.contains_key("generateName")
        {
            metadata.shift_remove("name");
        }
        let workload = Workload::of_pod(&admitted, namespace);
        let injected = injector.inject(Request { pod: &admitted, workload: &workload, context: &context });
        injected.map(|injected| changes(pod, &injected.pod)).map_err(|error| error.to_string())
    });
    let image = list::proxy(pod).map(|proxy| text(proxy, "/image")).unwrap_or_default().to_owned();
    Row { pod: object::title(pod), image, changes }
}

/// The parts of a pod that differ, images with both values.
fn changes(before: &Value, after: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for list in List::BOTH {
        for fresh in containers(after, list) {
            let name = list::name(fresh);
            let Some(old) = find(containers(before, list), name) else {
                found.push(format!("{name} would be in spec.{}", list.key()));
                continue;
            };
            let (was, is) = (text(old, "/image"), text(fresh, "/image"));
            if was != is {
                found.push(format!("{name} image {was} -> {is}"));
            }
            found.extend(keys_that_differ(old, fresh, &["image"]).map(|key| format!("{name} {key}")));
        }
    }
    let part = |pod: &Value, pointer: &str| pod.pointer(pointer).cloned().unwrap_or_else(|| json!({}));
    for (pointer, word, ignored) in [
        ("/spec", "spec", &["containers", "initContainers"][..]),
        ("/metadata/labels", "label", &[]),
        ("/metadata/annotations", "annotation", &[keys::STATUS, keys::INJECTED_FIELDS]),
    ] {
        let (old, fresh) = (part(before, pointer), part(after, pointer));
        found.extend(keys_that_differ(&old, &fresh, ignored).map(|key| format!("{word} {key}")));
    }
    found
}

fn keys_that_differ<'a>(
    old: &'a Value,
    fresh: &'a Value,
    ignored: &'a [&str],
) -> impl Iterator<Item = &'a String> {
    let differs =
        |(key, value): &(&String, &Value)| old.get(key) != Some(value) && !ignored.contains(&key.as_str());
    fresh.as_object().into_iter().flatten().filter(differs).map(|(key, _)| key)
}

fn line(row: &Row) -> String {
    let state = match &row.changes {
        Ok(changes) if changes.is_empty() => "current".to_owned(),
        Ok(changes) => format!("outdated: {}", changes.join(", ")),
        Err(problem) => format!("cannot be injected: {problem}"),
    };
    format!("{}: {}: {state}\n", row.pod, row.image)
}

fn as_json(rows: &[Row]) -> String {
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            let changes = row.changes.as_ref().map_or(&[][..], Vec::as_slice);
            json!({"pod": row.pod, "image": row.image, "changes": changes, "error": row.changes.as_ref().err()})
        })
        .collect();
    format!("{:#}\n", Value::Array(rows))
}

fn kind(object: &Value) -> &str {
    text(object, "/kind")
}
