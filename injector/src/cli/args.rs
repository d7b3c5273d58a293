//! Flags that several commands have. Istio's camel-case spellings are accepted beside ours.

use super::connect::ClusterArgs;
use crate::config::{ConfigFiles, SetValues};
use crate::inject;
use crate::manifests::{Image, Namespace, Platform, Revision};
use crate::webhook::options::NativeSidecars;
use clap::{Args, ValueEnum};
use serde_json::Value;

/// The source of config, and values over those of the files.
#[derive(Args, Clone, Debug)]
pub(super) struct ConfigArgs {
    #[command(flatten)]
    pub(super) files: ConfigFiles,
    /// Image of the init container (global.proxy_init.image)
    #[arg(long, value_name = "IMAGE")]
    pub(super) init_image: Option<Image>,
    /// Value that overrides those of the files, in Helm's syntax; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) set: Vec<SetValues>,
}

/// Settings for all pods of a run.
#[derive(Args, Clone, Debug)]
pub(super) struct PodArgs {
    /// Control plane revision
    #[arg(short, long)]
    pub(super) revision: Option<Revision>,
    /// Namespace of objects without a namespace
    #[arg(short, long)]
    pub(super) namespace: Option<Namespace>,
    /// Make proxies native sidecars; auto: true, because no cluster is asked
    #[arg(long, value_enum, default_value_t = NativeSidecars::Auto, value_name = "WHEN")]
    pub(super) native_sidecars: NativeSidecars,
    /// Platform; with openshift, users and groups come from the namespace
    #[arg(long, value_enum, value_name = "NAME")]
    pub(super) platform: Option<Platform>,
    /// The Namespace object, for its labels and its user and group ranges
    #[arg(long, value_name = "FILE")]
    pub(super) namespace_file: Option<String>,
    /// Deny pods with app containers that run as the proxy's user
    #[arg(long)]
    pub(super) reject_proxy_uid: bool,
}

impl PodArgs {
    /// The revision of `--revision`, the default one without it.
    pub(super) fn revision(&self) -> Revision {
        self.revision.clone().unwrap_or_default()
    }
}

/// Which files.
#[derive(Args, Clone, Debug)]
pub(super) struct InputArgs {
    /// File, directory (its .yaml, .yml and .json files) or - for standard input; may be repeated
    #[arg(short, long, required = true, value_name = "FILE")]
    pub(super) filename: Vec<String>,
    /// Read directories recursively
    #[arg(short = 'R', long)]
    pub(super) recursive: bool,
}

#[derive(Args, Clone, Debug)]
pub(super) struct OutputArgs {
    /// Output file; json or yaml: standard output in that format (by default each document keeps its format)
    #[arg(short, long, default_value = "-", hide_default_value = true, value_name = "FILE")]
    pub(super) output: String,
    /// Show the changes instead of the result; exit 1 if there are any
    #[arg(long)]
    pub(super) diff: bool,
    /// Print only warnings on standard error, no line for each document
    #[arg(short, long)]
    pub(super) quiet: bool,
}

/// What an injection depends on besides the pod.
#[derive(Args, Clone, Debug)]
pub(super) struct InjectionArgs {
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    #[command(flatten)]
    pub(super) pod: PodArgs,
    #[command(flatten)]
    pub(super) cluster: ClusterArgs,
}

/// What a run fails at besides errors.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct StrictArgs {
    /// Take an unknown annotation, label or ProxyConfig field of Istio, as a misspelt one, for an error
    #[arg(long)]
    strict: bool,
}

impl StrictArgs {
    /// The keys and fields of the pod that are errors, each in a sentence.
    pub(super) fn misspelt(self, pod: &Value) -> Vec<String> {
        if self.strict { inject::misspelt(pod) } else { Vec::new() }
    }
}

/// What `inject` takes.
#[derive(Args, Clone, Debug)]
pub(super) struct InjectArgs {
    #[command(flatten)]
    pub(super) rewrite: RewriteArgs,
    #[command(flatten)]
    pub(super) strict: StrictArgs,
}

/// What `inject` and `uninject` take.
#[derive(Args, Clone, Debug)]
pub(super) struct RewriteArgs {
    #[command(flatten)]
    pub(super) input: InputArgs,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    #[command(flatten)]
    pub(super) injection: InjectionArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Text,
    Json,
}
