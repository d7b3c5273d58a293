//! Prints a completion script or the man page of a small command line: `cargo run --example greet -- bash`.

use clap::{Arg, Command};

fn main() {
    let command =
        Command::new("greet").about("Greets").arg(Arg::new("name").long("name").help("Whom to greet"));
    let wanted = std::env::args().nth(1).unwrap_or_default();
    match cli_docs::text(&wanted, &command) {
        Some(text) => print!("{text}"),
        None => eprintln!("{wanted:?}: {} are accepted", cli_docs::TEXTS.join(", ")),
    }
}
