//! Long lists: how the time grows with the number of ranges and ports.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::Outcome;
use crate::measure::{Contender, Plan, compare};
use crate::namespace::Families;
use crate::options::Options;
use crate::report::table;
use crate::scenarios::{VARIANTS, Variant};

/// Without lists: those come from the file.
pub(crate) const BASE: &[&str] =
    &["-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-b", "*"];

/// Long lists as Markdown. The peer is left out: a list this long does not fit into one argument.
pub(crate) fn all(options: &Options, scratch: &Path) -> Outcome<String> {
    let mut text = String::from(
        "\n### Long lists (IPv4)\n\nExcluded ranges (`-x`) and inbound ports (`-d`), given by `--config`.\n\n",
    );
    let mut rows = Vec::new();
    for variant in VARIANTS {
        for (ranges, ports) in [(1_000, 0), (2_000, 0), (5_000, 0), (10_000, 0), (0, 1_000)] {
            eprintln!("bench: {ranges} ranges, {ports} ports, {}", variant.name);
            let config = config_file(scratch, ranges, ports)?;
            let what = if ranges > 0 { format!("{ranges} ranges") } else { format!("{ports} ports") };
            let plan = Plan { families: Families::Ipv4, runs: options.runs, kept: 4 };
            for contenders in contenders(options, variant, &config, scratch)? {
                rows.push((format!("{}, {what}", variant.name), compare(&contenders, plan)?));
            }
        }
    }
    text += &table(&rows);
    Ok(text)
}

/// Two comparisons: a first run with the tool that writes, a re-run with the tool that reads.
fn contenders(
    options: &Options,
    variant: Variant,
    config: &str,
    scratch: &Path,
) -> Outcome<[Vec<Contender>; 2]> {
    let arguments: Vec<&str> = BASE.iter().copied().chain(["--config", config]).collect();
    let run = variant.run(&options.bin, &arguments, Families::Ipv4);
    let lone = variant.lone_restore(&[], run.clone(), Families::Ipv4, &scratch.join("long-rules"))?;
    let contender = |name: &str, before, timed| Contender { name: name.to_owned(), before, timed };
    let first = vec![
        contender("iptables-restore alone", Vec::new(), lone),
        contender("istio-iptables, first run", Vec::new(), vec![run.clone()]),
    ];
    let again = vec![
        contender("iptables-save alone", vec![run.clone()], variant.lone_save(Families::Ipv4)),
        contender("istio-iptables, re-run", vec![run.clone()], vec![run]),
    ];
    Ok([first, again])
}

pub(crate) fn config_file(scratch: &Path, ranges: u32, ports: u32) -> Outcome<String> {
    let ranges = separate_ranges(ranges);
    let ports: Vec<String> = (0..ports).map(|i| (20_000 + i).to_string()).collect();
    let document = json!({ "istio-service-exclude-cidr": ranges, "istio-local-exclude-ports": ports });
    let path: PathBuf = scratch.join("config.json");
    std::fs::write(&path, document.to_string())?;
    Ok(path.display().to_string())
}

/// Ranges that are not adjacent: native nftables would merge them.
pub(crate) fn separate_ranges(count: u32) -> Vec<String> {
    (0..count).map(|i| format!("172.{}.{}.0/25", 16 + i / 256, i % 256)).collect()
}
