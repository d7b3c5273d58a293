//! Prints a completion script or the man page of `istio-iptables`, which `make packages` packs: the program
//! in the image has no shell beside it.

use std::process::ExitCode;

use istio_iptables::cli;
use istio_iptables::exit::Exit;

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let Some(text) = cli_docs::text(&wanted, &cli::command()) else {
        eprintln!("cli_docs: {wanted:?}: {} are accepted", cli_docs::TEXTS.join(", "));
        return Exit::Usage.into();
    };
    print!("{text}");
    Exit::Done.into()
}
