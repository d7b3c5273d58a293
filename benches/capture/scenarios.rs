//! The life of a pod: first run, again, with other options, clean-up; and the bare start of a process.

use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::command::Cmd;
use crate::measure::{Contender, Plan, compare};
use crate::namespace::{Families, Namespaces};
use crate::options::Options;
use crate::report::{startup_table, table};

/// What an injected pod passes.
pub(crate) const SIDECAR: &[&str] = &[
    "-p",
    "15001",
    "-z",
    "15006",
    "-u",
    "1337",
    "-m",
    "REDIRECT",
    "-i",
    "*",
    "-x",
    "",
    "-b",
    "*",
    "-d",
    "15090,15021,15020",
];
/// What an injected pod passes after a change of its annotations.
pub(crate) const CHANGED: &[&str] = &[
    "-p",
    "15001",
    "-z",
    "15006",
    "-u",
    "1337",
    "-m",
    "REDIRECT",
    "-i",
    "*",
    "-x",
    "10.96.0.0/12",
    "-b",
    "*",
    "-d",
    "15090,15021",
    "-o",
    "5432",
    "--reconcile",
];
pub(crate) const CLEANUP: &[&str] = &["--cleanup-only"];

/// One of the two iptables variants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    restore: [&'static str; 2],
    save: [&'static str; 2],
    /// Only the legacy tools lock.
    wait: &'static [&'static str],
}

pub(crate) const VARIANTS: [Variant; 2] = [
    Variant {
        name: "nft",
        restore: ["iptables-nft-restore", "ip6tables-nft-restore"],
        save: ["iptables-nft-save", "ip6tables-nft-save"],
        wait: &[],
    },
    Variant {
        name: "legacy",
        restore: ["iptables-legacy-restore", "ip6tables-legacy-restore"],
        save: ["iptables-legacy-save", "ip6tables-legacy-save"],
        wait: &["--wait=30"],
    },
];

impl Variant {
    /// A run of ours, or of the peer, with this variant.
    pub(crate) fn run(self, program: &Path, options: &[&str], families: Families) -> Cmd {
        let dual: &[&str] = if families == Families::Dual { &["--dual-stack"] } else { &[] };
        Cmd::new(program).args(options).args(["--force-iptables-binary", self.name]).args(dual)
    }

    /// The tool alone on the files that a run of ours would hand it: what writing the same rules costs
    /// without us.
    pub(crate) fn lone_restore(
        self,
        before: &[Cmd],
        run: Cmd,
        families: Families,
        file: &Path,
    ) -> Outcome<Vec<Cmd>> {
        let six = PathBuf::from(format!("{}.v6", file.display()));
        for old in [file, &six] {
            if old.exists() {
                std::fs::remove_file(old)?;
            }
        }
        let mut spaces = Namespaces::default();
        spaces.enter_new(families);
        before.iter().try_for_each(Cmd::run)?;
        run.args([Path::new("--rules-file"), file]).run()?;
        let files = [file, &six].into_iter().zip(self.restore).filter(|(path, _)| path.exists());
        Ok(files
            .map(|(path, tool)| Cmd::new(tool).args(["--noflush"]).args(self.wait).args([path]))
            .collect())
    }

    pub(crate) fn lone_save(self, families: Families) -> Vec<Cmd> {
        let tools = self.save.iter().take(if families == Families::Dual { 2 } else { 1 });
        tools.map(Cmd::new).collect()
    }
}

struct Scenario {
    title: &'static str,
    /// Runs before the one that is measured.
    before: &'static [&'static [&'static str]],
    options: &'static [&'static str],
    /// Nothing is written, so the tool to compare with is the one that reads.
    reads_only: bool,
}

const SCENARIOS: [Scenario; 4] = [
    Scenario { title: "First run in a fresh namespace", before: &[], options: SIDECAR, reads_only: false },
    Scenario { title: "Re-run that changes nothing", before: &[SIDECAR], options: SIDECAR, reads_only: true },
    Scenario { title: "Re-run with other options", before: &[SIDECAR], options: CHANGED, reads_only: false },
    Scenario { title: "Clean-up", before: &[SIDECAR], options: CLEANUP, reads_only: false },
];

/// Everything but the long lists, as Markdown.
pub(crate) fn all(options: &Options, scratch: &Path) -> Outcome<String> {
    let mut text = startup(options)?;
    for scenario in &SCENARIOS {
        eprintln!("bench: {}", scenario.title);
        text += &format!("\n### {}\n\n", scenario.title);
        let mut rows = Vec::new();
        for variant in VARIANTS {
            for families in [Families::Ipv4, Families::Dual] {
                let contenders = contenders(scenario, options, variant, families, scratch)?;
                let plan = Plan { families, runs: options.runs, kept: 15 };
                rows.push((format!("{}, {}", variant.name, families.name()), compare(&contenders, plan)?));
            }
        }
        text += &table(&rows);
    }
    Ok(text)
}

fn contenders(
    scenario: &Scenario,
    options: &Options,
    variant: Variant,
    families: Families,
    scratch: &Path,
) -> Outcome<Vec<Contender>> {
    let of = |name: &str, program: &Path| Contender {
        name: name.to_owned(),
        before: scenario.before.iter().map(|o| variant.run(program, o, families)).collect(),
        timed: vec![variant.run(program, scenario.options, families)],
    };
    let ours = of("istio-iptables", &options.bin);
    let run = variant.run(&options.bin, scenario.options, families);
    let (tool, timed) = if scenario.reads_only {
        ("iptables-save alone", variant.lone_save(families))
    } else {
        let file = scratch.join("rules");
        ("iptables-restore alone", variant.lone_restore(&ours.before, run, families, &file)?)
    };
    let lone = Contender { name: tool.to_owned(), before: ours.before.clone(), timed };
    let mut all = vec![lone, ours];
    all.extend(options.peer.as_deref().map(|peer| of("peer", peer)));
    Ok(all)
}

fn startup(options: &Options) -> Outcome<String> {
    eprintln!("bench: start of a process");
    let bare =
        |name: &str, timed: Cmd| Contender { name: name.to_owned(), before: Vec::new(), timed: vec![timed] };
    let mut contenders = vec![
        bare("/bin/true", Cmd::new("/bin/true")),
        bare("istio-iptables --version", Cmd::new(&options.bin).args(["--version"])),
    ];
    contenders
        .extend(options.peer.as_deref().map(|p| bare("peer --version", Cmd::new(p).args(["--version"]))));
    let plan = Plan { families: Families::Ipv4, runs: options.runs * 3, kept: 15 };
    Ok(format!("\n### Start of a process\n\n{}", startup_table(&compare(&contenders, plan)?)))
}
