//! `istio-iptables`: parse, run, exit.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use istio_iptables::bundle::{self, Bundle};
use istio_iptables::cli::{self, Outcome, PacketKey};
use istio_iptables::config;
use istio_iptables::exit::Exit;
use istio_iptables::facts::Files;
use istio_iptables::kernel::input;
use istio_iptables::kernel::process::{self, Host as _, SystemHost};
use istio_iptables::kernel::recording;
use istio_iptables::kernel::{terminal, termination_log};
use istio_iptables::report::Failure;
use istio_iptables::{logging, run};

fn main() -> ExitCode {
    // Rust ignores SIGPIPE; a closed log must not end a run half way, so that is right here.
    let print = |text: &str| terminal::show(text, false).map_err(|error| Failure::no_output(&error));
    let printed = outcome().and_then(|(text, exit)| print(&text).map(|()| exit));
    printed
        .unwrap_or_else(|failure| {
            log::error!("{failure}");
            termination_log::write(&failure.to_string());
            failure.exit
        })
        .into()
}

/// What is to be printed, and the exit code.
fn outcome() -> Result<(String, Exit), Failure> {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    let machine = SystemHost::new(std::env::var_os("PATH"));
    let read = |path: &Path| machine.read(path);
    let parsed = cli::parse(std::env::args_os(), std::env::vars_os(), &mut input::stdin(), &read);
    let (mut raw, errors) = match parsed {
        Ok(Outcome::Print(text)) => {
            logging::init(config::log_options(&cli::RawOptions::default()));
            return Ok((text, Exit::Done));
        }
        Ok(Outcome::Run(raw)) => (raw, Vec::new()),
        Err(cli::Failure { errors, raw }) => (raw, errors),
    };
    logging::init(config::log_options(&raw));
    if log::log_enabled!(log::Level::Debug) {
        log::debug!("environment: {}", cli::known_variables(std::env::vars_os()).join(" "));
    }
    for (name, meant) in cli::misspelt_variables(std::env::vars_os()) {
        log::warn!("{name}: unknown variable without effect; did you mean {meant}?");
    }
    let files = match raw.packet(PacketKey::Bundle).to_owned() {
        path if path.is_empty() => files(&machine, config::target_pid(&raw)),
        path => {
            let content =
                if path == "-" { io::read_to_string(input::stdin()) } else { machine.read(Path::new(&path)) };
            let Bundle { options, files, facts } = bundle::read(&format!("--bundle {path}"), content)?;
            raw.complete(options);
            recording::replay(facts);
            files
        }
    };
    let mut messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match config::resolve(&raw, &files) {
        Ok(resolved) if messages.is_empty() => {
            let report = run::run(&machine, resolved);
            let source = || format!("--bundle {}", raw.packet(PacketKey::Bundle));
            return recording::missing().map_or(report, |fact| Err(bundle::lacks(&source(), &fact)));
        }
        Ok(_) => {}
        Err(errors) => messages.extend(errors.iter().map(ToString::to_string)),
    }
    Err(bad_options(&messages))
}

/// The files that options refer to. The containers of a pod have one `/etc/resolv.conf`, and user names of their own.
fn files(machine: &SystemHost, pid: Option<u32>) -> Files {
    let resolv_conf = pid.map_or_else(
        || machine.read_lossily(Path::new("/etc/resolv.conf")),
        |pid| process::read_in_root(pid, "etc/resolv.conf"),
    );
    Files {
        passwd: names(machine, "/etc/passwd"),
        group: names(machine, "/etc/group"),
        resolv_conf: resolv_conf.map_err(|error| error.to_string()),
    }
}

/// A file of names and numbers. An image need not have one; one that cannot be read is worth a word.
fn names(machine: &SystemHost, path: &str) -> String {
    machine.read_lossily(Path::new(path)).unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            log::warn!("{path} cannot be read, so the names in it are not known: {error}");
        }
        String::new()
    })
}

/// Everything that is wrong, in one report that can be read.
fn bad_options(messages: &[String]) -> Failure {
    const MAX_REPORTED: usize = 50;
    match messages {
        [one] => Failure::new(Exit::Usage, format!("bad option: {one}")),
        _ => {
            let mut detail = messages.get(..MAX_REPORTED).unwrap_or(messages).join("\n");
            if let more @ 1.. = messages.len().saturating_sub(MAX_REPORTED) {
                detail += &format!("\nand {more} more");
            }
            Failure::new(Exit::Usage, format!("{} bad options", messages.len())).detail(detail)
        }
    }
}
