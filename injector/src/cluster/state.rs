//! The state of the cluster that pods depend on: kubelet versions, and the user ranges of namespaces.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;

use super::native_sidecars::{kubelet_version, native_sidecars};
use super::status::{Part, StatusReporter};
use super::watch::{Cached, watch};
use crate::pod::ids::Ids;

/// What is known of the cluster and its namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterState {
    /// Whether proxies are native sidecars, where the pod does not say.
    pub native_sidecars: bool,
    /// By namespace: the users of its pods, or why its annotations cannot be read.
    pub namespaces: HashMap<String, Result<Ids, String>>,
    /// Whether every namespace defines them, as on OpenShift: one that is not in the map is not known yet.
    pub namespaces_required: bool,
}

/// Keeps the state current, beginning with `initial`; `publish` gets every other one. `nodes` and `namespaces` say which
/// of the two are watched.
pub(super) async fn run(
    client: Client,
    (nodes, namespaces): (bool, bool),
    initial: ClusterState,
    publish: impl Fn(ClusterState),
    reporter: &StatusReporter,
) {
    let versions = watch::Sender::new(Cached::empty());
    let ids = watch::Sender::new(Cached::empty());
    let reconciler = Reconciler { versions: versions.subscribe(), ids: ids.subscribe(), state: initial };
    tokio::select! {
        never = watch(Api::<Node>::all(client.clone()), None, kubelet_version, &versions), if nodes => match never {},
        never = watch(Api::<Namespace>::all(client), None, ids_of, &ids), if namespaces => match never {},
        () = reconciler.run(nodes, namespaces, publish, reporter), if nodes || namespaces => {}
        else => {}
    }
}

struct Reconciler {
    versions: watch::Receiver<Cached<String>>,
    ids: watch::Receiver<Cached<Result<Ids, String>>>,
    state: ClusterState,
}

impl Reconciler {
    async fn run(
        mut self,
        nodes: bool,
        namespaces: bool,
        publish: impl Fn(ClusterState),
        reporter: &StatusReporter,
    ) {
        let mut reported = None;
        loop {
            let before = self.state.clone();
            if nodes {
                self.reconcile_nodes(&mut reported, reporter);
            }
            if namespaces {
                self.reconcile_namespaces(reporter);
            }
            if self.state != before {
                publish(self.state.clone());
            }
            tokio::select! {
                changed = self.versions.changed() => if changed.is_err() { return },
                changed = self.ids.changed() => if changed.is_err() { return },
            }
        }
    }

    fn reconcile_nodes(&mut self, reported: &mut Option<bool>, reporter: &StatusReporter) {
        let Cached { objects, problem } = self.versions.borrow_and_update().clone();
        if let Some(versions) = &objects {
            let (native, reason) = native_sidecars(versions);
            self.state.native_sidecars = native;
            if *reported != Some(native) {
                reporter.info("nodes", "native sidecars decided", reason);
            }
            *reported = Some(native);
        } else if problem.is_some() && reported.is_none() {
            self.state.native_sidecars = false;
        }
        // Nodes that cannot be read lead to the safe choice, and do not keep the webhook from being ready.
        let known = objects.is_some() || problem.is_some();
        reporter.report("nodes", |status| &mut status.nodes, &Part::of(known, problem));
    }

    fn reconcile_namespaces(&mut self, reporter: &StatusReporter) {
        let Cached { objects, problem } = self.ids.borrow_and_update().clone();
        let known = objects.is_some();
        if let Some(ids) = objects {
            self.state.namespaces = ids.into_iter().collect();
            self.state.namespaces_required = true;
        }
        reporter.report("namespaces", |status| &mut status.namespaces, &Part::of(known, problem));
    }
}

fn ids_of(namespace: Namespace) -> Result<Ids, String> {
    let annotations: BTreeMap<String, String> = namespace.metadata.annotations.unwrap_or_default();
    Ids::of_namespace(&json!({"metadata": {"annotations": annotations}}))
}
