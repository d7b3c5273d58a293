//! Tests with lists of sockets that are not what the kernel has: an open one is missing, as happens if
//! another socket is closed while the kernel lists them, or one has ended since.

use std::cell::RefCell;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream};

use netlab::process::run;
use netlab::socket::{self, Binding};
use netlab::{Namespace, in_new_namespace};

use super::execute::Table;
use super::original_direction::OriginalDirection;
use crate::connections::conntrack::Step;
use crate::kernel::conntrack::{Conntrack, Entry, Filter, Tuple};
use crate::kernel::netlink;
use crate::kernel::sock_diag::State;
use crate::model::{Family, Mark};

const MARK: u32 = 1337;

/// Lists only listeners to the calling thread, but finds every socket in a lookup.
fn list_listeners_only() {
    netlink::intercept(Some(
        |protocol, request, ask| {
            if is_list_of_connections(protocol, request) { Ok(Vec::new()) } else { ask() }
        },
    ));
}

thread_local! {
    static ENDING: RefCell<Option<TcpStream>> = const { RefCell::new(None) };
}

/// Resets the connection once the calling thread has it in a list.
fn reset_when_listed(server: TcpStream) {
    ENDING.set(Some(server));
    netlink::intercept(Some(|protocol, request, ask| {
        let reply = ask()?;
        if is_list_of_connections(protocol, request) && !reply.is_empty() {
            ENDING.take().iter().for_each(socket::reset);
        }
        Ok(reply)
    }));
}

fn is_list_of_connections(protocol: netlink::Protocol, request: &[u8]) -> bool {
    let word = |at: usize| request.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes);
    let flags = request.get(6..).and_then(<[u8]>::first_chunk).copied().map_or(0, u16::from_ne_bytes);
    let is_list = i32::from(flags) & libc::NLM_F_DUMP == libc::NLM_F_DUMP;
    let of_listeners = word(20) == Some(1 << State::Listen as u8);
    protocol == netlink::Protocol::SockDiag && is_list && !of_listeners
}

fn tool(family: Family) -> &'static str {
    if family == Family::V4 { "iptables-nft" } else { "ip6tables-nft" }
}

fn track(family: Family) {
    run(tool(family), &["-A", "INPUT", "-m", "conntrack", "--ctstate", "NEW"]);
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

/// A connection of which the tracker saw the replying side first.
struct Reversed<'a> {
    table: Conntrack,
    entry: Entry,
    /// Where the client is.
    outside: &'a Namespace,
    client: TcpStream,
    server: TcpStream,
    _listener: TcpListener,
}

/// Does `test` with one in each family.
fn with_reversed_entry(test: impl Fn(Reversed<'_>) + Sync) {
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
            test(Reversed { table, entry, outside: &there, client, server, _listener: listener });
        });
    }
}

fn reverse(table: &mut Conntrack, entry: Entry) {
    OriginalDirection::read().unwrap().reverse(table, vec![entry]).unwrap();
}

#[test]
fn entry_of_an_open_connection_is_turned_around_and_not_deleted() {
    with_reversed_entry(|Reversed { mut table, entry, .. }| {
        list_listeners_only();
        reverse(&mut table, entry);
        assert_eq!(table.find(&entry).unwrap().map(|found| found.id), Some(entry.id));
        netlink::intercept(None);
        reverse(&mut table, entry);
        let [turned] = table.dump(Filter::All).unwrap()[..] else { panic!("one entry is expected") };
        assert_eq!(turned.original, entry.original.reversed());
    });
}

#[test]
fn no_connection_follows_the_entry_of_one_that_ended_before_that_was_made() {
    with_reversed_entry(|Reversed { mut table, entry, outside, client, server, .. }| {
        let Tuple { source, destination } = entry.original.reversed();
        reset_when_listed(server);
        reverse(&mut table, entry);
        drop(client);
        let other = TcpListener::bind((destination.ip(), 0)).unwrap();
        let port = other.local_addr().unwrap().port().to_string();
        let rule = ["-t", "nat", "-A", "PREROUTING", "-p", "tcp", "-j", "REDIRECT", "--to-ports", &port];
        run(tool(entry.family), &rule);
        let again =
            || socket::start_connect(destination, Binding { source: Some(source), spoofed_mark: None });
        let _next = outside.run(again).expect("a first packet");
        let [next] = table.dump(Filter::All).unwrap()[..] else { panic!("one entry is expected") };
        assert!(
            next.status.destination_translated(),
            "the first packet is not looked up in the rules: {next:?}"
        );
    });
}
