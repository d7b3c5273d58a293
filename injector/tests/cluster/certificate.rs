//! The Secret that replicas share.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sidecar_injector::certs::{Bundle, Names};
use sidecar_injector::cluster::Part;

use super::fake::Fake;
use super::replica::{
    HOOKS, NAME, NAMESPACE, Replica, SECRET, accepted, ca_bundle, hooks, secret, serves, stored, until,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The Secret as it was written so many days ago.
fn aged(names: &Names, days: u32) -> Value {
    let bundle = Bundle::fresh(names, SystemTime::now() - DAY * days).expect("a bundle");
    as_secret(&bundle)
}

fn as_secret(bundle: &Bundle) -> Value {
    let data = bundle.to_secret_data().into_iter();
    let data: serde_json::Map<_, _> = data.map(|(key, bytes)| (key, json!(STANDARD.encode(bytes)))).collect();
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "data": data,
        "metadata": {
            "name": format!("{NAME}-tls"), "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/managed-by": "sidecar-injector"},
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_race_end_with_one_ca() {
    let fake = Fake::start().await;
    fake.put("kubectl", hooks());
    // Both have seen that there is none before either has made one.
    fake.gate("POST", "/secrets", 2);
    let (one, other) =
        tokio::join!(Replica::self_signed(&fake, &[NAME]), Replica::self_signed(&fake, &[NAME]));
    for replica in [&one, &other] {
        until("a certificate", || replica.status().certificate == Part::Good).await;
        until("the stored one", || serves(replica, &stored(&fake, "tls.crt"))).await;
        assert!(!replica.has_logged("409"), "a lost race is not logged");
    }
    assert_eq!(fake.count("POST", "/secrets", 201), 1);
    assert_eq!(fake.count("POST", "/secrets", 409), 1, "the loser takes the winner's");
    assert_eq!(fake.count("PUT", "/secrets", 200), 0);
    until("published", || ca_bundle(&fake) == stored(&fake, "ca.crt")).await;
    accepted(&fake, &ca_bundle(&fake));
    one.end().await;
    other.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_replica_renews_and_the_others_follow() {
    let fake = Fake::start().await;
    fake.put("sidecar-injector", aged(&secret().names, 61));
    let (before, ca) = (stored(&fake, "tls.crt"), stored(&fake, "ca.crt"));
    fake.gate("PUT", "/secrets", 2);
    let (one, other) = tokio::join!(Replica::self_signed(&fake, &[]), Replica::self_signed(&fake, &[]));
    for replica in [&one, &other] {
        until("renewed", || stored(&fake, "tls.crt") != before && serves(replica, &stored(&fake, "tls.crt")))
            .await;
    }
    assert_eq!(fake.count("PUT", "/secrets", 200), 1, "once");
    assert_eq!(fake.count("PUT", "/secrets", 409), 1);
    assert_eq!(stored(&fake, "ca.crt"), ca, "by the same CA");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ca_near_its_end_is_rotated_in_steps() {
    let fake = Fake::start().await;
    fake.put("kubectl", hooks());
    fake.put("sidecar-injector", aged(&secret().names, 365 * 8 + 10));
    let old = stored(&fake, "ca.crt");
    let replica = Replica::self_signed(&fake, &[NAME]).await;
    until("the next CA is announced", || ca_bundle(&fake).len() > old.len()).await;
    until("and the certificate is renewed", || serves(&replica, &stored(&fake, "tls.crt"))).await;
    assert!(ca_bundle(&fake).starts_with(&old));
    accepted(&fake, &old);

    // A week later, as another replica would find it.
    let week =
        |bundle: &Bundle| bundle.renewed(SystemTime::now() + DAY * 7).expect("a bundle").expect("is due");
    let data = |fake: &Fake| {
        let map = fake.object(SECRET).expect("the Secret")["data"].clone();
        let map = map.as_object().expect("a map").clone();
        map.into_iter().map(|(key, text)| (key, STANDARD.decode(text.as_str().unwrap()).unwrap())).collect()
    };
    let announced = ca_bundle(&fake);
    let bundle = Bundle::from_secret_data(&secret().names, &data(&fake)).expect("whole");
    fake.put("sidecar-injector", as_secret(&week(&bundle)));
    until("the new CA's certificate is served", || serves(&replica, &stored(&fake, "tls.crt"))).await;
    until("both are trusted", || ca_bundle(&fake) == stored(&fake, "ca.crt")).await;
    let host = format!("{NAME}.{NAMESPACE}.svc");
    let leaf = stored(&fake, "tls.crt");
    let later = SystemTime::now() + DAY * 7;
    sidecar_injector::certs::verify(&leaf, &announced, &host, later).expect("a late client accepts it");
    sidecar_injector::certs::verify(&leaf, &old, &host, later).expect_err("it is another CA's");
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_and_deleted_secrets_are_restored() {
    let fake = Fake::start().await;
    fake.put("kubectl", hooks());
    let mut damaged = aged(&secret().names, 0);
    damaged["data"]["ca.key"] = json!("AAAA");
    fake.put("kubectl", damaged);
    let replica = Replica::self_signed(&fake, &[NAME]).await;
    until("written again", || replica.status().certificate == Part::Good).await;
    assert!(replica.has_logged("ca.key") && replica.has_logged("it was damaged: restored"));
    until("published", || ca_bundle(&fake) == stored(&fake, "ca.crt")).await;

    // What a replica still knows is put back.
    let (leaf, ca) = (stored(&fake, "tls.crt"), stored(&fake, "ca.crt"));
    let mut damaged = fake.object(SECRET).expect("the Secret");
    damaged["data"].as_object_mut().expect("data").remove("tls.key");
    fake.put("kubectl", damaged);
    until("put back", || fake.count("PUT", "/secrets", 200) == 2).await;
    assert_eq!((stored(&fake, "tls.crt"), stored(&fake, "ca.crt")), (leaf.clone(), ca.clone()));

    // A deletion starts a CA rotation, without a gap.
    fake.delete(SECRET);
    until("made again", || fake.object(SECRET).is_some()).await;
    assert_eq!(stored(&fake, "tls.crt"), leaf);
    assert!(stored(&fake, "ca.crt").starts_with(&ca) && stored(&fake, "ca.crt") != ca);
    until("announced", || ca_bundle(&fake) == stored(&fake, "ca.crt")).await;
    accepted(&fake, &ca_bundle(&fake));
    replica.end().await;

    // The Service has another name than the one in the certificate.
    fake.put("sidecar-injector", aged(&Names::service("other", NAMESPACE), 0));
    let (leaf, ca) = (stored(&fake, "tls.crt"), stored(&fake, "ca.crt"));
    let replica = Replica::self_signed(&fake, &[NAME]).await;
    until("reissued", || stored(&fake, "tls.crt") != leaf && serves(&replica, &stored(&fake, "tls.crt")))
        .await;
    assert_eq!(stored(&fake, "ca.crt"), ca);
    accepted(&fake, &ca);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_secret_is_not_changed() {
    let fake = Fake::start().await;
    let mut foreign = aged(&secret().names, 0);
    foreign["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "Helm"});
    fake.put("kubectl", foreign.clone());
    let replica = Replica::self_signed(&fake, &[]).await;
    until("logged", || {
        replica.has_logged(
            "is managed by another program: type kubernetes.io/tls, app.kubernetes.io/managed-by \"Helm\"",
        )
    })
    .await;
    assert!(replica.serving.pair().is_none());
    foreign["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "sidecar-injector"});
    foreign["type"] = json!("Opaque");
    fake.put("kubectl", foreign);
    until("logged", || replica.has_logged("type Opaque")).await;
    let mut immutable = aged(&secret().names, 61);
    immutable["immutable"] = json!(true);
    fake.put("kubectl", immutable);
    until("logged", || replica.has_logged("is immutable and cannot be renewed: delete it")).await;
    assert!(fake.received().iter().all(|received| received.method == "GET"), "nothing was written");
    fake.delete(SECRET);
    until("then it makes its own", || replica.status().certificate == Part::Good).await;
    replica.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_writes_are_retried() {
    let fake = Fake::start().await;
    fake.fail("POST", "/secrets", 403, 2);
    fake.fail("POST", "/secrets", 500, 2);
    let replica = Replica::self_signed(&fake, &[]).await;
    until("logged", || replica.has_logged("Secret istio-system/istio-sidecar-injector-tls: forbidden")).await;
    assert!(!replica.status().waiting().is_empty());
    until("it tries again", || replica.status().waiting().is_empty()).await;
    assert!(fake.object(HOOKS).is_none());
}
