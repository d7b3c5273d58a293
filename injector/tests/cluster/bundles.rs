//! caBundles in webhook configurations.

use std::sync::Arc;

use serde_json::json;
use sidecar_injector::cluster::{CertificateSource, ClusterOptions, Part};
use tokio::sync::watch;

use super::fake::Fake;
use super::replica::{
    HOOKS, NAME, NAMESPACE, Replica, SECRET, ca_bundle, hooks, injector_config, nothing, self_signed, stored,
    until,
};

/// How many patches changed anything: watchers and fake agree on versions, so refused ones did not.
fn patches(fake: &Fake) -> usize {
    fake.count("PATCH", "mutatingwebhookconfigurations", 200)
}

fn given(pem: &str) -> (watch::Sender<Option<Arc<str>>>, ClusterOptions) {
    let (sender, trusted) = watch::channel(Some(Arc::from(pem)));
    let certificates = CertificateSource::External { trusted, configurations: vec![NAME.to_owned()] };
    (sender, ClusterOptions { certificates, ..nothing() })
}

fn part(replica: &Replica) -> Part {
    replica.status().ca_bundles[NAME].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_different_bundle_is_written_and_nothing_else() {
    let fake = Fake::start().await;
    fake.put("kubectl", hooks());
    let (sender, wanted) = given("one");
    let replica = Replica::start(&fake, wanted).await;
    until("written", || ca_bundle(&fake) == "one").await;
    until("good", || part(&replica) == Part::Good).await;

    let after = fake.object(HOOKS).expect("the configuration");
    let mut expected = hooks();
    for hook in expected["webhooks"].as_array_mut().expect("webhooks") {
        hook["clientConfig"]["caBundle"] = json!("b25l");
    }
    assert_eq!(after["webhooks"], expected["webhooks"], "nothing else was touched");
    let owned = &after["metadata"]["managedFields"].as_array().expect("managers")[1];
    // A field manager that applies a list item owns it, and the installer could not remove it.
    assert_eq!((&owned["manager"], &owned["operation"]), (&json!("sidecar-injector"), &json!("Update")));
    let received = fake.received();
    let patch = received.iter().find(|received| received.method == "PATCH").expect("a patch");
    assert_eq!(patch.content_type, "application/json-patch+json");

    // Other changes, and another replica, write nothing.
    let second = Replica::start(&fake, given("one").1).await;
    until("the second one is content", || part(&second) == Part::Good).await;
    let mut relabelled = after.clone();
    relabelled["metadata"]["labels"] = json!({"a": "b"});
    fake.put("kubectl", relabelled);
    assert_eq!(patches(&fake), 1);
    sender.send_replace(Some(Arc::from("two")));
    until("another CA is written", || ca_bundle(&fake) == "two").await;
    replica.end().await;
    assert_eq!(
        fake.received()
            .iter()
            .filter(|received| received.method != "GET" && received.method != "PATCH")
            .count(),
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn repairs_are_delayed_while_another_writer_keeps_changing_the_bundle() {
    let fake = Fake::start().await;
    fake.put("kubectl", hooks());
    let (_sender, wanted) = given("one");
    let replica = Replica::start(&fake, wanted).await;
    until("written", || ca_bundle(&fake) == "one").await;
    for round in 1..=3 {
        fake.put("helm", hooks());
        until("repaired at once", || ca_bundle(&fake) == "one").await;
        until("counted", || patches(&fake) == 1 + round).await;
    }
    fake.put("helm", hooks());
    until("then it waits", || replica.status().ca_bundle_conflicts == 1).await;
    until("logged", || replica.has_logged("another writer keeps changing the caBundle")).await;
    assert_eq!(ca_bundle(&fake), "");
    assert_eq!(patches(&fake), 4);
    assert_eq!(replica.status().ca_bundle_writes, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_forbidden_configuration_is_written_later() {
    let fake = Fake::start().await;
    let replica = Replica::self_signed(&fake, &[NAME]).await;
    until("logged", || {
        replica.has_logged("MutatingWebhookConfiguration istio-sidecar-injector does not exist")
    })
    .await;
    assert!(fake.object(HOOKS).is_none() && fake.count("PATCH", "", 200) == 0, "nothing is made");
    until("it is ready all the same", || replica.status().waiting().is_empty()).await;

    fake.fail("PATCH", "mutatingwebhookconfigurations", 403, 1);
    fake.fail("PATCH", "mutatingwebhookconfigurations", 409, 2);
    fake.fail("PATCH", "mutatingwebhookconfigurations", 500, 1);
    fake.put("kubectl", hooks());
    until("written in the end", || ca_bundle(&fake) == stored(&fake, "ca.crt")).await;
    assert!(replica.has_logged("forbidden"));

    // Deleted and created again.
    fake.delete(HOOKS);
    fake.put("kubectl", hooks());
    until("written again", || ca_bundle(&fake) == stored(&fake, "ca.crt")).await;
    until("counted", || replica.status().ca_bundle_writes == 2).await;
    assert_eq!(replica.status().ca_bundle_conflicts, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outdated_replica_does_not_write_an_old_ca() {
    let fake = Fake::start().await;
    fake.put("kubectl", hooks());
    let late = Replica::self_signed(&fake, &[NAME]).await;
    until("written", || fake.object(SECRET).is_some() && ca_bundle(&fake) == stored(&fake, "ca.crt")).await;
    let old = ca_bundle(&fake);

    // It cannot watch the Secret any more; another one rotates the CA, which goes into the configuration.
    fake.fail("GET", "secrets?", 500, usize::MAX);
    fake.disconnect();
    until("it is late", || matches!(late.status().certificate, Part::Stale(_))).await;
    let other =
        sidecar_injector::certs::Bundle::fresh(&super::replica::secret().names, std::time::SystemTime::now());
    let mut secret = fake.object(SECRET).expect("the Secret");
    for (key, bytes) in other.expect("a bundle").to_secret_data() {
        use base64::Engine as _;
        secret["data"][key] = json!(base64::engine::general_purpose::STANDARD.encode(bytes));
    }
    fake.put("sidecar-injector", secret);
    let new = stored(&fake, "ca.crt");
    assert_ne!(new, old);
    let mut wiped = hooks();
    wiped["metadata"]["labels"] = json!({"touched": "yes"});
    fake.put("kubectl", wiped);
    until("it writes what the replicas agree on", || ca_bundle(&fake) == new).await;
    late.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_when_managed_externally() {
    let fake = Fake::start().await;
    fake.put("kubectl", hooks());
    let config = Some(format!("{NAMESPACE}/{NAME}").parse().expect("a name"));
    let serving = Arc::default();
    let wanted = ClusterOptions { config, nodes: true, ..self_signed(&serving, &[]) };
    let replica = Replica::start(&fake, wanted).await;
    until("a certificate", || replica.status().certificate == Part::Good).await;
    fake.put("cainjector", hooks());
    fake.put("kubectl", injector_config());
    until("all is well", || replica.status().waiting().is_empty()).await;
    let about = |received: &&super::fake::Received| received.path.contains("mutatingwebhookconfigurations");
    assert_eq!(fake.received().iter().filter(about).count(), 0, "they are not even looked at");
    assert!(replica.status().ca_bundles.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_ca_is_logged() {
    let fake = Fake::start().await;
    fake.put("kubectl", hooks());
    let (sender, wanted) = given("one");
    sender.send_replace(None);
    let replica = Replica::start(&fake, wanted).await;
    until("logged", || replica.has_logged("istio-sidecar-injector is unknown: a certificate from files"))
        .await;
    sender.send_replace(Some(Arc::from("two")));
    until("written when it is known", || ca_bundle(&fake) == "two").await;
}
