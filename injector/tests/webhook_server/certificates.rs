//! Certificates that change while serving.

use rcgen::date_time_ymd;

use super::client::{assert_client_is_logged, tls};
use super::load::Load;
use super::server::{Ca, Server, Volume, pair_volume};

fn swap(volume: &mut Volume, cert: &str, key: &str) {
    volume.swap(&[("tls.crt", cert), ("tls.key", key)]);
}

async fn served_certificate(server: &Server) -> Vec<u8> {
    server.http2().await.certificate
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_replaced_under_load() {
    let ca = Ca::new();
    let (old, new) = (ca.leaf(), ca.leaf_for(|params| params.not_after = date_time_ymd(2100, 1, 1)));
    let mut volume = pair_volume(&old);
    let server = Server::start_with(&ca, &volume, &[]);
    let load = Load::on(&server);
    load.go_on(50).await;
    assert_eq!(served_certificate(&server).await, old.der);

    swap(&mut volume, &new.cert, &old.key);
    server.wait_for_metric("sidecar_injector_certificate_errors_total", |count| count == 1.0).await;
    assert_eq!(served_certificate(&server).await, old.der, "a pair whose halves do not belong together");
    swap(&mut volume, &new.cert[..200], &new.key);
    server.wait_for_metric("sidecar_injector_certificate_errors_total", |count| count == 2.0).await;
    assert_eq!(served_certificate(&server).await, old.der, "half of a certificate");
    let expired = ca.leaf_for(|params| params.not_after = date_time_ymd(2001, 1, 1));
    swap(&mut volume, &expired.cert, &expired.key);
    server.wait_for_metric("sidecar_injector_certificate_errors_total", |count| count == 3.0).await;
    assert_eq!(
        served_certificate(&server).await,
        old.der,
        "an expired certificate instead of one that has not"
    );

    swap(&mut volume, &new.cert, &new.key);
    let expiry = "sidecar_injector_certificate_expiry_timestamp_seconds";
    let in_2100 = 4_102_444_800.0;
    server.wait_for_metric(expiry, |time| time == in_2100).await;
    assert_eq!(served_certificate(&server).await, new.der);
    assert_eq!(server.ask("/readyz").await.0, 200);
    load.go_on(50).await;
    let load = load.end().await;
    let certificates = load.certificates.lock().unwrap();
    assert!(certificates.contains(&old.der) && certificates.contains(&new.der));
    assert!(certificates.iter().all(|one| *one == old.der || *one == new.der));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_is_logged_and_not_ready() {
    let ca = Ca::new();
    let old = ca.leaf_for(|params| params.not_after = date_time_ymd(2001, 1, 1));
    let mut volume = pair_volume(&old);
    let mut server = Server::start_with(&ca, &volume, &[]);
    server.wait_for_problem("certificate not valid now", "has expired");
    let (status, text) = server.ask("/readyz").await;
    assert_eq!(status, 503);
    assert!(text.contains("fail certificate: it has expired"), "{text}");
    assert_eq!(server.ask("/healthz").await.0, 200);
    let future = ca.leaf_for(|params| params.not_before = date_time_ymd(2100, 1, 1));
    swap(&mut volume, &future.cert, &future.key);
    server.wait_for_problem("certificate not valid now", "is not valid yet");
    let new = ca.leaf();
    swap(&mut volume, &new.cert, &new.key);
    while server.ask("/readyz").await.0 != 200 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(server.http1().await.inject("again").await.is_injection());
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_reject_the_certificate_are_logged_now_and_then() {
    let mut server = Server::start(&[]);
    let other = Ca::new();
    assert!(tls(server.https, &other.der, &[]).await.is_err());
    let line = server.wait_for_line("TLS handshake rejected by the client");
    assert!(line["hint"].as_str().unwrap().contains("caBundle"), "{line}");
    assert_client_is_logged(&line);
    for _ in 0..30 {
        assert!(tls(server.https, &other.der, &[]).await.is_err());
    }
    server.wait_for_metric("sidecar_injector_tls_handshake_failures_total", |count| count == 31.0).await;
    let lines =
        server.lines().into_iter().filter(|line| line["msg"] == "TLS handshake rejected by the client");
    assert!(lines.count() < 20);
}
