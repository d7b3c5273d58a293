use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::kernel::netlink::Reply;
use netlab::in_new_namespace;
use netlab::process::run;

fn loopback(family: Family) -> IpAddr {
    match family {
        Family::V4 => [127, 0, 0, 1].into(),
        Family::V6 => "::1".parse().unwrap(),
    }
}

fn iptables(family: Family, words: &str) {
    let tool = match family {
        Family::V4 => "iptables-nft",
        Family::V6 => "ip6tables-nft",
    };
    run(tool, &words.split(' ').collect::<Vec<_>>());
}

/// All entries of one family and protocol.
fn every(table: &mut Conntrack, family: Family, transport: Transport) -> Vec<Entry> {
    let mut seen = table.dump(Filter::All).unwrap();
    seen.retain(|entry| (entry.family, entry.transport) == (family, transport));
    seen
}

/// An untracked connection, as the table of a namespace without rules lacks it.
fn untracked(family: Family, number: u32) -> NewEntry {
    let [a, b, c, d] = number.to_be_bytes();
    let (source, destination): (IpAddr, IpAddr) = match family {
        Family::V4 => ([10, b, c, d].into(), [192, 0, 2, 1 + a].into()),
        Family::V6 => {
            let host = u16::from_be_bytes([c, d]);
            ([0x2001, 0xdb8, 0, 0, 0, 0, b.into(), host].into(), "2001:db8:2::1".parse().unwrap())
        }
    };
    let port = 1024 + u16::try_from(number % 60_000).unwrap();
    NewEntry {
        original: Tuple {
            source: SocketAddr::new(source, port),
            destination: SocketAddr::new(destination, 80),
        },
        state: TcpState::Established,
        timeout: Duration::from_secs(600),
    }
}

/// A socket whose datagrams to `to` are tracked; one was sent.
fn datagram(from: SocketAddr, to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(from).unwrap();
    socket.send_to(b"?", to).unwrap();
    socket
}

#[test]
fn created_entries_are_established_and_liberal_and_are_created_once() {
    for family in Family::ALL {
        in_new_namespace(|| {
            let mut table = Conntrack::open().unwrap();
            let new: Vec<_> = (0..250).map(|number| untracked(family, number)).collect();
            let outcome = table.create(&new).unwrap();
            assert_eq!((outcome.done, outcome.expected), (250, 0), "{outcome:?}");
            let again = table.create(&new).unwrap();
            assert_eq!((again.done, again.expected), (0, 250), "{again:?}");
            assert!(again.error.is_none());

            let seen = every(&mut table, family, Transport::Tcp);
            assert_eq!((seen.len(), table.count().unwrap()), (250, 250));
            assert_eq!(count_in_proc(), Some(250));
            for entry in &seen {
                assert!(new.iter().any(|new| new.original == entry.original), "{entry:?}");
                assert_eq!(entry.reply, entry.original.reversed());
                assert_eq!(entry.tcp_state, Some(TcpState::Established));
                assert_eq!((entry.status, entry.zone, entry.mark), (Status::ESTABLISHED, Zone::Both(0), 0));
            }
        });
    }
}

#[test]
fn entries_are_found_by_protocol_port_and_family_in_all_zones() {
    for family in Family::ALL {
        in_new_namespace(|| {
            iptables(family, "-t raw -A OUTPUT -p udp --sport 2002 -j CT --zone 2");
            iptables(family, "-t raw -A OUTPUT -p udp --sport 2003 -j CT --zone-orig 3");
            iptables(family, "-t raw -A OUTPUT -p udp --sport 2004 -j CT --zone-reply 4");
            iptables(family, "-t nat -A OUTPUT -p udp --dport 53 -j REDIRECT --to-ports 5353");
            let at = |port| SocketAddr::new(loopback(family), port);
            let _sockets = [2000, 2002, 2003, 2004].map(|port| datagram(at(port), at(53)));
            let _other = datagram(at(3000), at(54));

            let mut table = Conntrack::open().unwrap();
            let mut seen = every(&mut table, family, Transport::Udp);
            seen.retain(|entry| entry.original.destination.port() == 53);
            seen.sort_by_key(|entry| entry.original.source.port());
            let ports: Vec<_> = seen.iter().map(|entry| (entry.original.source.port(), entry.zone)).collect();
            let expected = [
                (2000, Zone::Both(0)),
                (2002, Zone::Both(2)),
                (2003, Zone::Original(3)),
                (2004, Zone::Reply(4)),
            ];
            assert_eq!(ports, expected);
            for entry in &seen {
                assert!(entry.status.destination_translated() && !entry.status.source_translated());
                assert_eq!(entry.reply.source.port(), 5353);
                assert_eq!(entry.tcp_state, None);
            }
            assert_eq!(every(&mut table, family, Transport::Udp).len(), 5);
            let other = Family::ALL.into_iter().find(|other| *other != family).unwrap();
            assert_eq!(every(&mut table, other, Transport::Udp), []);

            for entry in &seen {
                assert!(table.delete(entry).unwrap(), "{entry:?}");
                assert!(!table.delete(entry).unwrap(), "deleted twice: {entry:?}");
            }
            assert_eq!(table.count().unwrap(), 1);
        });
    }
}

#[test]
fn a_late_reply_makes_no_entry_that_the_next_query_follows() {
    for family in Family::ALL {
        in_new_namespace(|| {
            iptables(family, "-t raw -A OUTPUT -p udp -j CT --zone 7");
            let at = |port| SocketAddr::new(loopback(family), port);
            let server = UdpSocket::bind(at(53)).unwrap();
            let client = datagram(at(2000), at(53));
            let mut table = Conntrack::open().unwrap();
            let queries = |table: &mut Conntrack| {
                let mut seen = every(table, family, Transport::Udp);
                seen.retain(|entry| entry.original.destination.port() == 53);
                seen
            };
            let before = queries(&mut table);
            assert_eq!((before.len(), before[0].zone), (1, Zone::Both(7)), "{before:?}");
            table.delete_keeping_replies(&before).unwrap();
            // It may have ended by itself, too.
            table.delete_keeping_replies(&before).unwrap();
            assert_eq!(queries(&mut table), []);
            server.send_to(b"!", at(2000)).unwrap();
            assert_eq!(client.recv(&mut [0; 8]).unwrap(), 1);
            iptables(family, "-t nat -A OUTPUT -p udp --dport 53 -j REDIRECT --to-ports 5353");
            client.send_to(b"?", at(53)).unwrap();
            let after = queries(&mut table);
            assert_eq!((after.len(), after[0].zone), (1, Zone::Both(7)), "{after:?}");
            assert!(after[0].status.destination_translated(), "{after:?}");
        });
    }
}

#[test]
fn one_dump_lists_the_translated_or_the_marked_connections_of_both_families() {
    in_new_namespace(|| {
        let mut held = Vec::new();
        for family in Family::ALL {
            iptables(family, "-t mangle -A OUTPUT -p tcp --dport 81 -j CONNMARK --set-mark 1337");
            iptables(family, "-t nat -A OUTPUT -p tcp --dport 80 -j REDIRECT --to-ports 8080");
            iptables(family, "-t nat -A OUTPUT -p udp --dport 53 -j REDIRECT --to-ports 5353");
            iptables(family, "-t mangle -A OUTPUT -p udp --dport 53 -j CONNMARK --set-mark 1337");
            let at = |port| SocketAddr::new(loopback(family), port);
            for (listens, to) in [(8080, 80), (81, 81), (82, 82)] {
                let listener = TcpListener::bind(at(listens)).unwrap();
                let client = TcpStream::connect(at(to)).unwrap();
                let server = listener.accept().unwrap();
                held.push((listener, client, server));
            }
            datagram(at(3000), at(53));
        }
        let mut table = Conntrack::open().unwrap();
        assert_eq!(table.dump(Filter::All).unwrap().len(), 8);
        for (filter, port) in [(Filter::TranslatedTcp, 80), (Filter::MarkedTcp(1337), 81)] {
            let seen = table.dump(filter).unwrap();
            let mut seen: Vec<_> =
                seen.iter().map(|entry| (entry.family, entry.original.destination.port())).collect();
            seen.sort_unstable();
            assert_eq!(seen, Family::ALL.map(|family| (family, port)), "{filter}");
        }
        assert_eq!(table.dump(Filter::MarkedTcp(1338)).unwrap(), []);
    });
}

#[test]
fn an_entry_that_took_the_place_of_a_deleted_one_stays() {
    in_new_namespace(|| {
        let mut table = Conntrack::open().unwrap();
        let new = [untracked(Family::V4, 1)];
        table.create(&new).unwrap().done().unwrap();
        let first = every(&mut table, Family::V4, Transport::Tcp);
        assert!(table.delete(&Entry { id: first[0].id.map(|id| !id), ..first[0] }).is_ok_and(|done| !done));
        assert_eq!(table.count().unwrap(), 1);
        assert!(table.delete(&first[0]).unwrap());
    });
}

#[test]
fn a_note_is_left_replaced_read_and_removed() {
    in_new_namespace(|| {
        let mut table = Conntrack::open().unwrap();
        assert_eq!(table.note().unwrap(), None);
        table.remove_note().unwrap();
        for number in [0x0703, 5] {
            table.leave_note(number).unwrap();
            assert_eq!(Conntrack::open().unwrap().note().unwrap(), Some(number));
            assert_eq!(table.count().unwrap(), 1);
        }
        table.remove_note().unwrap();
        assert_eq!((table.note().unwrap(), table.count().unwrap()), (None, 0));
    });
}

#[test]
fn the_mark_of_a_translated_entry_is_set_and_nothing_else_of_it() {
    for family in Family::ALL {
        in_new_namespace(|| {
            iptables(family, "-t mangle -A OUTPUT -p tcp -j CONNMARK --set-mark 1337");
            iptables(family, "-t nat -A OUTPUT -p tcp --dport 80 -j REDIRECT --to-ports 8080");
            let listener = TcpListener::bind(SocketAddr::new(loopback(family), 8080)).unwrap();
            let _client = TcpStream::connect(SocketAddr::new(loopback(family), 80)).unwrap();
            let _server = listener.accept().unwrap();
            let mut table = Conntrack::open().unwrap();
            let before = every(&mut table, family, Transport::Tcp);
            assert_eq!((before.len(), before[0].mark), (1, 1337), "{before:?}");
            assert!(before[0].status.destination_translated());

            assert!(table.set_mark(&before[0], 0).unwrap());
            let after = every(&mut table, family, Transport::Tcp);
            assert_eq!(after, [Entry { mark: 0, ..before[0] }]);
            table.delete(&before[0]).unwrap();
            assert!(!table.set_mark(&before[0], 0).unwrap(), "no entry is created");
            assert_eq!(table.count().unwrap(), 0);
        });
    }
}

#[test]
fn ten_thousand_entries_are_deleted_while_they_are_listed() {
    in_new_namespace(|| {
        let mut table = Conntrack::open().unwrap();
        for family in Family::ALL {
            let new: Vec<_> = (0..10_000).map(|number| untracked(family, number)).collect();
            assert_eq!(table.create(&new).unwrap().done().unwrap(), 10_000);
        }
        let start = Instant::now();
        let seen = table.dump(Filter::All).unwrap();
        println!("dump of 20,000: {:?}", start.elapsed());
        assert_eq!(seen.len(), 20_000);

        let start = Instant::now();
        let even =
            |entry: &Entry| entry.family == Family::V4 && entry.original.source.port().is_multiple_of(2);
        let delete = |entry: &Entry| even(entry).then_some(Change::Delete);
        assert_eq!(table.change_if(Filter::All, delete).unwrap(), 5000);
        println!("5,000 of 20,000 deleted: {:?}", start.elapsed());
        let left = every(&mut table, Family::V4, Transport::Tcp);
        assert_eq!(left.len(), 5000);
        assert!(left.iter().all(|entry| !even(entry)));
        assert_eq!(every(&mut table, Family::V6, Transport::Tcp).len(), 10_000);
    });
}

#[test]
fn errors_name_the_missing_capability_or_module() {
    let of = |errno| ConntrackError::from(io::Error::from_raw_os_error(errno)).to_string();
    assert!(of(libc::EPERM).contains("NET_ADMIN"));
    assert!(of(libc::EINVAL).contains("nf_conntrack_netlink"));
    assert!(of(libc::ENOBUFS).contains("No buffer space"));
}

proptest! {
    #[test]
    fn no_bytes_make_reading_an_entry_panic(kind: u16, body in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Entry::read(&Reply { kind, flags: 0, sequence: 0, port: 0, body: &body });
    }

    #[test]
    fn a_request_for_an_entry_reads_back_as_its_tuple(cut in 0_usize..400) {
        let new = untracked(Family::V6, 7);
        let body = request::create(&new).body().to_vec();
        let read = |body: &[u8]| Entry::read(&Reply { kind: 256, flags: 0, sequence: 0, port: 0, body });
        prop_assert_eq!(read(&body).map(|entry| entry.original), Some(new.original));
        let _ = read(body.get(..cut).unwrap_or(&body));
    }
}
