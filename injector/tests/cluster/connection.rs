//! How the API server is reached, and what trouble-shooting reads.

use std::net::SocketAddr;
use std::time::SystemTime;

use serde_json::{Value, json};
use sidecar_injector::certs::{Bundle, Names, ServingCert, serving_cert};
use sidecar_injector::cluster::{ClusterOptions, client, fetch};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::fake::Fake;
use super::replica::{
    NAMESPACE, Replica, SECRET, accepted, connect, hooks, injector_config, nothing, stored, until,
};

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_is_reached_over_tls() {
    let names = Names::service("kubernetes", "default").and_loopback();
    let bundle = Bundle::fresh(&names, SystemTime::now()).expect("a bundle");
    let leaf = bundle.leaf();
    let pair = ServingCert::parse("cert", leaf.cert.as_bytes(), "key", leaf.key.as_bytes()).expect("a pair");
    let tls = rustls::ServerConfig::builder_with_provider(std::sync::Arc::new(serving_cert::provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_cert_resolver(std::sync::Arc::new(rustls::sign::SingleCertAndKey::from(
            (*pair.certified).clone(),
        )));
    let fake = Fake::start_tls(tls, bundle.trusted_pem()).await;
    let replica = Replica::self_signed(&fake, &[]).await;
    until("a certificate", || replica.status().waiting().is_empty()).await;
    accepted(&fake, &stored(&fake, "ca.crt"));
    replica.end().await;
}

#[tokio::test]
async fn invalid_kubeconfigs_are_rejected() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let missing = client(Some("/nowhere/config".as_ref())).await.err().expect("an error").to_string();
    assert_eq!(missing, "kubeconfig /nowhere/config: No such file or directory (os error 2)");
    for (cluster, expected) in [
        (
            json!({"server": "http://127.0.0.1:1", "proxy-url": "https://127.0.0.1:2"}),
            "proxy https://127.0.0.1:2 is not accepted, expected http://HOST:PORT",
        ),
        (json!({"server": "127.0.0.1:6443"}), "context a: server 127.0.0.1:6443 is not a URL"),
        (json!({"server": "/x"}), "server /x is not a URL, expected https://HOST:PORT"),
    ] {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a", "users": [{"name": "a", "user": {}}],
            "clusters": [{"name": "a", "cluster": cluster}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        });
        std::fs::write(file.path(), config.to_string()).expect("written");
        let error = client(Some(file.path())).await.err().expect("an error").to_string();
        assert!(error.contains(expected), "{error}");
    }
    for text in [
        "",
        "apiVersion: v1\nkind: Config\n",
        "clusters: 5",
        "{",
        "secret",
        "users:\n- user: {token: secret}\n  - x",
    ] {
        std::fs::write(file.path(), text).expect("written");
        let error = client(Some(file.path())).await.err().expect(text).to_string();
        assert!(error.starts_with("kubeconfig ") && error.lines().count() == 1, "{text}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reads_no_private_keys() {
    let fake = Fake::start().await;
    let replica = Replica::self_signed(&fake, &[]).await;
    until("a certificate", || replica.status().waiting().is_empty()).await;
    replica.end().await;
    fake.put("kubectl", hooks());
    fake.put("kubectl", injector_config());
    let pod = |name: &str, namespace: &str, component: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata":
            {"name": name, "namespace": namespace, "labels": {"component": component}}})
    };
    fake.put("kubelet", pod("kube-apiserver-a", "kube-system", "kube-apiserver"));
    fake.put("kubelet", pod("etcd-a", "kube-system", "etcd"));
    for number in 0..501 {
        fake.put("kubelet", pod(&format!("injector-{number}"), NAMESPACE, "x"));
    }
    fake.put(
        "kubectl",
        json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": "password", "namespace": NAMESPACE}, "data": {"ca.crt": "c2VjcmV0"}}),
    );
    fake.fail("GET", "validatingadmissionpolicies", 403, 1);

    let (objects, notes) = fetch(&connect(&fake).await, NAMESPACE).await;
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].starts_with("validatingadmissionpolicies cannot be read: forbidden"), "{notes:?}");
    let of = |kind: &str| objects.iter().filter(|object| object["kind"] == kind).collect::<Vec<&Value>>();
    assert_eq!(of("Pod").len(), 502);
    assert_eq!(of("ConfigMap").len(), 1);
    let found = of("MutatingWebhookConfiguration");
    assert_eq!(found[0]["apiVersion"], "admissionregistration.k8s.io/v1");
    let secrets = of("Secret");
    let keys: Vec<_> = secrets[0]["data"].as_object().expect("data").keys().map(String::as_str).collect();
    assert_eq!((secrets.len(), keys), (1, vec!["ca.crt", "tls.crt"]));
    let all = format!("{objects:?}");
    assert!(fake.object(SECRET).is_some() && !all.contains("ca.key") && !all.contains("tls.key"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_api_server_is_reported_once() {
    let fake = Fake::start().await;
    let client = connect(&fake).await;
    fake.stop().await;
    let (objects, notes) = fetch(&client, NAMESPACE).await;
    assert!(objects.is_empty());
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("is unreachable") && notes[0].contains("refused"), "{notes:?}");
}

/// A server that gives every connection this response.
async fn always(response: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(response).await;
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_no_api_server_is_reported_as_such() {
    for (response, expected) in [
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n<html>\n".as_slice(),
            "the response is not that of an API server: expected value at line 1 column 1; expected JSON over HTTP",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xfe",
            "the response is not that of an API server: invalid utf-8 sequence of 1 bytes from index 0; expected JSON over HTTP",
        ),
        (
            b"SSH-2.0-OpenSSH_9.2\r\n",
            "the response is not that of an API server: client error (SendRequest): invalid HTTP version parsed; expected JSON \
             over HTTP",
        ),
        (
            b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 15\r\n\r\n<html>\n<body>\n\n",
            "mutatingwebhookconfigurations cannot be read: the API server responded 502: <html>",
        ),
    ] {
        let mut config: Value = serde_json::from_str(&Fake::start().await.kubeconfig()).expect("JSON");
        config["clusters"][0]["cluster"]["server"] = json!(format!("http://{}", always(response).await));
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), config.to_string()).expect("written");
        let client = client(Some(file.path())).await.expect("a client");
        let (_, notes) = fetch(&client, NAMESPACE).await;
        assert_eq!(notes[0], expected);
    }
}

/// The time is a lower bound, which a slow machine does not change: without a limit the requests take
/// milliseconds.
#[tokio::test(flavor = "multi_thread")]
async fn watches_that_end_at_once_are_not_restarted_in_a_tight_loop() {
    let fake = Fake::start().await;
    fake.fail("GET", "watch=true", 200, usize::MAX);
    let start = std::time::Instant::now();
    let replica = Replica::start(&fake, ClusterOptions { nodes: true, ..nothing() }).await;
    until("many watches", || fake.count("GET", "watch=true", 200) >= 60).await;
    assert!(start.elapsed() > std::time::Duration::from_secs(9), "{:?}", start.elapsed());
    replica.end().await;
}
