//! `guard`: notices at once when the rules in the kernel change, says which program did it, and repairs them.
//!
//! The kernel announces each transaction of nf_tables with the program that made it. Nothing announces a
//! change of iptables-legacy, and announcements can be lost, so an audit follows from time to time. What
//! counts as drift is what `check` calls different.

mod activate;
mod event;
mod guarded;
mod pace;

use std::io;
use std::time::{Duration, Instant};

use nfnetlink::nftables::Change;

use super::capture::desired;
use super::check::{Checked, checked, compared};
use super::namespace::{require_net_admin, watch_namespace};
use crate::apply::differences::Differences;
use crate::apply::{self, Access};
use crate::config::{
    Action, BackendChoice, CaptureConfig, GivenOption, GuardOptions, Intent, OptionScope, Output, RunOptions,
};
use crate::exit::Exit;
use crate::kernel::process::Host;
use crate::kernel::watch::{Watch, Woken};
use crate::model::{Backend, Variant};
use crate::plan::{CurrentState, DesiredState};
use crate::report::Failure;

pub use activate::activate_tables;
pub use event::{Culprits, Event, Reason, counted};
pub use guarded::{Driver, Guard, Rules, Settings, Used};

/// How long a run that changes the rules is waited for before signals are looked at.
const PATIENCE: Duration = Duration::from_secs(1);

/// Guards the rules of a network namespace until a signal asks for the end, or the process that names the
/// namespace ends.
pub(super) fn guard(
    host: &impl Host,
    options: GuardOptions,
    intent: Intent,
    run: &RunOptions,
    (scope, given): (OptionScope, &[GivenOption]),
) -> Result<Exit, Failure> {
    require_net_admin()?;
    // First: what changes while the rules are read is noticed.
    let watch = watch_namespace(run)?;
    let current = apply::inspect(host, run.backend, Access::Question)?.current;
    let Checked { config, has_no_rules, .. } = checked(&current, intent, run, scope)?;
    let desired = desired(&config, Action::Apply, false);
    if has_no_rules || scope != OptionScope::Traffic {
        require_rules(&current, &desired, has_no_rules)?;
    }
    let run = RunOptions { network_namespace: None, cni_mode: false, ..run.clone() };
    let backend = current.backend;
    // Rules that are gone are written with the same backend again.
    let run = RunOptions { backend: choice(backend), ..run };
    let event = Event::Guarding {
        rules: desired.counts(),
        backend,
        audit: options.audit,
        is_noticed: watch.notices_changes(),
    };
    event.report(options.output)?;
    let settings = Settings {
        name: env!("CARGO_PKG_NAME"),
        action: options.action,
        audit: options.audit,
        patience: PATIENCE,
    };
    let desired = apply::Guarded::new(desired);
    let rules = RulesOfOptions { host, config, given, desired, run, backend };
    watch_until_the_end(Guard::new(rules, settings), &mut Terminal { watch, output: options.output })
}

/// Fails if no option says which rules are to be, and the live ones do not, either: there is none, or they
/// are not those for which an earlier guard has begun a lockdown. To end that one would let traffic pass.
fn require_rules(current: &CurrentState, live: &DesiredState, has_none: bool) -> Result<(), Failure> {
    let unreadable =
        |error: &io::Error| apply::from_kernel(format!("cannot read the lockdown: {error}"), error);
    let is_known = !has_none && apply::lockdown::is_for(live).map_err(|error| unreadable(&error))?;
    let what =
        if has_none { "no capture rule is live" } else { "the live rules are not those of the lockdown" };
    let what = format!("{what}, and no option says which rules are to be");
    match current.lockdown() {
        _ if is_known => Ok(()),
        Some(lockdown) => {
            let failure = Failure::new(Exit::Different, format!("{}: {what}", lockdown.cause));
            Err(failure.hint(lockdown.fix()))
        }
        None => Err(Failure::new(Exit::Usage, what)
            .hint("give guard the options of the pod, or start it when the rules are live")),
    }
}

/// What holds rules, as an option.
#[must_use]
pub const fn choice(backend: Backend) -> BackendChoice {
    match backend {
        Backend::Native => BackendChoice::Nftables,
        Backend::Iptables(Variant::Nft) => BackendChoice::IptablesNft,
        Backend::Iptables(Variant::Legacy) => BackendChoice::IptablesLegacy,
    }
}

/// The rules of the options of the command.
struct RulesOfOptions<'a, H> {
    host: &'a H,
    config: CaptureConfig,
    given: &'a [GivenOption],
    desired: apply::Guarded,
    run: RunOptions,
    backend: Backend,
}

impl<H: Host> Rules for RulesOfOptions<'_, H> {
    fn desired(&self) -> &apply::Guarded {
        &self.desired
    }

    fn backend(&self) -> Option<Backend> {
        Some(self.backend)
    }

    fn is_current(&self) -> bool {
        true
    }

    fn compared(&mut self) -> Result<Differences, Failure> {
        let current = apply::inspect(self.host, self.run.backend, Access::Question)?.current;
        compared(&current, (&self.config, self.given), None, &self.run)
    }

    fn repair(&mut self) -> Result<u64, Failure> {
        if self.backend == Backend::Iptables(Variant::Nft) {
            activate_tables(&self.desired.state)?;
        }
        apply::repair(self.host, &self.desired.state, &self.run).map(|_| 0)
    }
}

/// The notices of this network namespace, and the output of the command.
struct Terminal {
    watch: Watch,
    output: Output,
}

impl Driver for Terminal {
    fn take(&mut self) -> io::Result<Option<Vec<Change>>> {
        self.watch.take()
    }

    fn report(&mut self, event: &Event) -> Result<(), Failure> {
        event.report(self.output)
    }
}

fn watch_until_the_end<R: Rules>(mut guard: Guard<R>, terminal: &mut Terminal) -> Result<Exit, Failure> {
    guard.wake(terminal)?;
    loop {
        let woken = terminal.watch.wait(guard.due());
        let woken =
            woken.map_err(|error| apply::from_kernel(format!("cannot wait for changes: {error}"), &error))?;
        match woken {
            Woken::Stopped => {
                guard.end(terminal)?;
                log::info!("guard ends: a signal asks for it; the rules are left as they are");
                return Ok(Exit::Done);
            }
            Woken::Ended => {
                guard.end(terminal)?;
                log::info!("guard ends: the process of --pid has ended");
                return Ok(Exit::Done);
            }
            Woken::Lost => guard.lost(),
            Woken::Changed(changes) => guard.changed(Instant::now(), changes),
            Woken::OnTime => {}
        }
        guard.wake(terminal)?;
    }
}
