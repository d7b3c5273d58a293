//! Validation of mesh and proxy config beyond the types of fields, as in Istio.

mod traffic;

use std::net::IpAddr;

use serde_json::{Map, Value};

use crate::path::FieldError;

const PORT: &str = "a port, 1 to 65535";
const ADDRESS: &str = "HOST:PORT";
const SECONDS: &str = "a whole number of seconds, at least 1s";
const MILLISECONDS: &str = "a duration of whole milliseconds";

/// What is not accepted in a proxy config with its defaults.
pub(super) fn proxy(config: &Map<String, Value>) -> Vec<FieldError> {
    let mut found = Found { config, errors: Vec::new() };
    for field in ["configPath", "binaryPath", "serviceCluster"] {
        found.check(field, |value| !text(value).is_empty(), "a non-empty string");
    }
    found.check("drainDuration", |value| nanoseconds(value) > 0 && nanoseconds(value) % SECOND == 0, SECONDS);
    found.check("discoveryAddress", is_address, ADDRESS);
    for field in ["proxyAdminPort", "statusPort"] {
        found.check(field, is_port, PORT);
    }
    let policy = |value: &Value| matches!(text(value), "NONE" | "MUTUAL_TLS");
    found.check("controlPlaneAuthPolicy", policy, "NONE, MUTUAL_TLS");
    let optional = |value: &Value| text(value).is_empty() || is_address(value);
    for field in [
        "statsdUdpAddress",
        "envoyMetricsServiceAddress",
        "envoyMetricsService.address",
        "envoyAccessLogService.address",
    ] {
        found.check(field, optional, ADDRESS);
    }
    found.tracing();
    for field in ["privateKeyProvider.cryptomb", "privateKeyProvider.qat"] {
        let positive = |value: &Value| value.get("pollDelay").is_some_and(|delay| nanoseconds(delay) != 0);
        found.check(field, positive, "a pollDelay other than 0s");
    }
    let provider = |value: &Value| value.as_object().is_some_and(|provider| !provider.is_empty());
    found.check("privateKeyProvider", provider, "cryptomb or qat");
    found.connections();
    found.errors
}

/// What is not accepted in the rest of a mesh config.
pub(super) fn mesh(config: &Map<String, Value>) -> Vec<FieldError> {
    let mut found = Found { config, errors: Vec::new() };
    found.check("proxyListenPort", is_port, PORT);
    let timeout = |value: &Value| is_milliseconds(value) && (1..=3600 * SECOND).contains(&nanoseconds(value));
    found.check("connectTimeout", timeout, "a duration of whole milliseconds, 1ms to 1h");
    found.check("protocolDetectionTimeout", is_milliseconds, MILLISECONDS);
    found.check("trustDomain", is_trust_domain, "a DNS name");
    let each =
        |items: &Value, ok: fn(&Value) -> bool| items.as_array().is_some_and(|items| items.iter().all(ok));
    found.check("trustDomainAliases", |aliases| each(aliases, is_trust_domain), "DNS names");
    let hosts = |settings: &Value| settings.get("hosts").is_none_or(|hosts| each(hosts, is_host));
    let all = |settings: &Value| settings.as_array().is_some_and(|settings| settings.iter().all(hosts));
    found.check("serviceSettings", all, "hosts that are DNS names, * first if at all");
    let empty = |curves: &Value| curves.as_array().is_none_or(Vec::is_empty);
    found.check("meshMTLS.ecdhCurves", empty, "none: the mesh's own TLS has no curves to choose");
    found.errors.extend(traffic::problems(config));
    found.errors
}

const SECOND: i64 = 1_000_000_000;

struct Found<'a> {
    config: &'a Map<String, Value>,
    errors: Vec<FieldError>,
}

impl Found<'_> {
    /// Notes the field at `path`, names with dots between them, if it is there and not as it must be.
    fn check(&mut self, path: &str, ok: impl Fn(&Value) -> bool, expected: &str) {
        let (first, rest) = path.split_once('.').unwrap_or((path, ""));
        let mut inner = rest.split('.').filter(|key| !key.is_empty());
        let value = self.config.get(first).and_then(|value| inner.try_fold(value, |at, key| at.get(key)));
        if let Some(value) = value.filter(|value| !ok(value)) {
            self.errors.push(FieldError::new(path, value, expected));
        }
    }

    fn tracing(&mut self) {
        let on_host = |value: &Value| {
            let address = value.get("address").map(text).unwrap_or_default();
            is_address(&Value::from(address.replacen("$(HOST_IP)", "127.0.0.1", 1)))
        };
        for tracer in ["tracing.zipkin", "tracing.datadog"] {
            self.check(tracer, on_host, "an address HOST:PORT");
        }
        let has = |value: &Value, key: &str| value.get(key).is_some_and(|value| !text(value).is_empty());
        let lightstep =
            |value: &Value| value.get("address").is_some_and(is_address) && has(value, "accessToken");
        self.check("tracing.lightstep", lightstep, "an address HOST:PORT and an accessToken");
        let certificates = |tls: &Value| {
            let any = |keys: &[&str]| keys.iter().any(|key| has(tls, key));
            let names =
                tls.get("subjectAltNames").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
            let (simple, mutual) = (is(tls, "mode", "SIMPLE"), is(tls, "mode", "MUTUAL"));
            let unverified = tls.get("insecureSkipVerify") == Some(&Value::Bool(true));
            let own = ["clientCertificate", "caCertificates", "privateKey", "caCrl"];
            !(is_config_map(tls)
                || unverified && (simple || mutual) && (any(&["caCertificates"]) || names)
                || unverified && simple && any(&["credentialName"])
                || (simple || mutual) && any(&["credentialName"]) && any(&own)
                || mutual
                    && !any(&["credentialName"])
                    && !(has(tls, "clientCertificate") && has(tls, "privateKey")))
        };
        let expected = "with mode MUTUAL clientCertificate and privateKey, or a credentialName alone; with insecureSkipVerify \
                        neither caCertificates nor subjectAltNames";
        self.check("tracing.tlsSettings", certificates, expected);
    }

    fn connections(&mut self) {
        let mut least = |fields: &[&str], least: i64, expected: &str| {
            for field in fields {
                let number = |value: &Value| value.as_i64().unwrap_or_else(|| nanoseconds(value)) >= least;
                self.check(&format!("connectionSettings.{field}"), number, expected);
            }
        };
        least(
            &[
                "listenerPerConnectionBufferLimitBytes",
                "clusterPerConnectionBufferLimitBytes",
                "httpIdleTimeout",
                "httpMaxConnectionDuration",
                "httpDrainTimeout",
                "httpRequestTimeout",
                "httpRequestHeadersTimeout",
                "httpStreamIdleTimeout",
                "httpMaxStreamDuration",
            ],
            0,
            "0 or more",
        );
        let counts =
            ["httpMaxConcurrentStreams", "listenerConnectionLimit", "globalDownstreamConnectionLimit"];
        least(&counts, 1, "1 or more");
        least(&["http2InitialStreamWindowSize", "http2InitialConnectionWindowSize"], 65535, "65535 or more");
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn is(value: &Value, key: &str, wanted: &str) -> bool {
    value.get(key).map(text) == Some(wanted)
}

/// ConfigMaps are taken from the namespace of a resource, and a mesh has none.
fn is_config_map(tls: &Value) -> bool {
    tls.get("credentialName").is_some_and(|name| text(name).starts_with("configmap://"))
}

fn nanoseconds(value: &Value) -> i64 {
    value.as_str().and_then(goduration::parse).unwrap_or_default()
}

fn is_milliseconds(value: &Value) -> bool {
    nanoseconds(value) % 1_000_000 == 0
}

fn is_port(value: &Value) -> bool {
    value.as_i64().is_some_and(|port| (1..=65535).contains(&port))
}

/// `HOST:PORT`, with brackets around an IPv6 address.
fn is_address(value: &Value) -> bool {
    let Some((host, port)) = text(value).rsplit_once(':') else { return false };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = bare.unwrap_or(host);
    let host_is_one = (bare.is_some() || !host.contains(':')) && !host.contains(['[', ']']);
    let zone = host.split_once('%').map_or(host, |(address, _)| address);
    host_is_one
        && port.parse::<u16>().is_ok_and(|port| port > 0)
        && (is_domain(host) || zone.parse::<IpAddr>().is_ok())
}

fn is_domain(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    (1..=255).contains(&name.len()) && last.parse::<i64>().is_err() && has_labels(name)
}

fn is_trust_domain(value: &Value) -> bool {
    !text(value).is_empty() && has_labels(text(value))
}

/// A DNS name whose first label may begin with `*`.
fn is_host(value: &Value) -> bool {
    let (first, rest) = text(value).split_once('.').unwrap_or((text(value), "a"));
    let bare = first.strip_prefix("*-").or_else(|| first.strip_prefix('*')).unwrap_or(first);
    (first == "*" || is_label(bare)) && is_domain(rest)
}

/// Labels with dots between them, and perhaps one behind them.
fn has_labels(name: &str) -> bool {
    name.strip_suffix('.').unwrap_or(name).split('.').all(is_label)
}

fn is_label(label: &str) -> bool {
    let inner = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    (1..=63).contains(&label.len()) && inner && !label.starts_with('-') && !label.ends_with('-')
}
