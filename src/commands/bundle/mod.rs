//! `bundle`: the facts of this machine that reports about a pod depend on, in one file.

pub mod file;

use super::capture::desired;
use super::explain::explain;
use super::namespace::network;
use crate::apply;
use crate::config::{Action, BackendChoice, BundleContext, Intent, PacketQuery, RunOptions, Sender};
use crate::explain;
use crate::kernel::observe;
use crate::kernel::process::Host;
use crate::kernel::recording::{self, Facts};

/// The text of a bundle.
pub(super) fn bundle(host: &impl Host, context: &BundleContext, intent: &Intent, run: &RunOptions) -> String {
    let (facts, report) = record(host, intent, run);
    file::write(context, &facts, &report)
}

/// How often a machine is recorded whose rules change meanwhile.
const RECORDINGS: usize = 5;

/// Reads all that reports on this network namespace depend on, with the report on all kinds of traffic. What
/// cannot be read is recorded as that.
fn record(host: &impl Host, intent: &Intent, run: &RunOptions) -> (Facts, String) {
    let query = PacketQuery { live: true, ..explain::query(Sender::App) };
    let mut recorded = (Facts::new(), String::new());
    for _ in 0..RECORDINGS {
        let generation = observe::generation().ok();
        recording::start();
        // A report is read by what wrote it. A backend may be asked for elsewhere that is not here.
        let reports = [run.backend].into_iter().chain(BackendChoice::ALL).map(|backend| {
            let run = RunOptions { backend, network_namespace: None, cni_mode: false, ..run.clone() };
            let report = explain(host, &query, intent.clone(), &run, &[]);
            let _ = apply::show::rules(host, backend);
            if let Ok(network) = network() {
                let (config, _) = intent.clone().decide(&network);
                let desired = desired(&config, Action::Apply, false);
                let _ = apply::differences::differences(host, &desired, &run);
            }
            report.map_or_else(|failure| failure.to_string(), |(report, _)| report)
        });
        let report = reports.reduce(|first, _| first).unwrap_or_default();
        recorded = (recording::finish(), report);
        if observe::generation().ok() == generation {
            return recorded;
        }
    }
    log::warn!(
        "the rules changed each of the {RECORDINGS} times they were read: the bundle may have parts of both"
    );
    recorded
}
