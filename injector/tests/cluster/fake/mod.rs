//! An API server in memory, on loopback: as much of Kubernetes as clients of a few objects need.
//!
//! Objects have `uid`, `resourceVersion` and `managedFields`; there are list (in pages, with selectors),
//! watch, create, replace, apply and delete; and everything that goes wrong with a real one can be had on
//! demand: answers of any code, expired versions, connections that break, a server that goes away and comes
//! back.
#![allow(dead_code, reason = "not every test crate that includes this uses all of it")]

mod apply;
mod serve;
mod store;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Barrier, watch};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

pub(crate) use store::Store;

/// One request that came in.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub method: String,
    /// Path and query.
    pub path: String,
    pub content_type: String,
    pub status: u16,
}

/// Answers that are not the store's.
pub(crate) struct Failure {
    method: &'static str,
    /// Part of path and query.
    path: String,
    status: u16,
    times: usize,
}

/// The status of a response whose body never ends.
const STALLED: u16 = 206;

pub(crate) struct State {
    pub store: Mutex<Store>,
    pub changed: watch::Sender<u64>,
    received: Mutex<Vec<Received>>,
    failures: Mutex<Vec<Failure>>,
    gate: Mutex<Option<(&'static str, String, Arc<Barrier>)>>,
}

pub(crate) struct Fake {
    pub state: Arc<State>,
    pub address: SocketAddr,
    tls: Option<(TlsAcceptor, String)>,
    listener: Mutex<Option<AbortHandle>>,
    connections: Arc<Mutex<Vec<AbortHandle>>>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("not poisoned")
}

impl Fake {
    /// Plain HTTP.
    pub(crate) async fn start() -> Self {
        Self::start_with(None).await
    }

    /// HTTPS; the CA comes with the kubeconfig.
    pub(crate) async fn start_tls(tls: rustls::ServerConfig, ca: String) -> Self {
        Self::start_with(Some((TlsAcceptor::from(Arc::new(tls)), ca))).await
    }

    async fn start_with(tls: Option<(TlsAcceptor, String)>) -> Self {
        let state = State {
            store: Mutex::default(),
            changed: watch::Sender::new(0),
            received: Mutex::default(),
            failures: Mutex::default(),
            gate: Mutex::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("an address");
        let fake = Self {
            state: Arc::new(state),
            address,
            tls,
            listener: Mutex::default(),
            connections: Arc::default(),
        };
        fake.listen(listener);
        fake
    }

    fn listen(&self, listener: TcpListener) {
        let (state, connections) = (Arc::clone(&self.state), Arc::clone(&self.connections));
        let tls = self.tls.as_ref().map(|(acceptor, _)| acceptor.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let task = tokio::spawn(serve::connection(stream, tls.clone(), Arc::clone(&state)));
                lock(&connections).push(task.abort_handle());
            }
        });
        *lock(&self.listener) = Some(task.abort_handle());
    }

    /// A kubeconfig that leads here.
    pub(crate) fn kubeconfig(&self) -> String {
        use base64::Engine as _;
        let (scheme, ca) = match &self.tls {
            None => ("http", Value::Null),
            Some((_, ca)) => ("https", json!(base64::engine::general_purpose::STANDARD.encode(ca))),
        };
        let mut cluster = json!({"server": format!("{scheme}://{}", self.address)});
        if !ca.is_null() {
            cluster["certificate-authority-data"] = ca;
        }
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "fake",
            "clusters": [{"name": "fake", "cluster": cluster}],
            "users": [{"name": "fake", "user": {"token": "fake"}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
        })
        .to_string()
    }

    /// Breaks all connections.
    pub(crate) fn disconnect(&self) {
        lock(&self.connections).drain(..).for_each(|connection| connection.abort());
    }

    /// Goes away.
    pub(crate) async fn stop(&self) {
        if let Some(listener) = lock(&self.listener).take() {
            listener.abort();
        }
        self.disconnect();
        while tokio::net::TcpStream::connect(self.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    }

    /// Comes back, with the same objects; what happened before cannot be watched any more.
    pub(crate) async fn restart(&self) {
        self.change(Store::forget);
        self.listen(TcpListener::bind(self.address).await.expect("the address is free again"));
    }

    /// Changes the store and wakes the watchers.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Store) -> T) -> T {
        let mut store = lock(&self.state.store);
        let result = change(&mut store);
        self.state.changed.send_replace(store.version());
        result
    }

    /// Writes an object as `kubectl replace` would, whatever its field manager; creates it if necessary.
    pub(crate) fn put(&self, manager: &str, object: Value) {
        self.change(|store| store.put(manager, object));
    }

    pub(crate) fn delete(&self, key: &str) {
        self.change(|store| store.delete(key)).unwrap_or_else(|| panic!("no {key}"));
    }

    /// An object, by collection and name: `namespaces/x/secrets/y`.
    pub(crate) fn object(&self, key: &str) -> Option<Value> {
        lock(&self.state.store).object(key).cloned()
    }

    /// Answers so many requests with an error.
    pub(crate) fn fail(&self, method: &'static str, path: &str, status: u16, times: usize) {
        lock(&self.state.failures).push(Failure { method, path: path.to_owned(), status, times });
    }

    /// Answers so many requests with a head and the beginning of a body.
    pub(crate) fn stall(&self, method: &'static str, path: &str, times: usize) {
        self.fail(method, path, STALLED, times);
    }

    pub(crate) fn heal(&self) {
        lock(&self.state.failures).clear();
    }

    /// Holds requests until so many have come.
    pub(crate) fn gate(&self, method: &'static str, path: &str, count: usize) {
        *lock(&self.state.gate) = Some((method, path.to_owned(), Arc::new(Barrier::new(count))));
    }

    /// All requests so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        lock(&self.state.received).clone()
    }

    /// How many requests of that method, with that in their path, were answered with that code.
    pub(crate) fn count(&self, method: &str, path: &str, status: u16) -> usize {
        let received = self.received();
        let like = |received: &&Received| {
            received.method == method && received.path.contains(path) && received.status == status
        };
        received.iter().filter(like).count()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        if let Some(listener) = lock(&self.listener).take() {
            listener.abort();
        }
        self.disconnect();
    }
}

impl State {
    pub(crate) fn note(&self, received: Received) {
        lock(&self.received).push(received);
    }

    pub(crate) fn failure(&self, method: &str, path: &str) -> Option<u16> {
        let mut failures = lock(&self.failures);
        let like = |failure: &&mut Failure| {
            failure.times > 0 && failure.method == method && path.contains(&failure.path)
        };
        let failure = failures.iter_mut().find(like)?;
        failure.times -= 1;
        Some(failure.status)
    }

    pub(crate) async fn pass_gate(&self, method: &str, path: &str) {
        let barrier = match &*lock(&self.gate) {
            Some((gated, part, barrier)) if *gated == method && path.contains(part.as_str()) => {
                Some(Arc::clone(barrier))
            }
            _ => None,
        };
        if let Some(barrier) = barrier
            && barrier.wait().await.is_leader()
        {
            *lock(&self.gate) = None;
        }
    }
}
