//! Connections that begin and end while a pod is captured for the first time with `--drop-invalid`, and those
//! after them.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::chaos::random::Random;
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::socket::{self, Binding};
use crate::lab::user::Conversation;
use crate::lab::{Family, Fixture, Pod, for_each_backend_and_native};

for_each_backend_and_native!(no_syn_is_dropped_at_any_message_of_a_first_capture);

/// First captures, each of a new pod.
const RUNS: u64 = 4;
/// Clients in each family; each has one port.
const CLIENTS: u16 = 24;
/// Where the application, and the proxy for it, accept connections.
const PORTS: [u16; 2] = [8080, 15006];

/// Counts what opens a connection, before our rules and behind them.
const COUNTERS: &str = "table inet syns {
    chain before { type filter hook prerouting priority -310; tcp flags & (fin|syn|rst|ack) == syn counter; }
    chain behind { type filter hook input priority 310; tcp flags & (fin|syn|rst|ack) == syn counter; }
}";

/// While entries are made and corrected, connections from the same ports are open in between, reset, and open
/// again: tracking knows some of them in the wrong direction, and takes their next SYN for invalid.
fn no_syn_is_dropped_at_any_message_of_a_first_capture(fixture: Fixture) {
    for seed in 0..RUNS {
        let [mut turns, mut random] = [0, 1].map(|number| Random::new(seed, number));
        let pod = fixture.pod();
        pod.namespace.run(|| tool("nft", &["-f", "-"], COUNTERS));
        let listeners = listeners(&pod);
        let mut clients = clients(fixture);
        let mut act = |client: &mut Client| client.act(&pod, &listeners, random.chance(50));
        for (number, client) in clients.iter_mut().enumerate() {
            (0..number % 3).for_each(|_| act(client));
        }
        let capture = pod.istio_iptables(&["-b", "*", "-i", "*", "--drop-invalid"]);
        let ended = capture.run_and_act_at_sends(|_| {
            clients.iter_mut().filter(|_| turns.chance(25)).for_each(&mut act);
        });
        ended.succeeded();
        let counts = counts(&pod);
        assert_eq!(counts[0], counts[1], "SYNs before and behind the rules, in run {seed}");
        let direct: Vec<SocketAddr> =
            clients.iter_mut().filter_map(|client| client.bypasses(&pod, &listeners)).collect();
        assert!(direct.is_empty(), "past the proxy, in run {seed}: {direct:?}");
    }
}

fn listeners(pod: &Pod) -> Vec<TcpListener> {
    let families = pod.fixture.families().iter();
    let addresses = families.flat_map(|family| PORTS.map(|port| at(family.pod(), port)));
    let listener = |address| {
        let listener = TcpListener::bind(address).expect("a listener");
        listener.set_nonblocking(true).expect("no blocking");
        listener
    };
    pod.proxy().run(|| addresses.map(listener).collect())
}

fn counts(pod: &Pod) -> Vec<String> {
    let listed = pod.namespace.run(|| tool("nft", &["list", "table", "inet", "syns"], ""));
    let count = |rule: &str| Some(rule.split_once("counter packets ")?.1.split(' ').next()?.to_owned());
    listed.lines().filter_map(count).collect()
}

/// A client outside that always uses the same port.
struct Client {
    from: SocketAddr,
    to: SocketAddr,
    /// The client's end of the connection, and the other one.
    open: Option<(TcpStream, TcpStream)>,
}

fn clients(fixture: Fixture) -> Vec<Client> {
    let of = |family: &Family| {
        let (outside, to) = (family.outside(), at(family.pod(), PORTS[0]));
        (0..CLIENTS).map(move |number| Client { from: at(outside, 20_000 + number), to, open: None })
    };
    fixture.families().iter().flat_map(of).collect()
}

impl Client {
    /// Opens a connection; an open one gets data from the server, or the server resets it.
    fn act(&mut self, pod: &Pod, listeners: &[TcpListener], sends: bool) {
        self.open = match self.open.take() {
            None => {
                let binding = Binding { source: Some(self.from), spoofed_mark: None };
                let begun =
                    pod.outside().run(|| Conversation::begin(self.to, binding)).expect("a first packet");
                Some((begun, accept(listeners, self.from)))
            }
            Some((near, mut far)) if sends => {
                far.write_all(b"data\n").expect("write to a client");
                Some((near, far))
            }
            Some(open) => {
                self.open = Some(open);
                self.reset();
                None
            }
        };
    }

    /// Where the next connection comes from, if it does not reach the proxy.
    fn bypasses(&mut self, pod: &Pod, listeners: &[TcpListener]) -> Option<SocketAddr> {
        self.reset();
        self.act(pod, listeners, false);
        let (_, far) = self.open.as_ref().expect("an open connection");
        let port = far.local_addr().expect("the end of the server").port();
        (port != PORTS[1]).then_some(self.from)
    }

    /// The server resets what is open.
    fn reset(&mut self) {
        if let Some((near, far)) = self.open.take() {
            [far, near].iter().for_each(socket::reset);
        }
    }
}

/// The connection from this client; where its first packet was dropped, it comes later.
fn accept(listeners: &[TcpListener], from: SocketAddr) -> TcpStream {
    let end = Instant::now() + Duration::from_secs(30);
    while Instant::now() < end {
        let mut accepted = listeners.iter().filter_map(|listener| listener.accept().ok());
        if let Some((stream, _)) = accepted.find(|(_, peer)| *peer == from) {
            return stream;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("no connection of {from} arrives");
}
