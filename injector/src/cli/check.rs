//! `check`: whether a pod is injected, and why.

use clap::Args;
use istio_iptables::cli::Origin;
use istio_iptables::config::Warning;
use serde_json::{Map, Value, json};

use super::args::{Format, InjectionArgs, InputArgs, StrictArgs};
use super::color::ColorArgs;
use super::connect::{merged, unavailable, with_cluster};
use super::input::{
    Examined, Place, examine, is_read, item_place, kustomization, open, uncollected, unreadable,
};
use super::load::{Loaded, load, load_from, sources, text_of};
use super::own_capture;
use super::pipeline::each_in_order;
use super::report::{CheckResult, Gate, Report, Style};
use super::{Environment, Exit, Failure, Output};
use crate::cluster::{self, FetchedPod};
use crate::config::Sources;
use crate::decide::{self, Called, Webhook, Webhooks};
use crate::inject::{EnforcedBy, Injected, Request, exempt_apps};
use crate::manifests::{NameError, Namespace, Revision, Subdomain};
use crate::object::{self, Shape};
use crate::path;
use crate::pod::init_options::InitOptions;
use crate::pod::list::{List, containers, find};
use crate::pod::security;
use crate::pod::status::Status;
use crate::pod::workload::Workload;
use crate::yaml::{self, Part};

#[derive(Args, Clone, Debug)]
pub(super) struct CheckArgs {
    /// Pod of the cluster, instead of files; its namespace is --namespace (default: default)
    #[arg(value_name = "pod/NAME", value_parser = pod_name, conflicts_with_all = ["filename", "recursive"])]
    pub(super) pod: Option<Subdomain>,
    /// File, directory (its .yaml, .yml and .json files) or - for standard input; may be repeated
    #[arg(short, long, required_unless_present = "pod", value_name = "FILE")]
    pub(super) filename: Vec<String>,
    /// Read directories recursively
    #[arg(short = 'R', long)]
    pub(super) recursive: bool,
    #[command(flatten)]
    pub(super) injection: InjectionArgs,
    /// Saved MutatingWebhookConfigurations; may be repeated. Default: those of an installation of the
    /// revision
    #[arg(long, value_name = "FILE")]
    pub(super) webhooks: Vec<String>,
    #[command(flatten)]
    pub(super) strict: StrictArgs,
    /// One line for each object
    #[arg(long, conflicts_with = "output")]
    pub(super) summary: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    pub(super) output: Format,
    #[command(flatten)]
    pub(super) color: ColorArgs,
}

/// `pod/NAME`, as kubectl takes it.
fn pod_name(given: &str) -> Result<Subdomain, String> {
    let name = ["pod/", "pods/", "po/"].iter().find_map(|kind| given.strip_prefix(kind));
    let name = name.ok_or_else(|| "expected pod/NAME, or --filename for files".to_owned())?;
    name.parse().map_err(|error: NameError| error.to_string())
}

pub(super) fn run(args: &CheckArgs, environment: &Environment) -> Result<Output, Failure> {
    match &args.pod {
        Some(name) => live(args, environment, name),
        None => saved(args, environment),
    }
}

/// A pod of the cluster, with the injector's config, the Namespace and the webhooks there.
fn live(args: &CheckArgs, environment: &Environment, name: &Subdomain) -> Result<Output, Failure> {
    let InjectionArgs { pod, cluster: flags, config } = &args.injection;
    let namespace = pod.namespace.as_ref().map_or("default", Namespace::as_str);
    let ((found, revision), config_map) =
        with_cluster(flags.kubeconfig.as_deref(), flags.context.as_deref(), async |client, target| {
            let found = cluster::fetch_pod(&client, namespace, name.as_str()).await;
            let found = found.map_err(|problem| unavailable(format!("{target}: {problem}")))?;
            let revision = pod.revision.clone().unwrap_or_else(|| revision_of(&found));
            let sources = cluster::sources(&client, &flags.config_map(&revision)).await;
            Ok(((found, revision), sources))
        })?;
    let mut args = args.clone();
    args.injection.pod.revision = Some(revision);
    let args = &args;
    let (object, own_namespace, configurations) = found;
    let mut notes = Vec::new();
    let mut sources = sources(config)?;
    match config_map {
        Ok(live) => sources = merged(sources, live),
        // The options of an injected pod are its own.
        Err(problem) => notes.push(format!("warning: {problem}: the built-in config is used")),
    }
    let mut broken = false;
    let mut loaded = match load_from(&args.injection, environment, &sources) {
        // What an injected pod has does not depend on the config.
        Err(failure) if Status::of(&object).is_some() && failure.exit == Exit::Data => {
            broken = true;
            notes.extend(failure.problems.iter().map(|problem| format!("error: {problem}")));
            load_from(&args.injection, environment, &Sources::default())?
        }
        loaded => loaded?,
    };
    loaded.namespace = loaded.namespace.or(own_namespace);
    let webhooks = match configurations {
        Ok(all) if args.webhooks.is_empty() => {
            Webhooks::parse(&all).map_err(|problem| Failure::one(Exit::Data, problem))?
        }
        Ok(_) => webhooks(args, &loaded)?,
        Err(problem) => {
            notes.push(format!("warning: {problem}: the webhooks of an installation are used"));
            webhooks(args, &loaded)?
        }
    };
    let malformed = Shape::malformed(&object);
    if !malformed.is_empty() {
        return Err(Failure::new(Exit::Data, malformed.iter().map(ToString::to_string).collect()));
    }
    let result = check_object(args, &loaded, &webhooks, "cluster", &object, Shape::Pod);
    let mut report = report(args);
    let paint = |text: String| args.color.paint(text, environment);
    report.add(&result, &paint).map_err(|error| uncollected(&error))?;
    report.refused |= broken;
    finish(report, notes)
}

/// The revision that has injected the pod, else that whose webhook is called for it.
fn revision_of(found: &FetchedPod) -> Revision {
    let (pod, namespace, configurations) = found;
    let called = || {
        let webhooks = Webhooks::parse(configurations.as_ref().ok()?).ok()?;
        let name = path::text(pod, "/metadata/namespace");
        match webhooks.called(&labels_of(namespace.as_ref()?, name), &labels(pod)) {
            Called::By(webhook, _) => webhook.revision,
            Called::ByNone(_) => None,
        }
    };
    let injected = Status::of(pod).map(|status| status.revision);
    injected.or_else(called).and_then(|revision| revision.parse().ok()).unwrap_or_default()
}

/// The results, shown as the options say.
fn report(args: &CheckArgs) -> Report {
    Report::new(match args.output {
        Format::Json => Style::Json,
        Format::Text if args.summary => Style::Summary,
        Format::Text => Style::Text,
    })
}

fn finish(report: Report, notes: Vec<String>) -> Result<Output, Failure> {
    let refused = report.refused;
    let (text, large) = report.finish().map_err(|error| uncollected(&error))?;
    Ok(Output { text, large, notes, refused, target: "-".to_owned(), ..Output::default() })
}

/// What was found in one document.
struct Checked {
    results: Vec<CheckResult>,
    problems: Vec<String>,
    /// Whether the rest of the file is not read.
    ends: bool,
}

fn saved(args: &CheckArgs, environment: &Environment) -> Result<Output, Failure> {
    let mut inputs = open(&InputArgs { filename: args.filename.clone(), recursive: args.recursive })?;
    let loaded = load(&args.injection, environment)?;
    let loaded = loaded.with_proxy_configs(&mut inputs, args.injection.pod.namespace.as_ref())?;
    let webhooks = webhooks(args, &loaded)?;
    let paint = |text: String| args.color.paint(text, environment);
    let hint = kustomization(&mut inputs);
    let (mut report, mut problems, mut any) = (report(args), Vec::new(), false);
    for input in &mut inputs {
        let file = input.called().to_owned();
        let work = |part| {
            check_part(&file, part, &|object, shape| {
                check_object(args, &loaded, &webhooks, &file, object, shape)
            })
        };
        each_in_order(input, &work, &mut |found| {
            any |= !found.results.is_empty();
            problems.extend(found.problems);
            for result in found.results.iter().filter(|_| problems.is_empty()) {
                report.add(result, &paint).map_err(|error| uncollected(&error))?;
            }
            Ok(!found.ends)
        })?;
    }
    if !problems.is_empty() {
        problems.extend(hint);
        return Err(Failure::new(Exit::Data, problems));
    }
    if !any {
        return Err(Failure::one(Exit::Data, "there is no object with a pod in these files"));
    }
    finish(report, hint.into_iter().map(|hint| format!("warning: {hint}")).collect())
}

/// Checks the objects of a document.
fn check_part(
    file: &str,
    part: Result<Part, String>,
    check: &dyn Fn(&Value, Shape) -> CheckResult,
) -> Checked {
    let ends = |problem| Checked { results: Vec::new(), problems: vec![problem], ends: true };
    let mut part = match part {
        Ok(part) => part,
        Err(problem) => return ends(problem),
    };
    let place = Place::new(file, &part);
    let document = match part.read() {
        Ok(document) => document,
        Err(error) => return ends(unreadable(&place.name, &part.body, &error.to_string())),
    };
    let (mut results, mut problems) = (Vec::new(), Vec::new());
    if let Some(duplicate) = document.duplicate.as_ref().filter(|_| is_read(&document.value)) {
        problems.push(format!("{}: {duplicate}", place.name));
    } else {
        each(&document.value, &place.line, &mut |object, place| match examine(object) {
            Ok(Examined::Pod(shape)) => results.push(check(object, shape)),
            Ok(Examined::NoPod { .. } | Examined::Nothing) => {}
            Err(found) => problems.extend(found.iter().map(|problem| format!("{place}: {problem}"))),
        });
    }
    Checked { results, problems, ends: false }
}

/// Every object with its place, the items of Lists rather than the Lists.
fn each(object: &Value, place: &str, visit: &mut dyn FnMut(&Value, &str)) {
    if let Some(items) = object::items(object) {
        for (at, item) in items.iter().enumerate() {
            each(&object::item(object, item), &item_place(place, at), visit);
        }
    } else {
        visit(object, place);
    }
}

fn webhooks(args: &CheckArgs, loaded: &Loaded) -> Result<Webhooks, Failure> {
    let data = |problem: String| Failure::one(Exit::Data, problem);
    if args.webhooks.is_empty() {
        let value =
            loaded.injector.settings.values.pointer("/sidecarInjectorWebhook/enableNamespacesByDefault");
        return Webhooks::of_revision(
            args.injection.pod.revision().as_str(),
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
        own: None,
    };
    if shape == Shape::CronJob {
        result.warnings.push(
            "labels and annotations go to spec.jobTemplate.metadata, as Istio puts them: its pods do not carry them".to_owned(),
        );
    }
    result.warnings.extend(object::unread(object, shape));
    if let Some(status) = Status::of(&pod) {
        if let Gate::Called { name, also, .. } = &result.gate
            && !also.is_empty()
        {
            let names = also.join(", ");
            result.warnings.push(format!(
                "{name} and {names} are called for such pods: they are injected by each, the last one wins"
            ));
        }
        injected_already(loaded, shape, &pod, &status, &mut result);
    } else if result.decision.inject() {
        inject(loaded, object, namespace, &pod, &mut result);
    }
    let misspelt = args.strict.misspelt(&pod);
    if !misspelt.is_empty() {
        result.warnings.retain(|warning| !misspelt.contains(warning));
        let errors = result.error.take().into_iter().chain(misspelt);
        result.error = Some(errors.collect::<Vec<_>>().join("\n"));
    }
    result
}

/// What the pod's own options do, whatever an injection would make of it now.
fn injected_already(loaded: &Loaded, shape: Shape, pod: &Value, status: &Status, result: &mut CheckResult) {
    let revision = if status.revision.is_empty() { "default" } else { &status.revision };
    if shape != Shape::Pod {
        result.warnings.push(
            "this is the result for the template: pods for which a webhook is called are injected again"
                .to_owned(),
        );
    }
    for (list, names) in List::BOTH.iter().zip([&status.containers, &status.init_containers]) {
        result.added.extend(names.iter().map(|name| format!("{}: {name}", list.key())));
    }
    match own_capture::of(pod, &loaded.injector.settings) {
        Ok(own) => {
            result.capture = own.options.iter().map(|one| format!("{}={}", one.name, one.value)).collect();
            result.warnings.extend(own.warnings.iter().cloned());
            let (by_user, by_group) = exempt_apps(pod, InitOptions::of(pod).as_ref(), loaded.context.ids);
            result.warnings.extend(by_user.map(|error| error.to_string()).into_iter().chain(by_group));
            result.own = Some((revision.to_owned(), Some(own)));
        }
        Err(problem) => {
            result.error = Some(problem);
            result.own = Some((revision.to_owned(), None));
        }
    }
}

/// What the API server does, as far as the labels of the namespace are known.
fn gate(args: &CheckArgs, loaded: &Loaded, webhooks: &Webhooks, namespace: &str, pod: &Value) -> Gate {
    let Some(object) = &loaded.namespace else {
        return Gate::Unknown;
    };
    match webhooks.called(&labels_of(object, namespace), &labels(pod)) {
        Called::By(webhook, more) => {
            let title = |webhook: &Webhook| format!("{} of {}", webhook.name, webhook.configuration);
            let of_others = more.iter().filter(|one| one.configuration != webhook.configuration);
            let asked = args.injection.pod.revision();
            let other = webhook.revision.clone().filter(|revision| revision != asked.label());
            Gate::Called {
                name: title(&webhook),
                also: of_others.map(title).collect(),
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

fn labels(object: &Value) -> Map<String, Value> {
    object.pointer("/metadata/labels").and_then(Value::as_object).cloned().unwrap_or_default()
}

/// The labels of a Namespace, with that of its name, which the API server adds.
fn labels_of(object: &Value, namespace: &str) -> Map<String, Value> {
    let mut labels = labels(object);
    let own_name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or(namespace);
    labels.entry("kubernetes.io/metadata.name").or_insert_with(|| json!(own_name));
    labels
}

/// Why an injected pod does not run, one reason per line.
pub(super) fn refusal(loaded: &Loaded, injected: &Injected) -> Option<String> {
    let violations = loaded.namespace.as_ref().and_then(security::enforced).and_then(|level| {
        let violations = security::of_injection(&injected.pod, level).join("; ");
        let key = security::ENFORCE;
        let words = || format!("{key}={level} of the namespace rejects the pod: {violations}");
        (!violations.is_empty()).then(words)
    });
    violations.or_else(|| {
        let refused: Vec<_> = injected.invalid.iter().filter(|one| one.refused_by.is_some()).collect();
        let created = refused.iter().all(|one| one.refused_by == Some(EnforcedBy::Kubelet));
        let outcome = if created { "does not start" } else { "rejects" };
        let all: Vec<&str> = refused.iter().map(|one| one.message.as_str()).collect();
        let words = || format!("Kubernetes {outcome} the injected pod: {}", all.join("\n"));
        (!all.is_empty()).then(words)
    })
}

fn inject(loaded: &Loaded, object: &Value, namespace: &str, pod: &Value, result: &mut CheckResult) {
    let workload = Workload::of_object(object, namespace);
    let request = Request { pod, workload: &workload, context: &loaded.context };
    let injected = match loaded.injector.inject(request) {
        Ok(injected) => injected,
        Err(error) => {
            result.error = Some(error.to_string());
            return;
        }
    };
    result.error = refusal(loaded, &injected);
    result.warnings.extend(injected.warnings);
    let dropped = injected.invalid.into_iter().filter(|one| one.refused_by.is_none());
    result.warnings.extend(dropped.map(|one| one.message));
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
        let is_of_flag = |warning: &&Warning| {
            matches!(warning.origin(), Origin::Flag(_)) && !matches!(warning, Warning::WideExclusion { .. })
        };
        let flags = resolved.warnings.iter().filter(is_of_flag);
        result.warnings.extend(flags.map(|warning| format!("init container: {warning}")));
    }
}
