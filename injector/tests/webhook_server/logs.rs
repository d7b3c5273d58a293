//! What is logged.

use nix::sys::signal::Signal;
use serde_json::json;

use super::client::{Client, review_of};
use super::server::{Ca, Server, pair_volume, spawn};

const DROPPED: &str = "sidecar_injector_log_lines_dropped_total";

fn evil() -> String {
    review_of(
        "uid\nuid",
        json!({
            "metadata": {
                "name": "a\nlevel=error",
                "annotations": {"sidecar.istio.io/inject": "\nfalse\tx=\"y\""},
                "ownerReferences": [{"kind": "Job\nJob", "name": "b\r\nb \u{2028} \u{1b}[31m"}],
            },
            "spec": {"hostNetwork": true, "containers": [{"name": "a", "image": "a"}]},
        }),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn every_verdict_is_logged() {
    let mut server = Server::start(&[]);
    server.http2().await.inject("some-uid").await;
    let line = server.wait_for_line("pod reviewed");
    assert_eq!((&line["outcome"], &line["namespace"]), (&json!("injected"), &json!("demo")), "{line}");
    assert_eq!((&line["uid"], &line["level"]), (&json!("some-uid"), &json!("info")));
    assert!(line["ms"].is_number() && line["reason"].is_string() && line["owner"].is_string(), "{line}");
    server.http2().await.post("/inject/a%0ab%0a", evil()).await.unwrap();
    server.http2().await.post("/other%0apath", evil()).await.unwrap();
    server.wait_for_line("request rejected");
    server.lines(); // all of them are JSON
}

#[tokio::test(flavor = "multi_thread")]
async fn control_characters_do_not_break_log_lines() {
    let ca = Ca::new();
    let pair = pair_volume(&ca.leaf());
    let (mut child, output) = spawn(&pair, &[], "text");
    let address = loop {
        let line = output.lock().unwrap().iter().find(|line| line.contains("listening")).cloned();
        if let Some(line) = line {
            let word = line.split('\t').find_map(|word| word.strip_prefix("https=")).unwrap();
            break word.parse().unwrap();
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    let mut client = Client::connect(address, &ca.der, &[b"h2"]).await.unwrap();
    client.post("/inject", evil()).await.unwrap();
    client.post("/inject", "{").await.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    while std::sync::Arc::strong_count(&output) > 1 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    for line in output.lock().unwrap().iter() {
        let words: Vec<&str> = line.split('\t').collect();
        assert!(words[0].ends_with('Z') && ["info", "warn", "error"].contains(&words[1]), "{line:?}");
        assert!(words[3..].iter().all(|word| word.contains('=')), "{line:?}");
        assert!(
            !line.contains(char::is_control) || line.replace('\t', "").chars().all(|c| !c.is_control()),
            "{line:?}"
        );
    }
}

/// Reviews pods until the pipe and the queue are full of their lines. Pods that are not injected take the
/// least time.
async fn fill_log(server: &Server, client: &mut Client) {
    let skipped = json!({
        "metadata": {"annotations": {"sidecar.istio.io/inject": "false"}},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    });
    let skipped = review_of("skipped", skipped);
    while server.metric(DROPPED).await < Some(1.0) {
        for _ in 0..100 {
            assert_eq!(client.post("/inject", skipped.clone()).await.unwrap().status, 200);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_log_lines_are_logged_when_the_log_is_read_again() {
    let ca = Ca::new();
    let pair = pair_volume(&ca.leaf());
    let (server, unread) = Server::start_unread(&ca, &pair);
    let mut client = server.http2().await;
    fill_log(&server, &mut client).await;
    let dropped = server.metric(DROPPED).await;
    let logged = unread.map(|line| serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap());
    let logged = logged.skip_while(|line| line["msg"] != "log lines dropped");
    assert_eq!(logged.map(|line| line["lines"].as_f64()).next(), Some(dropped));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_not_read_does_not_delay_responses() {
    let ca = Ca::new();
    let pair = pair_volume(&ca.leaf());
    let (mut server, _unread) = Server::start_unread(&ca, &pair);
    let mut client = server.http2().await;
    fill_log(&server, &mut client).await;
    let before = server.metric(DROPPED).await.unwrap();
    for _ in 0..100 {
        assert!(client.inject("not logged").await.is_injection());
    }
    server.wait_for_metric(DROPPED, |dropped| dropped >= before + 100.0).await;
    assert_eq!(server.ask("/readyz").await.0, 200);
    drop(client);
    server.signal(Signal::SIGTERM);
    while server.ask("/readyz").await.0 == 200 {}
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended().await.code(), Some(0));
}
