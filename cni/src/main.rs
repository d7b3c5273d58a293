//! `istio-cni`: read the request and the configuration, run the command, print one JSON document.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::process::ExitCode;

use istio_cni::deadline::Deadline;
use istio_cni::environment;
use istio_cni::install;
use istio_cni::log_sink;
use istio_cni::output;
use istio_cni::plugin::{self, Outcome};
use istio_cni::usage::{self, Reply};
use istio_iptables::exit::Exit;
use istio_iptables::kernel::process::SystemHost;

fn main() -> ExitCode {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    let (path, command) = (std::env::var_os("PATH"), std::env::var_os("CNI_COMMAND"));
    let machine = SystemHost::new(path);
    if let Some(args) = install::requested(std::env::args_os()) {
        // Whatever became of this program's file.
        let program = install::Program { plugin: "/proc/self/exe".into(), pods: None };
        return install::main(&args, &machine, &program);
    }
    let argument = std::env::args_os().nth(1).filter(|_| command.is_none());
    if let Some(Reply { text, exit }) =
        usage::reply(argument.as_deref().map(OsStr::to_string_lossy).as_deref())
    {
        if exit == Exit::Done {
            // Nothing reads it any more if this fails.
            let _ = io::stdout().write_all(text.as_bytes());
        } else {
            eprint!("istio-cni: {text}");
        }
        return exit.into();
    }
    output::report_panics();
    let deadline = Deadline::start();
    let Outcome { version, result } = match environment::request(std::env::vars_os()) {
        Ok(request) => {
            plugin::limit_input(&request, &deadline);
            plugin::run(&request, deadline.read_input(), &deadline, &machine)
        }
        Err(error) => Outcome::early(error),
    };
    let code = output::print(version, &result);
    log_sink::deliver();
    code
}
