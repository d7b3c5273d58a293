//! DNS over UDP: servers that respond after a while, and clients that ask at a fixed rate without waiting.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::SockType;

use super::flows::{FLOWS, Flow};
use super::timeline::{Expected, Timeline};
use crate::lab::fixture::at;
use crate::lab::pod::DNS_CAPTURE;
use crate::lab::queries::give_room;
use crate::lab::socket::{self, Binding};
use crate::lab::{Family, Pod, User};

/// How long a server takes: some queries are waiting at any time.
const DELAY: Duration = Duration::from_millis(100);
/// Time between two queries of one flow.
const PAUSE: Duration = Duration::from_millis(10);
/// How long the last responses may take.
const LIMIT: Duration = Duration::from_secs(10);
/// A client, and which of its queries.
type Id = (usize, usize);
/// One query.
#[derive(Clone, Debug)]
pub(super) struct Query {
    id: Id,
    pub(super) flow: Flow,
    pub(super) family: Family,
    /// Before and after it was sent.
    pub(super) sent: (Instant, Instant),
    /// The server that responded; none if the query was lost.
    pub(super) responder: Option<String>,
}

impl Query {
    /// What it may have met.
    pub(super) fn expected(&self, timeline: &Timeline) -> Expected {
        Expected::of(&self.flow, self.family, &timeline.between(self.sent.0, self.sent.1))
    }

    /// Whether its response may have been lost, since capture of the flow ended while it was waiting.
    pub(super) fn may_be_lost(&self, timeline: &Timeline, end: Instant) -> bool {
        Expected::of(&self.flow, self.family, &timeline.between(self.sent.0, end)).narrowed
    }
}

/// What became of each query, as the servers and the clients know it. No clock says when a response is lost:
/// a later one says it.
#[derive(Debug, Default)]
struct Log {
    /// Queries that have reached a server.
    reached: BTreeSet<Id>,
    /// The server of each response that was sent, and its place among the responses of that server.
    responses: BTreeMap<Id, (usize, usize)>,
    /// When responses were received, in the order in which each server sent them, and each client asked.
    received: BTreeMap<(usize, usize), Instant>,
    received_by: BTreeMap<Id, Instant>,
}

impl Log {
    fn receive(&mut self, id: Id) {
        let now = Instant::now();
        self.received_by.insert(id, now);
        self.responses.get(&id).map(|place| self.received.insert(*place, now));
    }

    /// When a response to this query, which has none, could no longer be on its way. None if it still can.
    fn end_of_waiting(&self, id: Id) -> Option<Instant> {
        let next = |of: &BTreeMap<(usize, usize), Instant>, (whose, place): (usize, usize)| {
            of.range((whose, place + 1)..=(whose, usize::MAX)).next().map(|(_, received)| *received)
        };
        match self.responses.get(&id) {
            Some(place) => next(&self.received, *place),
            None if self.reached.contains(&id) => None,
            None => next(&self.received_by, id),
        }
    }
}

/// What the queries of one pod have met, and when they are to end.
#[derive(Debug, Default)]
pub(super) struct Queries {
    pub(super) done: Mutex<Vec<Query>>,
    log: Mutex<Log>,
    pub(super) stop: AtomicBool,
    servers_stop: AtomicBool,
}

impl Queries {
    /// Until when this query, which has no response, may have been waiting for it.
    pub(super) fn end_of_waiting(&self, query: &Query) -> Instant {
        self.log.lock().unwrap().end_of_waiting(query.id).unwrap_or_else(Instant::now)
    }

    /// Starts the servers, which end after [`Self::stop_servers`].
    pub(super) fn start_servers<'scope>(&'scope self, scope: &'scope thread::Scope<'scope, '_>, pod: &Pod) {
        let mut number = 0;
        for &family in pod.fixture.families() {
            let addresses = [
                ("proxy", pod.proxy(), at(family.loopback(), DNS_CAPTURE)),
                ("outside", pod.outside(), at(family.name_server(), 53)),
                ("outside", pod.outside(), at(family.service(), 53)),
            ];
            for (who, user, address) in addresses {
                let (ready, is_ready) = mpsc::channel();
                scope.spawn(move || self.serve((number, who), &user, address, &ready));
                is_ready.recv().expect("the server listens");
                number += 1;
            }
        }
    }

    /// Ends them.
    pub(super) fn stop_servers(&self) {
        self.servers_stop.store(true, Ordering::Relaxed);
    }

    fn serve(
        &self,
        (server, who): (usize, &str),
        user: &User,
        address: SocketAddr,
        ready: &mpsc::Sender<()>,
    ) {
        let bind = || UdpSocket::bind(address).unwrap_or_else(|e| panic!("{who} at {address}: {e}"));
        let socket = user.run(bind);
        give_room(&socket);
        socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        let _ = ready.send(());
        let mut waiting: VecDeque<(Instant, SocketAddr, Id)> = VecDeque::new();
        let mut places = 0..;
        let mut buffer = [0; 64];
        while !self.servers_stop.load(Ordering::Relaxed) {
            if let Ok((length, client)) = socket.recv_from(&mut buffer) {
                let query = String::from_utf8_lossy(&buffer[..length]);
                let id = read_id(&query);
                self.log.lock().unwrap().reached.insert(id);
                waiting.push_back((Instant::now() + DELAY, client, id));
            }
            let due = waiting.iter().take_while(|(due, _, _)| *due <= Instant::now()).count();
            for (_, client, id) in waiting.drain(..due) {
                let place = (server, places.next().expect("endless"));
                self.log.lock().unwrap().responses.insert(id, place);
                let response = format!("{who} {} {}", id.0, id.1);
                // A client that is gone makes the next call fail, not this one.
                let _ = socket.send_to(response.as_bytes(), client);
            }
        }
    }

    /// Starts every flow, in both families; they end after [`Self::stop`] was set.
    pub(super) fn start<'scope>(&'scope self, scope: &'scope thread::Scope<'scope, '_>, pod: &'scope Pod) {
        let flows = || FLOWS.iter().filter(|flow| flow.is_udp);
        for (at, &family) in pod.fixture.families().iter().enumerate() {
            for (flow, number) in flows().zip(at * FLOWS.len()..) {
                scope.spawn(move || {
                    let (mut client, user) = (Client::new(number, *flow, family), flow.user(pod));
                    if flow.from_port != 0 {
                        user.run(|| client.open());
                        client.sockets.iter().for_each(|(socket, _)| give_room(socket));
                    }
                    user.switch_thread();
                    client.ask_in_a_loop(self);
                });
            }
        }
    }
}

/// A resolver: one socket for all queries, or one for each.
struct Client {
    number: usize,
    flow: Flow,
    family: Family,
    /// Sockets with the queries that wait on them.
    sockets: Vec<(UdpSocket, BTreeMap<usize, Query>)>,
}

impl Client {
    fn new(number: usize, flow: Flow, family: Family) -> Self {
        Self { number, flow, family, sockets: Vec::new() }
    }

    fn ask_in_a_loop(mut self, queries: &Queries) {
        let mut number = 0;
        while !queries.stop.load(Ordering::Relaxed) {
            number += 1;
            self.ask(number);
            thread::sleep(PAUSE);
            self.receive(queries);
        }
        let end = Instant::now() + LIMIT;
        let waits = |client: &Self| {
            let log = queries.log.lock().unwrap();
            client.waiting().any(|query| log.end_of_waiting(query.id).is_none()) && Instant::now() < end
        };
        while waits(&self) {
            thread::sleep(PAUSE);
            self.receive(queries);
        }
        // What says that a response is late may have come after the last look: then the response is here,
        // too.
        self.receive(queries);
        queries.done.lock().unwrap().extend(self.waiting().cloned());
    }

    fn waiting(&self) -> impl Iterator<Item = &Query> {
        self.sockets.iter().flat_map(|(_, waiting)| waiting.values())
    }

    /// Opens a socket of the calling thread's user.
    fn open(&mut self) {
        let (to, source) = (self.flow.target(self.family), self.flow.source(self.family));
        let fd = socket::bound(to, Binding { source, spoofed_mark: None }, SockType::Datagram).unwrap();
        let socket = UdpSocket::from(fd);
        socket.connect(to).unwrap();
        socket.set_nonblocking(true).unwrap();
        self.sockets.push((socket, BTreeMap::new()));
    }

    fn ask(&mut self, number: usize) {
        if self.flow.from_port == 0 {
            self.open();
        }
        let (socket, waiting) = self.sockets.last_mut().unwrap();
        let id = (self.number, number);
        let before = Instant::now();
        // An error is that of an earlier query: its response is missing.
        let _ = socket.send(format!("{} {}", id.0, id.1).as_bytes());
        let sent = (before, Instant::now());
        let query = Query { id, flow: self.flow, family: self.family, sent, responder: None };
        waiting.insert(number, query);
    }

    fn receive(&mut self, queries: &Queries) {
        let mut done = Vec::new();
        let mut buffer = [0; 64];
        for (socket, waiting) in &mut self.sockets {
            while let Ok(length) = socket.recv(&mut buffer) {
                let response = String::from_utf8_lossy(&buffer[..length]).into_owned();
                let (who, id) = response.split_once(' ').expect("a server's response");
                let id = read_id(id);
                if let Some(query) = waiting.remove(&id.1) {
                    queries.log.lock().unwrap().receive(id);
                    done.push(Query { responder: Some(who.to_owned()), ..query });
                }
            }
        }
        if self.flow.from_port == 0 {
            self.sockets.retain(|(_, waiting)| !waiting.is_empty());
        }
        queries.done.lock().unwrap().extend(done);
    }
}

fn read_id(text: &str) -> Id {
    let (client, number) = text.split_once(' ').expect("a client and the number of its query");
    (client.parse().expect("a number"), number.parse().expect("a number"))
}
