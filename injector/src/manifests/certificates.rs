//! cert-manager's objects: a CA of the installation's own, and the certificate that it signs.
//!
//! A CA between the two keeps the trust that was handed out when the certificate is renewed.

use serde_json::{Value, json};

use super::names::Names;
use super::options::Options;

const API: &str = "cert-manager.io/v1";

pub(super) fn objects(options: &Options, names: &Names) -> Vec<Value> {
    let name = names.injector();
    let (ca, own) = (format!("{name}-ca"), format!("{name}-selfsigned"));
    let issuer = |issuer: &str, spec: Value| {
        json!({
            "apiVersion": API, "kind": "Issuer", "metadata": names.metadata(options, issuer), "spec": spec,
        })
    };
    let certificate = |certificate: &str, spec: Value| {
        json!({
            "apiVersion": API, "kind": "Certificate", "metadata": names.metadata(options, certificate), "spec": spec,
        })
    };
    let by = |issuer: &str| json!({"group": "cert-manager.io", "kind": "Issuer", "name": issuer});
    let host = format!("{name}.{}.svc", options.namespace.as_str());
    let key = json!({"algorithm": "ECDSA", "rotationPolicy": "Always", "size": 256});
    vec![
        issuer(&own, json!({"selfSigned": {}})),
        certificate(
            &ca,
            json!({
                "commonName": ca, "duration": "87600h", "isCA": true, "issuerRef": by(&own),
                "privateKey": key, "secretName": ca,
            }),
        ),
        issuer(&ca, json!({"ca": {"secretName": ca}})),
        certificate(
            &name,
            json!({
                "dnsNames": [host, format!("{host}.cluster.local")], "duration": "2160h", "issuerRef": by(&ca),
                "privateKey": key, "renewBefore": "720h", "secretName": names.managed_secret(), "usages": ["server auth"],
            }),
        ),
    ]
}

/// What tells cert-manager's CA injector whose CA to write into a webhook configuration.
pub(super) fn annotation(options: &Options, names: &Names) -> (String, Value) {
    let certificate = format!("{}/{}", options.namespace.as_str(), names.injector());
    ("cert-manager.io/inject-ca-from".to_owned(), json!(certificate))
}
