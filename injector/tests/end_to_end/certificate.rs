//! The certificate in its Secret, and the caBundle.

use serde_json::json;

use crate::api::until;
use crate::control_plane::Cluster;
use crate::installation::{Installation, is_injected};
use crate::replica::Replica;

pub(crate) fn the_ca_bundle_is_written_and_repaired(cluster: &Cluster) {
    let mut installation = Installation::new(cluster, &[]);
    assert!(installation.ca_bundles().iter().all(String::is_empty), "nothing is trusted yet");
    let namespace = installation.injected_namespace("shop");
    let rejected = |part: &str| {
        installation.create_pod(&namespace).is_err_and(|rejected| rejected.message.contains(part))
    };
    until("failurePolicy is Fail", || rejected("failed calling webhook"));
    let replica = Replica::start(&installation, 1);
    installation.until_injecting(&namespace);
    let served = replica.logged("certificate served");
    assert!(served[0].to_string().contains("-tls, valid until 20"), "{served:?}");
    let bundles = installation.ca_bundles();
    assert!(bundles.windows(2).all(|pair| pair[0] == pair[1]) && bundles.len() == 2, "{bundles:?}");
    // Applied again, as a GitOps controller does: the field is not among what it owns.
    cluster.api.apply(installation.object("MutatingWebhookConfiguration"), "").expect("applied");
    assert_eq!(installation.ca_bundles(), bundles);
    // Wiped by another writer.
    let mut hooks = installation.hooks();
    for hook in hooks["webhooks"].as_array_mut().expect("webhooks") {
        hook["clientConfig"]["caBundle"] = json!("");
    }
    let wiped = json!({"webhooks": hooks["webhooks"]});
    cluster.api.merge(&hooks, &wiped).expect("wiped");
    until("the caBundle is repaired", || installation.ca_bundles() == bundles);
    installation.until_injecting(&namespace);
    drop(replica);
}

/// The Secret is deleted, then damaged, while pods are created; at last a new CA is made.
pub(crate) fn rotation_loses_no_pod(cluster: &Cluster) {
    let mut installation = Installation::new(cluster, &[]);
    let namespace = installation.injected_namespace("shop");
    let replicas = [Replica::start(&installation, 1), Replica::start(&installation, 2)];
    installation.until_injecting(&namespace);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {
        "name": format!("{}-tls", installation.name()), "namespace": installation.namespace}});
    let current =
        || cluster.api.get(&crate::api::path(&secret)).ok().map(|secret| secret["data"]["tls.crt"].clone());
    let mut pods = 0;
    let mut until_pods = |what: &str, done: &dyn Fn() -> bool| {
        until(what, || {
            let pod = installation.create_pod(&namespace).expect("a pod");
            assert!(is_injected(&pod), "{pod}");
            pods += 1;
            pods % 50 == 0 && done()
        });
    };
    cluster.api.delete(&secret);
    until_pods("the Secret is made again", &|| current().is_some());
    let broken = json!("YnJva2Vu");
    cluster.api.merge(&secret, &json!({"data": {"tls.crt": broken}})).expect("damaged");
    until_pods("the Secret is repaired", &|| current().is_some_and(|now| now != broken));
    // As doctor recommends it where a certificate is beyond repair.
    let before = installation.ca_bundles();
    replicas.into_iter().for_each(Replica::stop);
    cluster.api.delete(&secret);
    let replica = Replica::start(&installation, 3);
    until("a new CA is trusted", || installation.ca_bundles() != before);
    installation.until_injecting(&namespace);
    drop(replica);
}
