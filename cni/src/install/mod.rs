//! The node agent `install-cni`: puts the plugin's program and its entry of the network configuration on the
//! node, keeps them there, and takes them out again.

pub mod agent;
pub mod attributes;
mod audit;
pub mod backoff;
pub mod bin_dir;
pub mod binary;
pub mod config_file;
mod convert;
pub mod dry_add;
pub mod entry;
pub mod error;
mod events;
pub mod files;
pub mod foreign;
mod guard;
mod judge;
mod late_add;
pub mod locked_dir;
pub mod metrics;
pub mod net_dir;
mod node_object;
pub mod options;
pub mod platform;
pub mod plugin_log;
pub mod pods;
pub mod probes;
mod reconcile;
mod repair;
mod requests;
pub mod runtime;
mod sandboxes;
mod socket;
pub mod splice;
pub mod status;
pub mod unexamined;
pub mod uninstall;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use istio_iptables::cli::{Key, OptionValue, Origin, RawOptions};
use istio_iptables::exit::Exit;
use istio_iptables::kernel::process::SystemHost;
use istio_iptables::{config, logging};

use error::InstallError;
use options::{Command, PodsOptions};
use pods::Pods;
use uninstall::Report;

pub use crate::usage::COMMANDS;

/// The agent's command line, if this is not a call by a container runtime: the program is called
/// `install-cni`, or its first argument is one of [`COMMANDS`].
#[must_use]
pub fn requested(args: impl Iterator<Item = OsString>) -> Option<Vec<String>> {
    let args: Vec<String> = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
    let (program, rest) = args.split_first()?;
    let name = Path::new(program).file_name()?;
    match rest.first().map(String::as_str) {
        Some(command) if COMMANDS.contains(&command) => Some(rest.to_vec()),
        _ if name == "install-cni" => Some([vec!["install".to_owned()], rest.to_vec()].concat()),
        Some(_) | None => None,
    }
}

/// What differs between the programs that are an agent.
#[derive(Clone, Debug)]
pub struct Program {
    /// The plugin's program, which is installed.
    pub plugin: PathBuf,
    /// How pods are read from an API server, if this program can.
    pub pods: Option<Connect>,
}

/// Begins to read pods from an API server.
pub type Connect = fn(&PodsOptions) -> Result<Arc<dyn Pods>, InstallError>;

/// Runs a command of the agent to its end.
#[must_use]
pub fn main(args: &[String], host: &SystemHost, program: &Program) -> ExitCode {
    let parsed = match args.split_first() {
        Some((command, rest)) if command == "status" => options::status(rest),
        Some((command, rest)) if command == "audit" => options::audit(rest),
        Some((command, rest)) if command == "uninstall" => options::uninstall(rest),
        other => {
            let name = if program.pods.is_some() { "install-cni" } else { "istio-cni install" };
            options::install_as(name, other.map_or(&[], |(_, rest)| rest))
        }
    };
    let (command, level) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            eprintln!("{error}");
            return Exit::Usage.into();
        }
    };
    start_log(level);
    match run(&command, host, program) {
        Ok(code) => code,
        Err(error) => {
            log::error!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command, host: &SystemHost, program: &Program) -> Result<ExitCode, InstallError> {
    match command {
        Command::Print(text) => print(text),
        Command::Install(options) => agent::run(options, host, program)?,
        Command::Audit(options) => {
            let (text, exit) = audit::audit(options, host)?;
            print(&text);
            return Ok(exit.into());
        }
        Command::Status(dirs) => {
            let (text, captured) = status::status(dirs, host)?;
            print(&text);
            if !captured {
                return Ok(ExitCode::FAILURE);
            }
        }
        Command::Uninstall(options) => {
            let mut report = Report::default();
            let done = uninstall::uninstall(options, &mut report);
            // Completed steps are printed even if a later one fails.
            print(&report.to_string());
            done?;
            if !report.is_complete() {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print(text: &str) {
    // Nothing reads it any more if this fails.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn start_log(level: &str) {
    let given =
        |key: Key, text: &str| (key, OptionValue { text: text.to_owned(), origin: Origin::Document(key) });
    let raw = RawOptions::of([given(Key::LogFormat, "json"), given(Key::LogOutputLevel, level)]);
    logging::init(config::log_options(&raw));
}
