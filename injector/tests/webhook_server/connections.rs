//! Many connections at once.

use std::sync::Arc;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::client::{Client, tls};
use super::memory::limit;
use super::server::Server;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_connections_are_served_at_once() {
    let server = Server::start(&[]);
    let mut all = tokio::task::JoinSet::new();
    // More handshakes at once than the machine computes in time would measure the machine.
    let handshakes = Arc::new(Semaphore::new(100));
    for number in 0..1000 {
        let (address, ca, handshakes) = (server.https, server.ca.clone(), Arc::clone(&handshakes));
        all.spawn(async move {
            let _permit = handshakes.acquire_owned().await.unwrap();
            let protocols: &[&[u8]] = if number % 2 == 0 { &[b"h2"] } else { &[b"http/1.1"] };
            let mut client = Client::connect(address, &ca, protocols).await.unwrap();
            assert!(client.inject("one of many").await.is_injection());
            client
        });
    }
    let clients = all.join_all().await;
    assert_eq!(server.metric("sidecar_injector_connections").await, Some(1000.0));
    assert_eq!(server.metric("sidecar_injection_success_total").await, Some(1000.0));
    assert_eq!(server.ask("/readyz").await.0, 200);
    drop(clients);
    server.wait_for_metric("sidecar_injector_connections", |count| count <= 1.0).await;
}

/// Connects as often as asked, without waiting for the server to accept; the connections stay open.
async fn flood(server: &Server, count: usize) -> Vec<TcpStream> {
    let mut open = Vec::new();
    for _ in 0..count {
        // The kernel's queue is full while the server is at its limit: the next ones time out.
        let connect = TcpStream::connect(server.https);
        if let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(50), connect).await {
            open.push(stream);
        }
    }
    open
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_time_out_and_others_are_served() {
    let server = Server::start(&["--max-connections", "4"]);
    let silent = flood(&server, 8).await;
    assert!(server.http2().await.inject("new").await.is_injection());
    drop(silent);
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_connections_stay_within_the_memory_limit() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(16_384), hard).unwrap();
    let server = Server::start(&[]);
    // After the handshake a connection takes more memory than before it.
    let mut handshakes = tokio::task::JoinSet::new();
    for _ in 0..2_000 {
        let (address, ca) = (server.https, server.ca.clone());
        handshakes.spawn(async move { tls(address, &ca, &[b"h2"]).await });
    }
    let shaken = handshakes.join_all().await;
    let mut open = shaken.iter().filter(|stream| stream.is_ok()).count();
    assert!(open > 1_000, "{open}");
    let mut silent = Vec::new();
    while open < 10_000 {
        let more = flood(&server, 10_000 - open).await;
        open += more.len();
        silent.push(more);
    }
    assert!(server.http2().await.inject("after the flood").await.is_injection());
    let peak = server.peak_memory();
    assert!(peak < limit(), "{} MiB", peak >> 20);
    assert_eq!(server.metric("sidecar_injector_panics_total").await, Some(0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_do_not_block_the_monitoring_port() {
    let server = Server::start(&[]);
    let mut silent = Vec::new();
    for _ in 0..3 {
        for _ in 0..300 {
            silent.push(TcpStream::connect(server.monitoring).await.unwrap());
        }
        for path in ["/healthz", "/readyz", "/metrics"] {
            assert_eq!(server.ask(path).await.0, 200, "{path}");
        }
    }
}
