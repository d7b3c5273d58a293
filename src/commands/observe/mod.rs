//! `observe`: new connections as they begin, with the process, the verdict, and the rule and option that
//! decided.
//!
//! Connection tracking announces each connection behind the rules. Whether its destination was translated to
//! the proxy is the kernel's word; why, is the judgement of `explain`.

mod event;
mod observer;

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use event::{Filter, Printer};
use observer::Observer;

use super::guard::Culprits;
use super::namespace::{require_net_admin, watch_namespace};
use crate::apply;
use crate::config::{GivenOption, Intent, ObserveOptions, RunOptions};
use crate::exit::Exit;
use crate::kernel::conntrack::{NewConnections, Taken};
use crate::kernel::process::Host;
use crate::kernel::watch::{Watch, Woken};
use crate::report::Failure;

/// Interval between checks of `nf_conntrack_events`: the kernel sends no notice of its change.
const LOOK: Duration = Duration::from_secs(30);
/// Why the kernel announces nothing.
const DISABLED: &str = "net.netfilter.nf_conntrack_events is 0 in this network namespace";
/// What changes that.
const ENABLE: &str = "sysctl -w net.netfilter.nf_conntrack_events=1";

/// Reports connections until a signal, the end of the process that names the namespace, or the end that is
/// given.
pub(super) fn observe(
    host: &impl Host,
    options: ObserveOptions,
    intent: &Intent,
    run: &RunOptions,
    given: &[GivenOption],
) -> Result<Exit, Failure> {
    require_net_admin()?;
    let mut watch = watch_namespace(run)?;
    let run = RunOptions { network_namespace: None, cni_mode: false, ..run.clone() };
    // First: what begins while the rules are read is noticed.
    let mut connections = connections()?;
    let mut observer = Observer::new(host, (intent, &run), given)?;
    let mut printer = Printer::new(options.output);
    printer.begin(&observer.rules())?;
    let end = options.lasts.and_then(|lasts| Instant::now().checked_add(lasts));
    let filter = Filter::of(&options);
    let mut announcements = Announcements { are_on: true, look: Instant::now() + LOOK };
    loop {
        let until = end.map_or(announcements.look, |end| end.min(announcements.look));
        let woken = watch.wait_beside(Some(connections.as_fd()), until).map_err(|error| failed(&error))?;
        let is_over = match &woken {
            Some(Woken::Stopped | Woken::Ended) => true,
            Some(Woken::OnTime) => end.is_some_and(|end| Instant::now() >= end),
            Some(Woken::Changed(_) | Woken::Lost) | None => false,
        };
        let taken = connections.take().map_err(|error| failed(&error))?;
        // First: what was changed before a connection is noticed by the time at which the connection is
        // taken.
        if let Some(by) = changed(woken, &mut watch)? {
            log::info!("the live rules are read again{}", by.words());
            observer.read_again()?;
        }
        if is_over || announcements.are_due(&taken) {
            announcements.look(&mut printer, &observer)?;
        }
        let is_complete = report(&taken, &filter, &mut observer, &mut printer)?;
        if is_over || is_complete {
            printer.summary()?;
            return Ok(Exit::Done);
        }
    }
}

/// Whether the kernel announces new connections, at the last check.
struct Announcements {
    are_on: bool,
    /// Time of the next check.
    look: Instant,
}

impl Announcements {
    /// Whether a check is due after these connections were read.
    fn are_due(&self, taken: &Taken) -> bool {
        self.look <= Instant::now() || !(self.are_on || taken.entries.is_empty())
    }

    /// Checks the setting, and reports a change.
    fn look<H: Host>(&mut self, printer: &mut Printer, observer: &Observer<'_, H>) -> Result<(), Failure> {
        self.look = Instant::now() + LOOK;
        let are_on = !NewConnections::are_disabled();
        let were_on = std::mem::replace(&mut self.are_on, are_on);
        match (were_on, are_on) {
            (true, false) => printer.lost(None, &format!("{DISABLED}; fix: {ENABLE}")),
            (false, true) => printer.begin(&observer.rules()),
            (true, true) | (false, false) => Ok(()),
        }
    }
}

/// Who changed the rules, if they have changed.
fn changed(woken: Option<Woken>, watch: &mut Watch) -> Result<Option<Culprits>, Failure> {
    let mut by = Culprits::default();
    let mut changes = match woken {
        Some(Woken::Changed(changes)) => changes,
        Some(Woken::Lost) => {
            by.is_incomplete = true;
            Vec::new()
        }
        Some(Woken::Stopped | Woken::Ended | Woken::OnTime) | None => Vec::new(),
    };
    // Where there are always new connections, the wait does not get to them.
    match watch.take().map_err(|error| failed(&error))? {
        Some(more) => changes.extend(more),
        None => by.is_incomplete = true,
    }
    let has_changed = !changes.is_empty() || by.is_incomplete;
    by.add(changes);
    Ok(has_changed.then_some(by))
}

/// Reports what passes the filter. Returns whether as many are reported as were asked for.
fn report<H: Host>(
    taken: &Taken,
    filter: &Filter,
    observer: &mut Observer<'_, H>,
    printer: &mut Printer,
) -> Result<bool, Failure> {
    if let Some(number) = taken.lost {
        printer.lost(number, "more begin than can be read")?;
    }
    observer.begin(taken.entries.len());
    for entry in taken.entries.iter().filter(|entry| filter.admits_entry(entry)) {
        let connection = observer.connection(entry)?;
        if filter.admits(&connection) && printer.connection(&connection, filter.count)? {
            return Ok(true);
        }
    }
    printer.flush()?;
    Ok(false)
}

fn connections() -> Result<NewConnections, Failure> {
    let connections = NewConnections::open().map_err(|error| {
        Failure::new(Exit::Unavailable, format!("new connections are not announced: {error}"))
    })?;
    if NewConnections::are_disabled() {
        let what = format!("new connections are not announced: {DISABLED}");
        return Err(Failure::new(Exit::Unavailable, what).hint(format!("set it to 1: {ENABLE}")));
    }
    Ok(connections)
}

fn failed(error: &std::io::Error) -> Failure {
    apply::from_kernel(format!("cannot wait for connections: {error}"), error)
}
