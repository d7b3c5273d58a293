//! Requests all the time, until it is enough.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustls::pki_types::CertificateDer;
use std::net::SocketAddr;

use super::client::{Client, request, review, whole};
use super::server::Server;

/// How a client uses connections.
#[derive(Clone, Copy)]
pub(crate) enum Use {
    /// One, for as long as it lasts.
    KeepHttp1,
    KeepHttp2,
    /// A new one for each request.
    Fresh,
}

/// What the requests met.
#[derive(Default)]
pub(crate) struct LoadResult {
    enough: AtomicBool,
    pub(crate) answered: AtomicU32,
    pub(crate) failures: std::sync::Mutex<Vec<String>>,
    pub(crate) certificates: std::sync::Mutex<Vec<Vec<u8>>>,
}

pub(crate) struct Load {
    pub(crate) result: Arc<LoadResult>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    pub(crate) fn on(server: &Server) -> Self {
        let result = Arc::new(LoadResult::default());
        let uses = [Use::KeepHttp1, Use::KeepHttp2, Use::Fresh, Use::Fresh];
        let tasks = uses
            .map(|kind| tokio::spawn(drive(server.https, server.ca.clone(), kind, Arc::clone(&result))))
            .into();
        Self { result, tasks }
    }

    /// Waits until so many more were answered.
    pub(crate) async fn go_on(&self, more: u32) {
        let goal = self.result.answered.load(Ordering::SeqCst) + more;
        while self.result.answered.load(Ordering::SeqCst) < goal && !self.tasks[0].is_finished() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    /// Ends it: nothing may have failed.
    pub(crate) async fn end(self) -> Arc<LoadResult> {
        self.result.enough.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await.unwrap();
        }
        assert_eq!(*self.result.failures.lock().unwrap(), Vec::<String>::new());
        self.result
    }
}

/// Until it is stopped, or connections are no longer accepted. What fails after a connection was made and a
/// request was sent counts as a failure; what the server does not process because it ends the connection is
/// sent on another one.
async fn drive(address: SocketAddr, ca: CertificateDer<'static>, kind: Use, result: Arc<LoadResult>) {
    let protocols: &[&[u8]] = match kind {
        Use::KeepHttp1 => &[b"http/1.1"],
        Use::KeepHttp2 | Use::Fresh => &[b"h2"],
    };
    let mut kept: Option<Client> = None;
    while !result.enough.load(Ordering::SeqCst) {
        let mut client = match kept.take() {
            Some(client) => client,
            None => {
                let Ok(client) = Client::connect(address, &ca, protocols).await else { return };
                result.certificates.lock().unwrap().push(client.certificate.clone());
                client
            }
        };
        let request = request("POST", "/inject?timeout=10s", "application/json", whole(review("load")));
        match client.try_send(request).await {
            Ok(None) => continue,
            Ok(Some(answer)) if answer.is_injection() => {
                result.answered.fetch_add(1, Ordering::SeqCst);
            }
            Ok(Some(answer)) => result.failures.lock().unwrap().push(format!("{answer:?}")),
            Err(error) => result.failures.lock().unwrap().push(format!("{error:?}")),
        }
        if !matches!(kind, Use::Fresh) {
            kept = Some(client);
        }
    }
}
