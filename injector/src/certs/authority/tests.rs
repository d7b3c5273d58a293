use std::collections::BTreeMap;

use super::*;

fn day(number: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + number * DAY)
}

fn names() -> Names {
    Names::service("injector", "istio-system")
}

fn accepts(bundle: &Bundle, trusted: &str, at: SystemTime) {
    assert!(bundle.leaf.not_after <= bundle.ca.not_after, "no leaf outlives its CA");
    for name in bundle.names.all() {
        if let Err(error) = verify(&bundle.leaf.cert, trusted, name, at) {
            panic!("{at:?}, {}: {error}", bundle.phase());
        }
    }
}

/// Twelve years in steps of so many days: a client that trusts what is published now, or was before the last
/// step, accepts the leaf at every moment.
fn life(wake_every: usize) -> Vec<&'static str> {
    let mut bundle = Bundle::fresh(&names(), day(0)).expect("a bundle");
    let mut before = bundle.trusted_pem();
    let mut phases = vec![bundle.phase()];
    for today in (0..12 * 365).step_by(wake_every) {
        let now = day(today);
        if let Some(renewed) = bundle.renewed(now).expect("a bundle") {
            before = bundle.trusted_pem();
            bundle = Bundle::from_secret_data(&names(), &renewed.to_secret_data()).expect("survives storage");
            assert_eq!(bundle, renewed);
            accepts(&bundle, &before, now);
            if phases.last() != Some(&bundle.phase()) {
                phases.push(bundle.phase());
            }
        }
        accepts(&bundle, &bundle.trusted_pem(), now);
        accepts(&bundle, &before, now);
        assert!(bundle.due() > now);
    }
    phases
}

#[test]
fn every_rotation_keeps_clients_of_the_step_before() {
    let announced = "the next CA is announced, the old one signs";
    let promoted = "the new CA signs, the old one is still trusted";
    let expected = ["one CA", announced, promoted, "one CA"];
    assert_eq!(life(1), expected);
    assert_eq!(life(29), expected);
}

#[test]
fn the_leaf_is_renewed_after_two_thirds_by_the_same_ca() {
    let bundle = Bundle::fresh(&names(), day(0)).expect("a bundle");
    assert_eq!(bundle.due(), day(60));
    assert_eq!(bundle.renewed(day(60) - Duration::from_secs(1)).expect("a bundle"), None);
    let renewed = bundle.renewed(day(60)).expect("a bundle").expect("is due");
    assert_eq!(renewed.trusted_pem(), bundle.trusted_pem());
    assert_ne!(renewed.leaf, bundle.leaf);
    assert_eq!(renewed.due(), day(120));
}

#[test]
fn expired_ca_is_replaced_at_once() {
    let bundle = Bundle::fresh(&names(), day(0)).expect("a bundle");
    let now = day(3651);
    let renewed = bundle.renewed(now).expect("a bundle").expect("is due");
    accepts(&renewed, &renewed.trusted_pem(), now);
    assert!(!renewed.trusted_pem().contains(&bundle.ca.cert), "an expired CA is not trusted on");
}

#[test]
fn late_rotation_still_takes_every_step() {
    let mut bundle = Bundle::fresh(&names(), day(0)).expect("a bundle");
    for now in [day(3649), day(3650) - BACKDATE, day(3650), day(3656), day(3658)] {
        let before = bundle.trusted_pem();
        if let Some(next) = bundle.renewed(now).expect("a bundle") {
            bundle = next;
        }
        if now > day(3649) && now < day(3650) {
            accepts(&bundle, &before, now);
        }
        accepts(&bundle, &bundle.trusted_pem(), now);
    }
    assert_eq!(bundle.phase(), "one CA");
}

#[test]
fn early_rotation_takes_the_same_steps() {
    let bundle = Bundle::fresh(&names(), day(0)).expect("a bundle");
    let rotated = bundle.rotated(day(1)).expect("a bundle");
    assert_eq!(rotated.leaf, bundle.leaf);
    assert!(rotated.trusted_pem().starts_with(&bundle.trusted_pem()));
    assert_eq!(rotated.due(), day(1) + ANNOUNCE);
    assert_eq!(rotated.rotated(day(2)).expect("a bundle"), rotated, "one at a time");
}

#[test]
fn leaf_for_other_names_is_reissued_at_once() {
    let bundle = Bundle::fresh(&names(), day(0)).expect("a bundle");
    let more = names().and_loopback();
    let read = Bundle::from_secret_data(&more, &bundle.to_secret_data()).expect("whole");
    let renewed = read.renewed(day(0)).expect("a bundle").expect("is due");
    assert_eq!(renewed.trusted_pem(), bundle.trusted_pem());
    accepts(&renewed, &bundle.trusted_pem(), day(0));
    assert_eq!(renewed.renewed(day(0)).expect("a bundle"), None);
}

#[test]
fn damaged_secrets_are_rejected_by_key() {
    let bundle = Bundle::fresh(&names(), day(0)).expect("a bundle").rotated(day(0)).expect("a bundle");
    let other = Bundle::fresh(&names(), day(0)).expect("a bundle").rotated(day(0)).expect("a bundle");
    let read = |data: &BTreeMap<String, Vec<u8>>| Bundle::from_secret_data(&names(), data);
    let whole = bundle.to_secret_data();
    for key in whole.keys() {
        for damaged in [None, Some(Vec::new()), Some(vec![0xff]), other.to_secret_data().get(key).cloned()] {
            let mut data = whole.clone();
            let missing = damaged.is_none();
            match damaged {
                Some(bytes) => data.insert(key.clone(), bytes),
                None => data.remove(key),
            };
            if missing && key == "next-ca.key" {
                continue; // then the second CA is an old one
            }
            let error = read(&data).expect_err(key).to_string();
            assert!(
                error.contains("tls.") || error.contains("ca.") || error.contains("certificate"),
                "{error}"
            );
        }
    }
    assert!(format!("{bundle:?}").find("PRIVATE KEY").is_none());
}

#[test]
fn invalid_certificates_are_rejected() {
    let bundle = Bundle::fresh(&names(), day(0)).expect("a bundle");
    let other = Bundle::fresh(&names(), day(0)).expect("a bundle");
    let refused = |trusted: &str, name: &str, at| {
        verify(&bundle.leaf.cert, trusted, name, at).expect_err("refused").to_string()
    };
    let own = bundle.trusted_pem();
    assert!(refused(&own, "other.istio-system.svc", day(0)).contains("other.istio-system.svc"));
    assert!(refused(&own, "injector.istio-system.svc", day(91)).contains("rejected"));
    assert!(refused(&own, "injector.istio-system.svc", day(3651)).contains("none that is valid"));
    assert!(refused(&other.trusted_pem(), "injector.istio-system.svc", day(0)).contains("rejected"));
    assert!(refused("", "injector.istio-system.svc", day(0)).contains("none that is valid"));
}
