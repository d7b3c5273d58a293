//! Reports of users, as pods: the first line of `explain --live` names the cause. One file each, in
//! `tests/tickets/`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::lab::{Family, Fixture, Pod, for_these_fixtures, verdict};

for_these_fixtures!(
    nft: IptablesNft Dual, legacy: IptablesLegacy Dual;
    [first_line_names_the_cause]
);

/// Fewer tickets than there were are an error.
const TICKETS: usize = 20;

fn tickets() -> BTreeMap<String, Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tickets");
    let files = std::fs::read_dir(&folder).expect("the folder of tickets");
    let paths = files.map(|file| file.expect("a file").path());
    let json = paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let read = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a ticket");
        let ticket =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path.file_stem().expect("a name").to_string_lossy().into_owned(), ticket)
    };
    json.map(read).collect()
}

fn first_line_names_the_cause(fixture: Fixture) {
    let tickets = tickets();
    assert!(tickets.len() >= TICKETS, "{} tickets", tickets.len());
    let mut wrong = Vec::new();
    for (name, ticket) in &tickets {
        let (said, expected) = (ask(&fixture.pod(), ticket), text(&ticket["first_line"]));
        if said != expected {
            wrong.push(format!("{name}\n  {said}\n  expected: {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The first line of the report.
fn ask(pod: &Pod, ticket: &Value) -> String {
    let (options, question) = (text(&ticket["options"]), text(&ticket["question"]));
    if !options.is_empty() {
        let backend = ["--backend", pod.fixture.backend.flag()].into_iter();
        let program = pod.bare_istio_iptables(&backend.chain(options.split(' ')).collect::<Vec<_>>());
        program
            .file("/etc/resolv.conf", &format!("nameserver {}\n", Family::V4.name_server()))
            .run()
            .succeeded();
    }
    for command in ticket["setup"].as_array().expect("commands") {
        let command = text(command);
        pod.iptables(Family::V4, command.strip_prefix("iptables ").expect("a command of iptables"));
    }
    let words = ["explain", "--live"].into_iter().chain(question.split(' ')).collect::<Vec<_>>();
    let output = pod.bare_istio_iptables(&words).run().succeeded().output();
    verdict(&output)
}

/// A text with the addresses of the pod.
fn text(value: &Value) -> String {
    let text = value.as_str().unwrap_or_else(|| panic!("a text: {value}"));
    [
        ("{pod}", Family::V4.pod()),
        ("{service}", Family::V4.service()),
        ("{service6}", Family::V6.service()),
        ("{dns}", Family::V4.name_server()),
    ]
    .iter()
    .fold(text.to_owned(), |text, (name, address)| text.replace(name, &address.to_string()))
}
