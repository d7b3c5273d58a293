//! Prints a completion script or the man page of `install-cni`, whose image has no shell.

use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command};
use istio_cni::install::{COMMANDS, options, platform};

/// The command line, from the table of options.
pub(crate) fn command() -> Command {
    let program = Command::new("install-cni")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Node agent of the CNI plugin istio-cni. Without a command it installs the plugin and keeps it in place");
    COMMANDS.iter().fold(with_options(program, "install"), |program, name| {
        let about = match *name {
            "status" => "Print what is installed on this node; exit code 1 if pods are not captured",
            "audit" => {
                "Compare the live rules of all captured pods of this node with those that the plugin wrote"
            }
            "uninstall" => "Remove the plugin's entry and state from this node",
            _ => "Install the plugin and its configuration entry, and keep both in place",
        };
        program.subcommand(with_options(Command::new(*name).about(about), name))
    })
}

fn with_options(command: Command, name: &str) -> Command {
    // clap adds these two.
    let rows = options::rows(name).into_iter().filter(|(option, ..)| !["help", "version"].contains(option));
    command.args(rows.map(|(option, value, help)| {
        let argument = Arg::new(option).long(option).help(help);
        let Some(value) = value else { return argument.action(ArgAction::SetTrue) };
        let words: Vec<&str> = match option {
            "platform" => platform::PLATFORMS.iter().map(|platform| platform.name).collect(),
            _ => value.split('|').collect(),
        };
        let argument = argument.value_name(value);
        if words.len() > 1 { argument.value_parser(PossibleValuesParser::new(words)) } else { argument }
    }))
}

#[allow(dead_code, reason = "a test uses the rest of this file")]
fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let Some(text) = cli_docs::text(&wanted, &command()) else {
        eprintln!("{wanted:?}: {} are accepted", cli_docs::TEXTS.join(", "));
        return ExitCode::from(64);
    };
    print!("{text}");
    ExitCode::SUCCESS
}
