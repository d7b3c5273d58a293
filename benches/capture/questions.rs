//! Questions about live rules, `explain --live` and `check`, with the default options and with long lists;
//! beside an earlier build, if there is one.

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

/// The questions: a packet of a captured connection, all kinds of traffic, and the comparison with options.
const QUESTIONS: [(&str, &[&str], bool); 3] = [
    ("`explain --live` about a packet", &["explain", "--live", "--to", "203.0.113.9:443"], false),
    ("`explain --live`, the table", &["explain", "--live"], false),
    ("`check`", &["check"], true),
];

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
    text += match earlier {
        Some(_) => {
            "| | default options: earlier build | this build | ratio | 10,000 ranges: earlier build | this build | ratio |\n\
             |---|---|---|---|---|---|---|\n"
        }
        None => "| | default options | 10,000 ranges |\n|---|---|---|\n",
    };
    for (question, arguments, takes_options) in QUESTIONS {
        for (backend, choice) in BACKENDS {
            eprintln!("bench: {question}, {backend}");
            let mut cells = Vec::new();
            for length in [0, 10_000] {
                let config = config_file(scratch, length, 0)?;
                let rules: Vec<&str> = BASE.iter().copied().chain(["--config", &config]).collect();
                let asked: Vec<&str> = if takes_options { rules.clone() } else { Vec::new() };
                let contender = |program: &Path| Contender {
                    name: program.display().to_string(),
                    before: vec![Cmd::new(program).args(&rules).args(choice)],
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
