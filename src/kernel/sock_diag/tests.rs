use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::kernel::netlink::Reply;
use crate::kernel::rtnetlink::Rtnetlink;
use netlab::in_new_namespace;

#[test]
fn both_ends_and_the_listener_are_listed_in_both_families() {
    in_new_namespace(|| {
        for address in ["127.0.0.1", "::1"] {
            let address: IpAddr = address.parse().unwrap();
            let listener = TcpListener::bind(SocketAddr::new(address, 0)).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (_server, _) = listener.accept().unwrap();
            let (local, remote) = (client.local_addr().unwrap(), client.peer_addr().unwrap());

            let connected = tcp_sockets(&State::CONNECTED).unwrap();
            let ends = [(local, remote), (remote, local)];
            assert_eq!(connected.len(), 2, "{connected:?}");
            assert!(connected.iter().all(|one| ends.contains(&(one.local, one.remote))), "{connected:?}");
            assert!(connected.iter().all(|one| one.state == State::Established && one.uid == 0));

            let listening = tcp_sockets(&[State::Listen]).unwrap();
            let locals: Vec<_> = listening.iter().map(|one| one.local).collect();
            assert_eq!(locals, [listener.local_addr().unwrap()]);
        }
    });
}

#[test]
fn an_ipv4_connection_of_an_ipv6_socket_counts_as_ipv4() {
    in_new_namespace(|| {
        let listener = TcpListener::bind("[::]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (server, _) = listener.accept().unwrap();
        assert!(server.local_addr().unwrap().is_ipv6());

        let connected = tcp_sockets(&State::CONNECTED).unwrap();
        let servers: Vec<_> = connected.iter().filter(|one| one.local.port() == port).collect();
        assert_eq!(servers.len(), 1, "{connected:?}");
        assert_eq!(servers[0].local, client.peer_addr().unwrap());
        assert_eq!(servers[0].remote, client.local_addr().unwrap());
    });
}

#[test]
fn a_namespace_without_sockets_has_none() {
    in_new_namespace(|| assert_eq!(tcp_sockets(&State::ALL).unwrap(), []));
}

#[test]
fn a_family_is_in_use_with_its_first_socket() {
    for (address, families) in
        [("127.0.0.1:0", vec![Family::V4]), ("[::1]:0", vec![Family::V6]), ("[::]:0", Family::ALL.to_vec())]
    {
        in_new_namespace(|| {
            assert_eq!((counted_in_proc(), families_in_use().unwrap().len()), (Some(0), 0));
            let _listener = TcpListener::bind(address).unwrap();
            assert_eq!(counted_in_proc(), Some(1));
            assert_eq!(families_in_use().unwrap().into_iter().collect::<Vec<_>>(), families);
        });
    }
}

/// After the last close only the socket in TIME_WAIT is left.
#[test]
fn a_connection_that_has_just_ended_counts() {
    in_new_namespace(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        drop(server);
        drop(client);
        drop(listener);
        assert_eq!(families_in_use().unwrap().into_iter().collect::<Vec<_>>(), [Family::V4]);
    });
}

proptest! {
    #[test]
    fn no_bytes_make_reading_a_socket_panic(body in proptest::collection::vec(any::<u8>(), 0..100)) {
        let whole = InetSocket::read(&Reply { kind: SOCK_DIAG_BY_FAMILY, flags: 0, sequence: 0, port: 0, body: &body });
        prop_assert!(whole.is_none() || body.len() >= REPLY);
    }
}

/// A socket on a link-local address is bound to its interface.
#[test]
fn an_open_socket_is_found_by_its_ends() {
    in_new_namespace(|| {
        netlab::ip_batch(
            "link add eth0 type veth peer name eth1\nlink set eth0 up\nlink set eth1 up\naddress add fe80::5/64 dev eth0 nodad",
        );
        let scope = Rtnetlink::open().unwrap().links().unwrap().named("eth0").unwrap().index;
        let link_local = std::net::SocketAddrV6::new("fe80::5".parse().unwrap(), 0, 0, scope);
        let local =
            ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"].map(|address| address.parse().unwrap());
        for address in local.into_iter().chain([SocketAddr::V6(link_local)]) {
            let listener = TcpListener::bind(address).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            let plain = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
            let (here, there) = (plain(client.local_addr().unwrap()), plain(client.peer_addr().unwrap()));
            let mut lookup = SocketLookup::open().unwrap();
            assert!(lookup.is_connected(here, there).unwrap() && lookup.is_connected(there, here).unwrap());
            let other = SocketAddr::new(there.ip(), 1);
            assert!(!lookup.is_connected(there, other).unwrap(), "the listener only");
            drop(client);
            drop(server);
            // One is in TIME_WAIT.
            assert!(!lookup.is_connected(here, there).unwrap() && !lookup.is_connected(there, here).unwrap());
        }
    });
}

/// Of each connection, whatever was sent over it, and though one side has closed it.
#[test]
fn side_that_began_a_connection_is_known() {
    in_new_namespace(|| {
        for address in ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            let plain = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
            let ends = [&client, &server].map(|end| plain(end.local_addr().unwrap()));
            // An acknowledgement may be under way.
            let await_state = |expected: [Option<bool>; 2]| {
                let limit = Instant::now() + Duration::from_secs(60);
                let began = |end| {
                    let sockets = tcp_connections(&State::CONNECTED).unwrap();
                    sockets.iter().find(|socket| socket.local == end).and_then(|socket| socket.began)
                };
                while ends.map(began) != expected {
                    assert!(Instant::now() < limit, "{address}: {:?}", ends.map(began));
                }
            };
            await_state([Some(true), Some(false)]);
            for _ in 0..3 {
                client.write_all(&[1; 20_000]).unwrap();
                server.write_all(&[2; 5]).unwrap();
                server.read_exact(&mut [0; 20_000]).unwrap();
                client.read_exact(&mut [0; 5]).unwrap();
            }
            await_state([Some(true), Some(false)]);
            server.shutdown(Shutdown::Write).unwrap();
            await_state([Some(true), None]);
        }
        let plain = tcp_sockets(&State::CONNECTED).unwrap();
        assert!(plain.iter().all(|socket| socket.began.is_none()), "not asked for");
    });
}
