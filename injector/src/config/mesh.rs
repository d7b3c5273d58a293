//! Mesh config and proxy config: files and annotations override the defaults in the code.

use serde_json::{Map, Value, json};

use super::{check, message};
use crate::path::FieldError;
use crate::schema::mesh::{MESH_CONFIG, PROXY_CONFIG};

/// The mesh config, with its defaults filled in; `defaultConfig` is the proxy config.
#[derive(Clone, Debug, PartialEq)]
pub struct Mesh {
    config: Map<String, Value>,
    proxy: Map<String, Value>,
}

impl Default for Mesh {
    fn default() -> Self {
        let object = |value: Value| if let Value::Object(map) = value { map } else { Map::new() };
        let proxy = object(Self::proxy_defaults());
        let config = object(json!({
            "proxyListenPort": 15001,
            "proxyInboundListenPort": 15006,
            "connectTimeout": "10s",
            "ingressService": "istio-ingressgateway",
            "ingressControllerMode": "STRICT",
            "ingressClass": "istio",
            "accessLogEncoding": "TEXT",
            "outboundTrafficPolicy": {"mode": "ALLOW_ANY"},
            "inboundTrafficPolicy": {"mode": "PASSTHROUGH"},
            "enableAutoMtls": true,
            "enablePrometheusMerge": true,
            "trustDomain": "cluster.local",
            "rootNamespace": "istio-system",
            "dnsRefreshRate": "60s",
            "protocolDetectionTimeout": "0s",
            "extensionProviders": [
                {"name": "prometheus", "prometheus": {}},
                {"name": "stackdriver", "stackdriver": {}},
                {"name": "envoy", "envoyFileAccessLog": {"path": "/dev/stdout"}},
            ],
        }));
        Self { config, proxy }
    }
}

impl Mesh {
    /// The defaults of the proxy config.
    pub(crate) fn proxy_defaults() -> Value {
        json!({
            "configPath": "./etc/istio/proxy",
            "binaryPath": "/usr/local/bin/envoy",
            "serviceCluster": "istio-proxy",
            "drainDuration": "45s",
            "terminationDrainDuration": "5s",
            "proxyAdminPort": 15000,
            "controlPlaneAuthPolicy": "MUTUAL_TLS",
            "statNameLength": 189,
            "statusPort": 15020,
            "discoveryAddress": "istiod.istio-system.svc:15012",
        })
    }

    /// Merges a mesh config (key `mesh` of ConfigMap `istio`) with this one: top-level fields replace,
    /// `defaultConfig` is merged like an annotation, extension providers are added by name.
    ///
    /// # Errors
    ///
    /// Each field, its value and what is accepted.
    pub fn with(&self, value: &Value) -> Result<Self, Vec<FieldError>> {
        if value.is_null() {
            return Ok(self.clone());
        }
        let mut given = message::normal(value, &MESH_CONFIG).map_err(|error| vec![error])?;
        let mut result = match given.shift_remove("defaultConfig") {
            Some(Value::Object(proxy)) => self.over(proxy),
            _ => self.clone(),
        };
        if let Some(Value::Array(more)) = given.shift_remove("extensionProviders") {
            let all = result.config.entry("extensionProviders").or_insert_with(|| json!([]));
            if let Some(all) = all.as_array_mut() {
                all.retain(|old| !more.iter().any(|new| new.get("name") == old.get("name")));
                all.extend(more);
            }
        }
        result.config.extend(given);
        let mut errors = check::mesh(&result.config);
        errors.extend(check::proxy(&result.proxy).into_iter().map(|error| error.below("defaultConfig")));
        if errors.is_empty() { Ok(result) } else { Err(errors) }
    }

    /// Merges a proxy config, as in annotation `proxy.istio.io/config`, with this one's: top-level fields
    /// replace, proxyMetadata is merged by key, proxyHeaders one level deep.
    /// Errors: each field, its value and what is accepted.
    pub(crate) fn with_proxy_config(&self, value: &Value) -> Result<Self, Vec<FieldError>> {
        if value.is_null() {
            return Ok(self.clone());
        }
        let normal = message::normal(value, &PROXY_CONFIG).map_err(|error| vec![error])?;
        // As in Istio by itself, over the defaults: a mesh config is not the fault of a pod.
        let mut errors = check::proxy(&Self::default().over(normal.clone()).proxy);
        // They become environment variables: Kubernetes would refuse the pod, and not say where the name
        // comes from.
        let names = normal.get("proxyMetadata").and_then(Value::as_object).into_iter().flatten();
        let usable = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=')
        };
        if let Some((name, _)) = names.into_iter().find(|(name, _)| !usable(name)) {
            errors.push(FieldError {
                path: "proxyMetadata".to_owned(),
                given: format!("the name {name:?}"),
                expected: "printable ASCII characters without \"=\"".to_owned(),
            });
        }
        if errors.is_empty() { Ok(self.over(normal)) } else { Err(errors) }
    }

    /// The unknown fields of a mesh config, each in a sentence: misspelt, or from another version.
    pub(crate) fn unknown_fields(value: &Value) -> Vec<String> {
        message::unknown(value, &MESH_CONFIG)
    }

    /// The unknown fields of a proxy config, each in a sentence: misspelt, or from another version.
    pub(crate) fn unknown_proxy_fields(value: &Value) -> Vec<String> {
        message::unknown(value, &PROXY_CONFIG)
    }

    /// Merges a proxy config in its normal form with this one's.
    pub(crate) fn over(&self, given: Map<String, Value>) -> Self {
        const KEPT_HEADERS: [&str; 5] =
            ["forwardedClientCert", "requestId", "server", "attemptCount", "envoyDebugHeaders"];
        let mut result = self.clone();
        for (key, mut value) in given {
            for other in message::rivals(&key) {
                result.proxy.shift_remove(*other);
            }
            let old = result.proxy.get(&key).and_then(Value::as_object);
            let kept = old.into_iter().flatten().filter(|(header, _)| match key.as_str() {
                "proxyMetadata" => true,
                "proxyHeaders" => KEPT_HEADERS.contains(&header.as_str()),
                _ => false,
            });
            if let Some(value) = value.as_object_mut() {
                for (key, old) in kept {
                    value.entry(key).or_insert_with(|| old.clone());
                }
            }
            result.proxy.insert(key, value);
        }
        result
    }

    /// The whole mesh config but for `defaultConfig`.
    #[must_use]
    pub fn config(&self) -> &Map<String, Value> {
        &self.config
    }

    /// The proxy config.
    #[must_use]
    pub fn proxy(&self) -> &Map<String, Value> {
        &self.proxy
    }

    /// The mesh config with the proxy config, as one object.
    pub(crate) fn to_json(&self) -> Value {
        let mut all = self.config.clone();
        all.insert("defaultConfig".to_owned(), Value::Object(self.proxy.clone()));
        Value::Object(all)
    }

    /// The agent's port.
    pub(crate) fn status_port(&self) -> i64 {
        self.proxy.get("statusPort").and_then(Value::as_i64).unwrap_or_default()
    }

    /// Whether the app has to wait for the proxy.
    pub(crate) fn hold_application(&self) -> bool {
        self.proxy.get("holdApplicationUntilProxyStarts") == Some(&Value::Bool(true))
    }

    /// How inbound connections reach the proxy.
    pub(crate) fn interception_mode(&self) -> &str {
        self.proxy.get("interceptionMode").and_then(Value::as_str).unwrap_or("REDIRECT")
    }

    /// Whether the agent also serves the app's metrics.
    pub(crate) fn prometheus_merge(&self) -> bool {
        self.config.get("enablePrometheusMerge") != Some(&Value::Bool(false))
    }

    /// Where the proxy sends inbound traffic: `passthrough` or `localhost`.
    pub(crate) fn inbound_traffic_policy(&self) -> String {
        let mode = self.config.get("inboundTrafficPolicy").and_then(|policy| policy.get("mode")?.as_str());
        mode.unwrap_or("PASSTHROUGH").to_lowercase()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_replace_but_metadata_is_merged() {
        let mesh = json!({"trustDomain": "td", "defaultConfig": {
            "proxyMetadata": {"A": "1"}, "tracing": {"sampling": 1, "zipkin": {"address": "z:1"}}, "drain_duration": "1m",
        }});
        let mesh = Mesh::default().with(&mesh).unwrap();
        let annotation =
            json!({"proxyMetadata": {"B": "2"}, "tracing": {}, "interceptionMode": 1, "statusPort": "7"});
        let own = mesh.with_proxy_config(&annotation).unwrap();
        assert_eq!(own.proxy["proxyMetadata"], json!({"A": "1", "B": "2"}));
        assert_eq!(own.proxy["tracing"], json!({}));
        assert_eq!(own.proxy["drainDuration"], "60s");
        assert_eq!((own.interception_mode(), own.status_port()), ("TPROXY", 7));
        assert_eq!(own.config["trustDomain"], "td");
        assert_eq!(own.config["rootNamespace"], "istio-system");
        assert_eq!(own.proxy["configPath"], "./etc/istio/proxy");
    }

    #[test]
    fn unknown_fields_and_nulls_are_nothing() {
        let own = Mesh::default().with_proxy_config(&json!({"nonsense": 1, "tracing": null})).unwrap();
        assert_eq!(own, Mesh::default());
        assert_eq!(Mesh::default().with(&Value::Null), Ok(Mesh::default()));
    }

    #[test]
    fn unknown_fields_are_found() {
        let mesh = json!({"nope": 1, "trustDomain": "x", "defaultConfig": {"tracing": {"Zipkin": {}}, "drain_duration": "1s"}});
        assert_eq!(
            Mesh::unknown_fields(&mesh),
            [
                "nope: not known, ignored",
                "defaultConfig.tracing.Zipkin: not known, ignored; did you mean zipkin?"
            ]
        );
        assert_eq!(Mesh::unknown_proxy_fields(&json!({"proxyMetadata": {"ANY": "1"}})), [""; 0]);
    }

    #[test]
    fn what_is_wrong_is_reported() {
        for (config, named) in [
            (json!({"proxyMetadata": {"A": 1}}), "proxyMetadata.A: "),
            (json!({"proxyMetadata": {"A=B": "1"}}), "the name \"A=B\""),
            (json!({"proxyMetadata": {"": "1"}}), "the name \"\""),
            (json!({"interceptionMode": "redirect"}), "REDIRECT, TPROXY, NONE"),
            (json!({"drainDuration": "soon"}), "drainDuration: \"soon\""),
            (json!({"concurrency": 1.5}), "concurrency: "),
            (json!([1]), "a map"),
        ] {
            let error = &Mesh::default().with_proxy_config(&config).unwrap_err()[0];
            assert!(error.to_string().contains(named), "{error}");
        }
        let error = &Mesh::default().with(&json!({"defaultConfig": {"statusPort": "x"}})).unwrap_err()[0];
        assert!(error.to_string().starts_with("defaultConfig.statusPort: "), "{error}");
    }

    #[test]
    fn providers_are_added_by_name() {
        let mesh = json!({"extensionProviders": [{"name": "otel"}, {"name": "envoy", "x": 1}]});
        let mesh = Mesh::default().with(&mesh).unwrap();
        let names: Vec<&Value> =
            mesh.config["extensionProviders"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["prometheus", "stackdriver", "otel", "envoy"]);
    }
}
