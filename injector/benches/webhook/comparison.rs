//! This build and an earlier one, in turn: what a review costs in each.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::Options;
use crate::figures::CONNECTIONS;
use crate::load::{LoadResult, Pace, run as load};
use crate::publish::publish;
use crate::reviews;
use crate::server::{Server, Watched};

const MARKS: [&str; 2] = [
    "<!-- webhook comparison: begin (written by make bench-webhook BASELINE=) -->",
    "<!-- webhook comparison: end -->",
];
const ROUNDS: usize = 3;
/// Requests a second for latencies; pods of 2,000 variables are sent a tenth as often.
const RATE: u32 = 500;

/// What one round measured of one build.
struct Round {
    /// At the fixed rate.
    paced: LoadResult,
    /// As fast as responses come.
    closed: LoadResult,
}

/// A measurement of a round, and its digits behind the point.
type Measured = (fn(&Round) -> f64, usize);
const MEASURED: [Measured; 3] = [
    (|round| round.closed.rate(), 0),
    (|round| round.paced.percentile(50.0).as_secs_f64() * 1e3, 2),
    (|round| round.closed.cpu.as_secs_f64() * 1e3, 2),
];

/// Measures both builds with every kind of pod, a round of one after a round of the other.
pub(crate) fn run(options: &Options, baseline: &Path, duration: Duration) -> Result<(), String> {
    let earlier = Options { bin: baseline.to_owned(), ..options.clone() };
    let builds = [options, &earlier];
    let size = |options: &Options| std::fs::metadata(&options.bin).map_or(0, |file| file.len());
    let mut text = format!(
        "Command: `make bench-webhook BASELINE=/path/to/an/earlier/build`; builds in turn, {ROUNDS} rounds of {} s each. This build has {} \
         bytes, the earlier one {}. Cells are medians: this build / the earlier one, and the median of the ratios of each round.\n\n\
         | | requests/s, closed loop | p50 at a fixed rate, ms | server CPU in the closed loop, ms per request |\n|---|---|---|---|\n",
        duration.as_secs(),
        size(options),
        size(&earlier),
    );
    for (name, requests) in reviews::pods() {
        let rate = if name.contains("2,000") { RATE / 10 } else { RATE };
        let mut rounds: [Vec<Round>; 2] = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (build, rounds) in builds.iter().zip(&mut rounds) {
                let server = Server::start(build, Watched::Certificate)?;
                let at = |pace| load(&server, &requests, 200, CONNECTIONS, pace, duration);
                rounds.push(Round { paced: at(Pace::Rate(rate))?, closed: at(Pace::Closed)? });
            }
        }
        let line = format!("| {name} |{}", cells(&rounds));
        eprintln!("{line}");
        let _ = writeln!(text, "{line}");
    }
    match &options.write {
        Some(path) => publish(path, &MARKS, &text),
        None => {
            println!("{text}");
            Ok(())
        }
    }
}

fn cells([this, earlier]: &[Vec<Round>; 2]) -> String {
    MEASURED.iter().fold(String::new(), |line, (of, digits)| {
        let each = |rounds: &[Round]| median(rounds.iter().map(of).collect());
        let ratio = median(this.iter().zip(earlier).map(|(this, earlier)| of(this) / of(earlier)).collect());
        format!("{line} {:.digits$} / {:.digits$}, **{ratio:.2}x** |", each(this), each(earlier))
    })
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
