//! Reads from and writes to the API server.
//!
//! [`Cluster::run`] watches until it is cancelled: config from a ConfigMap, the certificate in a Secret that
//! replicas share, caBundles in webhook configurations, kubelet versions, ProxyConfig resources, and the user
//! ranges of namespaces. No request waits for it; while the API server cannot be reached, the last valid
//! state stays active. [`fetch()`] reads once what `doctor` checks.
//!
//! A service account needs: `get list watch` on nodes and proxyconfigs, on OpenShift on namespaces too;
//! `get list watch patch` on the MutatingWebhookConfigurations by name; in the injector's namespace
//! `get list watch` on the two ConfigMaps by name, `get list watch update` on the Secret by name, and
//! `create` on Secrets.

mod ca_bundle;
mod configmaps;
mod conflict_backoff;
mod fetch;
mod init_image;
mod native_sidecars;
mod node_agents;
mod owners;
mod secret;
mod state;
mod status;

use futures_util::future::join_all;
use tokio::sync::watch::{Receiver, Sender};
use tokio_util::sync::CancellationToken;

pub use apiclient::{Client, ClientError, Connection, client, connect};
pub use configmaps::{ConfigMapName, sources};
pub use fetch::{FetchedPod, fetch, fetch_pod, fetch_pods, fetch_sidecars};
pub use init_image::init_image;
pub use node_agents::obstacles;
pub use owners::{Owners, overlapping, owners};
pub use secret::SharedSecret;
pub use state::ClusterState;
pub use status::{Part, Status};

use crate::certs::Publisher;
use crate::certs::self_signed::Trusted;
use crate::config::{ConfigError, Sources};
use crate::events::EventSink;
pub(crate) use crate::manifests::MANAGER;
use ca_bundle::Trust;
use status::StatusReporter;

/// What is read and written.
#[derive(Debug)]
pub struct ClusterOptions {
    /// The ConfigMap with config and values; the mesh config is in [`ConfigMapName::mesh`].
    pub config: Option<ConfigMapName>,
    /// Certificates.
    pub certificates: CertificateSource,
    /// Whether kubelet versions decide about native sidecars.
    pub nodes: bool,
    /// Whether namespaces define the users of their pods (OpenShift).
    pub namespaces: bool,
    /// Whether ProxyConfig resources are read, where the cluster has that kind.
    pub proxy_configs: bool,
}

/// Where the certificate and the CAs come from, and the MutatingWebhookConfigurations whose caBundle they are
/// written to.
#[derive(Debug)]
pub enum CertificateSource {
    /// The certificate is in files, or managed by another program.
    External {
        /// The CAs to trust.
        trusted: Trusted,
        /// The configurations.
        configurations: Vec<String>,
    },
    /// Self-signed, in a Secret that the replicas share.
    SelfSigned {
        /// The Secret.
        secret: SharedSecret,
        /// The destination of the certificate.
        publisher: Publisher,
        /// The configurations.
        configurations: Vec<String>,
    },
}

impl CertificateSource {
    /// No certificate and no caBundle.
    #[must_use]
    pub fn none() -> Self {
        Self::External { trusted: Sender::new(None).subscribe(), configurations: Vec::new() }
    }

    fn configurations(&self) -> &[String] {
        match self {
            Self::External { configurations, .. } | Self::SelfSigned { configurations, .. } => configurations,
        }
    }

    fn trust(&self) -> Trust<'_> {
        match self {
            Self::External { trusted, .. } => Trust { known: trusted.clone(), shared: None },
            Self::SelfSigned { secret, publisher, .. } => {
                Trust { known: publisher.trusted(), shared: Some(secret) }
            }
        }
    }
}

/// A connection to a cluster, and what is read and written there.
pub struct Cluster {
    client: Client,
    wanted: ClusterOptions,
    reporter: StatusReporter,
}

impl Cluster {
    /// Nothing happens before [`run`](Self::run); the status already lists what is waited for.
    #[must_use]
    pub fn new(client: Client, wanted: ClusterOptions, events: EventSink) -> (Self, Receiver<Status>) {
        let status = Sender::new(Status::expecting(&wanted));
        let receiver = status.subscribe();
        (Self { client, wanted, reporter: StatusReporter::new(status, events) }, receiver)
    }

    /// Watches until `stopping`. Each part runs on its own, and tries again when it fails, after pauses of up
    /// to half a minute. `publish` gets every state of the cluster that differs from the one before,
    /// beginning with `initial`; `configure` loads a config, or returns its problems.
    pub async fn run<P, C>(self, initial: ClusterState, publish: P, configure: C, stopping: CancellationToken)
    where
        P: Fn(ClusterState),
        C: FnMut(Sources) -> Result<u64, Vec<ConfigError>>,
    {
        let Self { client, wanted, reporter } = self;
        let config = async {
            if let Some(name) = &wanted.config {
                configmaps::run(client.clone(), name, configure, &reporter).await;
            }
        };
        let certificate = async {
            if let CertificateSource::SelfSigned { secret, publisher, .. } = &wanted.certificates {
                secret::run(client.clone(), secret, publisher, &reporter).await;
            }
        };
        let names = wanted.certificates.configurations().iter();
        let bundles =
            names.map(|name| ca_bundle::run(client.clone(), name, wanted.certificates.trust(), &reporter));
        let state = state::run(client.clone(), &wanted, initial, publish, &reporter);
        stopping
            .run_until_cancelled(async { tokio::join!(config, certificate, join_all(bundles), state) })
            .await;
    }
}
