//! `istio-cni`: read the request and the configuration, run the command, print one JSON document.

use std::process::ExitCode;

use istio_cni::environment;
use istio_cni::install;
use istio_cni::output;
use istio_cni::plugin::{self, Outcome};
use istio_cni::watch::Watch;
use istio_iptables::kernel::process::SystemHost;

fn main() -> ExitCode {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    let machine = SystemHost::new(std::env::var_os("PATH"));
    if let Some(args) = install::requested(std::env::args_os()) {
        return install::main(&args, &machine);
    }
    output::report_panics();
    let watch = Watch::start();
    let Outcome { version, result } = match environment::request(std::env::vars_os()) {
        Ok(request) => plugin::run(&request, watch.read_input(), &watch, &machine),
        Err(error) => Outcome::early(error),
    };
    output::print(version, &result)
}
