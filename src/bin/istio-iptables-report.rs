//! `istio-iptables-report`: the report of `explain --live` as a page.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use istio_iptables::cli::{PacketKey, RawOptions};
use istio_iptables::config::{NetworkNamespace, Resolved};
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

fn main() -> ExitCode {
    let given: Vec<OsString> = std::env::args_os().skip(1).collect();
    if given.iter().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    program::main(&command_line(given), Some(page))
}

/// The command line of `istio-iptables explain` that asks the same.
fn command_line(given: Vec<OsString>) -> Vec<OsString> {
    let mut given = given.into_iter().peekable();
    let mut words = vec!["istio-iptables".into(), "explain".into()];
    match given.peek().and_then(|first| first.to_str()) {
        Some("--version" | "-V") => words.truncate(1),
        Some("explain") => _ = given.next(),
        Some(first) if first == "-" || !first.starts_with('-') => {
            let file = given.next();
            words.extend(given.by_ref());
            words.push("--bundle".into());
            words.extend(file);
        }
        Some(_) | None => words.push("--live".into()),
    }
    words.extend(given);
    words
}

fn page(host: &SystemHost, raw: &RawOptions, resolved: Resolved) -> Result<String, Failure> {
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
