//! The token of a service account changes while the agent runs.

use crate::agent::{Installation, NODE};
use crate::control_plane::Cluster;
use crate::node::until;

/// A token is bound to a pod here, and ends with it: that is sooner than an hour.
pub(crate) fn token_is_read_again_when_it_was_rotated(cluster: &Cluster) {
    let mut installation = Installation::new(cluster);
    let node = installation.start();
    node.is_ready();
    let pod = installation.agent_pod("next");
    installation.mount_token(&pod);
    cluster.api.delete(&installation.agent_pod_object("first"));
    // The client reads the file once a minute.
    let uid = installation.pod("late", "node-2");
    let by_next = || {
        node.attempt("late", &uid);
        let entries = cluster.audited(&installation.user());
        entries.iter().rev().find(|entry| entry["verb"] == "get").is_some_and(|entry| {
            entry["responseStatus"]["code"] == 200
                && entry["user"]["extra"]["authentication.kubernetes.io/pod-name"][0]
                    == pod["metadata"]["name"]
        })
    };
    until("requests have the new token", by_next);
    // Its own watch, too: a pod that is made now is known without a request of its own.
    cluster.restart_api_server(|| ());
    let uid = installation.pod("later", NODE);
    installation.until_watched(&node, "later", &uid);
}
