//! `sidecar-injector`: parse, run, exit.

use std::io::Write as _;
use std::process::ExitCode;

use sidecar_injector::cli::{self, Environment, Exit};
use sidecar_injector::files;

/// A review makes some thousand small allocations, on which glibc's allocator spends a quarter of the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let variables = std::env::vars_os();
    let variables =
        variables.filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)));
    match cli::run(std::env::args_os(), &Environment { variables: variables.collect() }) {
        Ok(output) => {
            for note in output.notes.iter().chain(&output.summary) {
                print_error(&format!("{note}\n"));
            }
            let written = match &output.large {
                Some(file) => files::write_from(&output.target, file),
                None => files::write(&output.target, &output.text),
            };
            if let Err(error) = written {
                let target = match output.target.as_str() {
                    "-" => "standard output".to_owned(),
                    file => format!("--output {file}"),
                };
                print_error(&format!("error: {target}: {}\n", files::plain(&error)));
                return Exit::CannotCreate.into();
            }
            if output.refused { Exit::No.into() } else { Exit::Done.into() }
        }
        Err(failure) => {
            print_error(&failure.to_string());
            failure.exit.into()
        }
    }
}

/// Standard error may be closed: then there is nowhere to report that.
fn print_error(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
