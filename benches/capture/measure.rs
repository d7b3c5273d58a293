//! Measuring in turn, and the numbers that come out.

use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use crate::Outcome;
use crate::command::Cmd;
use crate::namespace::{Families, Namespaces};
use crate::trace::{Traced, trace};

/// One of those that are compared.
#[derive(Clone, Debug)]
pub(crate) struct Contender {
    pub(crate) name: String,
    /// Run first in the fresh namespace, not measured.
    pub(crate) before: Vec<Cmd>,
    /// Measured, one after the other, as one run.
    pub(crate) timed: Vec<Cmd>,
}

/// How a comparison is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) families: Families,
    pub(crate) runs: usize,
    /// Runs after which namespaces are let go: few where one holds many rules.
    pub(crate) kept: usize,
}

/// Median, least and most, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// What is known of one contender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) wall: Spread,
    pub(crate) cpu: Spread,
    pub(crate) traced: Traced,
}

/// A contender's name with its figures, or with the reason why there are none.
pub(crate) type Row = (String, Result<Figures, String>);

/// Runs all contenders in turn. One that fails its trial run is reported as such and left out.
pub(crate) fn compare(contenders: &[Contender], plan: Plan) -> Outcome<Vec<Row>> {
    let mut spaces = Namespaces::default();
    let mut trials = Vec::new();
    for contender in contenders {
        trials.push(trial(contender, plan.families, &mut spaces).map_err(|e| e.to_string()));
    }
    spaces.clear();
    let mut samples = vec![(Vec::new(), Vec::new()); contenders.len()];
    for run in 1..=plan.runs {
        for ((contender, trial), (wall, cpu)) in contenders.iter().zip(&trials).zip(&mut samples) {
            if trial.is_ok() {
                let (w, c) = sample(contender, plan.families, &mut spaces)?;
                wall.push(w);
                cpu.push(c);
            }
        }
        if run % plan.kept == 0 {
            spaces.clear();
        }
    }
    spaces.clear();
    let rows = contenders.iter().zip(trials).zip(samples).map(|((contender, trial), (wall, cpu))| {
        let figures = trial.map(|traced| Figures { wall: spread(wall), cpu: spread(cpu), traced });
        (contender.name.clone(), figures)
    });
    Ok(rows.collect())
}

fn trial(contender: &Contender, families: Families, spaces: &mut Namespaces) -> Outcome<Traced> {
    if contender.timed.is_empty() {
        return Err("there is no rules file to compare with".into());
    }
    spaces.enter_new(families);
    contender.before.iter().try_for_each(Cmd::run)?;
    let mut sum = Traced::default();
    for command in &contender.timed {
        let traced = trace(command)?;
        sum.children += traced.children;
        sum.peak_kib = sum.peak_kib.max(traced.peak_kib);
    }
    Ok(sum)
}

/// Wall and CPU time of one run.
fn sample(
    contender: &Contender,
    families: Families,
    spaces: &mut Namespaces,
) -> Outcome<(Duration, Duration)> {
    spaces.enter_new(families);
    contender.before.iter().try_for_each(Cmd::run)?;
    let used = children_cpu()?;
    let mut wall = Duration::ZERO;
    for command in &contender.timed {
        let mut prepared = command.command();
        let start = Instant::now();
        let status = prepared.status()?;
        wall += start.elapsed();
        if !status.success() {
            return Err(format!("{command}: {status}, though the trial run went well").into());
        }
    }
    Ok((wall, children_cpu()?.saturating_sub(used)))
}

/// User and system time of all processes waited for so far, by us or by those processes.
fn children_cpu() -> Outcome<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let duration = |time: TimeVal| -> Outcome<Duration> {
        Ok(Duration::new(u64::try_from(time.tv_sec())?, u32::try_from(time.tv_usec())? * 1000))
    };
    Ok(duration(usage.user_time())? + duration(usage.system_time())?)
}

/// Spread in milliseconds.
pub(crate) fn spread(mut samples: Vec<Duration>) -> Spread {
    samples.sort_unstable();
    let at = |index: usize| samples.get(index).map_or(f64::NAN, |d| d.as_secs_f64() * 1000.0);
    let last = samples.len().saturating_sub(1);
    Spread { median: f64::midpoint(at(last / 2), at(last - last / 2)), least: at(0), most: at(last) }
}
