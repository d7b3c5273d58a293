//! The gallery in `rules/` and `docs/rules.md` are what the code makes: compared here, written anew by
//! `UPDATE_GALLERY=1 cargo test --test gallery` (`make gallery`). No kernel is needed.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test reads files and may fail"
)]

mod files;
mod pages;
mod parity;
mod scenario;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use istio_iptables::model::Family;
use istio_iptables::nft;

use files::Expected;
use scenario::{Made, Scenario};

const TABLE_BEGINS: &str = "<!-- the table is made by `make gallery` -->\n";
const TABLE_ENDS: &str = "<!-- end of the table -->\n";

fn scenarios() -> Vec<(Scenario, Made)> {
    let all = scenario::all().into_iter();
    all.map(|scenario| {
        let made = scenario.make();
        (scenario, made)
    })
    .collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The overview with its table as it should be.
fn overview(text: &str, scenarios: &[(Scenario, Made)]) -> String {
    let (before, rest) =
        text.split_once(TABLE_BEGINS).expect("rules/README.md has the line that begins the table");
    let (_, after) = rest.split_once(TABLE_ENDS).expect("rules/README.md has the line that ends the table");
    format!("{before}{TABLE_BEGINS}{}{TABLE_ENDS}{after}", pages::table(scenarios))
}

#[test]
fn the_gallery_is_what_the_code_makes() {
    let scenarios = scenarios();
    let mut expected = Expected::new();
    for (scenario, made) in &scenarios {
        let folder = scenario::root().join(&scenario.name);
        expected.insert(folder.join("iptables.rules"), made.rules_file(Family::V4));
        expected.insert(folder.join("ip6tables.rules"), made.rules_file(Family::V6));
        expected.insert(folder.join("nft.rules"), Some(nft::text(&nft::tables(&made.rules))));
        expected.insert(folder.join("routing.sh"), made.commands());
        expected.insert(folder.join("why.md"), Some(pages::why(scenario, made)));
    }
    let readme = scenario::root().join("README.md");
    let text = overview(&read(&readme), &scenarios);
    expected.insert(readme, Some(text));
    let reasons = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/rules.md");
    expected.insert(reasons, Some(pages::reasons(&scenarios)));
    files::settle(&expected);
}

#[test]
fn gallery_has_no_extra_files() {
    let known = ["scenario.json", "iptables.rules", "ip6tables.rules", "nft.rules", "routing.sh", "why.md"];
    let names = scenario::all().into_iter().map(|scenario| scenario.name);
    let mut allowed: BTreeSet<_> =
        names.flat_map(|name| known.map(|file| scenario::root().join(&name).join(file))).collect();
    allowed.insert(scenario::root().join("README.md"));
    let stray: Vec<_> =
        files::below(&scenario::root()).into_iter().filter(|path| !allowed.contains(path)).collect();
    assert!(stray.is_empty(), "not part of any scenario, delete or describe them: {stray:?}");
}

#[test]
fn the_gallery_is_large_enough_to_choose_from_and_shows_every_family_and_table() {
    let scenarios = scenarios();
    assert!(scenarios.len() >= 18, "{} scenarios", scenarios.len());
    let seen: BTreeSet<_> = scenarios
        .iter()
        .flat_map(|(_, made)| &made.rules)
        .flat_map(|(family, rules)| rules.tables.keys().map(|table| (*family, *table)))
        .collect();
    assert_eq!(seen.len(), 6, "{seen:?}");
    let routed = scenarios.iter().filter(|(_, made)| made.commands().is_some()).count();
    assert!(routed > 0 && routed < scenarios.len());
}

#[test]
fn no_two_scenarios_are_the_same() {
    let mut seen = BTreeSet::new();
    for (scenario, made) in scenarios() {
        let files = Family::ALL.map(|family| made.rules_file(family));
        assert!(seen.insert((files, made.commands())), "{} shows what another one shows", scenario.name);
    }
}

/// The walk in `rules/README.md` quotes rules; a quote without a matching rule is an error.
#[test]
fn every_rule_quoted_in_the_walk_is_in_the_plain_sidecar() {
    let scenarios = scenarios();
    let plain = scenarios.iter().find(|(scenario, _)| scenario.name == "plain-sidecar");
    let rules =
        plain.and_then(|(_, made)| made.rules_file(Family::V4)).expect("the plain sidecar has IPv4 rules");
    let live: BTreeSet<&str> = rules.lines().collect();
    let text = read(&scenario::root().join("README.md"));
    let quoted: Vec<&str> = text.lines().map(str::trim).filter(|line| line.starts_with("-A ")).collect();
    for line in &quoted {
        assert!(
            live.contains(line),
            "rules/README.md quotes `{line}`, which is not in plain-sidecar/iptables.rules"
        );
    }
    let unquoted: Vec<_> =
        live.iter().filter(|line| line.starts_with("-A ") && !quoted.contains(line)).collect();
    assert!(unquoted.is_empty(), "the walk never comes by {unquoted:?}");
}

#[test]
fn parity_page_matches_options_and_rules() {
    let text = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/parity.md"));
    let (refused, accepted) = (parity::options(&text, "refused"), parity::options(&text, "accepted"));
    assert!(refused.len() >= 20 && accepted.len() >= 5, "{refused:?} {accepted:?}");
    for line in refused {
        assert!(parity::refusal(&line).is_some(), "docs/parity.md: `{line}` is not refused");
    }
    for line in accepted {
        assert_eq!(parity::refusal(&line), None, "docs/parity.md: `{line}` is not accepted");
    }
    let quotes = parity::quotes(&text);
    assert!(!quotes.is_empty());
    for (file, line) in quotes {
        let rules = read(&scenario::root().join(&file));
        assert!(rules.lines().any(|rule| rule == line), "docs/parity.md: `{line}` is not in rules/{file}");
    }
}

#[test]
fn a_difference_shows_the_lines_that_changed_and_no_others() {
    assert_eq!(files::changed_lines("a\nb\nc\n", "a\nx\ny\nc\n"), "@ line 2\n- b\n+ x\n+ y\n");
    assert_eq!(files::changed_lines("a\na\n", "a\n"), "@ line 2\n- a\n");
    assert_eq!(files::changed_lines("", "a\n"), "@ line 1\n+ a\n");
}
