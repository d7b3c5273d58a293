use serde_json::{Value, json};

use super::*;
use crate::annotations::markdown;

fn pod(annotations: &Value) -> Value {
    json!({"metadata": {"annotations": annotations}})
}

fn errors(annotations: &Value) -> Vec<String> {
    check(&pod(annotations)).errors.iter().map(ToString::to_string).collect()
}

#[test]
fn every_error_at_once_sorted_by_key() {
    let found = errors(&json!({
        "traffic.sidecar.istio.io/includeOutboundIPRanges": "10.0.0.0/8,bad",
        "sidecar.istio.io/interceptionMode": "redirect",
        "status.sidecar.istio.io/port": "70000",
        "sidecar.istio.io/proxyCPU": "much",
        "sidecar.istio.io/userVolume": "[{}]",
        "prometheus.istio.io/merge-metrics": "no",
    }));
    let keys: Vec<&str> = found.iter().map(|text| text.split([' ', ':']).nth(1).unwrap()).collect();
    assert_eq!(
        keys,
        [
            "prometheus.istio.io/merge-metrics",
            "sidecar.istio.io/interceptionMode",
            "sidecar.istio.io/proxyCPU",
            "sidecar.istio.io/userVolume",
            "status.sidecar.istio.io/port",
            "traffic.sidecar.istio.io/includeOutboundIPRanges",
        ]
    );
    assert!(
        found[1].ends_with("\"redirect\" is not accepted, expected REDIRECT, TPROXY, NONE"),
        "{}",
        found[1]
    );
    assert!(found[5].contains("\"bad\""), "{}", found[5]);
}

#[test]
fn unknown_keys_are_reported_up_to_a_limit() {
    let many: serde_json::Map<String, Value> =
        (0..10_000).map(|n| (format!("sidecar.istio.io/n{n}"), json!("x"))).collect();
    let checked = check(&pod(&Value::Object(many)));
    assert_eq!((checked.errors.len(), checked.warnings.len()), (0, unknown::MAX_UNKNOWN));
}

#[test]
fn invalid_items_are_reported_up_to_a_limit() {
    let errors =
        errors(&json!({"traffic.sidecar.istio.io/excludeOutboundPorts": vec!["x"; 40_000].join(",")}));
    assert_eq!(errors.len(), 10);
    assert!(errors.last().is_some_and(|last| last.ends_with("; 39990 more items are not accepted either")));
}

#[test]
fn quantities_are_not_negative() {
    for text in ["-1", "-100m", "1x", ""] {
        let found = errors(&json!({"sidecar.istio.io/proxyMemoryLimit": text}));
        assert!(found.iter().any(|error| error.contains("a quantity from 0 on")), "{text}: {found:?}");
    }
    assert_eq!(errors(&json!({"sidecar.istio.io/proxyMemoryLimit": "0"})), [""; 0]);
}

#[test]
fn what_the_init_binary_takes_is_taken() {
    let good = json!({
        "traffic.sidecar.istio.io/includeOutboundIPRanges": "*",
        "traffic.sidecar.istio.io/excludeOutboundIPRanges": "10.96.0.1/32, fd00::/8",
        "traffic.sidecar.istio.io/includeInboundPorts": "",
        "traffic.sidecar.istio.io/excludeOutboundPorts": "7,8",
        "traffic.sidecar.istio.io/excludeInterfaces": "net1",
        "status.sidecar.istio.io/port": "0",
    });
    assert_eq!(errors(&good), [""; 0]);
    for (key, value) in [
        ("traffic.sidecar.istio.io/excludeOutboundPorts", "*"),
        ("traffic.sidecar.istio.io/excludeInboundPorts", "1-5"),
        ("traffic.sidecar.istio.io/includeOutboundPorts", "99999"),
        ("traffic.sidecar.istio.io/includeOutboundIPRanges", "*,10.0.0.0/8"),
        ("istio.io/reroute-virtual-interfaces", "a b"),
    ] {
        let found = errors(&json!({key: value}));
        assert_eq!(found.len(), 1, "{key}={value}: {found:?}");
        assert!(found[0].contains(key), "{found:?}");
    }
}

#[test]
fn scrape_targets_are_ports_of_the_app() {
    let found = |targets: &str| errors(&json!({"prometheus.istio.io/scrape-targets": targets}));
    assert_eq!(found("8080:/metrics, 9100:/x,7"), [""; 0]);
    for (targets, wrong) in
        [("8080:/a,15020:/b", "15020:/b"), ("0:/a", "0:/a"), ("8080:a", "8080:a"), ("x", "x")]
    {
        let found = found(targets);
        assert!(
            found.len() == 1 && found[0].contains(&format!("expected {wrong:?} to be PORT")),
            "{found:?}"
        );
    }
}

#[test]
fn unknown_and_inert_keys_are_warnings() {
    let checked = check(&pod(&json!({
        "traffic.sidecar.istio.io/excludeOutboundPort": "1",
        "sidecar.istio.io/nonsenseOfSomeKind": "x",
        "example.com/mine": "x",
        "sidecar.istio.io/interceptionMode": "NONE",
        "traffic.sidecar.istio.io/excludeInboundPorts": "80",
        "sidecar.istio.io/nativeSidecar": "maybe",
    })));
    assert_eq!(checked.errors, []);
    let all = checked.warnings.join("\n");
    assert_eq!(checked.warnings.len(), 4, "{all}");
    assert!(all.contains("did you mean traffic.sidecar.istio.io/excludeOutboundPorts?"), "{all}");
    assert!(all.contains("nonsenseOfSomeKind is not known"), "{all}");
    assert!(all.contains("excludeInboundPorts has no effect: nothing is captured"), "{all}");
    assert!(all.contains("nativeSidecar: \"maybe\" is ignored"), "{all}");
}

#[test]
fn excluded_ports_need_all_ports_captured() {
    let checked = check(&pod(&json!({
        "traffic.sidecar.istio.io/includeInboundPorts": "80",
        "traffic.sidecar.istio.io/excludeInboundPorts": "81",
    })));
    assert_eq!(checked.warnings.len(), 1, "{:?}", checked.warnings);
    assert!(checked.warnings[0].contains("excludeInboundPorts has no effect"), "{:?}", checked.warnings);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test reads and, when asked, writes the document")]
fn annotations_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/annotations.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, markdown()).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(found == markdown(), "docs/annotations.md is out of date: run this test with UPDATE_DOCS=1");
}
