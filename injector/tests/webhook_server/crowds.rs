//! Many at once.

use super::client::Client;
use super::server::Server;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_connections_at_once() {
    let server = Server::start(&[]);
    let mut all = tokio::task::JoinSet::new();
    for number in 0..1000 {
        let (address, ca) = (server.https, server.ca.clone());
        all.spawn(async move {
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

#[tokio::test(flavor = "multi_thread")]
async fn in_a_full_house_who_has_been_idle_longest_goes() {
    let server = Server::start(&["--max-connections", "4"]);
    let mut busy = server.http2().await;
    let mut idle = Vec::new();
    for _ in 0..20 {
        let mut client = server.http1().await;
        assert!(client.inject("new").await.is_injection());
        idle.push(client);
        assert!(busy.inject("busy").await.is_injection());
    }
    assert_eq!(server.metric("sidecar_injector_connections_evicted_total").await, Some(17.0));
    assert!(!idle.first_mut().unwrap().is_open().await);
    assert!(idle.last_mut().unwrap().is_open().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_do_not_keep_others_out() {
    let server = Server::start(&["--max-connections", "4"]);
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(tokio::net::TcpStream::connect(server.https).await.unwrap());
    }
    assert!(server.http2().await.inject("new").await.is_injection());
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_do_not_silence_the_monitoring_port() {
    let server = Server::start(&[]);
    let mut silent = Vec::new();
    for _ in 0..10 {
        for _ in 0..64 {
            silent.push(tokio::net::TcpStream::connect(server.monitoring).await.unwrap());
        }
        for path in ["/healthz", "/readyz", "/metrics"] {
            assert_eq!(server.ask(path).await.0, 200, "{path}");
        }
    }
    let evicted = server.metric("sidecar_injector_monitoring_connections_evicted_total").await;
    assert!(evicted >= Some(1.0), "{evicted:?}");
}
