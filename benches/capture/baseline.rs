//! The present build against an earlier one, in turn: has it become slower?

use std::path::Path;

use crate::Outcome;
use crate::command::Cmd;
use crate::lists::{BASE, config_file};
use crate::measure::{Contender, Figures, Plan, Row, compare};
use crate::namespace::{Families, Namespaces};
use crate::native::LIFE;
use crate::options::Options;
use crate::report::{environment, range, reason};
use crate::scenarios::VARIANTS;

/// How each build is called for a backend.
pub(crate) const BACKENDS: [(&str, [&str; 2]); 3] = [
    (VARIANTS[0].name, ["--force-iptables-binary", VARIANTS[0].name]),
    (VARIANTS[1].name, ["--force-iptables-binary", VARIANTS[1].name]),
    ("native nftables", ["--backend", "nftables"]),
];

/// Prints the comparison.
pub(crate) fn all(options: &Options, earlier: &Path) -> Outcome<()> {
    let scratch = tempfile::tempdir()?;
    println!(
        "{} runs of each, in turn, a fresh network namespace each; {}. {} bytes, before {}.\n",
        options.runs,
        environment()?,
        std::fs::metadata(&options.bin)?.len(),
        std::fs::metadata(earlier)?.len(),
    );
    println!(
        "| | wall before, ms: median (minimum–maximum) | wall now | ratio | CPU ratio | processes started |"
    );
    println!("|---|---|---|---|---|---|");
    let mut ratios = Vec::new();
    let mut show = |what: String, rows: &[Row]| {
        let (cells, ratio) = line(rows);
        println!("| {what} | {cells} |");
        ratios.extend(ratio);
    };
    for (backend, choice) in BACKENDS {
        if let Err(why) = supports(earlier, choice) {
            show(format!("{backend}: the earlier build {why}"), &[]);
            continue;
        }
        for (step, before, arguments) in LIFE {
            for families in [Families::Ipv4, Families::Dual] {
                let plan = Plan { families, runs: options.runs, kept: 15 };
                let rows = both(options, earlier, before, arguments, &choice, plan)?;
                show(format!("{backend}, {step}, {}", families.name()), &rows);
            }
        }
        for length in [1_000, 10_000] {
            let config = config_file(scratch.path(), length, 0)?;
            let arguments: Vec<&str> = BASE.iter().copied().chain(["--config", &config]).collect();
            let plan = Plan { families: Families::Ipv4, runs: options.runs.div_ceil(3), kept: 4 };
            let rows = both(options, earlier, &[], &arguments, &choice, plan)?;
            show(format!("{backend}, {length} ranges, first run"), &rows);
            let rows = both(options, earlier, &[&arguments], &arguments, &choice, plan)?;
            show(format!("{backend}, {length} ranges, re-run"), &rows);
        }
    }
    let mean = |of: fn(&(f64, f64)) -> f64| {
        (ratios.iter().map(of).map(f64::ln).sum::<f64>() / ratios.len() as f64).exp()
    };
    println!("\nGeometric mean of the ratios: wall {:.2}x, CPU {:.2}x.", mean(|r| r.0), mean(|r| r.1));
    Ok(())
}

/// Whether a build knows a backend; not all earlier ones have native nftables.
fn supports(program: &Path, choice: [&str; 2]) -> Result<(), String> {
    let mut spaces = Namespaces::default();
    spaces.enter_new(Families::Ipv4);
    let outcome = Cmd::new(program).args(BASE).args(choice).run();
    outcome.map_err(|error| reason(error.to_string().trim_end().lines().last().unwrap_or_default()))
}

fn both(
    options: &Options,
    earlier: &Path,
    before: &[&[&str]],
    arguments: &[&str],
    choice: &[&str; 2],
    plan: Plan,
) -> Outcome<Vec<Row>> {
    let dual: &[&str] = if plan.families == Families::Dual { &["--dual-stack"] } else { &[] };
    let contender = |program: &Path| {
        let run = |arguments: &[&str]| Cmd::new(program).args(arguments).args(choice).args(dual);
        Contender {
            name: program.display().to_string(),
            before: before.iter().map(|arguments| run(arguments)).collect(),
            timed: vec![run(arguments)],
        }
    };
    compare(&[contender(earlier), contender(&options.bin)], plan)
}

/// The cells of one comparison; its ratios of wall and CPU time if both ran.
fn line(rows: &[Row]) -> (String, Option<(f64, f64)>) {
    let [(_, before), (_, now)] = rows else { return (" | | | |".to_owned(), None) };
    match (before, now) {
        (Ok(before), Ok(now)) => {
            let Figures { wall, cpu, traced } = now;
            let ratios = (wall.median / before.wall.median, cpu.median / before.cpu.median);
            let cells = format!(
                "{} | {} | {:.2}x | {:.2}x | {}, before {}",
                range(&before.wall),
                range(wall),
                ratios.0,
                ratios.1,
                traced.children,
                before.traced.children
            );
            (cells, Some(ratios))
        }
        (before, now) => {
            let cell = |figures: &Result<Figures, String>| match figures {
                Ok(Figures { wall, .. }) => range(wall),
                Err(why) => reason(why),
            };
            (format!("{} | {} | | | ", cell(before), cell(now)), None)
        }
    }
}
