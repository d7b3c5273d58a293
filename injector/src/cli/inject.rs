//! `inject`.

use serde_json::Value;

use super::args::{InjectArgs, StrictArgs};
use super::check::refusal;
use super::input::open;
use super::load::{Loaded, load, local_image};
use super::rewrite::{Change, rewrite};
use super::{Environment, Failure, Output};
use crate::config::BUILTIN_INIT_IMAGE;
use crate::decide::{self, Reason};
use crate::inject::Request;
use crate::manifests::Namespace;
use crate::object::{self, Shape};
use crate::pod::workload::Workload;

pub(super) fn run(args: &InjectArgs, environment: &Environment) -> Result<Output, Failure> {
    let InjectArgs { rewrite: args, strict } = args;
    let mut inputs = open(&args.input)?;
    let loaded = load(&args.injection, environment)?.by_hand();
    let loaded = loaded.with_proxy_configs(&mut inputs, args.injection.pod.namespace.as_ref())?;
    let mut output = rewrite(&mut inputs, &args.output, "injected", &|object, shape, notes| {
        one(&loaded, *strict, (object, shape), args.injection.pod.namespace.as_ref(), notes)
    })?;
    output.notes.splice(..0, loaded.warnings());
    let warning = local_image(&args.injection.config, &loaded.injector.settings.values);
    output.notes.extend(warning.filter(|_| output.text.contains(BUILTIN_INIT_IMAGE)));
    Ok(output)
}

fn one(
    loaded: &Loaded,
    strict: StrictArgs,
    (object, shape): (&Value, Shape),
    namespace: Option<&Namespace>,
    notes: &mut Vec<String>,
) -> Result<Change, String> {
    let title = object::title(object);
    loaded.check_namespace(object)?;
    let namespace = loaded.namespace_of(object, namespace);
    let pod = shape.pod(object);
    let misspelt = strict.misspelt(&pod);
    if !misspelt.is_empty() {
        return Err(misspelt.join("\n"));
    }
    let decision = decide::decide(&pod, namespace, &loaded.injector.settings.injector.rules);
    notes.extend(decision.warnings.iter().map(|warning| format!("warning: {title}: {warning}")));
    notes.extend(object::unread(object, shape).iter().map(|unread| format!("warning: {title}: {unread}")));
    if !decision.inject() {
        let why = match decision.reason() {
            Some(step) if step.reason == Reason::HostNetwork => "has host networking enabled".to_owned(),
            Some(step) => format!("is not to be injected: {}", step.found),
            None => String::new(),
        };
        notes.push(format!("===> Skipping injection because {title} {why}"));
        return Ok(Change::None);
    }
    let workload = Workload::of_object(object, namespace);
    let request = Request { pod: &pod, workload: &workload, context: &loaded.context };
    let injected = loaded.injector.inject(request).map_err(|error| error.to_string())?;
    notes.extend(injected.warnings.iter().map(|warning| format!("warning: {title}: {warning}")));
    let refusal = refusal(loaded, &injected);
    notes
        .extend(refusal.iter().flat_map(|text| text.lines()).map(|line| format!("warning: {title}: {line}")));
    let dropped = injected.invalid.iter().filter(|one| one.refused_by.is_none());
    notes.extend(dropped.map(|invalid| format!("warning: {title}: {invalid}")));
    Ok(Change::Into(Box::new(shape.with(object, injected.pod))))
}
