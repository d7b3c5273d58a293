//! Questions about live rules, `explain --live` and `check`, and a run that changes nothing: with the default
//! options, with long lists and beside many foreign rules; beside an earlier build, if there is one.

use std::fmt::Write as _;
use std::path::Path;

use crate::Outcome;
use crate::baseline::BACKENDS;
use crate::command::Cmd;
use crate::lists::{BASE, config_file};
use crate::measure::{Contender, Figures, Plan, Row, Spread, compare};
use crate::namespace::Families;
use crate::options::Options;
use crate::report::{environment, publish, reason};

/// The questions: a packet of a captured connection, all kinds of traffic, and the comparison with options,
/// by `check` and by a run.
const QUESTIONS: [(&str, &[&str], bool); 4] = [
    ("`explain --live` about a packet", &["explain", "--live", "--to", "203.0.113.9:443"], false),
    ("`explain --live`, the table", &["explain", "--live"], false),
    ("`check`", &["check"], true),
    ("a run that changes nothing", &[], true),
];

/// What the live rules are, or are among.
const CASES: [(&str, u32, u32); 3] =
    [("default options", 0, 0), ("10,000 ranges", 10_000, 0), ("500 foreign rules", 0, 500)];

/// Measures, and writes the table into the file.
pub(crate) fn all(options: &Options, scratch: &Path) -> Outcome<()> {
    let runs = options.runs.div_ceil(3);
    let earlier = options.baseline.as_deref();
    let mut text = format!(
        "Command: `make bench-questions{}`. {runs} runs of each, {}a fresh network namespace each; {}. CPU time in ms of the program and \
         the tools that it starts: median (minimum–maximum).\n\n",
        if earlier.is_some() { " BASELINE=..." } else { "" },
        if earlier.is_some() { "builds in turn, " } else { "" },
        environment()?,
    );
    let columns: Vec<String> = CASES
        .iter()
        .map(|(case, ..)| match earlier {
            Some(_) => format!("{case}: earlier build | this build | ratio"),
            None => (*case).to_owned(),
        })
        .collect();
    let columns = columns.join(" | ");
    writeln!(text, "| | {columns} |\n|{}", "---|".repeat(columns.matches('|').count() + 2))?;
    for (question, arguments, takes_options) in QUESTIONS {
        for (backend, choice) in BACKENDS {
            eprintln!("bench: {question}, {backend}");
            let mut cells = Vec::new();
            for (_, length, foreign) in CASES {
                let config = config_file(scratch, length, 0)?;
                let rules: Vec<&str> = BASE.iter().copied().chain(["--config", &config]).collect();
                let asked: Vec<&str> = if takes_options { rules.clone() } else { Vec::new() };
                let beside = Cmd::new("nft").args(["-f", &foreign_rules(scratch, foreign)?]);
                let contender = |program: &Path| Contender {
                    name: program.display().to_string(),
                    before: vec![beside.clone(), Cmd::new(program).args(&rules).args(choice)],
                    timed: vec![Cmd::new(program).args(arguments).args(&asked)],
                };
                let all: Vec<_> = earlier.into_iter().chain([options.bin.as_path()]).map(contender).collect();
                let plan = Plan { families: Families::Ipv4, runs, kept: 4 };
                cells.extend(cells_of(&compare(&all, plan)?));
            }
            writeln!(text, "| {question}: {backend} | {} |", cells.join(" | "))?;
        }
    }
    publish("questions", &text, options.write.as_deref())
}

/// A file for `nft` with a chain of so many rules of another program, none of which decides over captured
/// packets; each has a comment.
fn foreign_rules(scratch: &Path, count: u32) -> Outcome<String> {
    let rules: String =
        (0..count).map(|i| format!("tcp dport {} accept comment \"rule {i}\"\n", 20_000 + i)).collect();
    let chain = format!("chain input {{ type filter hook input priority 0;\n{rules}}}");
    let path = scratch.join("foreign.nft");
    std::fs::write(&path, format!("table inet firewall {{\n{chain}\n}}\n"))?;
    Ok(path.display().to_string())
}

/// The CPU time of each build, and the ratio if there are two.
fn cells_of(rows: &[Row]) -> Vec<String> {
    let cell = |(_, figures): &Row| match figures {
        Ok(Figures { cpu: Spread { median, least, most }, .. }) => {
            format!("{median:.1} ({least:.1}–{most:.1})")
        }
        Err(why) => reason(why),
    };
    let mut cells: Vec<String> = rows.iter().map(cell).collect();
    if let [(_, before), (_, now)] = rows {
        cells.push(match (before, now) {
            (Ok(before), Ok(now)) => format!("{:.2}x", now.cpu.median / before.cpu.median),
            (Ok(_) | Err(_), _) => String::new(),
        });
    }
    cells
}
