//! `istio-iptables-report`: the report of `explain --live` as a page.
#![no_main]

use std::ffi::OsString;
use std::path::Path;
use std::time::SystemTime;

use istio_iptables::cli::{self, PacketKey, RawOptions};
use istio_iptables::config::{NetworkNamespace, Resolved};
use istio_iptables::exit::Exit;
use istio_iptables::kernel::process::SystemHost;
use istio_iptables::page::Page;
use istio_iptables::report::Failure;
use istio_iptables::{commands, program};

const HELP: &str = "\
Writes a page (HTML, one file) about the traffic of a pod to standard output. Nothing in the pod changes.

Usage:
  istio-iptables-report --pid 4711 > pod.html
  istio-iptables-report pod.json > pod.html     the file of `istio-iptables bundle`; - reads standard input
  istio-iptables explain --live -o html > pod.html

Options: those of `istio-iptables explain --live` about all traffic (`istio-iptables explain --help`).
";

istio_iptables::entry_point!(outcome);

fn outcome(words: Vec<OsString>) -> Exit {
    let given: Vec<OsString> = words.into_iter().skip(1).collect();
    if given.iter().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return Exit::Done;
    }
    program::main(&command_line(given), Some(page))
}

/// The command line of `istio-iptables explain` that asks the same.
fn command_line(mut given: Vec<OsString>) -> Vec<OsString> {
    let mut words = vec!["istio-iptables".into(), "explain".into()];
    match given.first().and_then(|first| first.to_str()) {
        Some("--version" | "-V") => words.truncate(1),
        Some("explain") => _ = given.remove(0),
        Some(_) | None => match position_of_file(&given) {
            Some(at) => {
                let file = given.remove(at);
                given.extend(["--bundle".into(), file]);
            }
            None => words.push("--live".into()),
        },
    }
    words.extend(given);
    words
}

/// The first word that is neither an option nor the value of one.
fn position_of_file(given: &[OsString]) -> Option<usize> {
    let mut is_value = false;
    given.iter().position(|word| {
        let word = word.to_str().unwrap_or_default();
        let is_option = word.starts_with('-') && word != "-";
        let is_file = !is_option && !is_value;
        is_value = is_option && takes_value(word);
        is_file
    })
}

/// Whether the next word is the value of this option.
fn takes_value(option: &str) -> bool {
    let command = cli::command();
    let explain = command.find_subcommand("explain").into_iter();
    let all = explain.flat_map(|explain| explain.get_arguments()).chain(command.get_arguments());
    all.filter(|argument| argument.get_action().takes_values()).any(|argument| {
        let long = argument.get_long().map(|long| format!("--{long}"));
        let short = argument.get_short().map(|short| format!("-{short}"));
        [long, short].iter().flatten().any(|name| name == option)
    })
}

fn page(host: &SystemHost, raw: &RawOptions, resolved: Resolved) -> Result<String, Failure> {
    let format = raw.packet(PacketKey::Output);
    if raw.has_packet(PacketKey::Output) && format != "html" {
        let what = format!("--output {format}: a page is HTML, expected html");
        return Err(Failure::new(Exit::Usage, what)
            .hint(format!("istio-iptables explain with the same options writes {format}")));
    }
    let bundle = raw.packet(PacketKey::Bundle);
    let subject = match (bundle, &resolved.run.network_namespace) {
        ("", None) => "This network namespace".to_owned(),
        ("", Some(NetworkNamespace::Pid(pid))) => format!("Network namespace of process {pid}"),
        ("", Some(NetworkNamespace::Path(path))) => format!("Network namespace {}", path.display()),
        ("-", _) => "Bundle".to_owned(),
        (bundle, _) => {
            let name = Path::new(bundle).file_name().unwrap_or_default();
            format!("Bundle {}", name.display())
        }
    };
    let is_now = bundle.is_empty();
    let time =
        if is_now { humantime::format_rfc3339_seconds(SystemTime::now()).to_string() } else { String::new() };
    let report = commands::explain::pod_report(host, resolved)?;
    Ok(Page { report, subject, time }.html())
}
