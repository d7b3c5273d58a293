//! Connections of which the listeners of the pod do not tell which side began them, while the pod is captured
//! for the first time.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use nix::sys::socket::{Shutdown, shutdown};

use crate::established::{REDIRECT, TPROXY};
use crate::lab::fixture::at;
use crate::lab::socket::{self, Binding};
use crate::lab::{Fixture, User, for_each_backend_and_native};

for_each_backend_and_native!(server_that_accepts_no_more, client_whose_port_listens,);

const LIMIT: Duration = Duration::from_secs(30);

/// A server that shuts down closes its listener and serves the connections that are open to their end.
fn server_that_accepts_no_more(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _proxy = pod.proxy_listens();
        let connections: Vec<Connection> = (pod.fixture.families().iter())
            .map(|family| {
                let (source, target) = (at(family.outside(), 20_000), at(family.pod(), 8080));
                Connection::open(&pod.outside(), source, &pod.app(), target)
            })
            .collect();
        pod.apply(options);
        for Connection { client, server: _server, source, target } in connections {
            socket::reset(&client);
            pod.outside().call_from(source, target).captured(15006, target);
        }
    }
}

/// Peers of libp2p use one port for what they accept and for what they begin.
fn client_whose_port_listens(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _proxy = pod.proxy_listens();
        let connections: Vec<(Connection, TcpListener)> = (pod.fixture.families().iter())
            .map(|family| {
                let (source, target) = (at(family.pod(), 20_000), at(family.service(), 80));
                let connection = Connection::open(&pod.app(), source, &pod.outside(), target);
                (connection, pod.app().run(|| TcpListener::bind(source).expect("listen")))
            })
            .collect();
        pod.apply(options);
        for (Connection { client, server: _server, source, target }, listener) in connections {
            socket::reset(&client);
            stop(&listener);
            pod.app().call_from(source, target).captured(15001, target);
        }
    }
}

/// A connection to a listener that is closed, by its two sockets.
struct Connection {
    client: TcpStream,
    server: TcpStream,
    source: SocketAddr,
    target: SocketAddr,
}

impl Connection {
    fn open(caller: &User, source: SocketAddr, callee: &User, target: SocketAddr) -> Self {
        let listener = callee.run(|| TcpListener::bind(target).expect("listen"));
        let binding = Binding { source: Some(source), spoofed_mark: None };
        let client = caller.run(|| socket::connect_tcp(target, binding, LIMIT).expect("a connection"));
        let (server, _) = listener.accept().expect("a connection");
        stop(&listener);
        Self { client, server, source, target }
    }
}

/// Ends a listener at once. To close it would not: a program that another thread starts keeps it open until
/// it has been loaded.
fn stop(listener: &TcpListener) {
    shutdown(listener.as_raw_fd(), Shutdown::Read).expect("stop listening");
}
