//! Notices of all pods, until each pod's guard takes its own; and where the reports of a pod go.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::Sender;
use std::time::{Instant, SystemTime};

use istio_iptables::commands::guard::{Driver, Event, Used};
use istio_iptables::kernel::netlink::nftables::Change;
use istio_iptables::kernel::node_watch::NodeWatch;
use istio_iptables::report::Failure;
use istio_iptables::text::one_line;

use super::super::metrics::Metrics;
use super::incident::Incident;

/// What was noticed.
#[derive(Debug)]
pub(super) struct Notices {
    /// `None`: nothing is announced to this process.
    pub(super) watch: Option<NodeWatch>,
    /// What no guard has taken yet, by the id of the namespace, with the time at which it was noticed.
    pending: BTreeMap<i32, (Instant, Vec<Change>)>,
    /// Whether notices are lost that guards do not know of.
    are_lost: bool,
}

impl Notices {
    pub(super) const fn new(watch: Option<NodeWatch>) -> Self {
        Self { watch, pending: BTreeMap::new(), are_lost: false }
    }

    /// Reads what is there.
    pub(super) fn read(&mut self, metrics: &Metrics) -> io::Result<()> {
        let Some(watch) = &mut self.watch else { return Ok(()) };
        let Some(changes) = watch.take()? else {
            metrics.notices_lost();
            self.are_lost = true;
            return Ok(());
        };
        let now = Instant::now();
        for change in changes {
            // That of the socket itself has no rules.
            let Some(id) = change.namespace else { continue };
            self.pending.entry(id).or_insert_with(|| (now, Vec::new())).1.push(change);
        }
        Ok(())
    }

    /// Whether something was noticed that no guard has taken.
    pub(super) fn are_pending(&self) -> bool {
        self.are_lost || !self.pending.is_empty()
    }

    /// Everything that was noticed so far, and whether notices are lost.
    pub(super) fn take_all(&mut self) -> (BTreeMap<i32, (Instant, Vec<Change>)>, bool) {
        (std::mem::take(&mut self.pending), std::mem::take(&mut self.are_lost))
    }
}

/// One pod, for its guard.
pub(super) struct Pod<'a> {
    pub(super) notices: &'a mut Notices,
    pub(super) metrics: &'a Metrics,
    /// The id of its namespace.
    pub(super) id: Option<i32>,
    /// The pod's namespace and name.
    pub(super) name: &'a str,
    /// When the first change was noticed since its rules were last as they should be.
    pub(super) noticed: Option<Instant>,
    /// When its rules were last known to be as they should be.
    pub(super) same: SystemTime,
    /// What is not over, or not reported yet.
    pub(super) incident: &'a mut Option<Incident>,
    /// Closes sockets.
    pub(super) closing: &'a Sender<Used>,
}

impl Driver for Pod<'_> {
    fn take(&mut self) -> io::Result<Option<Vec<Change>>> {
        self.notices.read(self.metrics)?;
        if self.notices.are_lost {
            return Ok(None);
        }
        let taken = self.id.and_then(|id| self.notices.pending.remove(&id));
        Ok(Some(taken.map(|(_, changes)| changes).unwrap_or_default()))
    }

    /// No repair of another pod waits for that.
    fn close(&mut self, used: Used) {
        // It ends with the process.
        let _ = self.closing.send(used);
    }

    fn report(&mut self, event: &Event) -> Result<(), Failure> {
        let pod = self.name;
        let noticed = self.noticed.and_then(|noticed| SystemTime::now().checked_sub(noticed.elapsed()));
        Incident::record(self.incident, event, noticed, self.same);
        match event {
            Event::Drift { reason, .. } => self.metrics.drift(reason.name()),
            Event::Found { .. } => self.metrics.drift("foreign"),
            Event::Failed { .. } => self.metrics.guard_failed(),
            Event::Repaired { took, .. } => self.metrics.repaired(*took),
            Event::Waiting { by, .. } => self.metrics.repair_conflict(by.programs()),
            Event::Gone { .. }
            | Event::Guarding { .. }
            | Event::Locked
            | Event::Restored
            | Event::Unlocked => {}
        }
        log::log!(event.level(), pod; "{}", one_line(&event.words()));
        Ok(())
    }
}
