//! Flags. Istio's camel-case spellings are accepted beside ours.

use super::webhook_args::WebhookArgs;
use crate::manifests::{Namespace, Revision};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};

/// Puts istio-init and istio-proxy into pods: by hand, and as an admission webhook.
#[derive(Debug, Parser)]
#[command(name = "sidecar-injector", version, after_help = super::Exit::help(), max_term_width = 110)]
pub(super) struct Args {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Inject the pods of files; other documents keep every byte
    #[command(visible_alias = "kube-inject")]
    Inject(InjectArgs),
    /// Take an injection out of the pods of files
    Uninject(UninjectArgs),
    /// Say whether pods are injected, and why, or why not
    Check(CheckArgs),
    /// Print the built-in config, values and mesh config
    Config(PrintArgs),
    /// Look for problems in injector config, values and mesh config
    Lint(LintArgs),
    /// Print the objects of an installation, in the order in which to apply them
    Manifests(super::manifests::ManifestsArgs),
    /// Look at the objects of a cluster: why are pods not injected, or not created?
    Doctor(super::doctor::DoctorArgs),
    /// Serve the admission webhook
    Webhook(Box<WebhookArgs>),
}

/// Where config comes from.
#[derive(ClapArgs, Clone, Debug)]
pub(super) struct ConfigArgs {
    /// Injector config: the `config` of the ConfigMap, the whole ConfigMap, or a bare template; default: built in
    #[arg(long, alias = "injectConfigFile", value_name = "FILE")]
    pub(super) inject_config: Option<String>,
    /// Values (YAML or JSON), or the whole ConfigMap; default: built in
    #[arg(long, alias = "valuesFile", value_name = "FILE")]
    pub(super) values: Option<String>,
    /// Mesh config, or the whole ConfigMap; default: built in
    #[arg(long, alias = "meshConfigFile", value_name = "FILE")]
    pub(super) mesh_config: Option<String>,
}

/// What is the same for all pods of a run.
#[derive(ClapArgs, Clone, Debug)]
pub(super) struct PodArgs {
    /// Control plane revision
    #[arg(short, long, default_value = "", hide_default_value = true)]
    pub(super) revision: Revision,
    /// Namespace of objects that name none
    #[arg(short, long)]
    pub(super) namespace: Option<Namespace>,
    /// Whether proxies are native sidecars; auto means true
    #[arg(long, value_enum, default_value_t = Choice::Auto, value_name = "WHEN")]
    pub(super) native_sidecars: Choice,
    /// Platform; with openshift, users and groups come from the namespace
    #[arg(long, value_enum, value_name = "NAME")]
    pub(super) platform: Option<Platform>,
    /// The Namespace object, for its labels and its user and group ranges
    #[arg(long, value_name = "FILE")]
    pub(super) namespace_file: Option<String>,
    /// Refuse app containers that run as the proxy's user
    #[arg(long)]
    pub(super) reject_proxy_uid: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Choice {
    Auto,
    True,
    False,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Platform {
    Kubernetes,
    Openshift,
}

/// Which files.
#[derive(ClapArgs, Clone, Debug)]
pub(super) struct InputArgs {
    /// File, directory (its .yaml, .yml and .json files) or - for standard input; may be repeated
    #[arg(short, long, required = true, value_name = "FILE")]
    pub(super) filename: Vec<String>,
}

#[derive(ClapArgs, Clone, Debug)]
pub(super) struct OutputArgs {
    /// Where the result goes
    #[arg(short, long, default_value = "-", hide_default_value = true, value_name = "FILE")]
    pub(super) output: String,
    /// Show what would change instead of the result
    #[arg(long)]
    pub(super) diff: bool,
}

#[derive(ClapArgs, Clone, Debug)]
pub(super) struct InjectArgs {
    #[command(flatten)]
    pub(super) input: InputArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    #[command(flatten)]
    pub(super) pod: PodArgs,
}

#[derive(ClapArgs, Clone, Debug)]
pub(super) struct UninjectArgs {
    #[command(flatten)]
    pub(super) input: InputArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    #[command(flatten)]
    pub(super) pod: PodArgs,
}

#[derive(ClapArgs, Clone, Debug)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    pub(super) input: InputArgs,
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    #[command(flatten)]
    pub(super) pod: PodArgs,
    /// Saved MutatingWebhookConfigurations; may be repeated. Default: those of an installation of the revision
    #[arg(long, value_name = "FILE")]
    pub(super) webhooks: Vec<String>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    pub(super) output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
}

#[derive(ClapArgs, Clone, Debug)]
pub(super) struct PrintArgs {
    /// Which one; all of them as ConfigMaps if none is named
    #[arg(value_enum)]
    pub(super) which: Option<Which>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Which {
    Config,
    Values,
    Mesh,
}

#[derive(ClapArgs, Clone, Debug)]
pub(super) struct LintArgs {
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}
