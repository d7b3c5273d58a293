//! Background tasks: a self-signed certificate without a cluster, or everything that is read from a cluster
//! and written to it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::config_store::ConfigStore;
use super::error::ServeError;
use super::options::{CaBundle, Certificates, ConfigFrom, NativeSidecars, ServeOptions};
use crate::certs::{CertResolver, Names, Publisher, SelfSigned};
use crate::cluster::{
    CertificateSource, Cluster, ClusterOptions, ClusterState, SharedSecret, Status, client,
};
use crate::events::log_sink;
use gotemplate::Functions;

const KUBECONFIG: &str = "--kubeconfig";

/// What background tasks share.
#[derive(Clone, Debug)]
pub(super) struct Tasks {
    /// The options.
    pub options: Arc<ServeOptions>,
    /// Gets the config and the state of the cluster.
    pub config: Arc<ConfigStore>,
    /// Gets certificates.
    pub serving: Arc<CertResolver>,
    /// What templates may call.
    pub functions: Arc<Functions>,
    /// Ends the tasks.
    pub stopping: CancellationToken,
}

/// Starts the tasks; the status of the cluster, if there is one. Nothing here waits for a cluster: what is
/// missing keeps the webhook from being ready, and is tried again.
/// Errors: every problem that a retry does not solve.
pub(super) async fn start(tasks: Tasks) -> Result<Option<watch::Receiver<Status>>, Vec<ServeError>> {
    tasks.config.set_cluster_state(ClusterState {
        native_sidecars: tasks.options.native_sidecars != NativeSidecars::False,
        ..ClusterState::default()
    });
    if let Some(reason) = needs_cluster(&tasks.options) {
        return start_cluster(tasks, reason).await.map(Some).map_err(|error| vec![error]);
    }
    if let Certificates::SelfSigned { service, namespace, ca_out } = &tasks.options.certificates {
        let names = Names::service(service, namespace).and_loopback();
        let own = SelfSigned::issue(&names, publisher(&tasks, ca_out.as_ref()), SystemTime::now());
        let own = own.await.map_err(|error| vec![ServeError::SelfSigned(error)])?;
        tokio::spawn(own.run(log_sink(), tasks.stopping));
    }
    Ok(None)
}

fn publisher(tasks: &Tasks, ca_out: Option<&PathBuf>) -> Publisher {
    Publisher::new(Arc::clone(&tasks.serving), ca_out.cloned())
}

/// The option, or the environment, because of which a cluster is needed. A kubeconfig in its default place is
/// not a reason.
fn needs_cluster(options: &ServeOptions) -> Option<&'static str> {
    let in_pod = options.environment.iter().any(|(key, _)| key == "KUBERNETES_SERVICE_HOST");
    let reasons = [
        ("--watch-configmap", matches!(options.config, ConfigFrom::ConfigMap(_))),
        ("--webhook-config", matches!(&options.ca_bundle, CaBundle::Ours(names) if !names.is_empty())),
        ("--platform openshift", options.openshift),
        (KUBECONFIG, options.kubeconfig.is_some()),
        ("a pod of a cluster", in_pod),
    ];
    reasons.into_iter().find(|(_, needed)| *needed).map(|(reason, _)| reason)
}

async fn start_cluster(tasks: Tasks, reason: &'static str) -> Result<watch::Receiver<Status>, ServeError> {
    let (options, runtime) = (Arc::clone(&tasks.options), Handle::current());
    // Reading files blocks, and a file system may be unresponsive.
    let connect = move || runtime.block_on(client(options.kubeconfig.as_deref()));
    let client = tokio::task::spawn_blocking(connect).await;
    let client = client.map_err(|error| ServeError::Runtime(error.to_string()))?;
    let client = client.map_err(|error| match reason {
        KUBECONFIG => ServeError::Cluster(error.to_string()),
        _ => ServeError::Cluster(format!("{reason} needs a cluster: {error}")),
    })?;
    let (cluster, status) = Cluster::new(client, wanted(&tasks), log_sink());
    let Tasks { config, functions, stopping, .. } = tasks;
    let initial = (*config.cluster_state()).clone();
    let store = Arc::clone(&config);
    let configure = move |sources| store.configure(&sources, &functions);
    tokio::spawn(cluster.run(initial, move |state| config.set_cluster_state(state), configure, stopping));
    Ok(status)
}

fn wanted(tasks: &Tasks) -> ClusterOptions {
    let options = &tasks.options;
    let configurations = match &options.ca_bundle {
        CaBundle::Ours(names) => names.clone(),
        CaBundle::External => Vec::new(),
    };
    ClusterOptions {
        config: match &options.config {
            ConfigFrom::ConfigMap(name) => Some(name.clone()),
            ConfigFrom::Files(_) => None,
        },
        certificates: match &options.certificates {
            Certificates::SelfSigned { service, namespace, ca_out } => CertificateSource::SelfSigned {
                secret: SharedSecret::of_service(service, namespace),
                publisher: publisher(tasks, ca_out.as_ref()),
                configurations,
            },
            // The CA of certificates in files is not known.
            Certificates::Files(_) => {
                CertificateSource::External { trusted: watch::Sender::new(None).subscribe(), configurations }
            }
        },
        nodes: options.native_sidecars == NativeSidecars::Auto,
        namespaces: options.openshift,
        proxy_configs: true,
    }
}
