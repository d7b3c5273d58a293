//! `check`: is this pod injected, and why, or why not?

use clap::Args;
use istio_iptables::cli::Origin;
use serde_json::{Map, Value, json};

use super::args::{Format, InjectionArgs, InputArgs};
use super::load::{Loaded, load, text_of};
use super::report::{CheckResult, Gate, as_json, as_text};
use super::rewrite::{is_read, read};
use super::{Environment, Exit, Failure, Output};
use crate::decide::{self, Called, Webhooks};
use crate::inject::Request;
use crate::object::{self, Shape};
use crate::pod::init_options::InitOptions;
use crate::pod::list::{List, containers, find};
use crate::pod::security;
use crate::pod::status::Status;
use crate::pod::workload::Workload;
use crate::yaml;

#[derive(Args, Clone, Debug)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    pub(super) input: InputArgs,
    #[command(flatten)]
    pub(super) injection: InjectionArgs,
    /// Saved MutatingWebhookConfigurations; may be repeated. Default: those of an installation of the revision
    #[arg(long, value_name = "FILE")]
    pub(super) webhooks: Vec<String>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    pub(super) output: Format,
}

pub(super) fn run(args: &CheckArgs, environment: &Environment) -> Result<Output, Failure> {
    let files = read(&args.input)?;
    let loaded = load(&args.injection, environment)?;
    let loaded = loaded.with_proxy_configs(&files, args.injection.pod.namespace.as_ref())?;
    let webhooks = webhooks(args, &loaded)?;
    let mut results = Vec::new();
    let mut problems = Vec::new();
    for (name, bytes) in &files {
        match yaml::read_documents(bytes) {
            Ok(documents) => {
                for document in &documents {
                    if let Some(duplicate) = document.duplicate.as_ref().filter(|_| is_read(&document.value))
                    {
                        problems.push(format!("{name}: {duplicate}"));
                        continue;
                    }
                    each(&document.value, &mut |object| {
                        let malformed = Shape::malformed(object);
                        let title = object::title(object);
                        let place = format!("{name}: {title}");
                        problems.extend(malformed.iter().map(|problem| format!("{place}: {problem}")));
                        let Some(shape) = Shape::of(object).filter(|_| malformed.is_empty()) else {
                            return;
                        };
                        results.push(check_object(args, &loaded, &webhooks, name, object, shape));
                    });
                }
            }
            Err(error) => problems.push(format!("{name}: {error}")),
        }
    }
    if !problems.is_empty() {
        return Err(Failure::new(Exit::Data, problems));
    }
    if results.is_empty() {
        return Err(Failure::one(Exit::Data, "there is no object with a pod in these files"));
    }
    let text = match args.output {
        Format::Json => as_json(&results),
        Format::Text => as_text(&results),
    };
    let refused = results.iter().any(|result| !result.injected());
    Ok(Output { text, notes: Vec::new(), refused, target: "-".to_owned(), ..Output::default() })
}

/// Every object, the items of Lists rather than the Lists.
fn each(object: &Value, visit: &mut dyn FnMut(&Value)) {
    if let Some(items) = object::items(object) {
        for item in items {
            each(item, visit);
        }
    } else {
        visit(object);
    }
}

fn webhooks(args: &CheckArgs, loaded: &Loaded) -> Result<Webhooks, Failure> {
    let data = |problem: String| Failure::one(Exit::Data, problem);
    if args.webhooks.is_empty() {
        let value =
            loaded.injector.settings.values.pointer("/sidecarInjectorWebhook/enableNamespacesByDefault");
        return Webhooks::of_revision(
            args.injection.pod.revision.as_str(),
            value == Some(&Value::Bool(true)),
        )
        .map_err(data);
    }
    let mut all = Webhooks::default();
    for file in &args.webhooks {
        let text = text_of("--webhooks", file)?;
        let documents =
            yaml::read_documents(text.as_bytes()).map_err(|error| data(format!("{file}: {error}")))?;
        let values: Vec<Value> = documents.into_iter().map(|document| document.value).collect();
        if !Webhooks::are_in(&values) {
            return Err(data(format!(
                "{file}: there is no MutatingWebhookConfiguration in this file; expected one or more, or a List of them"
            )));
        }
        all.all.extend(Webhooks::parse(&values).map_err(|problem| data(format!("{file}: {problem}")))?.all);
    }
    Ok(all)
}

fn check_object(
    args: &CheckArgs,
    loaded: &Loaded,
    webhooks: &Webhooks,
    file: &str,
    object: &Value,
    shape: Shape,
) -> CheckResult {
    let namespace = loaded.namespace_of(object, args.injection.pod.namespace.as_ref());
    let pod = shape.pod(object);
    let decision = decide::decide(&pod, namespace, &loaded.injector.settings.injector.rules);
    let mut result = CheckResult {
        file: file.to_owned(),
        title: object::title(object),
        gate: gate(args, loaded, webhooks, namespace, &pod),
        warnings: decision.warnings.clone(),
        decision,
        error: None,
        added: Vec::new(),
        capture: Vec::new(),
    };
    if shape == Shape::CronJob {
        result.warnings.push(
            "labels and annotations go to spec.jobTemplate.metadata, as Istio puts them: its pods do not carry them".to_owned(),
        );
    }
    result.warnings.extend(object::unread(object, shape));
    if let Some(status) = Status::of(&pod) {
        result.warnings.push(format!(
            "it is injected already, by revision {}; this is about injecting it again",
            status.revision
        ));
    }
    if result.decision.inject() {
        inject(loaded, object, namespace, &pod, &mut result);
    }
    result
}

/// What the API server does, as far as the labels of the namespace are known.
fn gate(args: &CheckArgs, loaded: &Loaded, webhooks: &Webhooks, namespace: &str, pod: &Value) -> Gate {
    let empty = Map::new();
    let pod_labels = pod.pointer("/metadata/labels").and_then(Value::as_object).unwrap_or(&empty);
    let Some(object) = &loaded.namespace else {
        return Gate::Unknown;
    };
    let mut labels =
        object.pointer("/metadata/labels").and_then(Value::as_object).cloned().unwrap_or_default();
    let own_name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or(namespace);
    labels.entry("kubernetes.io/metadata.name").or_insert_with(|| json!(own_name));
    match webhooks.called(&labels, pod_labels) {
        Called::By(webhook) => {
            let asked = args.injection.pod.revision.label();
            let other = webhook.revision.clone().filter(|revision| revision != asked);
            Gate::Called {
                name: format!("{} of {}", webhook.name, webhook.configuration),
                other_revision: other,
                conditions: webhook.conditions,
            }
        }
        Called::ByNone(kept) => Gate::NotCalled(
            kept.into_iter()
                .map(|(webhook, unmet)| (format!("{} of {}", webhook.name, webhook.configuration), unmet))
                .collect(),
        ),
    }
}

fn inject(loaded: &Loaded, object: &Value, namespace: &str, pod: &Value, result: &mut CheckResult) {
    let workload = Workload::of_object(object, namespace);
    let request = Request { pod, workload: &workload, place: &loaded.place };
    let injected = match loaded.injector.inject(request) {
        Ok(injected) => injected,
        Err(error) => {
            result.error = Some(error.to_string());
            return;
        }
    };
    result.warnings.extend(injected.warnings);
    if let Some(level) = loaded.namespace.as_ref().and_then(security::enforced) {
        let violations = security::violations(&injected.pod, level);
        if !violations.is_empty() {
            let key = security::ENFORCE;
            result.error =
                Some(format!("{key}={level} of the namespace rejects the pod: {}", violations.join("; ")));
        }
    }
    for list in List::BOTH {
        let before = containers(pod, list);
        let new = containers(&injected.pod, list).iter().map(crate::pod::list::name);
        let new = new.filter(|name| find(before, name).is_none());
        result.added.extend(new.map(|name| format!("{}: {name}", list.key())));
    }
    // Errors have been reported by now.
    if let Some(resolved) = InitOptions::of(&injected.pod).and_then(|init| init.resolved) {
        result.capture = resolved.given.iter().map(ToString::to_string).collect();
        // Those of annotations and variables are among the pod's warnings, in the pod's own terms.
        let flags = resolved.warnings.iter().filter(|warning| matches!(warning.origin(), Origin::Flag(_)));
        result.warnings.extend(flags.map(|warning| format!("init container: {warning}")));
    }
}
