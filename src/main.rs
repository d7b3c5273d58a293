//! `istio-iptables`: parse, run, exit.

use std::process::ExitCode;

use istio_iptables::program;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    program::main(&words, None)
}
