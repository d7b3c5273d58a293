//! Connections go on, or end, while nothing tracks them: the packets in between are missing from their
//! entries.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use crate::closed_connections::Caller;
use crate::lab::{Fixture, for_each_backend_and_native, socket};

for_each_backend_and_native!(
    half_closed_by_the_client,
    half_closed_by_the_server,
    half_closed_by_the_client_before_any_capture,
    half_closed_by_the_server_before_any_capture,
    reset_after_unseen_data,
);

const REDIRECT: [&str; 4] = ["-b", "*", "-i", "*"];
const TPROXY: [&str; 6] = ["-b", "*", "-i", "*", "-m", "TPROXY"];

#[derive(Clone, Copy)]
enum Side {
    Client,
    Server,
}

/// Ends one side, which the other side learns.
fn end(stream: &TcpStream, peer: &mut TcpStream) {
    stream.shutdown(Shutdown::Write).expect("an open connection");
    peer.set_nonblocking(false).unwrap();
    assert_eq!(peer.read(&mut [0]).expect("the end of the connection"), 0);
}

/// One side of each connection is closed before the rules come, the other one after: later connections on the
/// same ports are captured.
fn half_closed(fixture: Fixture, first: Side, was_tracked: bool) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _proxy = pod.proxy_listens();
        if was_tracked {
            pod.apply(&["-b", "9999"]);
        }
        let callers = Caller::all(&pod);
        let listeners: Vec<_> = callers.iter().map(|caller| caller.listener(&pod)).collect();
        let mut open: Vec<_> =
            callers.iter().zip(&listeners).flat_map(|(caller, at)| caller.pairs(at)).collect();
        if was_tracked {
            pod.apply(&["--cleanup-only"]);
        }
        for (client, server) in &mut open {
            match first {
                Side::Client => end(client, server),
                Side::Server => end(server, client),
            }
        }
        pod.apply(options);
        for (client, server) in &mut open {
            match first {
                Side::Client => end(server, client),
                Side::Server => end(client, server),
            }
        }
        drop((open, listeners));
        callers.iter().for_each(Caller::are_captured);
    }
}

fn half_closed_by_the_client(fixture: Fixture) {
    half_closed(fixture, Side::Client, true);
}

fn half_closed_by_the_server(fixture: Fixture) {
    half_closed(fixture, Side::Server, true);
}

fn half_closed_by_the_client_before_any_capture(fixture: Fixture) {
    half_closed(fixture, Side::Client, false);
}

fn half_closed_by_the_server_before_any_capture(fixture: Fixture) {
    half_closed(fixture, Side::Server, false);
}

/// The entry knows a number that the server's reset does not have any more.
fn reset_after_unseen_data(fixture: Fixture) {
    for options in [&REDIRECT[..], &TPROXY] {
        let pod = fixture.pod();
        let _proxy = pod.proxy_listens();
        pod.apply(&["-b", "9999"]);
        let callers = Caller::all(&pod);
        let listeners: Vec<_> = callers.iter().map(|caller| caller.listener(&pod)).collect();
        let mut open: Vec<_> =
            callers.iter().zip(&listeners).flat_map(|(caller, at)| caller.pairs(at)).collect();
        pod.apply(&["--cleanup-only"]);
        for (client, server) in &mut open {
            server.write_all(b"data").expect("an open connection");
            client.set_nonblocking(false).unwrap();
            client.read_exact(&mut [0; 4]).expect("nothing is in the way");
        }
        pod.apply(options);
        for (mut client, server) in open {
            socket::reset(&server);
            drop(server);
            let error = client.read(&mut [0]).expect_err("the connection is reset");
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
        drop(listeners);
        callers.iter().for_each(Caller::are_captured);
    }
}
