//! `guard`: notices at once when the rules in the kernel change, says which program did it, and repairs them.
//!
//! The kernel announces each transaction of nf_tables with the program that made it. Nothing announces a change of iptables-legacy, and
//! announcements can be lost, so an audit follows from time to time. What counts as drift is what `check` calls different.

mod event;
mod pace;

use std::io;
use std::time::{Duration, Instant, SystemTime};

use nfnetlink::nftables::Change;

use super::namespace::{enter, require_net_admin};
use super::questions::{Checked, checked, compared};
use super::{desired, exclusive_within};
use crate::apply::differences::Differences;
use crate::apply::{self, Access};
use crate::config::{
    Action, BackendChoice, CaptureConfig, GuardAction, GuardOptions, Intent, NetworkNamespace, OptionScope,
    RunOptions,
};
use crate::exit::Exit;
use crate::finding::Finding;
use crate::kernel::process::Host;
use crate::kernel::watch::{self, Watch, Woken};
use crate::model::{Backend, Table};
use crate::plan::DesiredState;
use crate::report::Failure;
use event::{Culprits, Event, in_words};
use pace::Pace;

/// How much longer nothing is compared after a comparison than that took, while another program changes its own rules all the time.
const REST: u32 = 10;
/// How long a run that changes the rules is waited for before signals are looked at, and the pause after a first failure.
const SHORT: Duration = Duration::from_secs(1);

/// Guards the rules of a network namespace until a signal asks for the end, or the process that names the namespace ends.
pub(super) fn guard(
    host: &impl Host,
    options: GuardOptions,
    intent: Intent,
    run: &RunOptions,
    scope: OptionScope,
) -> Result<Exit, Failure> {
    require_net_admin()?;
    let process = match run.network_namespace {
        Some(NetworkNamespace::Pid(pid)) => Some(watch::process(pid).map_err(|error| {
            Failure::new(Exit::Usage, format!("--pid: process {pid} cannot be watched: {error}"))
        })?),
        Some(NetworkNamespace::Path(_)) | None => None,
    };
    enter(run)?;
    // First: what changes while the rules are read is noticed.
    let watch = Watch::new(process).map_err(|error| {
        apply::from_kernel(format!("changes of the rules cannot be watched: {error}"), &error)
    })?;
    let current = apply::inspect(host, run.backend, Access::ReadOnly)?.current;
    let Checked { config, has_no_rules, .. } = checked(&current, intent, run, scope)?;
    if has_no_rules {
        return Err(Failure::new(
            Exit::Usage,
            "no capture rule is live, and no option says which rules are to be",
        )
        .hint("give guard the options of the pod, or start it when the rules are live"));
    }
    let desired = desired(&config, Action::Apply, false);
    let run = RunOptions { network_namespace: None, cni_mode: false, ..run.clone() };
    let found = compared(&current, &config, None, &run)?;
    // Rules that are gone are written with the same backend again.
    let run = RunOptions { backend: choice(found.backend), ..run };
    let event = Event::Guarding {
        rules: desired.counts(),
        backend: found.backend,
        audit: options.audit,
        is_noticed: watch.notices_changes(),
    };
    event.report(options.output)?;
    let guard = Guard {
        host,
        config,
        desired,
        run,
        backend: found.backend,
        options,
        watch,
        pace: Pace::default(),
        by: Culprits::default(),
        known: Vec::new(),
        drift: None,
        failures: 0,
        is_waiting: false,
        rest_until: Instant::now(),
    };
    guard.watch(found)
}

const fn choice(backend: Backend) -> BackendChoice {
    use crate::model::Variant;
    match backend {
        Backend::Native => BackendChoice::Nftables,
        Backend::Iptables(Variant::Nft) => BackendChoice::IptablesNft,
        Backend::Iptables(Variant::Legacy) => BackendChoice::IptablesLegacy,
    }
}

struct Guard<'a, H> {
    host: &'a H,
    config: CaptureConfig,
    desired: DesiredState,
    run: RunOptions,
    backend: Backend,
    options: GuardOptions,
    watch: Watch,
    pace: Pace,
    /// Who changed rules since the last comparison.
    by: Culprits,
    /// The problems that are reported and not gone yet.
    known: Vec<Finding>,
    /// The drift that is reported and not over yet.
    drift: Option<Vec<String>>,
    /// How often in a row something could not be done.
    failures: u32,
    /// Whether it is reported that a repair waits.
    is_waiting: bool,
    /// Before that, changes of others lead to no comparison.
    rest_until: Instant,
}

impl<H: Host> Guard<'_, H> {
    fn watch(mut self, first: Differences) -> Result<Exit, Failure> {
        let mut next = self.examine(Some(first))?;
        let mut audit = Instant::now() + self.until_audit();
        loop {
            let woken = self.watch.wait(next.unwrap_or(audit).min(audit));
            let woken = woken
                .map_err(|error| apply::from_kernel(format!("cannot wait for changes: {error}"), &error))?;
            match woken {
                Woken::Stopped => {
                    log::info!("guard ends: a signal asks for it; the rules are left as they are");
                    return Ok(Exit::Done);
                }
                Woken::Ended => {
                    log::info!("guard ends: the process of --pid has ended");
                    return Ok(Exit::Done);
                }
                Woken::Lost => self.by.is_incomplete = true,
                Woken::Changed(changes) => self.by.add(changes),
                Woken::OnTime => {}
            }
            // Rules of ours that are gone do not wait.
            let is_due = next.unwrap_or(audit).min(audit) <= Instant::now() || self.is_replaced();
            let rests = self.rest_until > Instant::now();
            if is_due || !rests {
                next = self.examine(None)?;
                audit = Instant::now() + self.until_audit();
            } else {
                next = Some(next.unwrap_or(self.rest_until));
            }
        }
    }

    /// The time until the next audit: not the same for all guards of a node.
    fn until_audit(&self) -> Duration {
        let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let part = self.options.audit / 10;
        self.options.audit - part.mul_f64(f64::from(clock.subsec_micros() % 1000) / 1000.0)
    }

    /// Whether native tables of ours are not as they should be, which takes a tenth of a millisecond to see.
    fn is_replaced(&self) -> bool {
        self.backend == Backend::Native
            && apply::native_differing(&self.desired).is_ok_and(|differing| !differing.is_empty())
    }

    /// Compares, reports and repairs. When the next comparison is to be; `None` if nothing calls for one before the audit.
    fn examine(&mut self, compared: Option<Differences>) -> Result<Option<Instant>, Failure> {
        // A run that is changing the rules ends first.
        let _lock = match exclusive_within(SHORT) {
            Ok(lock) => lock,
            Err(failure) if failure.exit == Exit::Busy => return Ok(Some(Instant::now())),
            Err(failure) => return self.failed(&failure),
        };
        let begin = Instant::now();
        let repairs = self.options.action == GuardAction::Repair;
        let may_repair = repairs && self.pace.not_before(begin).is_none();
        if may_repair && compared.is_none() && self.rewrite_tables(begin)? {
            return Ok(Some(Instant::now()));
        }
        let found = match compared.map_or_else(|| self.compared(), Ok) {
            Ok(found) => found,
            Err(failure) => return self.failed(&failure),
        };
        self.rest_until = Instant::now() + begin.elapsed() * REST;
        let mut by = std::mem::take(&mut self.by);
        // What has changed meanwhile is compared again. A difference may be due to it already.
        let taken = self.watch.take();
        let again = self.add(taken).then_some(self.rest_until);
        if !found.is_same() {
            by.extend(std::mem::take(&mut self.by));
        }
        self.report_problems(&found, &by)?;
        if found.is_same() {
            (self.is_waiting, self.failures) = (false, 0);
            if self.drift.take().is_some() {
                self.report(&Event::Restored)?;
            }
            return Ok(again);
        }
        let differences = in_words(&found);
        if may_repair {
            return self.repair(begin, differences, &by);
        }
        // What differs now may be more, and another program's doing.
        if self.drift.as_ref() != Some(&differences) {
            self.report(&Event::Drift { differences: differences.clone(), by: by.clone() })?;
            self.drift = Some(differences);
        }
        if repairs && !std::mem::replace(&mut self.is_waiting, true) {
            self.report(&Event::Waiting { pause: self.pace.pause(), by })?;
        }
        Ok(self.pace.not_before(Instant::now()).filter(|_| repairs).or(again))
    }

    /// Replaces native tables that are not as they should be, in one transaction, before anything else is read. TPROXY needs more:
    /// connections that were made meanwhile would change sides.
    fn rewrite_tables(&mut self, begin: Instant) -> Result<bool, Failure> {
        let has_tproxy = self.desired.rules.values().any(|rules| rules.tables.contains_key(&Table::Mangle));
        if self.backend != Backend::Native || has_tproxy {
            return Ok(false);
        }
        let differing = match apply::restore_native(&self.desired) {
            Ok(differing) if differing.is_empty() => return Ok(false),
            Ok(differing) => differing,
            // The comparison says what is wrong.
            Err(_) => return Ok(false),
        };
        let took = begin.elapsed();
        let what: Vec<_> = differing.iter().map(|name| format!("inet {name}")).collect();
        let differences =
            what.iter().map(|table| format!("the nftables table {table} is not as written")).collect();
        let by = self.culprits();
        self.pace.repaired(Instant::now());
        if self.drift.take().is_none() {
            self.report(&Event::Drift { differences, by: by.clone() })?;
        }
        self.is_waiting = false;
        self.report(&Event::Repaired { took, what: what.join(", "), by })?;
        Ok(true)
    }

    /// Who changed rules until now, apart from a repair of ours.
    fn culprits(&mut self) -> Culprits {
        let taken = self.watch.take_of_others();
        let _ = self.add(taken);
        std::mem::take(&mut self.by)
    }

    /// Whether there are changes among them.
    fn add(&mut self, taken: io::Result<Option<Vec<Change>>>) -> bool {
        match taken {
            Ok(Some(changes)) if changes.is_empty() => return false,
            Ok(Some(changes)) => self.by.add(changes),
            Ok(None) | Err(_) => self.by.is_incomplete = true,
        }
        true
    }

    /// Repairs first, and then reports: a reader of the reports that has gone keeps no rule away.
    fn repair(
        &mut self,
        begin: Instant,
        differences: Vec<String>,
        by: &Culprits,
    ) -> Result<Option<Instant>, Failure> {
        let repaired = apply::apply(self.host, &self.desired, &self.run);
        self.pace.repaired(Instant::now());
        // Notices of the tools are among them: what others do meanwhile, the comparison shows.
        let _ = self.culprits();
        let compared = repaired.and_then(|_| self.compared());
        let took = begin.elapsed();
        if self.drift.as_ref() != Some(&differences) {
            self.report(&Event::Drift { differences, by: by.clone() })?;
        }
        match compared {
            Ok(found) if found.is_same() => {
                (self.drift, self.is_waiting, self.failures) = (None, false, 0);
                let what = self.desired.counts();
                self.report(&Event::Repaired { took, what, by: by.clone() })?;
                self.report_problems(&found, &Culprits::default())?;
                Ok(None)
            }
            Ok(found) => {
                self.drift = Some(in_words(&found));
                let differences = self.drift.clone().unwrap_or_default();
                self.report(&Event::Drift { differences, by: Culprits::default() })?;
                Ok(Some(Instant::now()))
            }
            Err(failure) => self.failed(&failure),
        }
    }

    /// Reports what cannot be done now, and tries again after a pause that doubles up to the time of an audit.
    fn failed(&mut self, failure: &Failure) -> Result<Option<Instant>, Failure> {
        self.report(&Event::Failed { cause: failure.to_string() })?;
        let pause = SHORT.saturating_mul(1 << self.failures.min(16)).min(self.options.audit);
        self.failures = self.failures.saturating_add(1);
        Ok(Some(Instant::now() + pause))
    }

    fn compared(&self) -> Result<Differences, Failure> {
        let current = apply::inspect(self.host, self.run.backend, Access::ReadOnly)?.current;
        compared(&current, &self.config, None, &self.run)
    }

    /// Reports problems that are new, and those that are gone.
    fn report_problems(&mut self, found: &Differences, by: &Culprits) -> Result<(), Failure> {
        let problems = found.problems();
        let (known, gone): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.known).into_iter().partition(|known| problems.contains(known));
        for finding in gone {
            self.report(&Event::Gone { finding: Box::new(finding) })?;
        }
        for finding in problems.iter().filter(|finding| !known.contains(finding)) {
            self.report(&Event::Found { finding: Box::new(finding.clone()), by: by.clone() })?;
        }
        self.known = problems;
        Ok(())
    }

    fn report(&self, event: &Event) -> Result<(), Failure> {
        event.report(self.options.output)
    }
}
