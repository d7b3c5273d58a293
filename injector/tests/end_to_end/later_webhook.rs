//! A webhook of another program, which is called after the injector and not again: it changes images and
//! resources of all containers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::control_plane::Cluster;

pub(crate) const MIRROR: &str = "mirror.example.com/";

/// Starts it, for the rest of the process; its configuration, for pods of one namespace.
pub(crate) fn start(cluster: &Cluster, name: &str, namespace: &str) -> Value {
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec![cluster.address.to_string()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate");
    let private = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .expect("a certificate");
    let config = Arc::new(config);
    let listener = TcpListener::bind((cluster.address, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let config = Arc::clone(&config);
            std::thread::spawn(move || serve(stream, config));
        }
    });
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [{
            "name": "mirror.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "reinvocationPolicy": "Never", "failurePolicy": "Fail",
            "clientConfig": {
                "url": format!("https://{}:{port}/", cluster.address), "caBundle": STANDARD.encode(certificate.pem()),
            },
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        }],
    })
}

/// HTTP/1.1, one request after the other.
fn serve(stream: TcpStream, config: Arc<ServerConfig>) {
    let connection = ServerConnection::new(config).expect("a connection");
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).unwrap_or_default() == 0 {
                return;
            }
            if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = text.trim().parse().expect("a length");
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).expect("a body");
        let answer = review(&serde_json::from_slice(&body).expect("JSON")).to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        let stream = stream.get_mut();
        stream.write_all((head + &answer).as_bytes()).and_then(|()| stream.flush()).expect("written");
    }
}

fn review(review: &Value) -> Value {
    let mut patch = Vec::new();
    for list in ["containers", "initContainers"] {
        let containers = review["request"]["object"]["spec"][list].as_array().cloned().unwrap_or_default();
        for (at, container) in containers.iter().enumerate() {
            let set = |field: &str, value: Value| json!({"op": "add", "path": format!("/spec/{list}/{at}/{field}"), "value": value});
            let image = container["image"].as_str().expect("an image");
            patch.push(set("image", json!(format!("{MIRROR}{image}"))));
            patch.push(set("resources", json!({"requests": {"cpu": "7m"}})));
        }
    }
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {
            "uid": review["request"]["uid"], "allowed": true,
            "patchType": "JSONPatch", "patch": STANDARD.encode(json!(patch).to_string()),
        },
    })
}
