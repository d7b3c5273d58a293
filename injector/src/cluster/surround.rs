//! What the cluster says about where pods run: nodes and namespaces.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::watch;

use super::follow::{Seen, follow};
use super::nodes::{Node, kubelet_version, native_sidecars};
use super::status::{Board, Part};
use crate::pod::ids::Ids;
use crate::webhook::live::{Live, Surroundings};

/// Keeps the surroundings as the cluster says; nobody else may change them meanwhile. `nodes` and `namespaces` tell which
/// of the two are followed.
pub(super) async fn run(client: Client, nodes: bool, namespaces: bool, live: &Live, board: &Board) {
    let versions = watch::Sender::new(Seen::nothing());
    let ids = watch::Sender::new(Seen::nothing());
    let (seen_nodes, seen_namespaces) = (versions.subscribe(), ids.subscribe());
    tokio::select! {
        never = follow(Api::<Node>::all(client.clone()), None, kubelet_version, &versions), if nodes => match never {},
        never = follow(Api::<Namespace>::all(client), None, ids_of, &ids), if namespaces => match never {},
        () = reconcile_nodes(seen_nodes, live, board), if nodes => {}
        () = reconcile_namespaces(seen_namespaces, live, board), if namespaces => {}
        else => {}
    }
}

async fn reconcile_nodes(mut seen: watch::Receiver<Seen<String>>, live: &Live, board: &Board) {
    let mut told = None;
    loop {
        let Seen { objects, problem } = seen.borrow_and_update().clone();
        if let Some(versions) = &objects {
            let (native, why) = native_sidecars(versions);
            update(live, |surroundings| surroundings.native_sidecars = native);
            if told != Some(native) {
                board.info("nodes", why);
            }
            told = Some(native);
        } else if problem.is_some() && told.is_none() {
            update(live, |surroundings| surroundings.native_sidecars = false);
        }
        // What cannot be read at all is answered by the safe choice, and holds nobody up.
        let there = objects.is_some() || problem.is_some();
        board.note("nodes", |status| &mut status.nodes, &Part::of(there, problem));
        if seen.changed().await.is_err() {
            return;
        }
    }
}

async fn reconcile_namespaces(
    mut seen: watch::Receiver<Seen<Result<Ids, String>>>,
    live: &Live,
    board: &Board,
) {
    loop {
        let Seen { objects, problem } = seen.borrow_and_update().clone();
        let there = objects.is_some();
        if let Some(ids) = objects {
            let namespaces = ids.into_iter().collect::<HashMap<_, _>>();
            update(live, |surroundings| {
                surroundings.namespaces = namespaces;
                surroundings.prescribed = true;
            });
        }
        board.note("namespaces", |status| &mut status.namespaces, &Part::of(there, problem));
        if seen.changed().await.is_err() {
            return;
        }
    }
}

/// Both sides are parts of one task, so nothing comes between reading and writing.
fn update(live: &Live, change: impl FnOnce(&mut Surroundings)) {
    let old = live.surroundings();
    let mut new = (*old).clone();
    change(&mut new);
    if new != *old {
        live.surround(new);
    }
}

fn ids_of(namespace: Namespace) -> Result<Ids, String> {
    let annotations: BTreeMap<String, String> = namespace.metadata.annotations.unwrap_or_default();
    Ids::of_namespace(&json!({"metadata": {"annotations": annotations}}))
}
