//! `install-cni`: the node agent of the CNI plugin, with a client of the API server. It installs the program
//! `istio-cni` that is beside its own file; everything but the client is in that program's library.

mod facts;
mod objects;
mod pods;
mod reports;

use std::path::PathBuf;
use std::process::ExitCode;

use istio_cni::install::{self, Program};
use istio_iptables::kernel::process::SystemHost;

/// The plugin's program.
const PLUGIN: &str = "istio-cni";

fn main() -> ExitCode {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    let machine = SystemHost::new(std::env::var_os("PATH"));
    let mut args: Vec<String> =
        std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    if !args.first().is_some_and(|command| install::COMMANDS.contains(&command.as_str())) {
        args.insert(0, "install".to_owned());
    }
    let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/install-cni"));
    let program = Program { plugin: own.with_file_name(PLUGIN), pods: Some(pods::connect) };
    install::main(&args, &machine, &program)
}
