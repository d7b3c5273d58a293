//! Validation of the traffic settings of a mesh config, as in Istio.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{Found, is_milliseconds, nanoseconds, text};
use crate::path::FieldError;

const DURATION: &str = "a duration of whole milliseconds, at least 1ms";
const NOT_NEGATIVE: &str = "0 or more";
const MILLISECOND: i64 = 1_000_000;

/// Labels that `failover` means.
const TOPOLOGY: [&str; 3] =
    ["topology.istio.io/subzone", "topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

/// Conditions of a retry, of Envoy's `x-envoy-retry-on` and `x-envoy-retry-grpc-on`.
const RETRY_ON: [&str; 16] = [
    "5xx",
    "cancelled",
    "connect-failure",
    "deadline-exceeded",
    "envoy-ratelimited",
    "gateway-error",
    "http3-post-connect-failure",
    "internal",
    "refused-stream",
    "reset",
    "reset-before-request",
    "resource-exhausted",
    "retriable-4xx",
    "retriable-headers",
    "retriable-status-codes",
    "unavailable",
];

pub(super) fn problems(config: &Map<String, Value>) -> Vec<FieldError> {
    let mut found = Found { config, errors: Vec::new() };
    locality(&mut found);
    for setting in ["localityLbSetting", "zoneAwareLbSetting"] {
        let expected = "two different regions in each, without / and *";
        found.check(&format!("{setting}.failover"), |all| each(all, is_failover), expected);
    }
    let topology = |all: &Value| each(all, |label| !TOPOLOGY.contains(&text(label)));
    found.check("zoneAwareLbSetting.failoverPriority", topology, "no topology label");
    connection_pool(&mut found);
    outlier_detection(&mut found);
    retry(&mut found);
    found.errors
}

fn locality(found: &mut Found<'_>) {
    let filled = |value: &Value, key: &str| {
        value.get(key).and_then(Value::as_array).is_some_and(|items| !items.is_empty())
    };
    let one = |value: &Value| !(filled(value, "distribute") && filled(value, "failover"));
    found.check("localityLbSetting", one, "distribute or failover, not both");
    let apart = |value: &Value| {
        let priority = value.get("failoverPriority");
        !filled(value, "failover")
            || priority.is_none_or(|all| each(all, |label| !TOPOLOGY.contains(&text(label))))
    };
    found.check("localityLbSetting", apart, "no topology label in failoverPriority together with failover");
    let weights = |distribute: &Value| {
        let to = distribute.get("to").and_then(Value::as_object);
        let weights: Vec<i64> =
            to.into_iter().flatten().map(|(_, weight)| weight.as_i64().unwrap_or_default()).collect();
        weights.iter().all(|weight| (1..=100).contains(weight)) && weights.iter().sum::<i64>() == 100
    };
    found.check(
        "localityLbSetting.distribute",
        |all| each(all, weights),
        "weights of 1 to 100 in each, 100 together",
    );
    let localities = |all: &Value| {
        let items = all.as_array().map_or(&[][..], Vec::as_slice);
        let from = items.iter().map(|item| item.get("from").map(text).unwrap_or_default());
        let to = |item: &Value| {
            let to = item.get("to").and_then(Value::as_object);
            are_apart(to.into_iter().flatten().map(|(locality, _)| locality.as_str()))
        };
        are_apart(from) && items.iter().all(to)
    };
    let expected = "localities like region/zone/subzone, * only at the end, none within another";
    found.check("localityLbSetting.distribute", localities, expected);
}

fn is_failover(failover: &Value) -> bool {
    let part = |key: &str| failover.get(key).map(text).unwrap_or_default();
    part("from") != part("to") && ["from", "to"].iter().all(|key| !part(key).contains(['/', '*']))
}

/// Whether no locality lies within an earlier one, and each has a region, zone and subzone that are not
/// empty.
fn are_apart<'a>(localities: impl Iterator<Item = &'a str>) -> bool {
    let mut seen: HashSet<Vec<&str>> = HashSet::new();
    for locality in localities {
        let stars = locality.matches('*').count();
        let mut parts: Vec<&str> = locality.splitn(3, '/').collect();
        if stars > 1 || stars == 1 && !locality.ends_with('*') || parts.contains(&"") {
            return false;
        }
        // `region/*` is all of the region for those that follow, but may follow some of it.
        let all = parts.pop_if(|part| *part == "*").is_some();
        let within = |end: usize| parts.get(..end).is_some_and(|start| seen.contains(start));
        let covers = !all && seen.iter().any(|other| other.starts_with(&parts));
        if covers || (0..=parts.len()).any(within) {
            return false;
        }
        seen.insert(parts);
    }
    true
}

fn connection_pool(found: &mut Found<'_>) {
    let pool = "defaultTrafficPolicy.connectionPool";
    let any = |value: &Value| ["http", "tcp"].iter().any(|key| value.get(*key).is_some_and(Value::is_object));
    found.check(pool, any, "http or tcp");
    let counts = [
        "http.http1MaxPendingRequests",
        "http.http2MaxRequests",
        "http.maxRequestsPerConnection",
        "http.maxRetries",
        "http.maxConcurrentStreams",
        "tcp.maxConnections",
    ];
    for field in counts {
        found.check(&format!("{pool}.{field}"), |value| value.as_i64().is_none_or(|n| n >= 0), NOT_NEGATIVE);
    }
    for field in [
        "http.idleTimeout",
        "tcp.connectTimeout",
        "tcp.maxConnectionDuration",
        "tcp.tcpKeepalive.time",
        "tcp.tcpKeepalive.interval",
    ] {
        found.check(&format!("{pool}.{field}"), is_duration, DURATION);
    }
    let idle = |value: &Value| (0..MILLISECOND).contains(&nanoseconds(value)) || is_duration(value);
    found.check(&format!("{pool}.tcp.idleTimeout"), idle, DURATION);
    let upgrade = |http: &Value| {
        http.get("h2UpgradePolicy").map(text) != Some("UPGRADE")
            || http.get("useClientProtocol") != Some(&Value::Bool(true))
    };
    found.check(&format!("{pool}.http"), upgrade, "no useClientProtocol with h2UpgradePolicy UPGRADE");
}

fn outlier_detection(found: &mut Found<'_>) {
    let outlier = "defaultTrafficPolicy.outlierDetection";
    for field in ["baseEjectionTime", "interval"] {
        found.check(&format!("{outlier}.{field}"), is_duration, DURATION);
    }
    for field in ["maxEjectionPercent", "minHealthPercent"] {
        let percent = |value: &Value| value.as_i64().is_none_or(|n| (0..=100).contains(&n));
        found.check(&format!("{outlier}.{field}"), percent, "0 to 100");
    }
    let split = |value: &Value| {
        let failures =
            value.get("consecutiveLocalOriginFailures").and_then(Value::as_i64).unwrap_or_default();
        failures == 0 || value.get("splitExternalLocalOriginErrors") == Some(&Value::Bool(true))
    };
    let expected = "splitExternalLocalOriginErrors: true with consecutiveLocalOriginFailures";
    found.check(outlier, split, expected);
}

fn retry(found: &mut Found<'_>) {
    let retry = "defaultInboundHttpRetryPolicy";
    let attempts = |value: &Value| value.get("attempts").and_then(Value::as_i64).unwrap_or_default();
    found.check(&format!("{retry}.attempts"), |value| value.as_i64().is_none_or(|n| n >= 0), NOT_NEGATIVE);
    let alone = |value: &Value| {
        let more = ["perTryTimeout", "retryOn", "retryRemoteLocalities", "backoff"];
        let is_set = |key: &&str| value.get(*key).is_some_and(|value| !value.is_null() && *value != "");
        attempts(value) != 0 || !more.iter().any(is_set)
    };
    found.check(retry, alone, "attempts of 1 or more, or only attempts: 0");
    for field in ["perTryTimeout", "backoff"] {
        found.check(&format!("{retry}.{field}"), is_duration, DURATION);
    }
    let is_condition =
        |condition: &str| RETRY_ON.contains(&condition) || condition.parse().is_ok_and(is_http_status);
    let conditions = |value: &Value| text(value).is_empty() || text(value).split(',').all(is_condition);
    found.check(
        &format!("{retry}.retryOn"),
        conditions,
        &format!("HTTP status codes or {}", RETRY_ON.join(", ")),
    );
}

/// Whether Go's `net/http` has a text for it.
fn is_http_status(code: u16) -> bool {
    matches!(
        code,
        100..=103 | 200..=208 | 226 | 300..=305 | 307 | 308 | 400..=418 | 421..=426 | 428 | 429 | 431 | 451 | 500..=508 | 510 | 511
    )
}

fn is_duration(value: &Value) -> bool {
    is_milliseconds(value) && nanoseconds(value) >= MILLISECOND
}

fn each(all: &Value, ok: impl Fn(&Value) -> bool) -> bool {
    all.as_array().is_none_or(|items| items.iter().all(ok))
}
