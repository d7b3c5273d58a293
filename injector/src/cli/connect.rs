//! The cluster that a command reads.

use std::path::Path;

use clap::Args;

use super::{Exit, Failure};
use crate::cluster::{self, Client, ConfigMapName, Connection};
use crate::config::Sources;
use crate::manifests::{Namespace, Revision};

/// Which cluster, and where the injector is in it.
#[derive(Args, Clone, Debug)]
pub(super) struct ClusterArgs {
    /// Kubeconfig; default: $KUBECONFIG, then ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<String>,
    /// Context of the kubeconfig; default: its current context
    #[arg(long, value_name = "NAME")]
    pub(super) context: Option<String>,
    /// Namespace of the injector in the cluster
    #[arg(short, long, alias = "istioNamespace", default_value = "istio-system", value_name = "NAME")]
    pub(super) istio_namespace: Namespace,
}

/// The failure to get something from a cluster.
pub(super) fn unavailable(problem: impl Into<String>) -> Failure {
    Failure::one(Exit::Unavailable, problem)
}

/// Connects, and does what `task` says with the client and what messages call the cluster.
pub(super) fn with_cluster<T>(
    kubeconfig: Option<&str>,
    context: Option<&str>,
    task: impl AsyncFnOnce(Client, String) -> Result<T, Failure>,
) -> Result<T, Failure> {
    if let Some(name) = kubeconfig {
        crate::files::readable(name)
            .map_err(|error| Failure::one(Exit::NoInput, format!("--kubeconfig {name}: {error}")))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| unavailable(format!("cannot start the runtime: {error}")))?;
    runtime.block_on(async {
        let Connection { client, target } = cluster::connect(kubeconfig.map(Path::new), context)
            .await
            .map_err(|error| unavailable(error.to_string()))?;
        task(client, target).await
    })
}

impl ClusterArgs {
    /// The ConfigMap with the config of the installation.
    pub(super) fn config_map(&self, revision: &Revision) -> ConfigMapName {
        let suffix = match revision.as_str() {
            "" => String::new(),
            revision => format!("-{revision}"),
        };
        let namespace = self.istio_namespace.as_str().to_owned();
        ConfigMapName { namespace, name: format!("istio-sidecar-injector{suffix}") }
    }

    /// Config, values and mesh config of the installation if no file has them; only the files, unless a
    /// cluster is requested.
    pub(super) fn beside(&self, files: Sources, revision: &Revision) -> Result<Sources, Failure> {
        if self.kubeconfig.is_none() && self.context.is_none() {
            return Ok(files);
        }
        let name = self.config_map(revision);
        let live =
            with_cluster(self.kubeconfig.as_deref(), self.context.as_deref(), async |client, target| {
                cluster::sources(&client, &name)
                    .await
                    .map_err(|problem| unavailable(format!("{target}: {problem}")))
            })?;
        Ok(merged(files, live))
    }
}

/// What files hold, and the rest from the cluster.
pub(super) fn merged(files: Sources, live: Sources) -> Sources {
    Sources {
        config: files.config.or(live.config),
        values: files.values.or(live.values),
        mesh: files.mesh.or(live.mesh),
    }
}
