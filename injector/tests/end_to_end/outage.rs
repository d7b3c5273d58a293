//! The API server goes away and comes back.

use crate::api::until;
use crate::control_plane::Cluster;
use crate::installation::Installation;
use crate::replica::Replica;

pub(crate) fn an_api_server_restart_is_survived(cluster: &Cluster) {
    if !cluster.is_own() {
        return println!(
            "an_api_server_restart_is_survived: NOT CHECKED: the API server is not ours to restart"
        );
    }
    let mut installation = Installation::new(cluster, &[]);
    let namespace = installation.injected_namespace("shop");
    let replica = Replica::start(&installation, 1);
    installation.until_injecting(&namespace);
    let before = installation.ca_bundles();
    cluster.restart_api_server(|| {
        until("the outage is logged", || !replica.logged("the API server is unreachable").is_empty());
        assert!(replica.is_ready(), "it serves on");
    });
    installation.until_injecting(&namespace);
    assert_eq!(installation.ca_bundles(), before, "no new CA");
    until("it is available again", || !replica.logged("available again").is_empty());
    // Watches work again: a change arrives.
    let map = installation.object("ConfigMap").clone();
    cluster.api.merge(&map, &serde_json::json!({"data": {"config": "templates: ["}})).expect("changed");
    until("the change is seen", || {
        !replica.logged("last valid state").iter().all(|line| line.to_string().contains("unreachable"))
    });
}
