//! Loads files and flags into an injector.

use std::sync::Arc;

use memchr::memmem::Finder;
use serde_json::Value;

use super::args::{ConfigArgs, InjectionArgs};
use super::input::each_part;
use super::{Environment, Exit, Failure};
use crate::config::{BUILTIN_INIT_IMAGE, ProxyConfig, SetValues, Source, SourceKind, Sources};
use crate::decide::Policy;
use crate::files::{self, Input};
use crate::inject::{InjectionContext, Injector, Options, functions};
use crate::manifests::{Image, Namespace, Platform};
use crate::object;
use crate::path;
use crate::pod::ids::Ids;
use crate::webhook::options::NativeSidecars;
use crate::yaml;

/// Reads a file as text.
fn text(name: &str) -> Result<String, Failure> {
    let bytes = files::read(name).map_err(|error| Failure::reading(name, &error))?;
    String::from_utf8(bytes)
        .map_err(|_| Failure::one(Exit::Data, format!("{}: not valid UTF-8", files::called(name))))
}

/// Reads a file that a flag names as text; problems name both.
pub(super) fn text_of(flag: &str, name: &str) -> Result<String, Failure> {
    text(name).map_err(|failure| {
        let problems = failure.problems.into_iter().map(|problem| format!("{flag} {problem}"));
        Failure::new(failure.exit, problems.collect())
    })
}

/// The files that were named.
pub(super) fn sources(args: &ConfigArgs) -> Result<Sources, Failure> {
    let read = |kind: SourceKind, name: &str| {
        let flag = kind.flag();
        Source::of_file(kind, files::called(name), text_of(flag, name)?)
            .map_err(|error| Failure::one(Exit::Data, format!("{flag} {error}")))
    };
    args.files.read(read).map_err(Failure::all)
}

/// The values of the command line.
pub(super) fn values(args: &ConfigArgs) -> Value {
    SetValues::merged(&args.set, args.init_image.as_ref().map(Image::as_str))
}

/// The warning about an init container's image that only this machine has, unless it was asked for.
pub(super) fn local_image(args: &ConfigArgs, values: &Value) -> Option<String> {
    let image = values.pointer("/global/proxy_init/image")?.as_str()?;
    let unasked = args.init_image.is_none() && image == BUILTIN_INIT_IMAGE;
    unasked.then(|| {
        format!("warning: the init container's image {image} is that of a local build, which no other machine can pull: give --init-image IMAGE")
    })
}

/// Everything that a run needs besides its input.
pub(super) struct Loaded {
    pub(super) injector: Injector,
    pub(super) context: InjectionContext,
    pub(super) namespace: Option<Value>,
}

/// Reads config, values, mesh config and the namespace.
pub(super) fn load(args: &InjectionArgs, environment: &Environment) -> Result<Loaded, Failure> {
    let sources = args.cluster.beside(sources(&args.config)?, &args.pod.revision())?;
    load_from(args, environment, &sources)
}

/// Reads config, values, mesh config and the namespace, with sources that were read already.
pub(super) fn load_from(
    args: &InjectionArgs,
    environment: &Environment,
    sources: &Sources,
) -> Result<Loaded, Failure> {
    let InjectionArgs { config, pod, .. } = args;
    let variables = environment.clone();
    let lookup = move |name: &str| Some(variables.get(name).to_owned()).filter(|value| !value.is_empty());
    let settings = sources
        .load_with(&functions(lookup), values(config))
        .map_err(|problems| Failure::new(Exit::Data, problems.iter().map(ToString::to_string).collect()))?;
    let options = Options {
        revision: pod.revision().label().to_owned(),
        compliance_policy: environment.get("COMPLIANCE_POLICY").to_owned(),
        reject_proxy_uid: pod.reject_proxy_uid,
        ..Options::default()
    };
    let namespace = pod.namespace_file.as_deref().map(namespace).transpose()?;
    let ids = match (&namespace, pod.platform) {
        (Some(namespace), Some(Platform::Openshift)) => Ids::of_namespace(namespace).map_err(|problem| {
            let file = pod.namespace_file.as_deref().unwrap_or_default();
            Failure::one(Exit::Data, format!("{file}: {problem}"))
        })?,
        (None, Some(Platform::Openshift)) => {
            let problem = "--platform openshift needs --namespace-file: the Namespace says which users its pods may have";
            return Err(Failure::one(Exit::Usage, problem));
        }
        _ => Ids::default(),
    };
    let native_sidecars = pod.native_sidecars != NativeSidecars::False;
    let context = InjectionContext { ids, native_sidecars, ..InjectionContext::default() };
    Ok(Loaded { injector: Injector::new(settings, options), context, namespace })
}

fn namespace(file: &str) -> Result<Value, Failure> {
    let value = yaml::read(&text_of("--namespace-file", file)?)
        .map_err(|error| Failure::one(Exit::Data, format!("{file}: {error}")))?;
    if value.get("kind").and_then(Value::as_str) == Some("Namespace") {
        Ok(value)
    } else {
        Err(Failure::one(Exit::Data, format!("{file}: expected a Namespace object")))
    }
}

impl Loaded {
    /// Warnings about config, values and mesh config.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> {
        self.injector.settings.warnings.iter().map(|warning| format!("warning: {warning}"))
    }

    /// Whether an object may be of the namespace that `--namespace-file` has.
    pub(super) fn check_namespace(&self, object: &Value) -> Result<(), String> {
        let own = path::text(object, "/metadata/namespace");
        let given = self.namespace.as_ref().map(|namespace| path::text(namespace, "/metadata/name"));
        match given.filter(|given| !own.is_empty() && !given.is_empty() && *given != own) {
            Some(given) => {
                Err(format!("namespace {own}: --namespace-file has namespace {given}, expected {own}"))
            }
            None => Ok(()),
        }
    }

    /// The namespace of an object: its own, else the one that was given by name or as a file.
    pub(super) fn namespace_of<'a>(&'a self, object: &'a Value, given: Option<&'a Namespace>) -> &'a str {
        match path::text(object, "/metadata/namespace") {
            "" => match (given, &self.namespace) {
                (Some(given), _) => given.as_str(),
                (None, Some(namespace)) => path::text(namespace, "/metadata/name"),
                (None, None) => "",
            },
            own => own,
        }
    }

    /// The ProxyConfig resources among the files of a run apply to its pods, also to those in front of them.
    pub(super) fn with_proxy_configs(
        mut self,
        inputs: &mut [Input],
        namespace: Option<&Namespace>,
    ) -> Result<Self, Failure> {
        let kind = Finder::new("ProxyConfig");
        let (mut found, mut problems) = (Vec::new(), Vec::new());
        for input in inputs {
            let file = input.called().to_owned();
            each_part(input, &mut |part| {
                // Documents without one are parsed once; those that cannot be read are reported then.
                let part = part.ok().filter(|part| kind.find(part.body.as_bytes()).is_some());
                let Some(Ok(document)) = part.map(|mut part| part.read()) else { return Ok(true) };
                let one = std::slice::from_ref(&document.value);
                let objects = object::items(&document.value).map_or(one, Vec::as_slice);
                for object in objects.iter().filter(|object| ProxyConfig::is_one(object)) {
                    match ProxyConfig::of_object(object) {
                        Ok(read) => found.push((self.namespace_of(object, namespace).to_owned(), read)),
                        Err(error) => problems.push(format!("{file}: {}: {error}", object::title(object))),
                    }
                }
                Ok(true)
            })?;
        }
        self.context.proxy_configs = Arc::new(found.into_iter().collect());
        if problems.is_empty() { Ok(self) } else { Err(Failure::new(Exit::Data, problems)) }
    }

    /// For `inject`: the policy counts as enabled.
    pub(super) fn by_hand(mut self) -> Self {
        self.injector.settings.injector.rules.policy = Policy::Enabled;
        self
    }
}
