//! The lockdown of a guard: when what the rules would capture is dropped, and when that ends.

use std::time::Instant;

use super::{Driver, Event, Guard, Rules};
use crate::apply;
use crate::apply::lockdown::{Ended, HandleSnapshot};
use crate::config::GuardAction;
use crate::model::{Backend, Variant};
use crate::report::Failure;

/// Whether what the rules would capture is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lockdown {
    /// Perhaps: an earlier guard may have left it.
    Unknown,
    Off,
    On,
}

impl<R: Rules> Guard<R> {
    /// Drops what the rules would capture, if that is asked for. What an earlier guard has begun stays with
    /// every action, until the rules are live. Returns whether other programs have changed rules meanwhile.
    pub(super) fn lock(&mut self, driver: &mut dyn Driver) -> Result<bool, Failure> {
        if self.settings.action != GuardAction::Lockdown {
            return Ok(false);
        }
        match apply::lockdown::begin(&self.rules.desired().state) {
            Ok(has_begun) => {
                let has_changed = has_begun && self.take(driver);
                if std::mem::replace(&mut self.lockdown, Lockdown::On) != Lockdown::On {
                    driver.report(&Event::Locked)?;
                }
                Ok(has_changed)
            }
            Err(error) => {
                let cause = format!("lockdown: new connections cannot be dropped: {error}");
                if self.failure.as_ref() != Some(&cause) {
                    driver.report(&Event::Failed { cause: cause.clone() })?;
                    self.failure = Some(cause);
                }
                Ok(false)
            }
        }
    }

    /// Records the handles of the rules, which equal the desired ones now.
    pub(super) fn remember(&mut self) {
        let is_wanted = self.settings.action == GuardAction::Lockdown
            && self.rules.backend() == Some(Backend::Iptables(Variant::Nft));
        self.handles = if is_wanted { HandleSnapshot::read(&self.rules.desired().state).ok() } else { None };
    }

    /// Whether rules of ours were deleted, for the action lockdown. Costs a tenth of a comparison.
    pub(super) fn is_damaged(&self) -> bool {
        self.settings.action == GuardAction::Lockdown
            && (self.replaced().is_some() || self.handles.as_ref().is_some_and(HandleSnapshot::has_deletions))
    }

    /// The generation of the rules before the next comparison, if a lockdown may be active.
    pub(super) fn generation(&self) -> Option<u32> {
        if self.lockdown == Lockdown::Off { None } else { apply::lockdown::generation().ok() }
    }

    /// Ends the lockdown of this guard at its shutdown.
    ///
    /// # Errors
    /// A report cannot be written.
    pub fn end(&mut self, driver: &mut dyn Driver) -> Result<(), Failure> {
        if self.lockdown == Lockdown::On {
            self.unlock_now(driver, None)?;
        }
        Ok(())
    }

    /// Ends a lockdown of this guard or of an earlier one, if the rules are still of the generation that was
    /// compared. While another program is expected to delete the rules again, the lockdown stays active: it
    /// drops nothing that the live rules capture. Returns the time of the next comparison, if that is before
    /// the audit.
    pub(super) fn unlock(
        &mut self,
        driver: &mut dyn Driver,
        generation: Option<u32>,
    ) -> Result<Option<Instant>, Failure> {
        let calm = self.pace.expected_until().filter(|calm| *calm > Instant::now());
        match self.lockdown {
            Lockdown::Off => Ok(None),
            Lockdown::On if calm.is_some() => Ok(calm),
            Lockdown::On | Lockdown::Unknown => self.unlock_now(driver, generation),
        }
    }

    fn unlock_now(
        &mut self,
        driver: &mut dyn Driver,
        generation: Option<u32>,
    ) -> Result<Option<Instant>, Failure> {
        match apply::lockdown::end(generation) {
            Ok(Ended::RulesChanged) => Ok(Some(Instant::now())),
            Ok(ended) => {
                let has_ended = ended == Ended::Now;
                let has_changed = has_ended && self.take(driver);
                let was_on = std::mem::replace(&mut self.lockdown, Lockdown::Off) == Lockdown::On;
                if has_ended || was_on {
                    driver.report(&Event::Unlocked)?;
                }
                Ok(has_changed.then(Instant::now))
            }
            Err(error) => {
                driver.report(&Event::Failed { cause: format!("the lockdown cannot be ended: {error}") })?;
                Ok(None)
            }
        }
    }
}
