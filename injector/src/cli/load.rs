//! Files and flags into an injector.

use serde_json::Value;

use super::args::{ConfigArgs, PodArgs};
use super::{Environment, Exit, Failure};
use crate::config::{Source, SourceKind, Sources};
use crate::decide::Policy;
use crate::files;
use crate::inject::{Injector, Options, Placement, functions};
use crate::manifests::{Namespace, Platform};
use crate::pod::ids::Ids;
use crate::webhook::options::NativeSidecars;
use crate::yaml;

/// Reads a file as text.
fn text(name: &str) -> Result<String, Failure> {
    let bytes = files::read(name)
        .map_err(|error| Failure::one(Exit::NoInput, format!("{}: {error}", called(name))))?;
    String::from_utf8(bytes)
        .map_err(|_| Failure::one(Exit::Data, format!("{}: not valid UTF-8", called(name))))
}

/// Reads a file that a flag names as text; problems name both.
pub(super) fn text_of(flag: &str, name: &str) -> Result<String, Failure> {
    text(name).map_err(|failure| {
        let problems = failure.problems.into_iter().map(|problem| format!("{flag} {problem}"));
        Failure::new(failure.exit, problems.collect())
    })
}

/// How messages call a file.
pub(super) fn called(name: &str) -> &str {
    if name == "-" { "standard input" } else { name }
}

/// The files that were named.
pub(super) fn sources(args: &ConfigArgs) -> Result<Sources, Failure> {
    let mut problems = Vec::new();
    let mut exit = Exit::NoInput;
    let mut read = |holds: SourceKind, flag: &str, name: &Option<String>| {
        let name = name.as_ref()?;
        let source = text_of(flag, name).and_then(|text| {
            Source::of_file(holds, called(name), text)
                .map_err(|error| Failure::one(Exit::Data, format!("{flag} {error}")))
        });
        match source {
            Ok(source) => Some(source),
            Err(failure) => {
                exit = failure.exit;
                problems.extend(failure.problems);
                None
            }
        }
    };
    let sources = Sources {
        config: read(SourceKind::Config, "--inject-config", &args.inject_config),
        values: read(SourceKind::Values, "--values", &args.values),
        mesh: read(SourceKind::Mesh, "--mesh-config", &args.mesh_config),
    };
    if problems.is_empty() { Ok(sources) } else { Err(Failure::new(exit, problems)) }
}

/// Everything that a run needs besides its input.
pub(super) struct Loaded {
    pub(super) injector: Injector,
    pub(super) place: Placement,
    pub(super) namespace: Option<Value>,
}

/// Reads config, values, mesh config and the namespace.
pub(super) fn load(config: &ConfigArgs, pod: &PodArgs, environment: &Environment) -> Result<Loaded, Failure> {
    let variables = environment.clone();
    let lookup = move |name: &str| Some(variables.get(name).to_owned()).filter(|value| !value.is_empty());
    let settings = sources(config)?
        .load(&functions(lookup))
        .map_err(|problems| Failure::new(Exit::Data, problems.iter().map(ToString::to_string).collect()))?;
    let options = Options {
        revision: pod.revision.label().to_owned(),
        compliance_policy: environment.get("COMPLIANCE_POLICY").to_owned(),
        reject_proxy_uid: pod.reject_proxy_uid,
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
    let place = Placement { ids, native_sidecars, environment: Vec::new() };
    Ok(Loaded { injector: Injector::new(settings, options), place, namespace })
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
    /// The namespace of an object: its own, else the one that was given by name or as a file.
    pub(super) fn namespace_of<'a>(&'a self, object: &'a Value, given: Option<&'a Namespace>) -> &'a str {
        let name = |object: Option<&'a Value>, pointer: &str| {
            object.and_then(|object| object.pointer(pointer)?.as_str()).filter(|name| !name.is_empty())
        };
        let own = name(Some(object), "/metadata/namespace");
        own.or(given.map(Namespace::as_str))
            .or_else(|| name(self.namespace.as_ref(), "/metadata/name"))
            .unwrap_or_default()
    }

    /// For `inject`: the policy counts as enabled.
    pub(super) fn by_hand(mut self) -> Self {
        self.injector.settings.injector.rules.policy = Policy::Enabled;
        self
    }
}
