//! Native nftables, against `nft -f` of the same rules: the life of a pod, and long lists.

use std::fs::{read_to_string, write};
use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::command::Cmd;
use crate::lists::{BASE, config_file};
use crate::measure::{Contender, Plan, compare};
use crate::namespace::{Families, Namespaces};
use crate::options::Options;
use crate::report::table;
use crate::scenarios::{CHANGED, CLEANUP, SIDECAR};

/// The steps of a pod's life: what ran before, and the options that are measured.
pub(crate) type Step = (&'static str, &'static [&'static [&'static str]], &'static [&'static str]);

pub(crate) const LIFE: [Step; 4] = [
    ("first run", &[], SIDECAR),
    ("re-run that changes nothing", &[SIDECAR], SIDECAR),
    ("re-run with other options", &[SIDECAR], CHANGED),
    ("clean-up", &[SIDECAR], CLEANUP),
];

/// All of it, as Markdown.
pub(crate) fn all(options: &Options, scratch: &Path) -> Outcome<String> {
    let mut rows = Vec::new();
    for (what, before, step) in LIFE {
        for families in [Families::Ipv4, Families::Dual] {
            eprintln!("bench: native nftables, {what}, {}", families.name());
            let own: Vec<Cmd> = before.iter().map(|step| run(&options.bin, step, families)).collect();
            let timed = run(&options.bin, step, families);
            let mut contenders = contenders(&own, timed, families, scratch)?.to_vec();
            contenders.extend(options.peer.as_deref().map(|peer| Contender {
                name: "peer".to_owned(),
                before: before.iter().map(|step| run(peer, step, families)).collect(),
                timed: vec![run(peer, step, families)],
            }));
            let plan = Plan { families, runs: options.runs, kept: 15 };
            rows.push((format!("{what}, {}", families.name()), compare(&contenders, plan)?));
        }
    }
    for (ranges, ports) in [(100, 0), (1_000, 0), (10_000, 0), (0, 1_000)] {
        eprintln!("bench: native nftables, {ranges} ranges, {ports} ports");
        let config = config_file(scratch, ranges, ports)?;
        let arguments: Vec<&str> = BASE.iter().copied().chain(["--config", &config]).collect();
        let what = if ranges > 0 { format!("{ranges} ranges") } else { format!("{ports} ports") };
        let first = run(&options.bin, &arguments, Families::Ipv4);
        let plan = Plan { families: Families::Ipv4, runs: options.runs, kept: 4 };
        for (name, before) in [("first run", Vec::new()), ("re-run", vec![first.clone()])] {
            let contenders = contenders(&before, first.clone(), Families::Ipv4, scratch)?;
            rows.push((format!("{what}, {name}"), compare(&contenders, plan)?));
        }
    }
    Ok(format!(
        "\n### Native nftables\n\nThe tool alone is `nft -f` with the text of the tables that our run writes, and `nft list \
         ruleset` where it writes nothing.\n\n{}",
        table(&rows)
    ))
}

/// With the flag that Istio's binary has too.
fn run(program: &Path, arguments: &[&str], families: Families) -> Cmd {
    let dual: &[&str] = if families == Families::Dual { &["--dual-stack"] } else { &[] };
    Cmd::new(program).args(arguments).args(["--native-nftables"]).args(dual)
}

fn contenders(before: &[Cmd], timed: Cmd, families: Families, scratch: &Path) -> Outcome<[Contender; 2]> {
    let contender =
        |name: &str, timed| Contender { name: name.to_owned(), before: before.to_vec(), timed: vec![timed] };
    let (name, lone) = lone_nft(before, &timed, families, scratch)?;
    Ok([contender(name, lone), contender("istio-iptables", timed)])
}

/// `nft` with what a run writes: the text of its tables, each of which replaces the live one.
fn lone_nft(before: &[Cmd], run: &Cmd, families: Families, scratch: &Path) -> Outcome<(&'static str, Cmd)> {
    let rules = scratch.join("native");
    let text = PathBuf::from(format!("{}.nft", rules.display()));
    if text.exists() {
        std::fs::remove_file(&text)?;
    }
    let mut spaces = Namespaces::default();
    spaces.enter_new(families);
    before.iter().try_for_each(Cmd::run)?;
    let tables = || -> Outcome<String> {
        let listed = std::process::Command::new("nft").args(["list", "tables"]).output()?;
        Ok(String::from_utf8(listed.stdout)?)
    };
    let live = tables()?;
    run.clone().args([Path::new("--rules-file"), &rules]).run()?;
    let written = if text.exists() { read_to_string(&text)? } else { String::new() };
    let left = tables()?;
    // Those that are written, and those that are taken out.
    let goes = |table: &&str| written.contains(&format!("{table} {{")) || !left.contains(*table);
    let deleted: String = live.lines().filter(goes).map(|table| format!("delete {table}\n")).collect();
    if written.is_empty() && deleted.is_empty() {
        return Ok(("nft list ruleset", Cmd::new("nft").args(["list", "ruleset"])));
    }
    write(&text, deleted + &written)?;
    Ok(("nft -f", Cmd::new("nft").args(["-f"]).args([&text])))
}
