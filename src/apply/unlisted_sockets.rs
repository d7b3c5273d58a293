//! Tests with an open connection whose socket is missing in a list, as happens if another socket is closed while the
//! kernel lists them.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream};

use netlab::process::run;
use netlab::{Namespace, in_new_namespace};

use super::conntrack::Table;
use super::original_direction::OriginalDirection;
use crate::conntrack::Step;
use crate::kernel::conntrack::{Conntrack, Entry, Filter};
use crate::kernel::netlink;
use crate::kernel::sock_diag::State;
use crate::model::{Family, Mark};

const MARK: u32 = 1337;

/// Lists only listeners to the calling thread, but finds every socket in a lookup.
fn list_listeners_only() {
    netlink::intercept(Some(|protocol, request, ask| {
        let word = |at: usize| request.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes);
        let flags = request.get(6..).and_then(<[u8]>::first_chunk).copied().map_or(0, u16::from_ne_bytes);
        let is_list = i32::from(flags) & libc::NLM_F_DUMP == libc::NLM_F_DUMP;
        let of_listeners = word(20) == Some(1 << State::Listen as u8);
        let is_hidden = protocol == netlink::Protocol::SockDiag && is_list && !of_listeners;
        if is_hidden { Ok(Vec::new()) } else { ask() }
    }));
}

fn track(family: Family) {
    let tool = if family == Family::V4 { "iptables-nft" } else { "ip6tables-nft" };
    run(tool, &["-A", "INPUT", "-m", "conntrack", "--ctstate", "NEW"]);
}

fn only_entry(table: &mut Conntrack) -> Entry {
    let entries = table.dump(Filter::MarkedTcp(MARK)).unwrap();
    let [entry] = entries.as_slice() else { panic!("one entry is expected: {entries:?}") };
    *entry
}

#[test]
fn mark_of_an_open_connection_is_not_cleared() {
    for (family, address) in [(Family::V4, "127.0.0.1"), (Family::V6, "::1")] {
        in_new_namespace(|| {
            track(family);
            let address: IpAddr = address.parse().unwrap();
            let listener = TcpListener::bind((address, 0)).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            let mut table = Conntrack::open().unwrap();
            let entries = table.dump(Filter::All).unwrap();
            let [entry] = entries.as_slice() else { panic!("one entry is expected: {entries:?}") };
            assert!(table.set_mark(entry, MARK).unwrap());

            list_listeners_only();
            let clear = Step::ClearForeignMark(family, Mark(MARK));
            Table::default().execute(&[&clear]);
            assert_eq!(only_entry(&mut table).id, entry.id);
            drop((client, server));
            Table::default().execute(&[&clear]);
            assert_eq!(table.dump(Filter::MarkedTcp(MARK)).unwrap(), []);
        });
    }
}

/// The tracker saw the answering side first.
#[test]
fn entry_of_an_open_connection_is_turned_around_and_not_deleted() {
    for (family, pod, client) in
        [(Family::V4, "10.0.0.1", "10.0.0.2"), (Family::V6, "2001:db8::1", "2001:db8::2")]
    {
        let (here, there) = (Namespace::with_loopback(), Namespace::with_loopback());
        here.connect("eth0", &there, "eth0");
        let [pod, client]: [IpAddr; 2] = [pod, client].map(|address| address.parse().unwrap());
        for (namespace, address) in [(&here, pod), (&there, client)] {
            namespace.add_address(address, if address.is_ipv4() { 24 } else { 64 }, "eth0");
        }
        here.await_ipv6_addresses();
        there.await_ipv6_addresses();
        here.run(|| {
            let listener = TcpListener::bind((pod, 0)).unwrap();
            let mut client = there.run(|| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            let (mut server, _) = listener.accept().unwrap();
            track(family);
            server.write_all(b"!").unwrap();
            client.read_exact(&mut [0]).unwrap();
            let mut table = Conntrack::open().unwrap();
            let [entry] = table.dump(Filter::All).unwrap()[..] else { panic!("one entry is expected") };
            assert_eq!(entry.original.source, listener.local_addr().unwrap());
            assert!(entry.picked_up);

            let reverse = |table: &mut Conntrack| {
                OriginalDirection::read().unwrap().reverse(table, vec![entry]).unwrap();
            };
            list_listeners_only();
            reverse(&mut table);
            assert_eq!(table.find(&entry).unwrap().map(|found| found.id), Some(entry.id));
            netlink::intercept(None);
            reverse(&mut table);
            let [turned] = table.dump(Filter::All).unwrap()[..] else { panic!("one entry is expected") };
            assert_eq!(turned.original, entry.original.reversed());
        });
    }
}
