//! `manifests`: an installation as YAML.

use std::num::NonZeroU16;
use std::str::FromStr as _;

use clap::Args as ClapArgs;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use istio_cni::install::platform as cni;
use serde_json::Value;

use super::args::ConfigArgs;
use super::connect::{unavailable, with_cluster};
use super::load::{local_image, sources, values};
use super::{Environment, Exit, Failure, Output};
use crate::config::{BUILTIN_VALUES, SetValues};
use crate::inject::functions;
use crate::manifests::node_agent::{self, NodeAgent, Settings};
use crate::manifests::{
    self, Certificates, FailurePolicy, Image, InstalledRevision, Namespace, Options, Platform, Texts,
};
use crate::yaml;

/// The images of a local build, as that of the init container.
const IMAGE: &str = concat!("localhost/sidecar-injector:", env!("CARGO_PKG_VERSION"));
const AGENT_IMAGE: &str = concat!("localhost/istio-cni:", env!("CARGO_PKG_VERSION"));

const OWNED_BY_ISTIOD: &str = "--revision is missing: without one the objects have the names of istiod's (ConfigMaps istio and \
    istio-sidecar-injector, MutatingWebhookConfiguration istio-sidecar-injector) and overwrite them: give --revision NAME \
    with a name that no istiod has, or --replace-istiod";

#[derive(ClapArgs, Clone, Debug)]
pub(super) struct ManifestsArgs {
    /// Print the node agent of istio-cni instead, a DaemonSet for all revisions; --set KEY=VALUE sets a key
    /// of its ConfigMap
    #[arg(long, conflicts_with_all = [
        "revision", "replace_istiod", "replicas", "failure_policy", "enable_namespaces_by_default", "cert_manager",
        "validating_policy", "inject_config", "values", "mesh_config", "init_image",
    ])]
    cni: bool,
    /// Namespace of the injector; its pods are never injected
    #[arg(short, long, default_value = "istio-system")]
    namespace: Namespace,
    /// Revision of the injector: names end with it, namespaces select it with istio.io/rev
    #[arg(short, long, default_value = "", hide_default_value = true)]
    revision: InstalledRevision,
    /// Image of the injector, or of the node agent with --cni; default: that of a local build
    #[arg(long)]
    image: Option<Image>,
    /// Without --revision: use the names of istiod's objects, and replace existing ones
    #[arg(long)]
    replace_istiod: bool,
    /// Minimum number of replicas
    #[arg(long, default_value = "2", value_name = "NUMBER", value_parser = replicas)]
    replicas: NonZeroU16,
    /// While no injector responds: reject pods (Fail), or admit them without a sidecar (Ignore)
    #[arg(long, value_enum, ignore_case = true, default_value = "fail", value_name = "POLICY")]
    failure_policy: FailurePolicy,
    /// Also inject pods of namespaces without any label; only without --revision
    #[arg(long)]
    enable_namespaces_by_default: bool,
    /// Let cert-manager issue the certificate
    #[arg(long)]
    cert_manager: bool,
    /// Platform; openshift: users come from the namespace; with --cni: the node's directories
    #[arg(long, default_value = "kubernetes", value_name = "NAME", value_parser = platforms(), ignore_case = true)]
    platform: cni::Platform,
    /// Reject pods that still have `image: auto` (Kubernetes 1.30 or later)
    #[arg(long)]
    validating_policy: bool,
    /// Also print the Namespace; deleting the output then deletes it with all its objects
    #[arg(long)]
    create_namespace: bool,
    /// Print the objects of the cluster that belong to this installation, for kubectl delete -f -
    #[arg(long, group = "live", conflicts_with = "create_namespace")]
    uninstall: bool,
    /// Instead list foreign objects of the same names in the cluster, and foreign webhooks for the same pods;
    /// exit 1 if there are any
    #[arg(long, group = "live")]
    check: bool,
    /// Kubeconfig for --check and --uninstall; default: the pod's service account, then $KUBECONFIG, then
    /// ~/.kube/config
    #[arg(long, value_name = "FILE", requires = "live")]
    kubeconfig: Option<String>,
    /// Context of the kubeconfig; default: its current context
    #[arg(long, value_name = "NAME", requires = "live")]
    context: Option<String>,
    #[command(flatten)]
    config: ConfigArgs,
}

fn replicas(given: &str) -> Result<NonZeroU16, String> {
    given.parse().map_err(|_| "expected a number of replicas, 1 to 65535".to_owned())
}

/// The parser of the node agent's platforms; an empty name is the default.
fn platforms() -> impl TypedValueParser<Value = cni::Platform> {
    let named = cni::PLATFORMS.iter().flat_map(cni::Platform::names).map(PossibleValue::new);
    PossibleValuesParser::new(named.chain([PossibleValue::new("").hide(true)]))
        .try_map(|name| cni::Platform::by_name(&name).ok_or_else(cni::Platform::accepted))
}

/// The image that was given, or that of a local build.
fn image(given: Option<&Image>, local: &str) -> Result<Image, Failure> {
    let local = || Image::from_str(local).map_err(|error| Failure::one(Exit::Data, error.to_string()));
    given.cloned().map_or_else(local, Ok)
}

fn warning(what: &str, image: &str) -> String {
    format!(
        "warning: {what} image {image} is that of a local build, which no other machine can pull: give --image IMAGE"
    )
}

pub(super) fn run(args: &ManifestsArgs, environment: &Environment) -> Result<Output, Failure> {
    if args.cni {
        return node_agents(args);
    }
    if args.revision.as_str().is_empty() && !args.replace_istiod && !args.check {
        return Err(Failure::one(Exit::Usage, OWNED_BY_ISTIOD));
    }
    let (texts, mut notes) = texts(args, environment)?;
    if args.enable_namespaces_by_default && !args.revision.as_str().is_empty() {
        notes.push(
            "warning: --enable-namespaces-by-default has no effect with --revision: only the default revision injects pods \
             of namespaces without a label; expected --replace-istiod instead of --revision, or labels of the namespaces"
                .to_owned(),
        );
    }
    if args.image.is_none() && !args.uninstall {
        notes.push(warning("the injector's", IMAGE));
    }
    let options = Options {
        namespace: args.namespace.clone(),
        revision: args.revision.clone(),
        image: image(args.image.as_ref(), IMAGE)?,
        replicas: args.replicas,
        failure_policy: args.failure_policy,
        by_default: args.enable_namespaces_by_default,
        certificates: if args.cert_manager { Certificates::CertManager } else { Certificates::SelfSigned },
        platform: if args.platform.name == "openshift" { Platform::Openshift } else { Platform::Kubernetes },
        // What is in the cluster decides what is deleted.
        validating_policy: args.validating_policy || args.uninstall,
        texts,
    };
    let objects = if args.uninstall { manifests::uninstall(&options) } else { manifests::objects(&options) };
    finish(args, objects, notes)
}

/// The node agent's objects.
fn node_agents(args: &ManifestsArgs) -> Result<Output, Failure> {
    let platform = args.platform;
    let settings = Settings::new(&SetValues::merged(&args.config.set, None), &platform)
        .map_err(|problem| Failure::one(Exit::Usage, format!("--set: {problem}")))?;
    let options = NodeAgent {
        namespace: args.namespace.clone(),
        image: image(args.image.as_ref(), AGENT_IMAGE)?,
        platform,
        settings,
    };
    let mut notes = Vec::new();
    if !args.uninstall {
        notes.extend(args.image.is_none().then(|| warning("the node agent's", AGENT_IMAGE)));
        notes.extend((!options.platform.chained).then(|| {
            let name = platform.name;
            format!("warning: with {name} pods are captured only through a NetworkAttachmentDefinition istio-cni: docs/cni.md")
        }));
    }
    let objects =
        if args.uninstall { node_agent::uninstall(&options) } else { node_agent::objects(&options) };
    finish(args, objects, notes)
}

fn finish(
    args: &ManifestsArgs,
    objects: Result<Vec<Value>, String>,
    notes: Vec<String>,
) -> Result<Output, Failure> {
    let mut objects = objects.map_err(|problem| Failure::one(Exit::Data, problem))?;
    if args.check {
        return check(args, &objects);
    }
    if args.uninstall {
        return uninstall(args, &objects, notes);
    }
    if args.create_namespace {
        objects.insert(0, manifests::namespace(&args.namespace));
    }
    let text = manifests::to_yaml(&objects);
    Ok(Output { text, notes, target: "-".to_owned(), ..Output::default() })
}

/// Prints the objects of the cluster that belong to the installation: a name alone may be that of an object
/// of istiod.
fn uninstall(args: &ManifestsArgs, objects: &[Value], mut notes: Vec<String>) -> Result<Output, Failure> {
    let found = with_cluster(args.kubeconfig.as_deref(), args.context.as_deref(), async |client, target| {
        let owners = crate::cluster::owners(&client, objects).await;
        owners.map_err(|problem| unavailable(format!("{target}: {problem}")))
    })?;
    notes.extend(found.foreign.iter().map(|foreign| format!("not deleted: {foreign}")));
    notes.extend(found.overwritten.iter().map(|overwritten| {
        format!(
            "warning: {overwritten}: Istio's chart made it, and this installation has overwritten it: an upgrade of istiod with its chart \
             makes it again"
        )
    }));
    if found.own.is_empty() {
        notes.push("nothing to delete: no object of this installation is in the cluster".to_owned());
    }
    let own: Vec<Value> = found.own.into_iter().map(manifests::by_name).collect();
    Ok(Output { text: manifests::to_yaml(&own), notes, target: "-".to_owned(), ..Output::default() })
}

/// Compares the objects with those of the cluster.
fn check(args: &ManifestsArgs, objects: &[Value]) -> Result<Output, Failure> {
    let flags = (args.kubeconfig.as_deref(), args.context.as_deref());
    let (found, obstacles) = with_cluster(flags.0, flags.1, async |client, target| {
        let failed = |problem: String| unavailable(format!("{target}: {problem}"));
        let owners = crate::cluster::owners(&client, objects).await.map_err(failed)?;
        let obstacles = if args.cni {
            crate::cluster::obstacles(&client, args.namespace.as_str()).await
        } else {
            crate::cluster::overlapping(&client, objects, args.revision.as_str()).await
        };
        let obstacles = obstacles.map_err(failed)?;
        Ok((owners, obstacles))
    })?;
    let lines = found.foreign.iter().chain(&obstacles);
    let mut text: String = lines.map(|line| format!("{line}\n")).collect();
    text.push_str(&format!(
        "{} objects are new, {} belong to this installation, {} to others\n",
        found.new,
        found.own.len(),
        found.foreign.len()
    ));
    let refused = !found.foreign.is_empty() || !obstacles.is_empty();
    Ok(Output { text, refused, target: "-".to_owned(), ..Output::default() })
}

/// The content of the ConfigMaps. A config that cannot be used is not installed.
fn texts(args: &ManifestsArgs, environment: &Environment) -> Result<(Texts, Vec<String>), Failure> {
    let variables = environment.clone();
    let functions = functions(move |name| Some(variables.get(name).to_owned()));
    let sources = sources(&args.config)?;
    let settings = sources
        .load_with(&functions, values(&args.config))
        .map_err(|problems| Failure::new(Exit::Data, problems.iter().map(ToString::to_string).collect()))?;
    let (config, mesh) = sources.texts();
    let set = values(&args.config);
    let as_built_in = set.is_null() && sources.values.is_none() && sources.config.is_none();
    let local = local_image(&args.config, &settings.values);
    let values = if as_built_in { BUILTIN_VALUES.to_owned() } else { yaml::write(&settings.values) };
    let local = local.filter(|_| !args.uninstall);
    let notes = settings.warnings.iter().map(|warning| format!("warning: {warning}")).chain(local).collect();
    Ok((Texts { config, values, mesh }, notes))
}
