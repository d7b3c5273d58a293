//! The monitoring port.

use serde_json::json;

use super::client::{plain, review, review_of};
use super::server::Server;

#[tokio::test(flavor = "multi_thread")]
async fn health_readiness_and_metrics_are_served() {
    let server = Server::start(&[]);
    assert_eq!(server.ask("/healthz").await, (200, "ok\n".to_owned()));
    let (status, text) = server.ask("/readyz").await;
    assert_eq!(status, 200, "{text}");
    assert!(text.lines().count() >= 4 && text.lines().all(|line| line.starts_with("ok   ")), "{text}");
    assert_eq!(server.ask("/other").await.0, 404);
    let (status, head, _) = plain(server.monitoring, "POST", "/metrics", "content-length: 0\r\n").await;
    assert!(status == 405 && head.contains("allow: get"), "{head}");
    for (accept, expected) in [
        ("", "text/plain; version=0.0.4"),
        ("accept: text/plain\r\n", "text/plain; version=0.0.4"),
        (
            "accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n",
            "application/openmetrics-text; version=1.0.0",
        ),
    ] {
        let (status, head, text) = plain(server.monitoring, "GET", "/metrics", accept).await;
        assert_eq!(status, 200);
        assert!(head.contains(&format!("content-type: {expected}")), "{head}");
        assert_eq!(text.ends_with("# EOF\n"), accept.contains("openmetrics"), "{accept}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_is_counted_once() {
    let server = Server::start(&[]);
    let mut client = server.http2().await;
    let pod = |annotation: &str| {
        json!({
            "metadata": {"name": "a", "annotations": {"sidecar.istio.io/inject": annotation}},
            "spec": {"containers": [{"name": "a", "image": "a"}]},
        })
    };
    let mut bad = pod("true");
    bad["metadata"]["annotations"]["status.sidecar.istio.io/port"] = "no port".into();
    for (body, times) in [
        (review("injected"), 3),
        (review_of("skipped", pod("false")), 2),
        (review_of("denied", bad), 1),
        ("{}".to_owned(), 1),
    ] {
        for _ in 0..times {
            client.post("/inject", body.clone()).await.unwrap();
        }
    }
    for (metric, expected) in [
        ("sidecar_injection_requests_total", 7.0),
        ("sidecar_injection_success_total", 3.0),
        ("sidecar_injection_skip_total", 2.0),
        ("sidecar_injection_failure_total", 2.0),
        ("sidecar_injection_time_seconds_count", 6.0),
        ("sidecar_injector_request_duration_seconds_count", 7.0),
        ("sidecar_injector_config_generation", 1.0),
        ("sidecar_injector_config_stale", 0.0),
        ("sidecar_injector_config_load_errors_total", 0.0),
    ] {
        assert_eq!(server.metric(metric).await, Some(expected), "{metric}");
    }
    let (_, text) = server.ask("/metrics").await;
    let of = |outcome: &str| {
        let outcome = format!("{{outcome=\"{outcome}\",");
        let lines = text.lines().filter(|line| line.contains(&outcome));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u32>().unwrap()).sum::<u32>()
    };
    assert_eq!(["injected", "skipped", "denied", "rejected"].map(of), [3, 2, 1, 1], "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_readiness_probe_is_not_counted() {
    let server = Server::start(&[]);
    for _ in 0..3 {
        assert_eq!(server.ask("/readyz").await.0, 200);
    }
    assert_eq!(server.metric("sidecar_injection_requests_total").await, Some(0.0));
    let mut client = server.http1().await;
    let get = super::client::request("GET", "/httpsReady", "text/plain", super::client::whole(""));
    assert_eq!(client.send(get).await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn process_metrics_and_zero_series_are_served_before_the_first_request() {
    let server = Server::start(&[]);
    let (_, text) = server.ask("/metrics").await;
    for series in [
        "outcome=\"injected\",reason=\"policy\"",
        "outcome=\"denied\",reason=\"annotations\"",
        "outcome=\"rejected\",reason=\"busy\"",
    ] {
        assert_eq!(
            server.metric(&format!("sidecar_injector_requests_total{{{series}}}")).await,
            Some(0.0),
            "{text}"
        );
    }
    assert!(server.metric("process_resident_memory_bytes").await > Some(1e6), "{text}");
    assert!(server.metric("process_open_fds").await > Some(3.0), "{text}");
    assert!(server.metric("process_start_time_seconds").await > Some(1.7e9), "{text}");
    assert!(server.metric("process_cpu_seconds_total").await.is_some(), "{text}");
}

/// But those of a cluster, which this server has none of.
#[tokio::test(flavor = "multi_thread")]
async fn alert_rules_use_metrics_that_are_served() {
    let server = Server::start(&[]);
    let (_, text) = server.ask("/metrics").await;
    let rules = include_str!("../../../deploy/overlays/monitoring/more.yaml");
    let names: std::collections::BTreeSet<&str> = rules
        .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with("sidecar_injector_") && *word != "sidecar_injector_cluster_problem")
        .collect();
    assert!(names.len() >= 5, "{names:?}");
    for name in names {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name}: {text}");
    }
}
