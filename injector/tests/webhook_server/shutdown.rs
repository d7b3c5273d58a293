//! Shutdown.

use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::io::AsyncWriteExt as _;

use super::client::tls;
use super::frames::{Connection, GOAWAY, PING, goaway, pong, request};
use super::load::Load;
use super::server::Server;

#[tokio::test(flavor = "multi_thread")]
async fn no_request_is_lost_during_shutdown() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut server = Server::start(&["--drain-delay", "1s", "--grace", "40s"]);
        let load = Load::on(&server);
        load.go_on(50).await;
        assert_eq!(server.ask("/readyz").await.0, 200);
        server.signal(signal);
        server.wait_for_line("shutdown: draining, not ready any more");
        let (status, text) = server.ask("/readyz").await;
        assert_eq!(status, 503);
        assert!(text.contains("fail serving: shutting down"), "{text}");
        assert_eq!(server.ask("/healthz").await.0, 200);
        let mut late = server.http1().await;
        let answer = late.inject("while draining").await;
        assert!(answer.is_injection(), "{answer:?}");
        assert_eq!(answer.headers["connection"], "close");
        assert_eq!(server.ended().await.code(), Some(0));
        load.end().await;
    }
}

/// RFC 9113, 6.8: the first GOAWAY names no stream, so that requests on their way are answered; the second
/// one, after a round trip, names the last stream that is. Clients repeat requests of later streams
/// elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn requests_up_to_the_last_stream_of_the_second_goaway_are_answered() {
    const NO_ERROR: u32 = 0;
    let mut server = Server::start(&["--drain-delay", "0", "--grace", "40s"]);
    let mut client = Connection::open(&server).await;
    client.send(&request(1, "before")).await;
    assert!(client.response(1).await.contains("\"before\""));
    server.signal(Signal::SIGTERM);
    let announced = client.next_of(GOAWAY).await;
    assert_eq!(goaway(&announced), (u32::MAX >> 1, NO_ERROR));
    let ping = client.next_of(PING).await;
    client.send(&request(3, "on its way")).await;
    assert!(client.response(3).await.contains("\"on its way\""));
    client.send(&[pong(&ping), request(5, "too late")].concat()).await;
    assert_eq!(goaway(&client.next_of(GOAWAY).await), (3, NO_ERROR));
    while let Some(frame) = client.next().await {
        assert!(!String::from_utf8_lossy(&frame.payload).contains("too late"), "{frame:?}");
    }
    assert_eq!(server.ended().await.code(), Some(0));
    server.wait_for_last_line("shutdown complete");
    let reviewed: Vec<_> = server.lines().into_iter().filter(|line| line["msg"] == "pod reviewed").collect();
    assert_eq!(reviewed.iter().map(|line| &line["uid"]).collect::<Vec<_>>(), ["before", "on its way"]);
}

/// A client that has begun a request and never finishes it.
async fn stuck(server: &Server) -> impl Sized + use<> {
    let mut stream = tls(server.https, &server.ca, &[]).await.unwrap();
    let head = "POST /inject?timeout=30s HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    server.wait_for_metric("sidecar_injector_requests_in_flight", |count| count == 1.0).await;
    stream
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_client_does_not_delay_the_shutdown_beyond_the_grace_period() {
    let mut server = Server::start(&["--drain-delay", "0", "--grace", "1s"]);
    let _stuck = stuck(&server).await;
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended().await.code(), Some(0));
    server.wait_for_last_line("shutdown timed out: closing open connections");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_exits_at_once() {
    let mut server = Server::start(&["--drain-delay", "1h", "--grace", "1h"]);
    let _stuck = stuck(&server).await;
    server.signal(Signal::SIGTERM);
    server.wait_for_line("shutdown: draining, not ready any more");
    tokio::time::sleep(Duration::from_millis(10)).await;
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended().await.code(), Some(0));
    server.wait_for_last_line("second signal: closing open connections");
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_is_ignored() {
    let mut server = Server::start(&["--drain-delay", "0"]);
    server.signal(Signal::SIGHUP);
    server.wait_for_line("SIGHUP ignored: files are watched");
    assert_eq!(server.ask("/readyz").await.0, 200);
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended().await.code(), Some(0));
}
