use std::io;
use std::net::{SocketAddr, TcpStream};

use super::*;
use crate::kernel::rtnetlink::Rtnetlink;
use crate::model::PASSTHROUGH_V6;
use netlab::in_new_namespace;
use netlab::process::run_with_input;

const OUTBOUND: Port = Port::constant(15001);
const INBOUND: Port = Port::constant(15006);
const TARGET: Port = Port::constant(15002);

/// Rules that capture only the proxy's own connections to 127.0.0.6.
const CAPTURE: &str = "*nat\n:ISTIO_OUTPUT - [0:0]\n-A OUTPUT -j ISTIO_OUTPUT\n\
    -A ISTIO_OUTPUT -o lo -p tcp ! --dport 15008 -m owner --uid-owner 1337 -j REDIRECT --to-ports 15006\n\
    -A ISTIO_OUTPUT -o lo -m owner ! --uid-owner 1337 -j RETURN\nCOMMIT\n";
const DROP: &str = "*filter\n-A OUTPUT -p tcp --dport 15002 -j DROP\nCOMMIT\n";

fn wanted(families: Families, milliseconds: u64) -> Probe {
    Probe {
        families,
        capture_ports: [OUTBOUND, INBOUND],
        port: TARGET,
        uid: 1337,
        gid: 1337,
        timeout: Duration::from_millis(milliseconds),
    }
}

fn load(family: Family, rules: &str) {
    let tool = match family {
        Family::V4 => "iptables-restore",
        Family::V6 => "ip6tables-restore",
    };
    run_with_input(tool, &["--noflush"], rules);
}

/// Puts `::6` on `lo` and waits until it is of use: the kernel makes its local route a little later.
fn add_passthrough_address() {
    Rtnetlink::open().unwrap().add_passthrough_address().unwrap();
    let unused = SocketAddr::from((PASSTHROUGH_V6, 9));
    let refused = || {
        let error = TcpStream::connect_timeout(&unused, Duration::from_millis(100)).unwrap_err();
        error.kind() == io::ErrorKind::ConnectionRefused
    };
    let begin = Instant::now();
    while !refused() {
        assert!(begin.elapsed() < Duration::from_secs(60), "::6 is not of use within a minute");
    }
}

/// What a probe meets, for as short a time as shows `expected`, and at most for this long: a busy machine
/// needs more. A program that another test starts meanwhile holds the sockets of the attempt before until its
/// exec: the port is in use.
fn eventually(
    families: Families,
    expected: impl Fn(&[UncapturedProbe]) -> bool,
    attempt: impl Fn(&Probe) -> Outcome,
) {
    let mut seen = Vec::new();
    for milliseconds in [300, 1500, 5000, 20_000] {
        let outcome = attempt(&wanted(families, milliseconds));
        if matches!(outcome, Outcome::CannotListen { .. }) && !seen.is_empty() {
            continue;
        }
        seen = not_captured(outcome);
        if expected(&seen) {
            return;
        }
    }
    panic!("{}", Outcome::NotCaptured(seen));
}

fn not_captured(outcome: Outcome) -> Vec<UncapturedProbe> {
    let Outcome::NotCaptured(not_captured) = outcome else {
        panic!("expected a probe that is not captured, got: {outcome}")
    };
    not_captured
}

fn only(family: Family) -> Families {
    match family {
        Family::V4 => Families::V4,
        Family::V6 => Families::V6,
    }
}

#[test]
fn a_captured_probe_arrives_at_once() {
    in_new_namespace(|| {
        add_passthrough_address();
        for family in Family::ALL {
            load(family, CAPTURE);
        }
        let begin = Instant::now();
        let outcome = probe(&wanted(Families::Both, 120_000));
        let Outcome::Captured(arrivals) = outcome else { panic!("{outcome}") };
        let expected = Family::ALL.map(|family| Arrival { family, at: INBOUND });
        assert_eq!(arrivals, expected);
        assert!(begin.elapsed() < Duration::from_secs(60), "it waited for the time-out");
    });
}

#[test]
fn without_rules_the_probe_is_refused_until_time_is_up() {
    for family in Family::ALL {
        in_new_namespace(|| {
            add_passthrough_address();
            let refused_again = |not_captured: &[UncapturedProbe]| {
                not_captured.len() == 1
                    && (not_captured[0].family, &not_captured[0].last)
                        == (family, &Event::Failed(Errno::ECONNREFUSED))
                    && not_captured[0].attempts >= 2
            };
            eventually(only(family), refused_again, |wanted| {
                let begin = Instant::now();
                let outcome = probe(wanted);
                let is_sent = !matches!(outcome, Outcome::CannotListen { .. });
                assert!(!is_sent || begin.elapsed() >= wanted.timeout);
                outcome
            });
        });
    }
}

/// The last of them would be in flight still, and what became of it not known.
#[test]
fn no_probe_is_sent_when_time_is_up() {
    in_new_namespace(|| {
        add_passthrough_address();
        let timeout = u64::try_from(INTERVAL.as_millis()).unwrap();
        let attempts = not_captured(probe(&wanted(Families::V4, timeout)))[0].attempts;
        assert_eq!(attempts, 1);
    });
}

#[test]
fn a_family_that_is_not_captured_is_named() {
    in_new_namespace(|| {
        add_passthrough_address();
        load(Family::V4, CAPTURE);
        let named = |not_captured: &[UncapturedProbe]| {
            let text = Outcome::NotCaptured(not_captured.to_vec()).to_string();
            not_captured.iter().map(|not_captured| not_captured.family).eq([Family::V6])
                && text.contains(" from loopback to [::6]:15002")
                && text.contains("refused")
        };
        eventually(Families::Both, named, probe);
    });
}

#[test]
fn late_rules_are_detected() {
    in_new_namespace(|| {
        std::thread::scope(|scope| {
            let probing = scope.spawn(|| probe(&wanted(Families::V4, 120_000)));
            std::thread::sleep(Duration::from_millis(200));
            load(Family::V4, CAPTURE);
            let outcome = probing.join().unwrap();
            assert!(matches!(outcome, Outcome::Captured(_)), "{outcome}");
        });
    });
}

#[test]
fn only_the_proxy_s_connections_count() {
    in_new_namespace(|| {
        load(Family::V4, CAPTURE);
        let refused =
            |not_captured: &[UncapturedProbe]| not_captured[0].last == Event::Failed(Errno::ECONNREFUSED);
        eventually(Families::V4, refused, |wanted| probe(&Probe { uid: 0, gid: 0, ..*wanted }));
    });
}

#[test]
fn dropped_packets_time_out() {
    in_new_namespace(|| {
        load(Family::V4, DROP);
        assert_eq!(not_captured(probe(&wanted(Families::V4, 300)))[0].last, Event::Silence);
    });
}

#[test]
fn other_listener_that_accepts_is_reported() {
    in_new_namespace(|| {
        let _other = TcpListener::bind("0.0.0.0:15002").unwrap();
        let accepted = |not_captured: &[UncapturedProbe]| not_captured[0].last == Event::AcceptedElsewhere;
        eventually(Families::V4, accepted, probe);
    });
}

#[test]
fn a_connection_that_was_not_redirected_proves_nothing() {
    in_new_namespace(|| {
        std::thread::scope(|scope| {
            let arrived =
                |not_captured: &[UncapturedProbe]| not_captured[0].last == Event::ArrivedOtherwise(OUTBOUND);
            let probing = scope.spawn(move || eventually(Families::V4, arrived, probe));
            while !probing.is_finished() {
                // Refused before the probe listens and after it has ended.
                drop(TcpStream::connect("127.0.0.1:15001"));
                std::thread::sleep(Duration::from_millis(10));
            }
            probing.join().unwrap();
        });
    });
}

#[test]
fn a_busy_port_is_named() {
    for (family, address) in [(Family::V4, "127.0.0.1:15006"), (Family::V6, "[::1]:15006")] {
        in_new_namespace(|| {
            let _other = TcpListener::bind(address).unwrap();
            let outcome = probe(&wanted(Families::Both, 300));
            let Outcome::CannotListen { family: named, port, error } = outcome else { panic!("{outcome}") };
            assert_eq!((named, port, error.kind()), (family, INBOUND, io::ErrorKind::AddrInUse));
        });
    }
}

#[test]
fn one_port_for_both_directions_is_listened_on_once() {
    in_new_namespace(|| {
        load(Family::V4, CAPTURE);
        let outcome = probe(&Probe { capture_ports: [INBOUND, INBOUND], ..wanted(Families::V4, 120_000) });
        assert!(matches!(outcome, Outcome::Captured(_)), "{outcome}");
    });
}

#[test]
fn unavailable_uid_makes_the_probe_unable() {
    in_new_namespace(|| {
        // The kernel reserves this number for "no uid": no process can change to it.
        let no_uid = Probe { uid: u32::MAX, ..wanted(Families::V4, 300) };
        assert!(matches!(probe(&no_uid), Outcome::Unable { uid: u32::MAX }));
    });
}

#[test]
fn the_thread_keeps_its_own_ids() {
    in_new_namespace(|| {
        load(Family::V4, CAPTURE);
        let before = ids();
        assert!(matches!(probe(&wanted(Families::V4, 120_000)), Outcome::Captured(_)));
        assert_eq!(ids(), before);
    });
}

/// The lines of `/proc` with the ids and capabilities of this thread.
fn ids() -> Vec<String> {
    let status = crate::kernel::procfs::read("/proc/thread-self/status").unwrap();
    let wanted = |line: &&str| ["Uid:", "Gid:", "CapEff:"].iter().any(|name| line.starts_with(name));
    status.lines().filter(wanted).map(str::to_owned).collect()
}

#[test]
fn missing_passthrough_address_is_reported() {
    in_new_namespace(|| {
        load(Family::V6, CAPTURE);
        let named = |not_captured: &[UncapturedProbe]| {
            Outcome::NotCaptured(not_captured.to_vec()).to_string().contains("is ::6/128 on lo?")
        };
        eventually(Families::V6, named, probe);
    });
}
