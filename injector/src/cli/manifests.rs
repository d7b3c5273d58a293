//! `manifests`: an installation as YAML.

use std::num::NonZeroU16;

use clap::Args as ClapArgs;
use serde_json::{Value, json};

use super::args::ConfigArgs;
use super::load::sources;
use super::{Environment, Exit, Failure, Output};
use crate::config::BUILTIN_VALUES;
use crate::inject::functions;
use crate::manifests::{
    self, Certificates, FailurePolicy, Image, InstalledRevision, Namespace, Options, Platform, Texts,
};
use crate::yaml;

/// The image of a local build, as that of the init container.
const IMAGE: &str = concat!("localhost/sidecar-injector:", env!("CARGO_PKG_VERSION"));

#[derive(ClapArgs, Clone, Debug)]
pub(super) struct ManifestsArgs {
    /// Where the injector runs; its pods are never injected
    #[arg(short, long, default_value = "istio-system")]
    namespace: Namespace,
    /// Revision of the injector: names end with it, namespaces select it with istio.io/rev
    #[arg(short, long, default_value = "", hide_default_value = true)]
    revision: InstalledRevision,
    /// The injector's image
    #[arg(long, default_value = IMAGE)]
    image: Image,
    /// Image of the init container, put into the values (global.proxy_init.image)
    #[arg(long, value_name = "IMAGE")]
    init_image: Option<Image>,
    /// How many run, at least
    #[arg(long, default_value = "2", value_name = "NUMBER")]
    replicas: NonZeroU16,
    /// While no injector responds: reject pods (Fail), or admit them without a sidecar (Ignore)
    #[arg(long, value_enum, ignore_case = true, default_value = "fail", value_name = "POLICY")]
    failure_policy: FailurePolicy,
    /// Inject pods of namespaces without any label, too
    #[arg(long)]
    enable_namespaces_by_default: bool,
    /// Leave the certificate to cert-manager
    #[arg(long)]
    cert_manager: bool,
    /// Platform; with openshift, users come from the namespace
    #[arg(long, value_enum, value_name = "NAME")]
    platform: Option<Platform>,
    /// Reject pods that still have `image: auto` (Kubernetes 1.30 or newer)
    #[arg(long)]
    validating_policy: bool,
    /// Print the Namespace, too; deleting the output then deletes it with everything in it
    #[arg(long)]
    create_namespace: bool,
    /// Print what an uninstallation deletes, for kubectl delete --ignore-not-found -f -
    #[arg(long, conflicts_with = "create_namespace")]
    uninstall: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

pub(super) fn run(args: &ManifestsArgs, environment: &Environment) -> Result<Output, Failure> {
    let (texts, notes) = texts(args, environment)?;
    let options = Options {
        namespace: args.namespace.clone(),
        revision: args.revision.clone(),
        image: args.image.clone(),
        replicas: args.replicas,
        failure_policy: args.failure_policy,
        by_default: args.enable_namespaces_by_default,
        certificates: if args.cert_manager { Certificates::CertManager } else { Certificates::SelfSigned },
        platform: args.platform.unwrap_or_default(),
        validating_policy: args.validating_policy,
        texts,
    };
    let objects = if args.uninstall { manifests::uninstall(&options) } else { manifests::objects(&options) };
    let mut objects = objects.map_err(|problem| Failure::one(Exit::Data, problem))?;
    if args.create_namespace {
        objects.insert(0, manifests::namespace(&options));
    }
    let text = manifests::to_yaml(&objects);
    Ok(Output { text, notes, target: "-".to_owned(), ..Output::default() })
}

/// What the ConfigMaps hold. A config that cannot be used is not installed.
fn texts(args: &ManifestsArgs, environment: &Environment) -> Result<(Texts, Vec<String>), Failure> {
    let variables = environment.clone();
    let functions = functions(move |name| Some(variables.get(name).to_owned()));
    let sources = sources(&args.config)?;
    let settings = sources
        .load(&functions)
        .map_err(|problems| Failure::new(Exit::Data, problems.iter().map(ToString::to_string).collect()))?;
    let (config, mesh) = sources.texts();
    let as_built_in = args.init_image.is_none() && sources.values.is_none() && sources.config.is_none();
    let values = if as_built_in {
        BUILTIN_VALUES.to_owned()
    } else {
        let mut values = settings.values;
        if let Some(image) = &args.init_image {
            set(&mut values, &["global", "proxy_init", "image"], json!(image.as_str()));
        }
        yaml::write(&values)
    };
    let notes = settings.warnings.iter().map(|warning| format!("warning: {warning}")).collect();
    Ok((Texts { config, values, mesh }, notes))
}

/// Sets a value, and makes the maps on the way to it.
fn set(values: &mut Value, path: &[&str], value: Value) {
    let Some((key, rest)) = path.split_first() else {
        *values = value;
        return;
    };
    if !values.is_object() {
        *values = json!({});
    }
    if let Some(map) = values.as_object_mut() {
        set(map.entry(*key).or_insert(Value::Null), rest, value);
    }
}
