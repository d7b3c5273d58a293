//! Figures as Markdown.

use std::fmt::Write as _;
use std::fs::{read_to_string, write};
use std::path::Path;
use std::process::Command;

use crate::Outcome;
use crate::measure::{Figures, Row, Spread};
use crate::options::Options;

/// How and on what it was measured.
pub(crate) fn machine(options: &Options) -> Outcome<String> {
    let peer = if options.peer.is_some() { " PEER=..." } else { "" };
    Ok(format!(
        "Command: `make bench{peer}`. {} runs of each, in turn, a fresh network namespace each; {}.\n\n\
         The binary is {} bytes (static, stripped).\n",
        options.runs,
        environment()?,
        std::fs::metadata(&options.bin)?.len(),
    ))
}

/// The machine, its kernel and its tools.
pub(crate) fn environment() -> Outcome<String> {
    let kernel = read_to_string("/proc/sys/kernel/osrelease")?;
    let release = kernel.split('-').next().unwrap_or_default().trim();
    let version = Command::new("iptables-nft").arg("--version").output()?;
    let iptables = String::from_utf8_lossy(&version.stdout);
    Ok(format!(
        "{} {}, Linux {release}, {} CPUs, {}",
        std::env::consts::ARCH,
        std::env::consts::OS,
        std::thread::available_parallelism()?,
        iptables.split_whitespace().take(2).collect::<Vec<_>>().join(" "),
    ))
}

/// One table for several comparisons; ratios are to the first row of each.
pub(crate) fn table(comparisons: &[(String, Vec<Row>)]) -> String {
    let mut text = String::from(
        "| | | wall, ms: median (minimum–maximum) | relative to the tool alone | CPU, ms | peak memory, KiB | processes started |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for (what, rows) in comparisons {
        let lone = rows.first().and_then(|(_, figures)| figures.as_ref().ok());
        for (name, figures) in rows {
            let _ = writeln!(text, "| {what} | {name} | {} |", cells(figures, lone));
        }
    }
    text
}

fn cells(figures: &Result<Figures, String>, lone: Option<&Figures>) -> String {
    match figures {
        Err(why) => format!("{} | | | |", reason(why)),
        Ok(Figures { wall, cpu, traced }) => {
            let ratio = lone.map_or_else(String::new, |lone| {
                format!("{:.2}x, {:+.2} ms", wall.median / lone.wall.median, wall.median - lone.wall.median)
            });
            let (peak, children) = (traced.peak_kib, traced.children);
            format!("{} | {ratio} | {:.2} | {peak} | {children}", range(wall), cpu.median)
        }
    }
}

/// Start-up: only times.
pub(crate) fn startup_table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| | wall, ms: median (minimum–maximum) | CPU, ms | peak memory, KiB |\n|---|---|---|---|\n",
    );
    for (name, figures) in rows {
        let _ = match figures {
            Ok(Figures { wall, cpu, traced }) => {
                writeln!(text, "| `{name}` | {} | {:.2} | {} |", range(wall), cpu.median, traced.peak_kib)
            }
            Err(why) => writeln!(text, "| `{name}` | {} | | |", reason(why)),
        };
    }
    text
}

/// A cell for figures that are missing.
pub(crate) fn reason(why: &str) -> String {
    format!("did not run: {}", why.replace('|', "\\|").replace('\n', " "))
}

/// Milliseconds as one cell.
pub(crate) fn range(Spread { median, least, most }: &Spread) -> String {
    format!("{median:.2} ({least:.2}–{most:.2})")
}

/// Prints the figures, and puts them between the marks of this section in the file.
pub(crate) fn publish(section: &str, figures: &str, file: Option<&Path>) -> Outcome<()> {
    println!("{figures}");
    let Some(file) = file else { return Ok(()) };
    let begin = format!("<!-- {section}: begin (written by make bench) -->\n");
    let end = format!("<!-- {section}: end -->");
    let old = read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let marks = old.split_once(&begin).and_then(|(head, rest)| Some((head, rest.split_once(&end)?.1)));
    let (head, tail) =
        marks.ok_or_else(|| format!("{}: the marks around the {section} are missing", file.display()))?;
    write(file, format!("{head}{begin}\n{figures}\n{end}{tail}"))?;
    eprintln!("bench: {section} written to {}", file.display());
    Ok(())
}
