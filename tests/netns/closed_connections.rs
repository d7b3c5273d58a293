//! A connection that the server reset leaves an entry that a later one on the same ports would follow.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::socket::{self, Binding};
use crate::lab::tools::WaitingTools;
use crate::lab::user::{Conversation, Ending, call_here, call_here_reset_by_server};
use crate::lab::{Family, Fixture, Pod, User, for_each_backend_and_native, for_these_fixtures};

for_each_backend_and_native!(
    from_tproxy_to_redirect,
    from_tracked_but_not_captured_to_redirect,
    from_tracked_but_not_captured_to_tproxy,
    from_a_list_of_ports_and_ranges_to_all,
    connections_that_the_server_resets_after_the_change,
    connections_that_the_server_resets_after_first_capture,
    connections_that_end_while_nothing_is_tracked,
    entries_that_began_with_a_reply,
    a_reply_after_the_change_to_a_syn_before_it,
    live_connections_keep_their_entries,
);
// The run is held up in its restore tools.
for_these_fixtures!(
    held_nft: IptablesNft Dual, held_legacy: IptablesLegacy Dual;
    [connections_that_begin_during_first_capture]
);

const REDIRECT: [&str; 4] = ["-b", "*", "-i", "*"];
const TPROXY: [&str; 6] = ["-b", "*", "-i", "*", "-m", "TPROXY"];
/// Connections in each direction and family.
const CONNECTIONS: u16 = 100;

/// One who calls one target from a port range.
pub(crate) struct Caller {
    pub(crate) name: String,
    pub(crate) user: User,
    source: SocketAddr,
    pub(crate) target: SocketAddr,
}

impl Caller {
    /// Inbound and outbound, in each family.
    pub(crate) fn all(pod: &Pod) -> Vec<Self> {
        let both = |family: &Family| {
            let inbound = (pod.outside(), family.outside(), at(family.pod(), 8080), "inbound");
            let outbound = (pod.app(), family.pod(), at(family.service(), 80), "outbound");
            [inbound, outbound].map(|(user, source, target, name)| Self {
                name: format!("{name} {family:?}"),
                user,
                source: at(source, 20_000),
                target,
            })
        };
        pod.fixture.families().iter().flat_map(both).collect()
    }

    /// One connection from each port.
    pub(crate) fn open_all(&self) -> Vec<Conversation> {
        let to = |source| Conversation::to(self.target, Binding { source: Some(source), spoofed_mark: None });
        let open = || self.sources().map(|source| to(source).expect("a connection")).collect();
        self.user.run(open)
    }

    /// The first packet of one connection from each port.
    pub(crate) fn begin_all(&self) -> Vec<TcpStream> {
        let to =
            |source| Conversation::begin(self.target, Binding { source: Some(source), spoofed_mark: None });
        let begin = || self.sources().map(|source| to(source).expect("a first packet")).collect();
        self.user.run(begin)
    }

    /// Calls from each port are captured.
    pub(crate) fn are_captured(&self) {
        let call = |source| call_here(self.target, Binding { source: Some(source), spoofed_mark: None });
        let outcomes: Vec<_> = self.user.run(|| self.sources().map(call).collect());
        let past: Vec<_> =
            outcomes.into_iter().filter(|outcome| outcome.response().server != "proxy").collect();
        assert!(
            past.is_empty(),
            "{}: {} of {CONNECTIONS} not captured: {:?}",
            self.name,
            past.len(),
            past[0]
        );
    }

    /// One connection from each port, and what the server has of each: it is in the test's hands when which
    /// side ends.
    pub(crate) fn pairs(&self, listener: &TcpListener) -> Vec<(TcpStream, TcpStream)> {
        let accepted = |client| (client, listener.accept().expect("a connection").0);
        self.begin_all().into_iter().map(accepted).collect()
    }

    /// The target's own listener, in the network of the target.
    pub(crate) fn listener(&self, pod: &Pod) -> TcpListener {
        let server = if self.name.starts_with("inbound") { pod.app() } else { pod.outside() };
        server.run(|| TcpListener::bind(self.target).expect("listen"))
    }

    /// The server resets one connection from each port.
    fn are_reset(&self) {
        self.user.run(|| {
            for source in self.sources() {
                call_here_reset_by_server(source, self.target).response();
            }
        });
    }

    pub(crate) fn sources(&self) -> impl Iterator<Item = SocketAddr> {
        let port = self.source.port();
        (port..port + CONNECTIONS).map(|port| at(self.source.ip(), port))
    }
}

/// Connections are reset by the server; after the run, others from the same ports have to be captured.
fn through(pod: &Pod, change: &[&str]) {
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    let callers = Caller::all(pod);
    callers.iter().for_each(Caller::are_reset);
    pod.apply(change);
    callers.iter().for_each(Caller::are_captured);
}

fn from_tproxy_to_redirect(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&TPROXY);
    through(&pod, &REDIRECT);
}

/// A foreign rule has connections tracked.
fn tracked(pod: &Pod) {
    for family in pod.fixture.families() {
        pod.iptables(*family, "-A INPUT -m conntrack --ctstate INVALID -j ACCEPT");
    }
}

fn from_tracked_but_not_captured_to_redirect(fixture: Fixture) {
    let pod = fixture.pod();
    tracked(&pod);
    through(&pod, &REDIRECT);
}

fn from_tracked_but_not_captured_to_tproxy(fixture: Fixture) {
    let pod = fixture.pod();
    tracked(&pod);
    through(&pod, &TPROXY);
}

fn from_a_list_of_ports_and_ranges_to_all(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&["-b", "9999", "-i", "203.0.113.0/24"]);
    through(&pod, &REDIRECT);
}

/// The entry of a connection that outlives the change does not make the next one on the same ports bypass the
/// proxy.
fn connections_that_the_server_resets_after_the_change(fixture: Fixture) {
    for (before, after) in
        [(&TPROXY[..], &REDIRECT[..]), (&["-b", "9999"], &REDIRECT), (&["-b", "9999"], &TPROXY)]
    {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        pod.apply(before);
        let callers = Caller::all(&pod);
        let open: Vec<_> = callers.iter().map(Caller::open_all).collect();
        pod.apply(after);
        for (caller, open) in callers.iter().zip(open) {
            open.into_iter().for_each(|conversation| conversation.end(Ending::ResetByServer));
            caller.are_captured();
        }
    }
}

/// Connection tracking makes entries of its own for connections that are busy at the moment of the first
/// capture.
fn connections_that_the_server_resets_after_first_capture(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        let callers = Caller::all(&pod);
        let mut open: Vec<_> = callers.iter().map(Caller::open_all).collect();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let stop = &done;
            for conversations in &mut open {
                scope.spawn(move || {
                    while !stop.load(Ordering::SeqCst) {
                        let begin = Instant::now();
                        for conversation in conversations.iter_mut() {
                            conversation.echo("still there").expect("the connection lives on");
                        }
                        // The run that is watched gets half of the time.
                        thread::sleep(begin.elapsed());
                    }
                });
            }
            let _stop = SetOnDrop(stop);
            pod.apply(options);
        });
        for (caller, open) in callers.iter().zip(open) {
            open.into_iter().for_each(|conversation| conversation.end(Ending::ResetByServer));
            caller.are_captured();
        }
    }
}

/// After a clean-up the entries of its time stay, and no packet changes them.
fn connections_that_end_while_nothing_is_tracked(fixture: Fixture) {
    let endings = [Ending::ResetByServer, Ending::Close];
    for (options, ending) in
        [&REDIRECT[..], &TPROXY].into_iter().zip(endings).chain([(&REDIRECT[..], Ending::Close)])
    {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        pod.apply(&["-b", "9999"]);
        let callers = Caller::all(&pod);
        let open: Vec<_> = callers.iter().map(Caller::open_all).collect();
        pod.apply(&["--cleanup-only"]);
        open.into_iter().flatten().for_each(|conversation| conversation.end(ending));
        pod.apply(options);
        callers.iter().for_each(Caller::are_captured);
    }
}

/// Between the commits of a first capture new connections are tracked already, and not captured yet.
fn connections_that_begin_during_first_capture(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        let callers = Caller::all(&pod);
        let _open = pod.outside().connect(callers[0].target).expect("a connection");
        let tools = WaitingTools::before_call(fixture.families().len() + 1);
        let run = pod.istio_iptables(options).env("PATH", &tools.path());
        let open: Vec<_> = thread::scope(|scope| {
            let run = scope.spawn(|| run.run().succeeded());
            tools.wait_until_called();
            let open = callers.iter().map(Caller::open_all).collect();
            tools.go_on();
            run.join().expect("the run was started");
            open
        });
        for (caller, open) in callers.iter().zip(open) {
            open.into_iter().for_each(|conversation| conversation.end(Ending::ResetByServer));
            caller.are_captured();
        }
    }
}

/// The pod's packets on their way out of it, past its rules: they wait for the link address of their next
/// hop.
struct HeldBack<'a>(&'a Pod);

impl<'a> HeldBack<'a> {
    fn packets_of(pod: &'a Pod) -> Self {
        pod.outside().run(|| {
            fs::write("/proc/sys/net/ipv4/conf/eth0/arp_ignore", "8").unwrap();
            let solicitation = "-A INPUT -p icmpv6 --icmpv6-type neighbour-solicitation -j DROP";
            tool("ip6tables-nft", &solicitation.split(' ').collect::<Vec<_>>(), "");
        });
        pod.namespace.run(|| {
            for family in ["ipv4", "ipv6"] {
                fs::write(format!("/proc/sys/net/{family}/neigh/eth0/mcast_solicit"), "3600").unwrap();
            }
            tool("ip", &["neighbour", "flush", "dev", "eth0"], "");
        });
        Self(pod)
    }

    fn release(&self) {
        let Self(pod) = self;
        let link = pod.outside().run(|| tool("ip", &["-brief", "link", "show", "dev", "eth0"], ""));
        let address = link.split_whitespace().nth(2).expect("a link address");
        for family in pod.fixture.families() {
            let next_hop = family.outside().to_string();
            let neighbour = ["neighbour", "replace", &next_hop, "lladdr", address, "dev", "eth0"];
            pod.namespace.run(|| tool("ip", &neighbour, ""));
        }
    }
}

/// Set also if the scope panics.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The first packet that connection tracking sees may be the server's: then its entry is the wrong way round.
fn entries_that_began_with_a_reply(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _proxy = pod.proxy_listens();
        let callers = Caller::all(&pod);
        let listeners: Vec<_> = callers.iter().map(|caller| caller.listener(&pod)).collect();
        let open: Vec<_> = callers.iter().zip(&listeners).map(|(caller, at)| caller.pairs(at)).collect();
        tracked(&pod);
        for (_, server) in open.iter().flatten() {
            (&*server).write_all(b"first\n").expect("the server's first words");
        }
        let entries = pod.namespace.run(|| tool("conntrack", &["-L", "-p", "tcp"], ""));
        assert!(entries.lines().all(|entry| entry.contains(" dport=20")), "the wrong way round: {entries}");
        pod.apply(options);
        for (caller, open) in callers.iter().zip(open) {
            for (mut client, server) in open {
                client.set_nonblocking(false).unwrap();
                client.read_exact(&mut [0; 6]).expect("the connection lives on");
                socket::reset(&client);
                drop((client, server));
            }
            caller.are_captured();
        }
    }
}

/// The kernel takes a closed entry into use again when the SYN that it let through gets a reply, and forgets
/// its flags.
fn a_reply_after_the_change_to_a_syn_before_it(fixture: Fixture) {
    for (before, after) in
        [(&TPROXY[..], &REDIRECT[..]), (&["-b", "9999"], &REDIRECT), (&["-b", "9999"], &TPROXY)]
    {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        pod.apply(before);
        tracked(&pod);
        // Within the usual 10 s a busy machine may not get to the reply.
        pod.namespace
            .run(|| fs::write("/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close", "600").unwrap());
        let callers: Vec<_> =
            Caller::all(&pod).into_iter().filter(|caller| caller.name.starts_with("outbound")).collect();
        callers.iter().for_each(Caller::are_reset);
        let packets = HeldBack::packets_of(&pod);
        let waiting: Vec<Vec<_>> = callers.iter().map(Caller::begin_all).collect();
        pod.istio_iptables(after).run_until_it_logs("handshake", || packets.release()).succeeded();
        for (caller, waiting) in callers.iter().zip(waiting) {
            for begun in waiting {
                Conversation::go_on(begun).expect("a connection").end(Ending::ResetByServer);
            }
            caller.are_captured();
        }
    }
}

/// No entry is deleted: connections go on, whether captured before or not.
fn live_connections_keep_their_entries(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080, 8081]), pod.outside_listens(&[80]));
    let list = ["-b", "8081", "-i", "*"];
    pod.apply(&list);
    let mut open = Vec::new();
    for family in pod.fixture.families() {
        for port in [8080, 8081] {
            open.push(pod.outside().connect(at(family.pod(), port)).expect("a connection"));
        }
        open.push(pod.app().connect(at(family.service(), 80)).expect("a connection"));
    }
    for set in [&REDIRECT[..], &TPROXY, &REDIRECT, &list] {
        pod.apply(set);
        for conversation in &mut open {
            conversation.echo("still there").unwrap_or_else(|e| panic!("{set:?}: {e}"));
        }
    }
}
