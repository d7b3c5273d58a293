//! What is read from a cluster and written to it.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::super::progress::{Progress, Snapshot};
use super::{Tasks, ended, publisher, say};
use crate::certs::self_signed::Trusted;
use crate::cluster::{Authority, Cluster, ConfigMapName, Part, SharedSecret, Status, Wanted, client};
use crate::webhook::options::{CaBundle, Certificates, ConfigFrom, NativeSidecars, ServeOptions};

const KUBECONFIG: &str = "--kubeconfig";

/// What in the options, or around this process, makes a cluster part of the work. Without any of it nothing is looked
/// for: a kubeconfig that lies about is nobody's wish.
pub(super) fn asked_for(options: &ServeOptions) -> Option<&'static str> {
    let in_pod = options.environment.iter().any(|(key, _)| key == "KUBERNETES_SERVICE_HOST");
    let reasons = [
        ("--watch-configmap", matches!(options.config, ConfigFrom::ConfigMap(_))),
        ("--webhook-config", matches!(&options.ca_bundle, CaBundle::Ours(names) if !names.is_empty())),
        ("--platform openshift", options.openshift),
        (KUBECONFIG, options.kubeconfig.is_some()),
        ("a pod of a cluster", in_pod),
    ];
    reasons.into_iter().find(|(_, asked)| *asked).map(|(reason, _)| reason)
}

pub(super) async fn start(tasks: Tasks, why: &'static str) -> Result<Progress, Vec<String>> {
    let (options, runtime) = (Arc::clone(&tasks.options), Handle::current());
    // Files are read in between, and a file system may hang.
    let connect = move || runtime.block_on(client(options.kubeconfig.as_deref()));
    let client = tokio::task::spawn_blocking(connect).await.map_err(|failed| vec![failed.to_string()])?;
    let client = client.map_err(|error| match why {
        KUBECONFIG => vec![error.to_string()],
        _ => vec![format!("{why} needs a cluster: {error}")],
    })?;
    let (cluster, status) = Cluster::new(client, wanted(&tasks), say());
    let (live, functions) = (Arc::clone(&tasks.live), Arc::clone(&tasks.functions));
    let configure = move |sources| live.configure(&sources, &functions);
    tokio::spawn(cluster.run(tasks.live, configure, ended(tasks.ending)));
    Ok(Progress::of(move || snapshot(&status.borrow())))
}

fn wanted(tasks: &Tasks) -> Wanted {
    let options = &tasks.options;
    let configurations = match &options.ca_bundle {
        CaBundle::Ours(names) => names.clone(),
        CaBundle::External => Vec::new(),
    };
    Wanted {
        config: match &options.config {
            ConfigFrom::ConfigMap(name) => {
                Some(ConfigMapName { namespace: name.namespace.clone(), name: name.name.clone() })
            }
            ConfigFrom::Files { .. } => None,
        },
        authority: match &options.certificates {
            Certificates::SelfSigned { service, namespace, ca_out } => Authority::Shared {
                secret: SharedSecret::of_service(service, namespace),
                publisher: publisher(tasks, ca_out.as_ref()),
                configurations,
            },
            Certificates::Files { .. } => Authority::Elsewhere { trusted: nobody(), configurations },
        },
        nodes: options.native_sidecars == NativeSidecars::Auto,
        namespaces: options.openshift,
    }
}

/// The CA of certificates in files is not known here.
fn nobody() -> Trusted {
    tokio::sync::watch::Sender::new(None).subscribe()
}

fn snapshot(status: &Status) -> Snapshot {
    let waiting = status.waiting().into_iter().map(|(part, why)| match why {
        Some(why) => format!("{part}: {why}"),
        None => format!("{part}: not heard of yet"),
    });
    let own = [
        ("config", &status.config),
        ("certificate", &status.certificate),
        ("nodes", &status.nodes),
        ("namespaces", &status.namespaces),
    ];
    let asked = own.into_iter().filter(|(_, part)| **part != Part::Off);
    let mut parts: Vec<(&str, bool)> = asked.map(|(name, part)| (name, part.problem().is_some())).collect();
    if !status.ca_bundles.is_empty() {
        parts.push(("caBundle", status.ca_bundles.values().any(|part| part.problem().is_some())));
    }
    Snapshot {
        waiting: waiting.collect(),
        parts,
        ca_bundle_writes: status.ca_bundle_writes,
        ca_bundle_disputes: status.ca_bundle_disputes,
    }
}
