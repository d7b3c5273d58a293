//! How the API server is reached, and what trouble-shooting reads.

use std::time::SystemTime;

use serde_json::{Value, json};
use sidecar_injector::certs::{Bundle, Names, ServingCert, serving_cert};
use sidecar_injector::cluster::{ClusterOptions, client, fetch};

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
    assert!(missing.starts_with("kubeconfig /nowhere/config: "), "{missing}");
    assert!(missing.contains("No such file"), "{missing}");
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

/// The time is a lower bound, which a slow machine does not change: without a limit the requests take milliseconds.
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
