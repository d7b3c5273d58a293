//! The table: medians of all rounds, and how the builds compare round by round.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::Options;
use crate::data::{DOCUMENTS, Data};
use crate::process::{self, Cost};
use crate::publish::publish;

const MARKS: [&str; 2] =
    ["<!-- large file: begin (written by make bench-injector) -->", "<!-- large file: end -->"];

/// A build with the files that it reads.
struct Build<'a> {
    name: String,
    bin: &'a Path,
    files: &'a [PathBuf],
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let data = Data::write(folder.path()).map_err(|error| format!("{}: {error}", folder.path().display()))?;
    let one = vec![data.one.clone()];
    let mut builds = vec![Build { name: "this build".to_owned(), bin: &options.bin, files: &one }];
    if let Some(bin) = options.baseline.as_deref() {
        let takes_one = process::run(bin, &one).is_ok();
        let (name, files) = if takes_one {
            ("the earlier build".to_owned(), &one)
        } else {
            (format!("the earlier build, {} files, as it refuses one", data.parts.len()), &data.parts)
        };
        builds.push(Build { name, bin, files });
    }
    let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); builds.len()];
    for round in 0..options.rounds {
        for (costs, Build { name, bin, files }) in costs.iter_mut().zip(&builds) {
            let cost = process::run(bin, files)?;
            eprintln!(
                "round {}, {name}: {:.0} documents/s, CPU {:.2} s, {}",
                round + 1,
                rate(&cost),
                cost.cpu.as_secs_f64(),
                mib(cost.memory)
            );
            costs.push(cost);
        }
    }
    let text = table(options, data.bytes, &builds, &costs);
    match &options.write {
        Some(path) => publish(path, &MARKS, &text),
        None => {
            println!("{text}");
            Ok(())
        }
    }
}

fn table(options: &Options, bytes: usize, builds: &[Build<'_>], costs: &[Vec<Cost>]) -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut text = format!(
        "Command: `make bench-injector`; one file of {:.1} MB, {DOCUMENTS} documents, Deployments and ConfigMaps in turn; {} rounds, \
         builds in turn; {} CPUs, load average {}. Cells are the median (minimum–maximum) of all rounds.\n\n",
        bytes as f64 / 1e6,
        options.rounds,
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        load.split(' ').next().unwrap_or_default(),
    );
    text += "| | documents/s | CPU, s | peak memory, MiB |\n|---|---|---|---|\n";
    for (Build { name, bin, .. }, costs) in builds.iter().zip(costs) {
        let size = std::fs::metadata(bin).map_or(0, |file| file.len());
        let _ = writeln!(
            text,
            "| {name}, {size} bytes | {} | {} | {} |",
            cell(costs, 0, rate),
            cell(costs, 2, |cost| cost.cpu.as_secs_f64()),
            cell(costs, 1, |cost| cost.memory as f64 / 1024.0),
        );
    }
    if let [this, earlier] = costs {
        let ratio = |of: fn(&Cost) -> f64| {
            median(this.iter().zip(earlier).map(|(this, earlier)| of(this) / of(earlier)).collect())
        };
        let _ = writeln!(
            text,
            "| ratio, round by round | {:.2}x | {:.2}x | {:.2}x |",
            ratio(rate),
            ratio(|cost| cost.cpu.as_secs_f64()),
            ratio(|cost| cost.memory as f64),
        );
    }
    text
}

fn rate(cost: &Cost) -> f64 {
    DOCUMENTS as f64 / cost.wall.as_secs_f64()
}

fn mib(kib: u64) -> String {
    format!("{:.1} MiB", kib as f64 / 1024.0)
}

fn cell(costs: &[Cost], digits: usize, of: impl Fn(&Cost) -> f64) -> String {
    let all: Vec<f64> = costs.iter().map(of).collect();
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let most = all.iter().copied().fold(0.0, f64::max);
    format!("{:.digits$} ({least:.digits$}–{most:.digits$})", median(all))
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
