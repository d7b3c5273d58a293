//! DNS over UDP as a busy resolver does it: many queries from one socket, some always waiting for their
//! responses.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::iter;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use netlab::user::User;
use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};

/// How long a name server takes for a response.
const DELAY: Duration = Duration::from_millis(50);
/// Time between two queries: 2,000 per second.
const PAUSE: Duration = Duration::from_micros(500);
/// How often a thread looks whether it should end.
const TICK: Duration = Duration::from_millis(20);
/// How long progress may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// After this time without any response a query counts as lost.
const SILENCE: Duration = Duration::from_secs(10);

/// Room for what arrives while a busy machine keeps a thread waiting, in bytes: a full buffer drops packets.
const BUFFER: usize = 16 << 20;

/// A socket on which nothing is dropped; `-m owner` looks at the user that opened it.
fn bind(user: &User, address: SocketAddr) -> UdpSocket {
    // A program that another thread starts keeps the socket before this one open until it has been loaded.
    let deadline = Instant::now() + LIMIT;
    let bound = || loop {
        match UdpSocket::bind(address) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < deadline => {
                thread::sleep(TICK)
            }
            bound => break bound.expect("bind a UDP socket"),
        }
    };
    let socket = user.run(bound);
    give_room(&socket);
    socket
}

/// Makes the socket keep what arrives while its thread has to wait. Needs root.
pub(crate) fn give_room(socket: &UdpSocket) {
    setsockopt(socket, RcvBufForce, &BUFFER).expect("give the socket room");
}

/// A name server that responds to each query with its own name and the query, [`DELAY`] later. It ends when
/// dropped.
#[derive(Debug)]
pub(crate) struct SlowServer(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl SlowServer {
    pub(crate) fn start(user: &User, name: &'static str, address: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let socket = bind(user, address);
        let thread = thread::spawn({
            let stop = Arc::clone(&stop);
            move || respond(&socket, name, &stop)
        });
        Self(stop, Some(thread))
    }
}

impl Drop for SlowServer {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        let _ = self.1.take().map(JoinHandle::join);
    }
}

fn respond(socket: &UdpSocket, name: &str, stop: &AtomicBool) {
    let mut waiting: VecDeque<(Instant, SocketAddr, String)> = VecDeque::new();
    let mut buffer = [0; 64];
    while !stop.load(Ordering::Relaxed) {
        let pause = waiting.front().map_or(TICK, |(due, ..)| due.saturating_duration_since(Instant::now()));
        socket.set_read_timeout(Some(pause.max(Duration::from_micros(100)))).unwrap();
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let query = String::from_utf8_lossy(&buffer[..length]);
            waiting.push_back((Instant::now() + DELAY, from, format!("{name} {query}")));
        }
        while waiting.front().is_some_and(|(due, ..)| *due <= Instant::now()) {
            let (_, to, text) = waiting.pop_front().expect("it was seen");
            let _ = socket.send_to(text.as_bytes(), to);
        }
    }
}

/// Queries from one socket, until dropped.
#[derive(Debug)]
pub(crate) struct Queries {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    sent: AtomicUsize,
    /// The server that responded to each query.
    responses: Mutex<Vec<Option<String>>>,
}

/// What became of the queries in question.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) proxy: usize,
    pub(crate) direct: usize,
    pub(crate) lost: usize,
}

impl Queries {
    /// Begins to ask `to` from `from`.
    pub(crate) fn start(user: &User, from: SocketAddr, to: SocketAddr) -> Self {
        let socket = bind(user, from);
        socket.connect(to).expect("connect a UDP socket");
        socket.set_read_timeout(Some(TICK)).unwrap();
        let shared = Arc::new(Shared::default());
        let sender = (socket.try_clone().unwrap(), Arc::clone(&shared));
        let receiver = (socket, Arc::clone(&shared));
        let threads = vec![
            thread::spawn(move || send(&sender.0, &sender.1)),
            thread::spawn(move || receive(&receiver.0, &receiver.1)),
        ];
        Self { shared, threads }
    }

    /// How many queries were sent so far.
    pub(crate) fn sent(&self) -> usize {
        self.shared.sent.load(Ordering::SeqCst)
    }

    /// Waits until `count` more queries were sent.
    pub(crate) fn wait_for(&self, count: usize) {
        let (target, end) = (self.sent() + count, Instant::now() + LIMIT);
        while self.sent() < target {
            assert!(Instant::now() < end, "queries are sent");
            thread::sleep(TICK);
        }
    }

    /// Sends no more; responses are still received.
    pub(crate) fn stop(&self) {
        self.shared.stop.store(true, Ordering::SeqCst);
    }

    /// Ends, and returns what became of the queries in each range of numbers.
    pub(crate) fn end<const N: usize>(mut self, ranges: [Range<usize>; N]) -> [Tally; N] {
        self.stop();
        for thread in self.threads.drain(..) {
            thread.join().expect("a thread of the resolver");
        }
        let responses = self.shared.responses.lock().unwrap();
        ranges.map(|range| {
            let mut tally = Tally::default();
            for number in range {
                match responses.get(number).and_then(Option::as_deref) {
                    Some("proxy") => tally.proxy += 1,
                    Some(_) => tally.direct += 1,
                    None => tally.lost += 1,
                }
            }
            tally
        })
    }
}

impl Drop for Queries {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
    }
}

fn send(socket: &UdpSocket, shared: &Shared) {
    while !shared.stop.load(Ordering::SeqCst) {
        let number = shared.sent.load(Ordering::SeqCst);
        // An ICMP error for an earlier query is reported here.
        while socket.send(number.to_string().as_bytes()).is_err() {}
        shared.sent.store(number + 1, Ordering::SeqCst);
        thread::sleep(PAUSE);
    }
}

/// Ends once every query has a response, or after a long silence.
fn receive(socket: &UdpSocket, shared: &Shared) {
    let mut buffer = [0; 64];
    let mut quiet = Instant::now();
    let mut responded = 0;
    let finished = |responded: usize, quiet: Instant| {
        let all = responded >= shared.sent.load(Ordering::SeqCst);
        shared.stop.load(Ordering::SeqCst) && (all || quiet.elapsed() > SILENCE)
    };
    while !finished(responded, quiet) {
        let Ok(length) = socket.recv(&mut buffer) else { continue };
        responded += 1;
        quiet = Instant::now();
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        let (name, number) = text.split_once(' ').expect("a server's name and the query");
        let number: usize = number.parse().expect("the query's number");
        let mut responses = shared.responses.lock().unwrap();
        if responses.len() <= number {
            responses.resize(number + 1, None);
        }
        responses[number] = Some(name.to_owned());
    }
}

/// Sends a query from a new socket.
fn ask(to: SocketAddr) -> UdpSocket {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).expect("bind a socket");
    socket.connect(to).expect("connect a socket");
    socket.send(b"once").expect("send a query");
    socket
}

/// Whether a response comes soon; a new link drops packets until it is ready.
fn gets_response(socket: &UdpSocket) -> bool {
    has_response_within(socket, 4 * DELAY)
}

fn has_response_within(socket: &UdpSocket, limit: Duration) -> bool {
    socket.set_read_timeout(Some(limit)).unwrap();
    socket.recv(&mut [0; 64]).is_ok()
}

/// Queries from a socket each, as programs without a resolver of their own send them; until ended.
#[derive(Debug)]
pub(crate) struct Sockets {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<UdpSocket>>,
}

impl Sockets {
    /// Begins to ask `to`, once it responds; some queries are on their way when this returns.
    pub(crate) fn start(user: &User, to: SocketAddr) -> Self {
        Self::of(user, to, move || iter::repeat_with(move || ask(to)).take(20_000))
    }

    /// Begins to ask `to` with sockets that had a response already: their conntrack entries have seen both
    /// directions.
    pub(crate) fn start_again(user: &User, to: SocketAddr) -> Self {
        Self::of(user, to, move || {
            let sockets: Vec<_> = iter::repeat_with(|| ask(to)).take(2_000).collect();
            let gets_response = |socket: &UdpSocket| has_response_within(socket, SILENCE);
            assert!(sockets.iter().all(gets_response), "first queries get responses");
            sockets.into_iter().inspect(|socket| {
                socket.send(b"again").expect("send a query");
            })
        })
    }

    fn of<I: Iterator<Item = UdpSocket>>(
        user: &User,
        to: SocketAddr,
        queries: impl FnOnce() -> I + Send + 'static,
    ) -> Self {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let thread = thread::spawn({
            let (user, stop, sent) = (user.clone(), Arc::clone(&stop), Arc::clone(&sent));
            move || {
                user.switch_thread();
                while !gets_response(&ask(to)) {}
                let mut sockets = Vec::new();
                for socket in queries() {
                    sockets.push(socket);
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    sent.store(sockets.len(), Ordering::SeqCst);
                    thread::sleep(4 * PAUSE);
                }
                sockets
            }
        });
        let end = Instant::now() + LIMIT;
        while sent.load(Ordering::SeqCst) < 100 {
            assert!(Instant::now() < end, "queries are sent");
            thread::sleep(TICK);
        }
        Self { stop, thread }
    }

    /// Asks no more.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Ends, and returns how many queries got no response.
    pub(crate) fn end(self) -> usize {
        self.stop();
        let sockets = self.thread.join().expect("the thread that asks");
        sockets.iter().filter(|socket| !has_response_within(socket, SILENCE)).count()
    }
}
