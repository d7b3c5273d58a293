//! A rule of a scenario is dropped, swapped or changed: `diff` names a packet with which the walk of
//! `explain` agrees, or says that nothing differs, and then it does not with random packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use istio_iptables::config::{ConnectionState, Output};
use istio_iptables::diff::{self, Side};
use istio_iptables::explain::{Packet, Process, Routing, Rules, Verdict, walk};
use istio_iptables::model::{Family, Mark, Network, Transport};
use istio_iptables::parse;
use serde_json::Value;

use crate::mutation::{self, Mutated, Random};
use crate::scenario;

/// Mutations of each rules file; `MUTATIONS` gives another number.
const MUTATIONS: usize = 3;
/// Random packets where nothing differs.
const PACKETS: usize = 400;

/// One rule set, for both interpreters.
struct Saved {
    rules: Rules,
    side: Side,
    routed_mark: Option<Mark>,
}

fn saved(family: Family, name: &str, text: &str) -> Saved {
    let texts = diff::by_family(text, family).expect("a rules file");
    let text = texts.get(&family).expect("rules of the family");
    let observed = parse::iptables_save(family, text);
    let mark = text.split_once("--tproxy-mark 0x").map(|(_, rest)| {
        let digits: String = rest.chars().take_while(char::is_ascii_hexdigit).collect();
        Mark(u32::from_str_radix(&digits, 16).expect("a mark"))
    });
    let mark = mark.or_else(|| {
        let (_, rest) = text.split_once("--tproxy-mark ")?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok().map(Mark)
    });
    let side = Side::new(name.to_owned()).saved(&observed);
    Saved { rules: Rules::live(&observed), side, routed_mark: mark }
}

/// The verdict as `diff --output json` names it.
fn walked(saved: &Saved, packet: &Packet) -> (String, Option<u64>) {
    match walk(&saved.rules, packet, Routing { mark: saved.routed_mark, ..Routing::default() }).verdict {
        Verdict::Captured(port) => ("captured".to_owned(), Some(port.number().into())),
        Verdict::Dropped => ("dropped".to_owned(), None),
        Verdict::LikeItsConnection => ("like-its-connection".to_owned(), None),
        Verdict::Misrouted => ("misrouted".to_owned(), None),
        Verdict::NoRoute => ("no-route".to_owned(), None),
        Verdict::NotCaptured => ("not-captured".to_owned(), None),
        Verdict::TakenByForeignRule => ("taken-by-foreign-rule".to_owned(), None),
        Verdict::ToProxySocket => ("captured-by-mark".to_owned(), None),
    }
}

/// The packet of a difference; `None` if the walk cannot be asked about it.
fn packet(json: &Value) -> Option<Packet> {
    let word = |key: &str| json[key].as_str().expect("a word").to_owned();
    let number = |key: &str| json[key].as_u64().expect("a number");
    let mark = |key: &str| Mark(u32::try_from(number(key)).expect("a mark"));
    let transport = match number("protocol") {
        6 => Transport::Tcp,
        17 => Transport::Udp,
        _ => return None,
    };
    let state = match word("state").as_str() {
        "new" => ConnectionState::New,
        "established" => ConnectionState::Established,
        _ => ConnectionState::Invalid,
    };
    let opens = transport == Transport::Tcp && state == ConnectionState::New;
    if json["opens"].as_bool() != Some(opens) {
        return None;
    }
    let socket = |address: &str, port: &str| {
        SocketAddr::new(
            word(address).parse().expect("an address"),
            u16::try_from(number(port)).expect("a port"),
        )
    };
    let id = |key: &str| json[key].as_u64().map(|id| u32::try_from(id).expect("an id"));
    let path = word("path");
    Some(Packet {
        sender: "a test".to_owned(),
        process: id("uid").zip(id("gid")).map(|(uid, gid)| Process { uid, gid }),
        is_inbound: path == "from-outside" || path == "forwarded",
        transport,
        source: socket("source", "source_port"),
        destination: socket("destination", "destination_port"),
        has_source: true,
        has_port: true,
        has_interface: true,
        is_local: path != "to-outside",
        interface: word("interface"),
        mark: mark("mark"),
        connmark: mark("connmark"),
        state,
        tcp_flags: None,
        translated_from: None,
    })
}

/// Values that rules compare with, and others.
struct Values {
    ports: Vec<u16>,
    ids: Vec<u32>,
    marks: Vec<u32>,
    addresses: Vec<IpAddr>,
}

impl Values {
    fn of(family: Family, text: &str) -> Self {
        let words: Vec<&str> = text.split([' ', '\n', ',']).collect();
        let numbers: Vec<u32> = words.iter().filter_map(|word| word.parse().ok()).collect();
        let near = |number: u32| [number.saturating_sub(1), number, number.saturating_add(1)];
        let ports = numbers
            .iter()
            .copied()
            .flat_map(near)
            .chain([8080, 53])
            .filter_map(|port| u16::try_from(port).ok())
            .filter(|port| *port > 0)
            .collect();
        let ids = numbers.iter().copied().chain([0, 1000, 1337]).collect();
        let marks = [0, 0, 1337, 1338, 7].into_iter().chain(numbers.iter().copied()).collect();
        Self { ports, ids, marks, addresses: addresses(family, &words) }
    }

    fn packet(&self, random: &mut Random) -> Packet {
        let is_inbound = random.below(3) == 0;
        let is_local = is_inbound || random.below(2) == 0;
        let owner = random.below(5) != 0 && !is_inbound;
        let interfaces = ["eth0", "eth1", "eth7", "k6t-eth0", "net1"];
        let mut address = |is_remote: bool| loop {
            let address = random.of(&self.addresses);
            if !address.is_unspecified() && (!is_remote || !address.is_loopback()) {
                break address;
            }
        };
        let (source, destination) = (address(is_inbound), address(!is_inbound && !is_local));
        let state = random.of(&[
            ConnectionState::New,
            ConnectionState::New,
            ConnectionState::Established,
            ConnectionState::Invalid,
        ]);
        Packet {
            sender: "a test".to_owned(),
            process: owner.then(|| Process { uid: random.of(&self.ids), gid: random.of(&self.ids) }),
            is_inbound,
            transport: random.of(&[Transport::Tcp, Transport::Tcp, Transport::Udp]),
            source: SocketAddr::new(source, random.of(&self.ports)),
            destination: SocketAddr::new(destination, random.of(&self.ports)),
            has_source: true,
            has_port: true,
            has_interface: true,
            is_local,
            interface: if is_local && !is_inbound {
                "lo".to_owned()
            } else {
                random.of(&interfaces).to_owned()
            },
            mark: Mark(random.of(&self.marks)),
            connmark: Mark(if state == ConnectionState::Invalid { 0 } else { random.of(&self.marks) }),
            state,
            tcp_flags: None,
            translated_from: None,
        }
    }
}

/// The ends of the ranges in a text, and what is beyond.
fn addresses(family: Family, words: &[&str]) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = match family {
        Family::V4 => ["8.8.8.8", "127.0.0.1", "127.0.0.6", "10.244.1.7"]
            .map(|address| address.parse().unwrap())
            .to_vec(),
        Family::V6 => {
            ["2001:db8::1", "::1", "::6", "fd00::7"].map(|address| address.parse().unwrap()).to_vec()
        }
    };
    for range in words
        .iter()
        .filter_map(|word| word.parse::<ipnetwork::IpNetwork>().ok())
        .filter(|range| family.holds(range))
    {
        let beyond = |address: IpAddr, up: bool| -> IpAddr {
            match address {
                IpAddr::V4(v4) => Ipv4Addr::from(if up {
                    u32::from(v4).wrapping_add(1)
                } else {
                    u32::from(v4).wrapping_sub(1)
                })
                .into(),
                IpAddr::V6(v6) => Ipv6Addr::from(if up {
                    u128::from(v6).wrapping_add(1)
                } else {
                    u128::from(v6).wrapping_sub(1)
                })
                .into(),
            }
        };
        let (first, last) = (range.network(), range.broadcast());
        addresses.extend([first, last, beyond(first, false), beyond(last, true)]);
    }
    addresses
}

/// Policy routing sends a packet of the pod with the mark of TPROXY to `lo` before any rule sees it; no
/// machine has the unspecified address.
fn can_be_sent(packet: &Packet, sides: [&Saved; 2]) -> bool {
    let is_routed = sides.iter().all(|side| side.routed_mark == Some(packet.mark));
    let goes_out = !packet.is_inbound && packet.interface != "lo";
    !(packet.destination.ip().is_unspecified() || is_routed && goes_out)
}

/// The verdict without the state of the connection, by which the same way has two names.
fn way((verdict, port): (String, Option<u64>)) -> (&'static str, Option<u64>) {
    let way = match verdict.as_str() {
        "captured" | "taken-by-foreign-rule" => "to a port",
        "like-its-connection" | "not-captured" => "on",
        "misrouted" | "captured-by-mark" => "by mark",
        "dropped" => "dropped",
        other => panic!("{other} is no verdict"),
    };
    (way, port.filter(|_| verdict == "captured"))
}

/// What was found: the number of differences, and whether nothing differs.
fn checked(
    family: Family,
    original: &Saved,
    values: &Values,
    mutated: &Mutated,
    random: &mut Random,
) -> usize {
    let other = saved(family, "mutated", &mutated.text);
    let network = Network { addresses: Vec::new(), ipv6: true };
    let sides = [original.side.clone(), other.side.clone()];
    let (report, _) = diff::report(&sides, &network, Output::Json);
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_ne!(report["result"], "not-proved", "{}: {report}", mutated.what);
    let (back, _) = diff::report(&[other.side.clone(), original.side.clone()], &network, Output::Json);
    let back: Value = serde_json::from_str(&back).expect("JSON");
    assert_eq!(report["result"], back["result"], "the order of the sides: {}", mutated.what);
    let differences = report["differences"].as_array().expect("a list");
    for difference in differences {
        let Some(packet) = packet(&difference["packet"]) else { continue };
        assert!(can_be_sent(&packet, [original, &other]), "{}: {difference:#}", mutated.what);
        for (side, name) in [(original, "a"), (&other, "b")] {
            let claimed = &difference[name];
            let (verdict, port) = walked(side, &packet);
            let expected = (claimed["verdict"].as_str().unwrap().to_owned(), claimed["port"].as_u64());
            // A redirection that has no known reason is another program's.
            let is_same = (verdict.clone(), port) == expected
                || (verdict == "taken-by-foreign-rule" && expected.0 == "captured");
            assert!(is_same, "{}: walk says {verdict} {port:?}: {difference:#}", mutated.what);
        }
    }
    for _ in 0..PACKETS {
        let mut packet = values.packet(random);
        if !can_be_sent(&packet, [original, &other]) {
            "lo".clone_into(&mut packet.interface);
        }
        let verdicts = [walked(original, &packet), walked(&other, &packet)].map(way);
        let kinds = differences.iter().map(|difference| {
            ["a", "b"].map(|side| {
                let verdict = difference[side]["verdict"].as_str().expect("a verdict").to_owned();
                way((verdict, difference[side]["port"].as_u64()))
            })
        });
        let is_known = verdicts[0] == verdicts[1] || kinds.into_iter().any(|kind| kind == verdicts);
        assert!(is_known, "{}: {verdicts:?} for {packet:?}: {report:#}", mutated.what);
    }
    differences.len()
}

#[test]
fn difference_by_any_mutation_is_named_and_nothing_else_differs() {
    let most = std::env::var("MUTATIONS").ok().filter(|text| !text.is_empty());
    let most: usize = most.map_or(MUTATIONS, |text| text.parse().expect("MUTATIONS is a number"));
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut different, mut equal) = (0, 0);
    for scenario in scenario::all() {
        let made = scenario.make();
        for family in Family::ALL {
            let Some(text) = made.rules_file(family) else { continue };
            let (original, values) = (saved(family, "original", &text), Values::of(family, &text));
            let mutations = mutation::all(&text);
            let chosen: Vec<&Mutated> = match mutations.len() {
                count if count <= most => mutations.iter().collect(),
                count => (0..most).map(|_| &mutations[random.below(count)]).collect(),
            };
            for mutated in chosen {
                match checked(family, &original, &values, mutated, &mut random) {
                    0 => equal += 1,
                    _ => different += 1,
                }
            }
        }
    }
    eprintln!("{different} mutations differ, {equal} change nothing");
    assert!(different > 20 && equal > 0, "{different} differ, {equal} do not");
}
