//! The commands.

use clap::{Parser, Subcommand};

use super::Exit;
use super::args::RewriteArgs;
use super::check::CheckArgs;
use super::config::{LintArgs, PrintArgs};
use super::doctor::DoctorArgs;
use super::list::ListArgs;
use super::manifests::ManifestsArgs;
use super::webhook_args::WebhookArgs;

/// Injects istio-init and istio-proxy into pods: in files, and as an admission webhook.
#[derive(Debug, Parser)]
#[command(name = "sidecar-injector", version, after_help = Exit::help(), max_term_width = 110)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Inject the pods of files; other documents keep every byte
    #[command(visible_alias = "kube-inject")]
    Inject(RewriteArgs),
    /// Remove the sidecar from the pods of files
    Uninject(RewriteArgs),
    /// Show whether pods are injected, and why or why not
    Check(CheckArgs),
    /// Print the built-in config, values and mesh config
    Config(PrintArgs),
    /// Find problems in injector config, values and mesh config
    Lint(LintArgs),
    /// Print the objects of an installation, in the order in which to apply them
    Manifests(ManifestsArgs),
    /// Find why pods are not injected, or not created
    Doctor(DoctorArgs),
    /// List the pods with a sidecar, and what an injection would change in them now
    List(ListArgs),
    /// Serve the admission webhook
    Webhook(Box<WebhookArgs>),
}
