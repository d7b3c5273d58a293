//! Shutdown.

use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::io::AsyncWriteExt as _;

use super::client::tls;
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
