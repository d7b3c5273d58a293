//! A program: options, files and the bundle of its command line, what it does with them, and the exit code.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use crate::cli::{self, Key, Outcome, PacketKey, RawOptions, SubCommand};
use crate::commands;
use crate::commands::bundle::file::{self as bundle, Bundle};
use crate::config::{self, Resolved};
use crate::exit::Exit;
use crate::facts::Files;
use crate::kernel::input;
use crate::kernel::process::{self, Host as _, SystemHost};
use crate::kernel::recording;
use crate::kernel::{startup, terminal, termination_log};
use crate::logging;
use crate::report::Failure;

/// The program that writes pages: it is in the packages, not in the image.
pub const REPORT_PROGRAM: &str = "istio-iptables-report";

/// Writes a page in the place of a run.
pub type Page = fn(&SystemHost, &RawOptions, Resolved) -> Result<String, Failure>;

/// The `main` of a program, for a file with `#![no_main]`: `$outcome` gives the exit code for the words of
/// the command line. Rust's runtime is left out, since its report of a stack overflow is 0.1 MB of a static
/// program.
#[macro_export]
macro_rules! entry_point {
    ($outcome:expr) => {
        /// Called by the C library.
        #[allow(unsafe_code, reason = "the C library finds it by its name")]
        #[unsafe(no_mangle)]
        pub extern "C" fn main(_: std::ffi::c_int, _: *const *const std::ffi::c_char) -> std::ffi::c_int {
            $crate::program::start($outcome)
        }
    };
}

/// Prepares the process and does what `outcome` says. Returns the exit code.
pub fn start(outcome: fn(Vec<OsString>) -> Exit) -> i32 {
    startup::without_runtime();
    i32::from(outcome(std::env::args_os().collect()).code())
}

/// Does what the command line `words` asks for. `page` is what `istio-iptables-report` does in the place of a
/// run.
#[must_use]
pub fn main(words: &[OsString], page: Option<Page>) -> Exit {
    // Rust ignores SIGPIPE; a closed log must not end a run half way, so that is right here.
    let print = |text: &str| terminal::show(text, false).map_err(|error| Failure::no_output(&error));
    let printed = outcome(words, page).and_then(|(text, exit)| print(&text).map(|()| exit));
    printed.unwrap_or_else(|failure| {
        log::error!("{failure}");
        termination_log::write(&failure.to_string());
        failure.exit
    })
}

/// What is to be printed, and the exit code.
fn outcome(words: &[OsString], page: Option<Page>) -> Result<(String, Exit), Failure> {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    let machine = SystemHost::new(std::env::var_os("PATH"));
    let read = |path: &Path| machine.read(path);
    let parsed = cli::parse(words.iter().cloned(), std::env::vars_os(), &mut input::stdin(), &read);
    let (mut raw, errors) = match parsed {
        Ok(Outcome::Print(text)) => {
            logging::init(config::log_options(&RawOptions::default()));
            return Ok((text, Exit::Done));
        }
        Ok(Outcome::Run(raw)) => (raw, Vec::new()),
        Err(cli::Failure { errors, raw }) => (raw, errors),
    };
    logging::init(config::log_options(&raw));
    if page.is_none() && raw.command == SubCommand::Explain && raw.packet(PacketKey::Output) == "html" {
        return Err(to_report_program(&machine, words, &raw));
    }
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
            let report = match page {
                Some(page) => page(&machine, &raw, resolved).map(|page| (page, Exit::Done)),
                None => commands::run(&machine, resolved),
            };
            let source = || format!("--bundle {}", raw.packet(PacketKey::Bundle));
            return recording::missing().map_or(report, |fact| Err(bundle::lacks(&source(), &fact)));
        }
        Ok(_) => {}
        Err(errors) => messages.extend(errors.iter().map(ToString::to_string)),
    }
    Err(bad_options(&messages))
}

/// Goes on as the program that writes pages, with the same command line. Returns only if it cannot.
fn to_report_program(machine: &SystemHost, words: &[OsString], raw: &RawOptions) -> Failure {
    if let Err(error) = terminal::output_is_open() {
        return Failure::no_output(&error);
    }
    if raw.given(Key::Config).is_some_and(|given| given.text == "-") {
        let what = "--output html: the options were read from standard input (--config -)";
        return Failure::new(Exit::Usage, what).hint(format!(
            "call {REPORT_PROGRAM} with the same options in the place of istio-iptables explain"
        ));
    }
    let Some(program) = process::beside_this(REPORT_PROGRAM).or_else(|| machine.find(REPORT_PROGRAM)) else {
        let what =
            format!("--output html: the program {REPORT_PROGRAM} is neither beside this one nor in PATH");
        return Failure::new(Exit::Unavailable, what).hint(
            "the packages have it, the image does not: `istio-iptables bundle > pod.json` here, `istio-iptables-report pod.json` where it is",
        );
    };
    let error = process::exec(&program, words.get(1..).unwrap_or_default());
    Failure::new(Exit::Unavailable, format!("{} cannot be run: {error}", program.display()))
}

/// The files that options refer to. The containers of a pod have one `/etc/resolv.conf`, and user names of
/// their own.
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
