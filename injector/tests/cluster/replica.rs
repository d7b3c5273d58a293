//! The part of a webhook that talks to the cluster.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use sidecar_injector::certs::{CertResolver, Publisher, verify};
use sidecar_injector::cluster::{
    CertificateSource, Client, Cluster, ClusterOptions, ClusterState, SharedSecret, Status, client,
};
use sidecar_injector::config::{BUILTIN_CONFIG, BUILTIN_MESH, BUILTIN_VALUES, ConfigError, Sources};
use sidecar_injector::inject::{Injector, Options, functions};
use sidecar_injector::webhook::config_store::ConfigStore;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::fake::{Fake, lock};

pub(crate) const NAMESPACE: &str = "istio-system";
pub(crate) const NAME: &str = "istio-sidecar-injector";
pub(crate) const SECRET: &str = "namespaces/istio-system/secrets/istio-sidecar-injector-tls";
pub(crate) const HOOKS: &str = "mutatingwebhookconfigurations/istio-sidecar-injector";

pub(crate) struct Replica {
    pub status: watch::Receiver<Status>,
    pub serving: Arc<CertResolver>,
    pub store: Arc<ConfigStore>,
    pub output: Arc<Mutex<Vec<String>>>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

pub(crate) async fn connect(fake: &Fake) -> Client {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), fake.kubeconfig()).expect("written");
    client(Some(file.path())).await.expect("a client")
}

/// Nothing at all.
pub(crate) fn nothing() -> ClusterOptions {
    ClusterOptions {
        config: None,
        certificates: CertificateSource::none(),
        nodes: false,
        namespaces: false,
        proxy_configs: false,
    }
}

pub(crate) fn secret() -> SharedSecret {
    SharedSecret::of_service(NAME, NAMESPACE)
}

/// Self-signed, with these webhook configurations.
pub(crate) fn self_signed(serving: &Arc<CertResolver>, configurations: &[&str]) -> ClusterOptions {
    let publisher = Publisher::new(Arc::clone(serving), None);
    let configurations = configurations.iter().map(|name| (*name).to_owned()).collect();
    ClusterOptions {
        certificates: CertificateSource::SelfSigned { secret: secret(), publisher, configurations },
        ..nothing()
    }
}

impl Replica {
    pub(crate) async fn start(fake: &Fake, wanted: ClusterOptions) -> Self {
        Self::start_serving(fake, wanted, Arc::default()).await
    }

    pub(crate) async fn self_signed(fake: &Fake, configurations: &[&str]) -> Self {
        let serving = Arc::default();
        Self::start_serving(fake, self_signed(&serving, configurations), serving).await
    }

    async fn start_serving(fake: &Fake, wanted: ClusterOptions, serving: Arc<CertResolver>) -> Self {
        let output = Arc::new(Mutex::new(Vec::new()));
        let collected = Arc::clone(&output);
        let sink =
            Arc::new(move |event: sidecar_injector::events::Event| lock(&collected).push(event.to_string()));
        let (cluster, status) = Cluster::new(connect(fake).await, wanted, sink);
        let settings = Sources::default().load(&functions(|_| None)).expect("built in");
        let injector = Injector::new(settings, Options::default());
        let state = ClusterState { native_sidecars: true, ..ClusterState::default() };
        let store = Arc::new(ConfigStore::new(injector, state.clone()));
        let stop = CancellationToken::new();
        let (configure, published) = (configure(Arc::clone(&store)), Arc::clone(&store));
        let publish = move |state| published.set_cluster_state(state);
        let task = tokio::spawn(cluster.run(state, publish, configure, stop.clone()));
        Self { status, serving, store, output, stop, task }
    }

    pub(crate) fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    pub(crate) fn has_logged(&self, part: &str) -> bool {
        lock(&self.output).iter().any(|line| line.contains(part))
    }

    /// Ends it, as a shutdown does.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.task.await.expect("ends without a panic");
    }
}

/// Loads a config.
fn configure(store: Arc<ConfigStore>) -> impl FnMut(Sources) -> Result<u64, Vec<ConfigError>> + Send {
    move |sources| {
        let settings = sources.load(&functions(|_| None))?;
        store.replace(Injector::new(settings, Options::default()));
        Ok(store.active().generation)
    }
}

/// Waits until it is so; the time is only there to end a test that fails.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let patience = Duration::from_secs(120);
    let end = std::time::Instant::now() + patience;
    while !so() {
        assert!(std::time::Instant::now() < end, "not so after {patience:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE}, "data": data})
}

pub(crate) fn injector_config() -> Value {
    config_map(NAME, json!({"config": BUILTIN_CONFIG, "values": BUILTIN_VALUES}))
}

pub(crate) fn mesh_config(extra: &str) -> Value {
    config_map("istio", json!({"mesh": format!("{BUILTIN_MESH}\n{extra}")}))
}

/// A configuration with two webhooks and no caBundle.
pub(crate) fn hooks() -> Value {
    let hook = |name: &str| {
        json!({
            "name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            "clientConfig": {"service": {"name": NAME, "namespace": NAMESPACE, "path": "/inject"}},
        })
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [hook("namespace.sidecar-injector.istio.io"), hook("object.sidecar-injector.istio.io")],
    })
}

/// The caBundle that all webhooks of the configuration have, as PEM; empty when they have none.
pub(crate) fn ca_bundle(fake: &Fake) -> String {
    let hooks = fake.object(HOOKS).expect("the configuration");
    let bundles: Vec<String> = hooks["webhooks"]
        .as_array()
        .expect("webhooks")
        .iter()
        .map(|hook| decoded(hook["clientConfig"]["caBundle"].as_str().unwrap_or_default()))
        .collect();
    assert!(bundles.windows(2).all(|pair| pair[0] == pair[1]), "all alike");
    bundles[0].clone()
}

pub(crate) fn decoded(text: &str) -> String {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).expect("base64");
    String::from_utf8(bytes).expect("text")
}

/// What is stored in the Secret under that key.
pub(crate) fn stored(fake: &Fake, key: &str) -> String {
    fake.object(SECRET)
        .map(|secret| decoded(secret["data"][key].as_str().unwrap_or_default()))
        .unwrap_or_default()
}

/// Whether the certificate that the replica serves is the one of that PEM.
pub(crate) fn serves(replica: &Replica, pem: &str) -> bool {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    let wanted = CertificateDer::from_pem_slice(pem.as_bytes()).ok();
    replica.serving.pair().is_some_and(|pair| pair.certified.cert.first() == wanted.as_ref())
}

/// Asserts that an API server with this caBundle accepts what is stored.
pub(crate) fn accepted(fake: &Fake, trusted: &str) {
    let host = format!("{NAME}.{NAMESPACE}.svc");
    verify(&stored(fake, "tls.crt"), trusted, &host, SystemTime::now()).expect("accepted");
}
