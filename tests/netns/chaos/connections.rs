//! TCP: new connections in loops, and connections that stay open and exchange lines.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::flows::{Destination, FLOWS, Flow, Source};
use super::timeline::Timeline;
use crate::lab::fixture::at;
use crate::lab::pod::PROXY;
use crate::lab::socket::Binding;
use crate::lab::user::Conversation;
use crate::lab::{Family, Outcome, Pod};

/// Time between two connections of one flow.
const PAUSE: Duration = Duration::from_millis(25);
/// Time between two lines on a busy connection, and on an idle one.
const BUSY: Duration = Duration::from_millis(15);
const IDLE: Duration = Duration::from_millis(900);

/// One new connection.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) flow: Flow,
    pub(super) family: Family,
    pub(super) start: Instant,
    pub(super) end: Instant,
    pub(super) outcome: Outcome,
}

/// A new connection of the proxy to the application, under the address of a client.
#[derive(Debug)]
pub(super) struct PassedOn {
    pub(super) family: Family,
    /// The mark that it had.
    pub(super) mark: u32,
    pub(super) start: Instant,
    pub(super) end: Instant,
    pub(super) outcome: Outcome,
}

/// A connection that was established and ended although neither side closed it.
#[derive(Debug)]
pub(super) struct LostConnection {
    pub(super) flow: Flow,
    pub(super) family: Family,
    /// Who served it.
    pub(super) server: String,
    pub(super) opened: Instant,
    /// When it was last known to work.
    pub(super) last_good: Instant,
    pub(super) noticed: Instant,
    pub(super) error: String,
}

/// What the connections of one pod have met, and when they are to end.
#[derive(Debug, Default)]
pub(super) struct Connections {
    pub(super) attempts: Mutex<Vec<Attempt>>,
    pub(super) lost: Mutex<Vec<LostConnection>>,
    pub(super) passed_on: Mutex<Vec<PassedOn>>,
    /// OpenConnections connections that were opened, and lines exchanged on them.
    pub(super) held: AtomicUsize,
    pub(super) lines: AtomicUsize,
    /// How many runs there have been: some held connections are renewed after a few.
    pub(super) step: AtomicUsize,
    pub(super) stop: AtomicBool,
}

/// How a held connection is used.
#[derive(Clone, Copy, Debug)]
struct Holding {
    flow: Flow,
    pause: Duration,
    /// After how many runs it is closed and opened again.
    renewed_after: usize,
}

const fn held(
    name: &'static str,
    from: Source,
    to: Destination,
    port: u16,
    pause: Duration,
    renewed_after: usize,
) -> Holding {
    Holding { flow: Flow { name, is_udp: false, from, from_port: 0, to, port }, pause, renewed_after }
}

const HELD: [Holding; 9] = [
    held("held inbound 8080", Source::Outside, Destination::Pod, 8080, BUSY, 3),
    held("held inbound 8080, long", Source::Outside, Destination::Pod, 8080, BUSY, usize::MAX),
    held("held inbound 15020, idle", Source::Outside, Destination::Pod, 15020, IDLE, 7),
    held("held inbound by eth1", Source::Outside, Destination::PodSecondNic, 8080, BUSY, 5),
    held("held outbound 80", Source::App, Destination::Service, 80, BUSY, 3),
    held("held outbound 80, idle", Source::App, Destination::Service, 80, IDLE, usize::MAX),
    held("held outbound 443", Source::App, Destination::OtherService, 443, BUSY, 5),
    held("held outbound, other user", Source::OtherUser, Destination::Service, 80, BUSY, 7),
    held("held proxy outbound", Source::Proxy, Destination::Service, 80, BUSY, 9),
];

impl Connections {
    /// Starts every flow, in both families; they end after [`Self::stop`] was set.
    pub(super) fn start<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        pod: &'scope Pod,
        timeline: &'scope Timeline,
    ) {
        for &family in pod.fixture.families() {
            for flow in FLOWS.iter().filter(|flow| !flow.is_udp) {
                scope.spawn(move || self.connect_in_a_loop(pod, *flow, family));
            }
            for holding in HELD {
                scope.spawn(move || self.hold_in_a_loop(pod, holding, family));
            }
            scope.spawn(move || self.pass_on_in_a_loop(pod, timeline, family));
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn connect_in_a_loop(&self, pod: &Pod, flow: Flow, family: Family) {
        flow.user(pod).switch_thread();
        for ending in flow.endings().iter().cycle() {
            if self.stopped() {
                return;
            }
            if let Some(conversation) = self.open(flow, family) {
                conversation.end(*ending);
            }
            thread::sleep(PAUSE);
        }
    }

    /// As long as the rules of TPROXY are in force, and no run is at work that could take them away.
    fn pass_on_in_a_loop(&self, pod: &Pod, timeline: &Timeline, family: Family) {
        // Only root may take another's address; the proxy of a TPROXY pod runs as root with the proxy's
        // group.
        pod.user(0, PROXY).switch_thread();
        while !self.stopped() {
            let marks: BTreeSet<_> =
                timeline.now().iter().map(|o| o.as_ref().and_then(|o| o.tproxy_mark(family))).collect();
            if let (1, Some(Some(mark))) = (marks.len(), marks.first().copied()) {
                let source = Some(at(family.guest(), 0));
                let start = Instant::now();
                let opened =
                    Conversation::to(at(family.pod(), 8080), Binding { source, spoofed_mark: Some(mark) });
                let outcome = match opened {
                    Ok(conversation) => Outcome::Responded(conversation.greeting),
                    Err(error) => Outcome::of_error(&error),
                };
                let end = Instant::now();
                self.passed_on.lock().unwrap().push(PassedOn { family, mark, start, end, outcome });
            }
            thread::sleep(PAUSE);
        }
    }

    fn hold_in_a_loop(&self, pod: &Pod, holding: Holding, family: Family) {
        holding.flow.user(pod).switch_thread();
        while !self.stopped() {
            match self.open(holding.flow, family) {
                Some(conversation) => self.hold(conversation, holding, family),
                None => thread::sleep(PAUSE),
            }
        }
    }

    fn hold(&self, mut conversation: Conversation, holding: Holding, family: Family) {
        self.held.fetch_add(1, Ordering::Relaxed);
        let opened = Instant::now();
        let opened_at_step = self.step.load(Ordering::Relaxed);
        let mut last_good = opened;
        loop {
            let wake = Instant::now() + holding.pause;
            let expired =
                || self.step.load(Ordering::Relaxed).saturating_sub(opened_at_step) >= holding.renewed_after;
            while Instant::now() < wake && !self.stopped() {
                thread::sleep(BUSY);
            }
            let last = self.stopped() || expired();
            match conversation.echo("still there") {
                Ok(()) => last_good = Instant::now(),
                Err(error) => {
                    let server = conversation.greeting.server.clone();
                    let (flow, noticed, error) = (holding.flow, Instant::now(), error.to_string());
                    let lost = LostConnection { flow, family, server, opened, last_good, noticed, error };
                    return self.lost.lock().unwrap().push(lost);
                }
            }
            self.lines.fetch_add(1, Ordering::Relaxed);
            if last {
                return;
            }
        }
    }

    /// One attempt, which is recorded.
    fn open(&self, flow: Flow, family: Family) -> Option<Conversation> {
        let (start, opened) = connect(flow.source(family), flow.target(family));
        let end = Instant::now();
        let outcome = match &opened {
            Ok(conversation) => Outcome::Responded(conversation.greeting.clone()),
            Err(error) => Outcome::of_error(error),
        };
        self.attempts.lock().unwrap().push(Attempt { flow, family, start, end, outcome });
        opened.ok()
    }
}

/// Connects, and again as long as the source port is still busy: a process that starts at this moment may
/// hold the socket of the last connection.
fn connect(source: Option<SocketAddr>, to: SocketAddr) -> (Instant, std::io::Result<Conversation>) {
    loop {
        let start = Instant::now();
        match Conversation::to(to, Binding { source, spoofed_mark: None }) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EADDRINUSE | libc::EADDRNOTAVAIL)) => {
                thread::sleep(PAUSE);
            }
            opened => return (start, opened),
        }
    }
}
