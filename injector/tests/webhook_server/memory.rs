//! The memory of the largest pods.

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::client::{review_of, tls};
use super::server::Server;

/// Kubernetes ends a container that takes more.
pub(crate) fn limit() -> u64 {
    let manifests = include_str!("../../../deploy/base/sidecar-injector.yaml");
    let (_, deployment) = manifests.split_once("kind: Deployment").unwrap();
    let (_, limits) = deployment.split_once("limits:").unwrap();
    let mebibytes = limits.trim_start().strip_prefix("memory: ").unwrap().split_once("Mi").unwrap().0;
    mebibytes.parse::<u64>().unwrap() << 20
}

/// Just not too large, and of what takes the most memory: small maps in a list that is merged.
fn pod(number: usize) -> Value {
    let volumes: Vec<Value> = (0..24_900).map(|at| json!({"name": format!("v{number}-{at}")})).collect();
    json!({"metadata": {}, "spec": {"containers": [{"name": "a", "image": "a"}], "volumes": volumes}})
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_pods_at_once_stay_within_the_memory_limit() {
    let server = Server::start(&[]);
    let mut half = Vec::new();
    for _ in 0..3 {
        let mut stream = tls(server.https, &server.ca, &[b"http/1.1"]).await.unwrap();
        let head = "POST /inject HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 6291456\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![b' '; 6 << 20][1..]).await.unwrap();
        half.push(stream);
    }
    let mut all = tokio::task::JoinSet::new();
    for number in 0..8 {
        let mut client = server.http1().await;
        let body = Bytes::from(review_of("large", pod(number)));
        all.spawn(async move { client.post("/inject?timeout=30s", body).await });
    }
    let answers = all.join_all().await;
    let injected = answers
        .into_iter()
        .filter(|answer| answer.as_ref().is_ok_and(|answer| answer.status == 200 && answer.is_injection()));
    // Two are reviewed at once, and finished even when they are late; the others may miss their deadline.
    assert!(injected.count() >= 2);
    drop(half);
    let (peak, limit) = (server.peak_memory(), limit());

    assert!(peak < limit, "{} of {} MiB", peak >> 20, limit >> 20);
}
