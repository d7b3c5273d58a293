//! The Service and the NetworkPolicy.

use serde_json::{Value, json};

use super::names::{HTTPS_PORT, MONITORING_PORT, Names};
use super::options::Options;

/// Where API servers listen: most clusters, kubeadm's, minikube's. A policy sees the port behind the Service.
const API_SERVER_PORTS: [u16; 3] = [443, 6443, 8443];

pub(super) fn service(options: &Options, names: &Names) -> Value {
    let port = |name: &str, port: u16, target: &str| json!({"name": name, "port": port, "protocol": "TCP", "targetPort": target});
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": names.metadata(options, &names.injector()),
        "spec": {
            "ports": [
                port("https-webhook", 443, "https-webhook"),
                port("http-monitoring", MONITORING_PORT, "http-monitoring"),
            ],
            "selector": names.labels(),
        },
    })
}

/// API servers call from the network of their node, which no selector matches: all sources are allowed.
pub(super) fn policy(options: &Options, names: &Names) -> Value {
    let port = |protocol: &str, port: u16| json!({"port": port, "protocol": protocol});
    let api_servers: Vec<Value> = API_SERVER_PORTS.iter().map(|number| port("TCP", *number)).collect();
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": names.metadata(options, &names.injector()),
        "spec": {
            "podSelector": {"matchLabels": names.labels()},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [port("TCP", HTTPS_PORT), port("TCP", MONITORING_PORT)]}],
            "egress": [{"ports": [port("UDP", 53), port("TCP", 53)]}, {"ports": api_servers}],
        },
    })
}
