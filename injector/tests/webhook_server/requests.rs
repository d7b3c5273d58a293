//! Responses to valid and invalid requests.

use bytes::Bytes;
use hyper::header::{ALLOW, RETRY_AFTER};
use serde_json::json;

use super::client::{Client, chunks, request, review, review_of, whole};
use super::server::Server;

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_injected_over_both_protocols() {
    let server = Server::start(&[]);
    for mut client in [server.http1().await, server.http2().await] {
        for uid in ["a-1", "b-2"] {
            let answer = client.inject(uid).await;
            assert!(answer.is_injection(), "{answer:?}");
            assert_eq!(answer.json()["response"]["uid"], uid);
        }
        let answer = client.post("/inject/cluster/c1/net/n1", review("c-3")).await.unwrap();
        assert!(answer.is_injection(), "{answer:?}");
    }
    assert_eq!(server.metric("sidecar_injection_success_total").await, Some(6.0));
}

/// Method, path, content type, body, expected status.
type Bad = (&'static str, &'static str, &'static str, Vec<u8>, u16);

fn bad_requests() -> Vec<Bad> {
    let json = "application/json";
    let good = || review("x").into_bytes();
    vec![
        ("GET", "/inject", json, Vec::new(), 405),
        ("PUT", "/inject/cluster/c", json, good(), 405),
        ("POST", "/other", json, good(), 404),
        ("POST", "/injection", json, good(), 404),
        ("POST", "/", json, good(), 404),
        ("POST", "/inject", json, Vec::new(), 400),
        ("POST", "/inject", "text/plain", good(), 415),
        ("POST", "/inject", json, good()[..100].to_vec(), 400),
        ("POST", "/inject", json, b"{\"kind\": \"Pod\"}".to_vec(), 400),
        ("POST", "/inject", json, b"\xff\xfe{}".to_vec(), 400),
        ("POST", "/inject", json, b"[".repeat(1 << 20), 400),
        ("POST", "/inject", json, b"{\"a\":".repeat(1 << 20), 400),
        ("POST", "/inject", json, vec![b' '; (6 << 20) + 1], 413),
        ("POST", "/inject", json, vec![b' '; 10_000_000], 413),
        ("POST", "/inject?timeout=soon", json, good(), 400),
        ("POST", "/inject?timeout=1ns", json, good(), 504),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_requests_are_rejected_and_serving_goes_on() {
    let server = Server::start(&[]);
    let mut refused = 0;
    for http2 in [false, true] {
        for (method, path, content_type, body, status) in bad_requests() {
            let mut client = if http2 { server.http2().await } else { server.http1().await };
            let what = format!("{method} {path} with {} bytes of {content_type}", body.len());
            let answer = client.send(request(method, path, content_type, whole(body))).await;
            let answer = answer.unwrap_or_else(|error| panic!("{what}: {error:?}"));
            assert_eq!(answer.status, status, "{what}: {answer:?}");
            assert!(!answer.body.is_empty(), "{what}");
            assert_eq!(answer.headers.contains_key(ALLOW), status == 405, "{what}");
            refused += 1;
        }
        let mut client = if http2 { server.http2().await } else { server.http1().await };
        let chunk = Bytes::from(vec![b' '; 1 << 16]);
        let answer = client.send(request("POST", "/inject", "application/json", chunks(&chunk, 100))).await;
        assert_eq!(answer.unwrap().status, 413);
        refused += 1;
        let mut client = if http2 { server.http2().await } else { server.http1().await };
        assert!(client.inject("afterwards").await.is_injection());
    }
    assert_eq!(server.metric("sidecar_injection_failure_total").await, Some(f64::from(refused)));
    let reason =
        |reason: &str| format!("sidecar_injector_requests_total{{outcome=\"rejected\",reason=\"{reason}\"}}");
    for (word, count) in
        [("method", 4.0), ("path", 6.0), ("too-large", 6.0), ("timeout", 2.0), ("deadline", 2.0)]
    {
        assert_eq!(server.metric(&reason(word)).await, Some(count), "{word}");
    }
    assert_eq!(server.metric("sidecar_injector_panics_total").await, Some(0.0));
    assert_eq!(server.metric("sidecar_injector_requests_in_flight").await, Some(0.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn encoded_bodies_are_rejected() {
    let server = Server::start(&[]);
    let mut client = server.http2().await;
    for (encoding, expected) in [("identity", 200), ("Identity", 200), ("gzip", 415), ("br", 415)] {
        let mut request = request("POST", "/inject", "application/json", whole(review("encoded")));
        request.headers_mut().insert("content-encoding", encoding.parse().unwrap());
        let answer = client.send(request).await.unwrap();
        assert_eq!(answer.status, expected, "{encoding}");
        let text = String::from_utf8_lossy(&answer.body);
        assert_eq!(text.contains(&format!("Content-Encoding: {encoding:?}")), expected == 415, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_too_large_gets_no_100_continue() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = Server::start(&[]);
    let mut stream = super::client::tls(server.https, &server.ca, &[]).await.unwrap();
    let head = "POST /inject HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                expect: 100-continue\r\ncontent-length: 7000000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
}

/// A pod that takes a while.
fn large_review() -> String {
    let env: Vec<_> = (0..20_000).map(|n| json!({"name": format!("NAME_{n}"), "value": "value"})).collect();
    review_of(
        "large",
        json!({"metadata": {"name": "large"}, "spec": {"containers": [{"name": "a", "image": "a", "env": env}]}}),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_server_responds_with_retry_after() {
    let server = Server::start(&["--max-requests", "1"]);
    let large = Bytes::from(large_review());
    let heavy: Vec<_> = (0..4)
        .map(|_| {
            let (address, ca, large) = (server.https, server.ca.clone(), large.clone());
            tokio::spawn(async move {
                let mut client = Client::connect(address, &ca, &[b"h2"]).await.unwrap();
                while client.post("/inject?timeout=30s", large.clone()).await.is_ok() {}
            })
        })
        .collect();
    let mut client = server.http2().await;
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let answer = client.post("/inject?timeout=20ms", review("small")).await.unwrap();
        if answer.status == 503 {
            assert_eq!(answer.headers[RETRY_AFTER], "1");
            break;
        }
        assert!(std::time::Instant::now() < until, "never too busy: {answer:?}");
    }
    heavy.iter().for_each(tokio::task::JoinHandle::abort);
    let busy = "sidecar_injector_requests_total{outcome=\"rejected\",reason=\"busy\"}";
    assert!(server.metric(busy).await >= Some(1.0));
}
