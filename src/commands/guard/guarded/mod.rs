//! The guard of one network namespace: compares its rules, reports what differs, and repairs it.

mod lockdown;

use std::io;
use std::time::{Duration, Instant, SystemTime};

use nfnetlink::nftables::Change;

use lockdown::Lockdown;

use super::event::{Culprits, Event, Reason, in_words};
use super::pace::Pace;
use crate::apply;
use crate::apply::differences::Differences;
use crate::apply::lockdown::HandleSnapshot;
use crate::commands::capture::exclusive_within;
use crate::config::GuardAction;
use crate::exit::Exit;
use crate::finding::{Finding, Problem};
use crate::kernel::netlink::Socket;
use crate::kernel::process;
use crate::kernel::run_lock::Lock;
use crate::model::{Backend, Table};
use crate::report::Failure;

/// How much longer nothing is compared after a comparison than that took, while another program changes its
/// own rules all the time.
const REST: u32 = 10;
/// The longest such time: a comparison that took long because this process got no processor must not leave
/// rules away for ten times that.
const LONGEST_REST: Duration = Duration::from_secs(1);
/// The pause after a first failure.
const SHORT: Duration = Duration::from_secs(1);
/// The pause while another run changes the rules.
const BUSY: Duration = Duration::from_millis(50);
/// The pause after a repair before everything is compared, which would wait until the kernel has freed what
/// the repair and its cause have deleted.
const FREED: Duration = Duration::from_millis(50);

/// The rules that are guarded. All of it is about the network namespace of this thread.
pub trait Rules {
    /// What a repair writes.
    fn desired(&self) -> &apply::Guarded;

    /// What holds the rules, if tables that differ from what a repair writes are drift in any case.
    fn backend(&self) -> Option<Backend>;

    /// Whether these are still the rules that are to be, now that no run changes them.
    fn is_current(&self) -> bool;

    /// Compares.
    ///
    /// # Errors
    /// The live state cannot be read.
    fn compared(&mut self) -> Result<Differences, Failure>;

    /// Writes what differs. Returns how many packets the rules of others had met that are removed with it, as
    /// far as that is known.
    ///
    /// # Errors
    /// The first step that fails.
    fn repair(&mut self) -> Result<u64, Failure>;
}

/// Sockets that a repair has used. After rules were deleted, the kernel closes none before it has freed them,
/// which takes some milliseconds.
#[derive(Debug)]
pub struct Used(
    #[expect(dead_code, reason = "closed when it is dropped")] (Option<Socket>, apply::Differing),
);

/// Where notices come from, and reports go to.
pub trait Driver {
    /// The changes of other processes that were noticed so far; `None` if some notices are lost.
    ///
    /// # Errors
    /// The kernel refuses.
    fn take(&mut self) -> io::Result<Option<Vec<Change>>>;

    /// Closes sockets.
    fn close(&mut self, used: Used) {
        drop(used);
    }

    /// Reports.
    ///
    /// # Errors
    /// The report cannot be written.
    fn report(&mut self, event: &Event) -> Result<(), Failure>;
}

/// How rules are guarded.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The name by which the kernel announces the repairs to others.
    pub name: &'static str,
    /// What follows a difference.
    pub action: GuardAction,
    /// The longest time between two comparisons.
    pub audit: Duration,
    /// How long a run that changes the rules is waited for.
    pub patience: Duration,
}

/// The guard of one network namespace.
#[derive(Debug)]
pub struct Guard<R> {
    /// The rules.
    pub rules: R,
    settings: Settings,
    pace: Pace,
    /// Who changed rules since the last comparison.
    by: Culprits,
    /// Who changed rules before each of the repairs that follow each other.
    fight: Culprits,
    /// When the first change was noticed since the rules were last as they should be.
    noticed: Option<Instant>,
    /// The problems that are reported and not gone yet.
    known: Vec<Finding>,
    /// The drift that is reported and not over yet.
    drift: Option<Vec<String>>,
    /// How often in a row something could not be done.
    failures: u32,
    /// Why, as it is reported.
    failure: Option<String>,
    /// Whether it is reported that a repair waits.
    is_waiting: bool,
    lockdown: Lockdown,
    /// The handles of the rules when they last equaled the desired ones.
    handles: Option<HandleSnapshot>,
    /// Before that, changes of others lead to no comparison.
    rest_until: Instant,
    /// The next comparison before the audit.
    next: Option<Instant>,
    audit: Instant,
}

impl<R: Rules> Guard<R> {
    /// Nothing is compared yet: that is due.
    pub fn new(rules: R, settings: Settings) -> Self {
        let now = Instant::now();
        Self {
            rules,
            settings,
            pace: Pace::default(),
            by: Culprits::default(),
            fight: Culprits::default(),
            noticed: None,
            known: Vec::new(),
            drift: None,
            failures: 0,
            failure: None,
            is_waiting: false,
            lockdown: Lockdown::Unknown,
            handles: None,
            rest_until: now,
            next: None,
            audit: now,
        }
    }

    /// When rules are to be compared next, if nothing changes.
    pub fn due(&self) -> Instant {
        self.next.unwrap_or(self.audit).min(self.audit)
    }

    /// Whether the live rules differ as far as is known.
    pub const fn has_drift(&self) -> bool {
        self.drift.is_some()
    }

    /// Another program has changed rules, which was noticed at this time.
    pub fn changed(&mut self, noticed: Instant, changes: Vec<Change>) {
        self.noticed.get_or_insert(noticed);
        self.by.add(changes);
    }

    /// When the first change was noticed since the rules were last as they should be.
    pub const fn noticed(&self) -> Option<Instant> {
        self.noticed
    }

    /// Since when the rules are not as they should be, as far as it was noticed: at the latest since `begin`.
    fn since(&self, begin: Instant) -> Instant {
        self.noticed.map_or(begin, |noticed| noticed.min(begin))
    }

    /// Counts a repair, after which the rules are as they should be. Returns for how long they were not.
    fn repaired(&mut self, begin: Instant) -> Duration {
        let since = self.since(begin);
        self.noticed = None;
        self.pace.repaired(since, Instant::now());
        since.elapsed()
    }

    /// Records who has changed what was just repaired.
    fn fights(&mut self, by: &Culprits) {
        if !self.pace.is_in_a_row() {
            self.fight = Culprits::default();
        }
        self.fight.extend(by.clone());
    }

    /// Other programs may have changed rules.
    pub const fn lost(&mut self) {
        self.by.is_incomplete = true;
    }

    /// Compares if that is due, or if rules have changed.
    ///
    /// # Errors
    /// A report cannot be written.
    pub fn wake(&mut self, driver: &mut dyn Driver) -> Result<(), Failure> {
        // Rules of ours that are gone do not wait.
        let is_due = self.due() <= Instant::now();
        // What is dropped until the rules are live must not wait for a program that changes rules all the
        // time.
        let rests = self.settings.action != GuardAction::Lockdown && self.rest_until > Instant::now();
        // It is dropped after the repair.
        let replaced = if is_due || !rests { None } else { self.replaced() };
        if is_due || !rests || replaced.is_some() {
            self.next = self.examine(driver)?;
            self.audit = Instant::now() + self.until_audit();
        } else {
            self.next = Some(self.next.unwrap_or(self.rest_until));
        }
        Ok(())
    }

    /// The time until the next audit: not the same for all guards of a node.
    fn until_audit(&self) -> Duration {
        let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let part = self.settings.audit / 10;
        self.settings.audit - part.mul_f64(f64::from(clock.subsec_micros() % 1000) / 1000.0)
    }

    /// The native tables of ours that are not as they should be, which takes a tenth of a millisecond to see.
    fn replaced(&self) -> Option<apply::Differing> {
        let is_native = self.rules.backend() == Some(Backend::Native);
        let differing = is_native.then(|| apply::native_differing(self.rules.desired()).ok());
        differing.flatten().filter(|differing| !differing.names.is_empty())
    }

    /// Compares, reports and repairs. When the next comparison is to be; `None` if nothing calls for one
    /// before the audit.
    fn examine(&mut self, driver: &mut dyn Driver) -> Result<Option<Instant>, Failure> {
        // A run that is changing the rules ends first.
        let lock = match exclusive_within(self.settings.patience) {
            Ok(lock) => lock,
            Err(failure) if failure.exit == Exit::Busy => return Ok(Some(Instant::now() + BUSY)),
            Err(failure) => return self.failed(driver, &failure),
        };
        if !self.rules.is_current() {
            return Ok(Some(Instant::now() + BUSY));
        }
        let begin = Instant::now();
        // Whatever removes the rules may have removed this, too.
        if self.lockdown == Lockdown::On {
            self.lock(driver)?;
        }
        let repairs = self.settings.action.repairs();
        // It is over when the comparison ends, perhaps.
        let not_before = self.pace.not_before(begin).filter(|_| repairs);
        let may_repair = repairs && not_before.is_none();
        if may_repair && let Some(rewritten) = self.rewrite_tables(driver, begin)? {
            driver.close(Used((lock.map(Lock::release), rewritten)));
            return Ok(Some(Instant::now() + FREED));
        }
        // Nothing passes while the whole state is compared.
        if self.lockdown != Lockdown::On && self.is_damaged() {
            self.lock(driver)?;
        }
        let generation = self.generation();
        let found = match self.rules.compared() {
            Ok(found) => found,
            Err(failure) => return self.failed(driver, &failure),
        };
        self.rest_until = Instant::now() + (begin.elapsed() * REST).min(LONGEST_REST);
        let mut by = std::mem::take(&mut self.by);
        // What has changed meanwhile is compared again. A difference may be due to it already.
        let again = self.take(driver).then_some(self.rest_until);
        if !found.is_same() || found.problems().iter().any(|finding| !self.known.contains(finding)) {
            by.extend(std::mem::take(&mut self.by));
        }
        self.report_problems(driver, &found, &by)?;
        if found.is_same() {
            return self.restored(driver, generation, again);
        }
        let differences = in_words(&found);
        let has_changed = self.lock(driver)?;
        if may_repair {
            return self.repair(driver, begin, &found, &by);
        }
        // What differs now may be more, and another program's doing.
        if self.drift.as_ref() != Some(&differences) {
            driver.report(&Event::Drift {
                differences: differences.clone(),
                reason: Reason::of(&found),
                by: by.clone(),
            })?;
            self.drift = Some(differences);
        }
        if repairs && !std::mem::replace(&mut self.is_waiting, true) {
            let left = not_before.unwrap_or(begin).saturating_duration_since(Instant::now());
            let pause = Duration::from_secs(left.as_secs().saturating_add(1));
            by.extend(self.fight.clone());
            driver.report(&Event::Waiting { pause, guard: self.settings.name, by })?;
        }
        Ok(if has_changed { Some(self.rest_until) } else { not_before.or(again) })
    }

    /// The rules are as they should be. When the next comparison is to be, `again` for changes meanwhile.
    fn restored(
        &mut self,
        driver: &mut dyn Driver,
        generation: Option<u32>,
        again: Option<Instant>,
    ) -> Result<Option<Instant>, Failure> {
        (self.is_waiting, self.failures, self.failure) = (false, 0, None);
        self.noticed = again.map(|_| Instant::now());
        if self.drift.take().is_some() {
            driver.report(&Event::Restored)?;
        }
        self.remember();
        let next = self.unlock(driver, generation)?;
        Ok(again.into_iter().chain(next).min())
    }

    /// Replaces native tables that are not as they should be, in one transaction, before anything else is
    /// read. TPROXY needs more: connections that were made meanwhile would change sides.
    fn rewrite_tables(
        &mut self,
        driver: &mut dyn Driver,
        begin: Instant,
    ) -> Result<Option<apply::Differing>, Failure> {
        let desired = self.rules.desired();
        let has_tproxy = desired.state.rules.values().any(|rules| rules.tables.contains_key(&Table::Mangle));
        if self.rules.backend() != Some(Backend::Native) || has_tproxy {
            return Ok(None);
        }
        // If it fails, the comparison says what is wrong.
        let Some(differing) = apply::restore_native(desired).ok().filter(|one| !one.names.is_empty()) else {
            return Ok(None);
        };
        let took = self.repaired(begin);
        let what: Vec<_> = differing.names.iter().map(|name| format!("inet {name}")).collect();
        let differences =
            what.iter().map(|table| format!("the nftables table {table} is not as written")).collect();
        let by = self.culprits(driver);
        self.fights(&by);
        if self.drift.take().is_none() {
            driver.report(&Event::Drift { differences, reason: Reason::Rules, by: by.clone() })?;
        }
        self.is_waiting = false;
        let removed = differing.foreign_packets;
        driver.report(&Event::Repaired { took, what: what.join(", "), by, removed })?;
        Ok(Some(differing))
    }

    /// Takes the notices until now. Returns whether there are some.
    fn take(&mut self, driver: &mut dyn Driver) -> bool {
        let taken = driver.take();
        self.add(taken)
    }

    /// Who changed rules until now.
    fn culprits(&mut self, driver: &mut dyn Driver) -> Culprits {
        let _ = self.take(driver);
        std::mem::take(&mut self.by)
    }

    /// Takes the notices until now, without those of the guard's own tools: a socket has the id of its
    /// process, as a rule. That a foreign process has the same id in another PID namespace costs no more than
    /// its name.
    fn take_beside(&mut self, driver: &mut dyn Driver, tools: &[u32]) {
        let beside = |mut changes: Vec<Change>| {
            changes.retain(|change| !tools.contains(&change.port));
            changes
        };
        let taken = driver.take().map(|taken| taken.map(beside));
        self.add(taken);
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
        driver: &mut dyn Driver,
        begin: Instant,
        found: &Differences,
        by: &Culprits,
    ) -> Result<Option<Instant>, Failure> {
        let (differences, reason) = (in_words(found), Reason::of(found));
        let (repaired, tools) = process::with_started(|| self.rules.repair());
        self.pace.repaired(self.since(begin), Instant::now());
        self.fights(by);
        // What has changed until now, the comparison shows.
        self.take_beside(driver, &tools);
        let generation = self.generation();
        let removed = repaired.as_ref().ok().copied().unwrap_or_default();
        let compared = repaired.and_then(|_| self.rules.compared());
        if self.drift.as_ref() != Some(&differences) {
            driver.report(&Event::Drift { differences: differences.clone(), reason, by: by.clone() })?;
        }
        match compared {
            Ok(found) if found.is_same() => {
                (self.drift, self.is_waiting, self.failures, self.failure) = (None, false, 0, None);
                let beside = std::mem::take(&mut self.by);
                let (took, what) = (self.since(begin).elapsed(), self.rules.desired().state.counts());
                self.noticed = None;
                driver.report(&Event::Repaired { took, what, by: by.clone(), removed })?;
                self.remember();
                let next = self.unlock(driver, generation)?;
                self.report_problems(driver, &found, &beside)?;
                Ok(next)
            }
            Ok(found) => {
                // It is compared again: nothing is lost if the rules were read before a notice.
                self.take_beside(driver, &tools);
                let beside = std::mem::take(&mut self.by);
                self.fight.extend(beside.clone());
                self.drift = Some(in_words(&found));
                let differences = self.drift.clone().unwrap_or_default();
                driver.report(&Event::Drift { differences, reason: Reason::of(&found), by: beside })?;
                Ok(Some(Instant::now()))
            }
            Err(failure) => {
                self.drift = Some(differences);
                self.failed(driver, &failure)
            }
        }
    }

    /// Reports what cannot be done now, and tries again after a pause that doubles up to the time of an
    /// audit.
    fn failed(&mut self, driver: &mut dyn Driver, failure: &Failure) -> Result<Option<Instant>, Failure> {
        let cause = failure.to_string();
        if self.failure.as_ref() != Some(&cause) {
            driver.report(&Event::Failed { cause: cause.clone() })?;
            self.failure = Some(cause);
        }
        let pause = SHORT.saturating_mul(1 << self.failures.min(16)).min(self.settings.audit);
        self.failures = self.failures.saturating_add(1);
        Ok(Some(Instant::now() + pause))
    }

    /// Reports problems that are new, and those that are gone.
    fn report_problems(
        &mut self,
        driver: &mut dyn Driver,
        found: &Differences,
        by: &Culprits,
    ) -> Result<(), Failure> {
        let mut problems = found.problems();
        // Of the guard that begins it, it has events of its own.
        let is_ours = self.settings.action == GuardAction::Lockdown;
        problems.retain(|finding| !is_ours || finding.problem != Problem::Lockdown);
        let (known, gone): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.known).into_iter().partition(|known| problems.contains(known));
        for finding in gone {
            driver.report(&Event::Gone { finding: Box::new(finding) })?;
        }
        for finding in problems.iter().filter(|finding| !known.contains(finding)) {
            driver.report(&Event::Found { finding: Box::new(finding.clone()), by: by.clone() })?;
        }
        self.known = problems;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
