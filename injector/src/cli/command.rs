//! The commands.

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};

use super::Exit;
use super::args::{InjectArgs, RewriteArgs};
use super::check::CheckArgs;
use super::config::{LintArgs, PrintArgs};
use super::doctor::DoctorArgs;
use super::list::ListArgs;
use super::manifests::ManifestsArgs;
use super::webhook_args::WebhookArgs;

/// Injects istio-init and istio-proxy into pods, in files or as an admission webhook.
#[derive(Debug, Parser)]
#[command(name = "sidecar-injector", version, after_help = Exit::help(), max_term_width = 110)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Inject the sidecar into pods in files; other documents stay unchanged
    #[command(visible_alias = "kube-inject")]
    #[command(
        after_help = "Examples:\n  sidecar-injector inject -f deploy.yaml | kubectl apply -f -\n  sidecar-injector inject -f deploy.yaml --inject-config inject-config.yaml --values values.json --diff"
    )]
    Inject(InjectArgs),
    /// Remove the sidecar from pods in files
    #[command(after_help = "Examples:\n  sidecar-injector uninject -f injected.yaml > deploy.yaml")]
    Uninject(RewriteArgs),
    /// Show whether pods are injected, and why
    #[command(
        after_help = "Examples:\n  sidecar-injector check -f deploy.yaml\n  sidecar-injector check -f deploy.yaml --output json"
    )]
    Check(CheckArgs),
    /// Print the built-in config, values and mesh config
    #[command(after_help = "Examples:\n  sidecar-injector config values > values.json")]
    Config(PrintArgs),
    /// Find problems in injector config, values and mesh config
    #[command(
        after_help = "Examples:\n  sidecar-injector lint --inject-config inject-config.yaml --values values.json"
    )]
    Lint(LintArgs),
    /// Print the objects of an installation, in the order in which to apply them
    #[command(after_help = "Examples:\n  sidecar-injector manifests --revision capture | kubectl apply -f -")]
    Manifests(ManifestsArgs),
    /// Find out why pods are not injected, or not created
    #[command(
        after_help = "Examples:\n  sidecar-injector doctor --namespace shop\n  sidecar-injector doctor -f saved/"
    )]
    Doctor(DoctorArgs),
    /// List pods with a sidecar, and what an injection would change in them now
    #[command(after_help = "Examples:\n  sidecar-injector list --namespace shop --output json")]
    List(ListArgs),
    /// Serve the admission webhook
    #[command(
        after_help = "Examples:\n  sidecar-injector webhook --self-signed --service istio-sidecar-injector --namespace istio-system\n  sidecar-injector webhook --tls-cert cert.pem --tls-key key.pem"
    )]
    Webhook(Box<WebhookArgs>),
    /// Print a completion script for bash, fish or zsh
    #[command(
        after_help = "Examples:\n  sidecar-injector completions bash > /etc/bash_completion.d/sidecar-injector"
    )]
    Completions(CompletionsArgs),
    /// Print the man page
    #[command(after_help = "Examples:\n  sidecar-injector man | man -l -")]
    Man,
}

#[derive(Args, Clone, Debug)]
pub(super) struct CompletionsArgs {
    /// The shell
    #[arg(value_parser = PossibleValuesParser::new(cli_docs::SHELLS))]
    pub(super) shell: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn examples_in_help_are_accepted() {
        for sub in Cli::command().get_subcommands() {
            let help = sub.get_after_help().unwrap().to_string();
            let examples: Vec<&str> = help.strip_prefix("Examples:\n").unwrap().lines().collect();
            assert!(!examples.is_empty());
            for example in examples {
                let words = example.split_whitespace().take_while(|word| !["|", ">"].contains(word));
                let parsed = Cli::try_parse_from(words);
                assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
            }
        }
    }
}
