//! A rule of a TPROXY scenario is dropped, swapped or changed: the kernel does with the packet that `diff`
//! names what it says, with the rules as they were and with the changed ones.
//!
//! With changed rules the later packets of a connection may go another way than the first one, and what
//! differs may be a mark only. So chains of the test's own, behind all others, note where this one packet
//! goes and which marks it has.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::time::UNIX_EPOCH;

use netlab::process::run_with_input;
use netlab::socket::{self, Binding};
use netlab::user::Conversation;
use netlab::{Listen, Namespace, User};
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use serde_json::Value;

use super::mutated::{Form, connected};
use super::mutation::{Mutated, Random};
use super::observer::{self, Delivery, Observation};

/// Mutations of each form of which packets are sent; `MUTATIONS` gives another number.
const MUTATIONS: usize = 12;
const TPROXY: &[&str] = &["tproxy", "tproxy-ports", "tproxy-outbound-only", "excluded-interfaces-tproxy"];
const NFT: Form = Form { scenarios: TPROXY, ..Form::NFT };
const LEGACY: Form = Form { scenarios: TPROXY, ..Form::LEGACY };
const NATIVE: Form = Form { scenarios: TPROXY, ..Form::NATIVE };
const V6: Form = Form { scenarios: &["ipv6-only-tproxy"], ..Form::V6 };

/// A packet that a test can send, and what both rule sets do with it.
#[derive(Clone, Debug)]
struct Packet {
    path: String,
    interface: String,
    is_established: bool,
    source: SocketAddr,
    destination: SocketAddr,
    owner: (u32, u32),
    mark: u32,
    connmark: u32,
    words: String,
    claims: [Claim; 2],
}

#[derive(Clone, Debug)]
struct Claim {
    verdict: String,
    port: Option<u16>,
    /// The verdict in words, with marks where these are the difference.
    words: String,
}

impl Packet {
    /// `None` if the test cannot send it, or cannot see what is claimed of it.
    fn of(form: &Form, routed: [Option<u32>; 2], difference: &Value) -> Option<Self> {
        let packet = &difference["packet"];
        let number = |key: &str| u32::try_from(packet[key].as_u64()?).ok();
        let word = |key: &str| packet[key].as_str().unwrap_or_default().to_owned();
        let socket = |address: &str, port: &str| -> Option<SocketAddr> {
            Some(SocketAddr::new(word(address).parse().ok()?, u16::try_from(number(port)?).ok()?))
        };
        let claim = |side: &str| Claim {
            verdict: difference[side]["verdict"].as_str().unwrap_or_default().to_owned(),
            port: difference[side]["port"].as_u64().and_then(|port| u16::try_from(port).ok()),
            words: difference[side]["words"].as_str().unwrap_or_default().to_owned(),
        };
        let path = word("path");
        let found = Self {
            interface: word("interface"),
            is_established: word("state") == "established",
            source: socket("source", "source_port")?,
            destination: socket("destination", "destination_port")?,
            owner: if path == "from-outside" { (0, 0) } else { (number("uid")?, number("gid")?) },
            mark: number("mark")?,
            connmark: number("connmark")?,
            words: difference["words"].as_str().unwrap_or_default().to_owned(),
            claims: [claim("a"), claim("b")],
            path,
        };
        let is_of_connection = number("protocol") == Some(6)
            && ["new", "established"].contains(&word("state").as_str())
            && packet["opens"].as_bool() == Some(!found.is_established);
        let own = [form.pod(), form.loopback()];
        let (from, to) = (found.source.ip(), found.destination.ip());
        let is_addressed = match found.path.as_str() {
            // An IPv6 source of `lo` is one of the pod's own.
            "from-outside" => to == form.pod() && from.to_string() != "::6",
            "within-pod" => own.contains(&to) && (own.contains(&from) || from.is_loopback()),
            // Its mark routes it to `lo` from the start.
            "to-outside" => {
                let is_on_lo = found.interface == "lo";
                from == form.pod() && routed.iter().all(|mark| (Some(found.mark) == *mark) == is_on_lo)
            }
            _ => false,
        };
        // What happens to a packet in TPROXY depends on the socket that its connection has already.
        let is_visible = |claim: &Claim| {
            !(claim.words.contains("tracked") || claim.verdict == "captured" && found.is_established)
        };
        let is_sendable = is_of_connection && is_addressed && found.claims.iter().all(is_visible);
        is_sendable.then_some(found)
    }

    /// The test's own chains: they give a packet the marks that it has before our rules, and note where it
    /// goes.
    fn observer(&self) -> String {
        let packet = if self.is_established {
            "tcp flags & psh == psh ct direction original"
        } else {
            "tcp flags & (syn | ack) == syn"
        };
        let first = if self.path == "from-outside" { "prerouting" } else { "output" };
        // Of a packet of the pod it is the socket's.
        let mark = if self.mark != 0 && first == "prerouting" {
            format!(
                "chain marked {{ type filter hook {first} priority -350; tcp dport {} meta mark set {}; }}\n",
                self.destination.port(),
                self.mark
            )
        } else {
            String::new()
        };
        let connmark = match self.connmark {
            0 => String::new(),
            mark => format!(
                "chain connection {{ type filter hook {first} priority -199; {packet} ct mark set {mark}; }}\n"
            ),
        };
        observer::table(packet, &(mark + &connmark))
    }

    fn is_as_claimed(&self, claim: &Claim, seen: &BTreeSet<Observation>, routed: Option<u32>) -> bool {
        let (Some(one), true) = (seen.first(), seen.len() < 2) else {
            return seen.is_empty() && claim.verdict == "dropped";
        };
        let is_to_outside = self.path == "to-outside";
        let to = self.destination.port();
        let is_there = match claim.verdict.as_str() {
            "captured" => {
                Some(one.port) == claim.port || (one.delivery, one.port) == (Delivery::TransparentSocket, to)
            }
            "captured-by-mark" => one.delivery != Delivery::Outside && Some(one.mark) == routed,
            "misrouted" => is_to_outside && one.delivery != Delivery::Outside && one.port == to,
            "not-captured" | "like-its-connection" => {
                let delivery = if is_to_outside { Delivery::Outside } else { Delivery::Pod };
                // The socket of a connection may be a transparent one.
                one.port == to
                    && (one.delivery == delivery
                        || (self.is_established && one.delivery != Delivery::Outside && !is_to_outside))
            }
            _ => false,
        };
        is_there
            && self.is_marked(claim, ", its mark ", self.mark, one.mark)
            && self.is_marked(claim, ", its connection mark ", self.connmark, one.connmark)
    }

    /// Whether a mark is what the words say of it, if they do.
    fn is_marked(&self, claim: &Claim, which: &str, before: u32, seen: u32) -> bool {
        let Some((_, rest)) = claim.words.split_once(which) else { return true };
        let value = rest.split(',').next().unwrap_or_default();
        let expected = match value.strip_prefix("set to ") {
            None if value == "unchanged" => before,
            Some("the mark") => self.mark,
            Some("the connection mark") => self.connmark,
            Some(number) => u32::from_str_radix(number.trim_start_matches("0x"), 16).expect("a mark"),
            None => panic!("{}", claim.words),
        };
        seen == expected
    }

    /// Sends it in a pod with these rules and routes.
    fn sent(&self, form: &Form, routes: &str, rules: &str, claim: &Claim) -> BTreeSet<Observation> {
        let interface = if self.interface == "lo" { "eth0" } else { self.interface.as_str() };
        let (pod, neighbour) = connected(form, interface, routes);
        pod.run(|| run_with_input("nft", &["-f", "-"], &self.observer()));
        let is_inbound = self.path == "from-outside";
        // TPROXY drops what no socket is there for.
        let captured = claim.port.unwrap_or(15006);
        let _proxy = User::new(&pod, 1337, 1337).serve("proxy", &[Listen::TcpTransparent(captured)]);
        for namespace in [&pod, &neighbour] {
            namespace
                .run(|| fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"))
                .expect("any port for any user");
        }
        // What its mark routes to `lo` is for an address that is not the pod's.
        let port = self.destination.port();
        let listens = [(&pod, Listen::TcpTransparent(port)), (&neighbour, Listen::Tcp(port))];
        let _servers = listens.map(|(namespace, listen)| {
            self.is_established.then(|| User::new(namespace, 1000, 1000).serve("app", &[listen]))
        });
        let load = || pod.run(|| run_with_input(form.load[0], &form.load[1..], rules));
        let mut source = self.source;
        if source.port() == 50000 {
            source.set_port(0);
        }
        let binding =
            Binding { source: Some(source), spoofed_mark: Some(if is_inbound { 0 } else { self.mark }) };
        let from = if is_inbound { &neighbour } else { &pod };
        let (to, owner) = (self.destination, self.owner);
        if !self.is_established {
            load();
        }
        let begun = client(from, owner, to, binding);
        if !self.is_established {
            return observer::observations(&pod, claim.verdict == "dropped");
        }
        let opened = Conversation::go_on(begun).and_then(|mut opened| {
            load();
            opened.say("hello").map(|()| opened)
        });
        let _opened = opened.unwrap_or_else(|error| panic!("{}: {error}", self.words));
        observer::observations(&pod, claim.verdict == "dropped")
    }
}

/// A socket of a user that has sent its first packet. The rules see the user of the file system, without whom
/// the thread stays root, which alone may set marks.
fn client(namespace: &Namespace, (uid, gid): (u32, u32), to: SocketAddr, binding: Binding) -> TcpStream {
    namespace.run(|| {
        setfsgid(Gid::from_raw(gid));
        setfsuid(Uid::from_raw(uid));
        socket::start_connect(to, binding).unwrap_or_else(|error| panic!("{to}: {error}"))
    })
}

/// The routes of a scenario, with rules of which some may be missing: without TPROXY there are none for its
/// mark.
fn routes_with(rules: &str, routes: &str) -> String {
    let has_tproxy = rules.contains("-j TPROXY") || rules.contains(" tproxy ");
    let lines = routes.lines().filter(|line| has_tproxy || line.contains(" addr "));
    lines.collect::<Vec<_>>().join("\n")
}

/// The mark that they send to `lo`.
fn routed_mark(routes: &str) -> Option<u32> {
    let (_, rest) = routes.split_once(" fwmark ")?;
    rest.split(' ').next()?.parse().ok()
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name}={text}: a number is needed: {error}")))
}

fn kernel_confirms(form: &Form) {
    let seed = number("MUTATIONS_SEED")
        .unwrap_or_else(|| u64::from(UNIX_EPOCH.elapsed().expect("a clock").subsec_nanos()) + 1);
    let most = number("MUTATIONS").map_or(MUTATIONS, |most| usize::try_from(most).expect("a number"));
    eprintln!("MUTATIONS_SEED={seed}");
    let mut random = Random(seed);
    let files: Vec<(String, String)> = form.files();
    let mut mutations: Vec<(usize, Mutated)> = Vec::new();
    for (at, (text, _)) in files.iter().enumerate() {
        mutations.extend(form.mutations(text).into_iter().map(|mutated| (at, mutated)));
    }
    let (mut sent, mut unsent) = (0, 0);
    while sent < most && !mutations.is_empty() {
        let (at, mutated) = mutations.swap_remove(random.below(mutations.len()));
        let (text, routes) = &files[at];
        let sides = [text, &mutated.text].map(|rules| (rules, routes_with(rules, routes)));
        let routed = [0, 1].map(|side: usize| routed_mark(&sides[side].1));
        let differences = form.differences(text, &mutated.text);
        let packets: Vec<Packet> =
            differences.iter().filter_map(|difference| Packet::of(form, routed, difference)).collect();
        if packets.is_empty() {
            unsent += usize::from(!differences.is_empty());
            continue;
        }
        let packet = random.of(&packets);
        for ((rules, routes), claim) in sides.iter().zip(&packet.claims) {
            let seen = packet.sent(form, routes, rules, claim);
            assert!(
                packet.is_as_claimed(claim, &seen, routed_mark(routes)),
                "MUTATIONS_SEED={seed}: {}: {}: {} {:?}: {}, but seen: {seen:?} with\n{rules}",
                mutated.what,
                packet.words,
                claim.verdict,
                claim.port,
                claim.words,
            );
        }
        sent += 1;
    }
    eprintln!("{sent} packets sent with both rule sets; of {unsent} mutations none can be sent");
    assert!(sent >= most.min(MUTATIONS), "{sent} packets");
}

#[test]
fn kernel_confirms_the_packets_of_tproxy_rules() {
    kernel_confirms(&NFT);
}

#[test]
fn kernel_confirms_the_packets_of_legacy_tproxy_rules() {
    kernel_confirms(&LEGACY);
}

#[test]
fn kernel_confirms_the_packets_of_ipv6_tproxy_rules() {
    kernel_confirms(&V6);
}

#[test]
fn kernel_confirms_the_packets_of_native_tproxy_rules() {
    kernel_confirms(&NATIVE);
}
