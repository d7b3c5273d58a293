//! `doctor`: a healthy cluster has no finding; every breakage has its own, with the command that mends it.

mod breakages;
mod command;
mod creation;
mod healthy;
mod messages;
mod variants;

use std::time::{Duration, SystemTime};

use serde_json::Value;
use sidecar_injector::doctor::{Diagnosis, Options, Problem, examine};

/// Seconds since 1970 of the day on which everything here happens: 2026-06-01.
const NOW: u64 = 1_780_272_000;

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(NOW)
}

fn diagnose(objects: &[Value], namespaces: &[&str]) -> Diagnosis {
    let namespaces = namespaces.iter().map(|name| (*name).to_owned()).collect();
    examine(objects, &Options { namespaces, read: None, now: now() })
}

fn problems(diagnosis: &Diagnosis) -> Vec<Problem> {
    diagnosis.findings.iter().map(|finding| finding.problem).collect()
}
