//! The config in its ConfigMap, changed while the webhook serves.

use serde_json::{Value, json};

use crate::api::until;
use crate::control_plane::Cluster;
use crate::installation::Installation;
use crate::replica::Replica;

pub(crate) fn a_change_is_used_and_a_broken_one_is_not(cluster: &Cluster) {
    let mut installation = Installation::new(cluster, &[]);
    let namespace = installation.injected_namespace("shop");
    let replica = Replica::start(&installation, 1);
    installation.until_injecting(&namespace);
    let map = installation.object("ConfigMap").clone();
    let values = map["data"]["values"].as_str().expect("values");
    let values = sidecar_injector::yaml::read(values).expect("YAML");
    let with_image = |image: &str| {
        let mut values = values.clone();
        values["global"]["proxy"]["image"] = json!(image);
        json!({"data": {"values": values.to_string()}})
    };
    let image = || -> String {
        let pod = installation.create_pod(&namespace).expect("a pod");
        let lists = ["initContainers", "containers"].iter().filter_map(|list| pod["spec"][list].as_array());
        let mut all = lists.flatten();
        let proxy = all.find(|container| container["name"] == "istio-proxy").cloned().unwrap_or_default();
        proxy["image"].as_str().unwrap_or_default().to_owned()
    };
    cluster.api.merge(&map, &with_image("registry.example.com/proxy:new")).expect("changed");
    until("the new image is used", || image() == "registry.example.com/proxy:new");
    cluster.api.merge(&map, &json!({"data": {"config": "templates: ["}})).expect("changed");
    until("the broken config is logged", || !replica.logged("last valid state").is_empty());
    assert_eq!(image(), "registry.example.com/proxy:new");
    assert!(replica.is_ready(), "the last valid config stays active");
    let good: Value = map["data"]["config"].clone();
    let mut again = with_image("registry.example.com/proxy:third");
    again["data"]["config"] = good;
    cluster.api.merge(&map, &again).expect("changed");
    until("the mended config is used", || image() == "registry.example.com/proxy:third");
}
