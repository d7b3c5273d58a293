//! What is read from a cluster and written to it.
//!
//! [`Cluster::run`] keeps up with the cluster until it is told to end: config from a ConfigMap, the certificate in a Secret that
//! replicas share, caBundles in webhook configurations, kubelet versions, and the ranges of namespaces. Nothing here is on
//! the way of a request; an API server that cannot be reached leaves in force what was there last. [`fetch()`] reads once
//! what trouble-shooting looks at.
//!
//! A service account needs: `get list watch` on nodes and namespaces; `get list watch patch` on the
//! MutatingWebhookConfigurations by name; in the injector's namespace `get list watch` on the two ConfigMaps by name,
//! `get list watch update` on the Secret by name, and `create` on Secrets.

mod backoff;
mod ca_bundle;
mod client;
mod configmaps;
mod fetch;
mod follow;
mod nodes;
mod peace;
mod secret;
mod status;
mod surround;

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::watch;

pub use client::{ClientError, client};
pub use configmaps::ConfigMapName;
pub use fetch::fetch;
pub use kube::Client;
pub use secret::SharedSecret;
pub use status::{Part, Status};

use crate::certs::Publisher;
use crate::certs::self_signed::Trusted;
use crate::config::{ConfigError, Sources};
use crate::notice::Say;
use crate::webhook::live::Live;
use ca_bundle::Trust;
use status::Board;

/// The name under which objects and fields are owned.
pub const MANAGER: &str = "sidecar-injector";

/// What is to be read and written.
#[derive(Debug)]
pub struct Wanted {
    /// The ConfigMap with config and values; the mesh config is in [`ConfigMapName::mesh`].
    pub config: Option<ConfigMapName>,
    /// Certificates.
    pub authority: Authority,
    /// Whether kubelet versions decide about native sidecars.
    pub nodes: bool,
    /// Whether namespaces prescribe users and groups (OpenShift).
    pub namespaces: bool,
}

/// Where the certificate and the CAs come from, and the MutatingWebhookConfigurations that get the CAs: none, when
/// somebody else sees to it.
#[derive(Debug)]
pub enum Authority {
    /// The certificate is in files, or somebody else's affair.
    Elsewhere {
        /// The CAs to trust.
        trusted: Trusted,
        /// The configurations.
        configurations: Vec<String>,
    },
    /// Self-signed, in a Secret that the replicas share.
    Shared {
        /// The Secret.
        secret: SharedSecret,
        /// Where the certificate goes.
        publisher: Publisher,
        /// The configurations.
        configurations: Vec<String>,
    },
}

impl Authority {
    /// Nothing to do with the cluster.
    #[must_use]
    pub fn none() -> Self {
        Self::Elsewhere { trusted: watch::Sender::new(None).subscribe(), configurations: Vec::new() }
    }

    fn configurations(&self) -> &[String] {
        match self {
            Self::Elsewhere { configurations, .. } | Self::Shared { configurations, .. } => configurations,
        }
    }

    fn trust(&self) -> Trust<'_> {
        match self {
            Self::Elsewhere { trusted, .. } => Trust { known: trusted.clone(), shared: None },
            Self::Shared { secret, publisher, .. } => {
                Trust { known: publisher.trusted(), shared: Some(secret) }
            }
        }
    }
}

/// A connection to a cluster, with what is to be done there.
pub struct Cluster {
    client: Client,
    wanted: Wanted,
    board: Board,
}

impl Cluster {
    /// Nothing happens before [`run`](Self::run); the status says already what is waited for.
    #[must_use]
    pub fn new(client: Client, wanted: Wanted, say: Say) -> (Self, watch::Receiver<Status>) {
        let status = watch::Sender::new(Status::expecting(&wanted));
        let receiver = status.subscribe();
        (Self { client, wanted, board: Board::new(status, say) }, receiver)
    }

    /// Keeps up with the cluster until `shutdown` is true. Every part goes on for itself, and tries again when it fails,
    /// after pauses of up to half a minute. `configure` puts a config in force or says why not. While this runs, nobody
    /// else calls [`Live::surround`].
    pub async fn run<F>(self, live: Arc<Live>, configure: F, mut shutdown: watch::Receiver<bool>)
    where
        F: FnMut(Sources) -> Result<u64, Vec<ConfigError>>,
    {
        let Self { client, wanted, board } = self;
        let config = async {
            if let Some(name) = &wanted.config {
                configmaps::run(client.clone(), name, configure, &board).await;
            }
        };
        let certificate = async {
            if let Authority::Shared { secret, publisher, .. } = &wanted.authority {
                secret::run(client.clone(), secret, publisher, &board).await;
            }
        };
        let names = wanted.authority.configurations().iter();
        let bundles =
            names.map(|name| ca_bundle::run(client.clone(), name, wanted.authority.trust(), &board));
        let surroundings = surround::run(client.clone(), wanted.nodes, wanted.namespaces, &live, &board);
        let all = async {
            tokio::join!(config, certificate, join_all(bundles), surroundings);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = all => {}
            _ = shutdown.wait_for(|ended| *ended) => {}
        }
    }
}
