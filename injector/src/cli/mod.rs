//! The command line.

mod args;
mod check;
mod color;
mod command;
mod config;
mod connect;
mod doctor;
mod exit;
mod inject;
mod input;
mod list;
mod load;
mod manifests;
mod own_capture;
mod pipeline;
mod report;
mod rewrite;
mod saved;
mod uninject;
mod webhook;
mod webhook_args;

use std::ffi::OsString;
use std::fs::File;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};

use command::{Cli, Command};
pub use exit::{Exit, Failure};

/// The environment of a run.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// Environment variables that are valid UTF-8.
    pub variables: Vec<(String, String)>,
}

impl Environment {
    /// The value of a variable, empty if it is not set.
    #[must_use]
    pub fn get(&self, name: &str) -> &str {
        self.variables.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }
}

/// What a run prints.
#[derive(Debug, Default)]
pub struct Output {
    /// For standard output, or the file of `--output`.
    pub text: String,
    /// A temporary file with the text instead, where it is large.
    pub large: Option<File>,
    /// For standard error.
    pub notes: Vec<String>,
    /// For standard error, behind the notes: what became of each document.
    pub summary: Vec<String>,
    /// Whether the result is negative: exit status 1.
    pub refused: bool,
    /// Where `text` goes; `-` is standard output.
    pub target: String,
}

/// Runs the program.
///
/// # Errors
///
/// All problems, with their exit code.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    environment: &Environment,
) -> Result<Output, Failure> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) if !error.use_stderr() => {
            return Ok(printed(error.to_string()));
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            return Err(Failure { exit: Exit::Usage, help: error.to_string(), problems: Vec::new() });
        }
        Err(error) => {
            let program = Cli::command();
            let asked = arguments.get(1).and_then(|name| program.find_subcommand(name));
            return Err(Failure::usage(&error, asked));
        }
    };
    match cli.command {
        Command::Inject(args) => inject::run(&args, environment),
        Command::Uninject(args) => uninject::run(&args, environment),
        Command::Check(args) => check::run(&args, environment),
        Command::Config(args) => Ok(config::print(&args)),
        Command::Lint(args) => config::lint(&args, environment),
        Command::Manifests(args) => manifests::run(&args, environment),
        Command::Doctor(args) => doctor::run(&args, environment),
        Command::List(args) => list::run(&args, environment),
        Command::Webhook(args) => webhook::run(&args, environment),
        Command::Completions(args) => {
            Ok(printed(cli_docs::text(&args.shell, &Cli::command()).unwrap_or_default()))
        }
        Command::Man => Ok(printed(cli_docs::text("man", &Cli::command()).unwrap_or_default())),
    }
}

/// A text for standard output.
fn printed(text: String) -> Output {
    Output { text, target: "-".to_owned(), ..Output::default() }
}
