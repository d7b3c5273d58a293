//! The state of the cluster that pods depend on: kubelet versions, and the user ranges of namespaces.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;

use super::ClusterOptions;
use super::native_sidecars::{kubelet_version, native_sidecars};
use super::status::{Part, StatusReporter};
use crate::config::{ProxyConfig, ProxyConfigs};
use crate::path::FieldError;
use crate::pod::ids::Ids;
use apiclient::{Cached, watch};

/// Known facts about the cluster and its namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterState {
    /// Whether proxies are native sidecars, where the pod does not say.
    pub native_sidecars: bool,
    /// By namespace: the users of its pods, or why its annotations cannot be read.
    pub namespaces: HashMap<String, Result<Ids, String>>,
    /// ProxyConfig resources.
    pub proxy_configs: Arc<ProxyConfigs>,
    /// Whether every namespace defines them, as on OpenShift: one that is not in the map is not known yet.
    pub namespaces_required: bool,
}

/// Keeps the state current, beginning with `initial`; `publish` gets every other one. `wanted` says what is
/// watched.
pub(super) async fn run(
    client: Client,
    wanted: &ClusterOptions,
    initial: ClusterState,
    publish: impl Fn(ClusterState),
    reporter: &StatusReporter,
) {
    let versions = watch::Sender::new(Cached::empty());
    let ids = watch::Sender::new(Cached::empty());
    let configs = watch::Sender::new(Cached::empty());
    let reconciler = Reconciler {
        versions: versions.subscribe(),
        ids: ids.subscribe(),
        configs: configs.subscribe(),
        state: initial,
    };
    let ClusterOptions { nodes, namespaces, proxy_configs, .. } = *wanted;
    let kind = GroupVersionKind::gvk("networking.istio.io", "v1beta1", "ProxyConfig");
    let resources = Api::<DynamicObject>::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    tokio::select! {
        never = watch(Api::<Node>::all(client.clone()), None, kubelet_version, &versions), if nodes => match never {},
        never = watch(Api::<Namespace>::all(client), None, ids_of, &ids), if namespaces => match never {},
        never = watch(resources, None, |object| proxy_config(&object), &configs), if proxy_configs => match never {},
        () = reconciler.run(wanted, publish, reporter), if nodes || namespaces || proxy_configs => {}
        else => {}
    }
}

struct Reconciler {
    versions: watch::Receiver<Cached<String>>,
    ids: watch::Receiver<Cached<Result<Ids, String>>>,
    configs: watch::Receiver<Cached<Result<ProxyConfig, FieldError>>>,
    state: ClusterState,
}

impl Reconciler {
    async fn run(
        mut self,
        wanted: &ClusterOptions,
        publish: impl Fn(ClusterState),
        reporter: &StatusReporter,
    ) {
        let mut reported = None;
        loop {
            let before = self.state.clone();
            let nodes = wanted.nodes.then(|| self.reconcile_nodes(&mut reported, reporter));
            let namespaces = wanted.namespaces.then(|| self.reconcile_namespaces());
            let proxy_configs = wanted.proxy_configs.then(|| self.reconcile_proxy_configs(reporter));
            // Before the status: the first pod that is admitted once the webhook is ready needs this state.
            if self.state != before {
                publish(self.state.clone());
            }
            if let Some(part) = nodes {
                reporter.report("nodes", |status| &mut status.nodes, &part);
            }
            if let Some(part) = namespaces {
                reporter.report("namespaces", |status| &mut status.namespaces, &part);
            }
            if let Some(part) = proxy_configs {
                reporter.report("proxyconfigs", |status| &mut status.proxy_configs, &part);
            }
            tokio::select! {
                changed = self.versions.changed() => if changed.is_err() { return },
                changed = self.ids.changed() => if changed.is_err() { return },
                changed = self.configs.changed() => if changed.is_err() { return },
            }
        }
    }

    fn reconcile_nodes(&mut self, reported: &mut Option<bool>, reporter: &StatusReporter) -> Part {
        let Cached { objects, problem } = self.versions.borrow_and_update().clone();
        if let Some(versions) = &objects {
            let (native, reason) = native_sidecars(versions);
            self.state.native_sidecars = native;
            if *reported != Some(native) {
                let message = if native { "native sidecars enabled" } else { "native sidecars disabled" };
                reporter.info("nodes", message, reason);
            }
            *reported = Some(native);
        } else if problem.is_some() && reported.is_none() {
            self.state.native_sidecars = false;
        }
        // Nodes that cannot be read lead to the safe choice, and do not keep the webhook from being ready.
        let known = objects.is_some() || problem.is_some();
        Part::of(known, problem)
    }

    fn reconcile_namespaces(&mut self) -> Part {
        let Cached { objects, problem } = self.ids.borrow_and_update().clone();
        let known = objects.is_some();
        if let Some(ids) = objects {
            self.state.namespaces = ids.into_iter().collect();
            self.state.namespaces_required = true;
        }
        Part::of(known, problem)
    }

    /// Reconciles the ProxyConfigs. Those that cannot be read are left out: Istio's own validation does not
    /// let them in.
    fn reconcile_proxy_configs(&mut self, reporter: &StatusReporter) -> Part {
        let Cached { objects, problem } = self.configs.borrow_and_update().clone();
        // As for nodes: a cluster that does not let them be read is injected without them.
        let known = objects.is_some() || problem.is_some();
        if let Some(objects) = objects {
            let read = objects.into_iter().filter_map(|(name, resource)| match resource {
                Ok(resource) => Some((name.split('/').next().unwrap_or_default().to_owned(), resource)),
                Err(error) => {
                    reporter.warn("proxyconfigs", "ignored", format!("{name}: {error}"));
                    None
                }
            });
            let all: ProxyConfigs = read.collect();
            if all != *self.state.proxy_configs {
                self.state.proxy_configs = Arc::new(all);
            }
        }
        Part::of(known, problem)
    }
}

fn proxy_config(object: &DynamicObject) -> Result<ProxyConfig, FieldError> {
    ProxyConfig::of_object(&json!({"metadata": object.metadata, "spec": object.data.get("spec")}))
}

fn ids_of(namespace: Namespace) -> Result<Ids, String> {
    let annotations: BTreeMap<String, String> = namespace.metadata.annotations.unwrap_or_default();
    Ids::of_namespace(&json!({"metadata": {"annotations": annotations}}))
}
