//! Validation: makes a connection, which must arrive at the proxy's port instead of its destination.

mod attempt;
mod outcome;

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::model::{Families, Family, Port};
use attempt::{Owner, accept, connect, connected, listen};
pub use outcome::{Arrival, Event, Outcome, UncapturedProbe};

/// How often the probe is sent.
const INTERVAL: Duration = Duration::from_secs(1);

/// The parameters of a probe.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Families that are captured.
    pub families: Families,
    /// The proxy's two ports, outbound and inbound; both are listened on.
    pub capture_ports: [Port; 2],
    /// Where the probe goes.
    pub port: Port,
    /// The uid that sends the probe: the first of the proxy's uids. Connections of other users to 127.0.0.6
    /// are rightly not captured.
    pub uid: u32,
    /// The first of the proxy's gids.
    pub gid: u32,
    /// How long it may take in all.
    pub timeout: Duration,
}

/// Listens on the proxy's ports and sends probes until one arrives in each family, or time is up.
#[must_use]
pub fn probe(probe: &Probe) -> Outcome {
    let owner = Owner { uid: probe.uid, gid: probe.gid };
    if !owner.possible() {
        return Outcome::Unable { uid: probe.uid };
    }
    let mut probes = Vec::new();
    for family in Family::ALL.into_iter().filter(|family| probe.families.contains(*family)) {
        match FamilyProbe::new(family, probe) {
            Ok(family_probe) => probes.push(family_probe),
            Err((port, error)) => {
                return Outcome::CannotListen { family, port, error: error.into() };
            }
        }
    }
    run(probe, &owner, &mut probes);
    let not_captured: Vec<UncapturedProbe> = probes.iter().filter_map(FamilyProbe::not_captured).collect();
    if not_captured.is_empty() {
        Outcome::Captured(probes.iter().filter_map(|family_probe| family_probe.arrival).collect())
    } else {
        Outcome::NotCaptured(not_captured)
    }
}

/// Sends a probe each second to the families that have not seen one, and waits for what happens in between.
fn run(probe: &Probe, owner: &Owner, probes: &mut [FamilyProbe]) {
    let begin = Instant::now();
    let mut round = 0;
    while probes.iter().any(FamilyProbe::open) {
        let due = INTERVAL.saturating_mul(round);
        let now = begin.elapsed();
        // One that is sent when time is up would have no time to arrive or to be refused.
        if now >= due && (round == 0 || now < probe.timeout) {
            round = round.saturating_add(1);
            for family_probe in probes.iter_mut().filter(|family_probe| family_probe.open()) {
                family_probe.send(owner);
            }
            continue;
        }
        let Some(left) = probe.timeout.checked_sub(now).filter(|left| !left.is_zero()) else {
            return;
        };
        wait(probes, left.min(due.saturating_sub(now)));
        for family_probe in probes.iter_mut().filter(|family_probe| family_probe.open()) {
            family_probe.look();
        }
    }
}

/// Sleeps until a socket has news, or for `time`.
fn wait(probes: &[FamilyProbe], time: Duration) {
    let mut descriptors: Vec<PollFd<'_>> =
        probes.iter().filter(|family_probe| family_probe.open()).flat_map(FamilyProbe::pollable).collect();
    // Rounded up: otherwise the last fraction of a millisecond would be a busy loop.
    let milliseconds = time.as_millis().saturating_add(1);
    let timeout = PollTimeout::try_from(milliseconds).unwrap_or(PollTimeout::MAX);
    // An interrupted wait is a short one: the loop looks at the clock. One that fails must not make the loop
    // busy.
    if poll(&mut descriptors, timeout).is_err() {
        std::thread::sleep(time.min(Duration::from_millis(20)));
    }
}

/// The probes of one family.
struct FamilyProbe {
    family: Family,
    target: Port,
    listeners: Vec<(Port, TcpListener)>,
    /// The last probe, while nothing has become of it.
    sent: Option<OwnedFd>,
    attempts: usize,
    last: Event,
    arrival: Option<Arrival>,
}

impl FamilyProbe {
    fn new(family: Family, probe: &Probe) -> Result<Self, (Port, Errno)> {
        let [outbound, inbound] = probe.capture_ports;
        let mut listeners = vec![(outbound, listen(family, outbound).map_err(|errno| (outbound, errno))?)];
        if inbound != outbound {
            listeners.push((inbound, listen(family, inbound).map_err(|errno| (inbound, errno))?));
        }
        let target = probe.port;
        Ok(Self { family, target, listeners, sent: None, attempts: 0, last: Event::Silence, arrival: None })
    }

    const fn open(&self) -> bool {
        self.arrival.is_none()
    }

    fn pollable(&self) -> impl Iterator<Item = PollFd<'_>> {
        let listeners =
            self.listeners.iter().map(|(_, socket)| PollFd::new(socket.as_fd(), PollFlags::POLLIN));
        listeners.chain(self.sent.iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLOUT)))
    }

    fn send(&mut self, owner: &Owner) {
        if self.sent.take().is_some() {
            self.last = Event::Silence;
        }
        self.attempts += 1;
        match connect(self.family, self.target, owner) {
            Ok(socket) => self.sent = Some(socket),
            Err(errno) => self.last = Event::Failed(errno),
        }
    }

    /// Takes note of what has happened. Listeners first: a captured probe is connected as well.
    fn look(&mut self) {
        for (port, listener) in &self.listeners {
            while let Some(original) = accept(self.family, listener) {
                if original == Some(self.target.number()) {
                    self.arrival = Some(Arrival { family: self.family, at: *port });
                    return;
                }
                self.last = Event::ArrivedOtherwise(*port);
                self.sent = None;
            }
        }
        match self.sent.as_ref().and_then(connected) {
            None => return,
            Some(Ok(())) => self.last = Event::AcceptedElsewhere,
            Some(Err(errno)) => self.last = Event::Failed(errno),
        }
        self.sent = None;
    }

    fn not_captured(&self) -> Option<UncapturedProbe> {
        let Self { family, target, attempts, .. } = *self;
        self.open().then(|| UncapturedProbe { family, port: target, attempts, last: self.last.clone() })
    }
}

#[cfg(test)]
mod tests;
