//! The cases of Istio's own plugin tests, as facts: pods with containers, what happens to them, and with
//! which options. Then what annotations alone say.

use istio_iptables::cli::Key;
use istio_iptables::config::Mode;

use super::*;
use crate::pod::{Containers, Proxy};

const EXCLUDED_INBOUND: &str = "15020,15021,15090";

fn map(pairs: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// A pod of which a source reports containers.
fn pod(containers: &[&str], annotations: &[(&str, &str)], proxy: Proxy) -> Pod {
    let names = containers.iter().map(|name| (*name).to_owned()).collect();
    Pod {
        labels: Some(map(&[])),
        annotations: map(annotations),
        containers: Some(Containers { names, proxy }),
    }
}

/// A pod of which only annotations are known.
fn annotated(annotations: &[(&str, &str)]) -> Pod {
    Pod { annotations: map(annotations), ..Pod::default() }
}

fn decided(pod: &Pod) -> Decision {
    decide(pod, &Defaults::default())
}

#[track_caller]
fn captured(pod: &Pod) -> Vec<(Key, String)> {
    captured_with(pod, &Defaults::default())
}

#[track_caller]
fn captured_with(pod: &Pod, defaults: &Defaults) -> Vec<(Key, String)> {
    match decide(pod, defaults) {
        Decision::Capture(options) => options.values().clone().into_iter().collect(),
        other @ (Decision::NotCaptured(_) | Decision::Refuse(_)) => panic!("{other:?}"),
    }
}

/// The defaults of Istio's plugin, with other values for these options.
fn istio(changed: &[(Key, &str)]) -> Vec<(Key, String)> {
    let defaults = [
        (Key::ProxyUid, "1337"),
        (Key::ProxyGid, "1337"),
        (Key::InboundInterceptionMode, "REDIRECT"),
        (Key::InboundPorts, "*"),
        (Key::LocalExcludePorts, EXCLUDED_INBOUND),
        (Key::ServiceCidr, "*"),
        (Key::LocalOutboundPortsExclude, "15020"),
    ];
    let mut all: std::collections::BTreeMap<Key, String> =
        defaults.iter().chain(changed).map(|(key, text)| (*key, (*text).to_owned())).collect();
    all.retain(|_, text| text != "absent");
    all.into_iter().collect()
}

const INJECTED: (&str, &str) = (STATUS, "true");
const APP_AND_PROXY: [&str; 2] = ["app", PROXY];

fn proxy_env(name: &str, value: &str) -> Proxy {
    Proxy { env: map(&[(name, value)]), ..Proxy::default() }
}

#[test]
fn pods_that_istio_skips_are_not_captured() {
    let none = Proxy::default;
    let not_captured =
        |pod: &Pod, reason: NotCaptured| assert_eq!(decided(pod), Decision::NotCaptured(reason), "{pod:?}");
    not_captured(&pod(&["app", PROXY, INIT], &[INJECTED], none()), NotCaptured::InitContainer);
    not_captured(
        &pod(&APP_AND_PROXY, &[INJECTED], proxy_env("DISABLE_ENVOY", "true")),
        NotCaptured::EnvoyDisabled,
    );
    not_captured(&pod(&["app", "other"], &[INJECTED], none()), NotCaptured::NoProxy);
    not_captured(&pod(&["app", PROXY, "third"], &[], none()), NotCaptured::NotInjected);
    not_captured(&pod(&APP_AND_PROXY, &[], none()), NotCaptured::NotInjected);
    not_captured(
        &pod(&APP_AND_PROXY, &[INJECTED, (INJECT, "false")], none()),
        NotCaptured::InjectionDisabled,
    );
    let router = Proxy { args: vec!["proxy".to_owned(), "router".to_owned()], ..none() };
    not_captured(&pod(&APP_AND_PROXY, &[INJECTED], router), NotCaptured::ProxyType("router".to_owned()));
    let mut by_label = pod(&APP_AND_PROXY, &[INJECTED, (INJECT, "true")], none());
    by_label.labels = Some(map(&[(INJECT, "false")]));
    not_captured(&by_label, NotCaptured::InjectionDisabled);
    // An error in Istio's plugin, which never lets such a pod start.
    not_captured(
        &pod(&APP_AND_PROXY, &[INJECTED, (INTERCEPTION_MODE, "NONE")], none()),
        NotCaptured::ModeNone,
    );
}

#[test]
fn pods_that_istio_captures_are_captured() {
    let sidecar = Proxy { args: vec!["proxy".to_owned(), "sidecar".to_owned()], ..Proxy::default() };
    for proxy in
        [Proxy::default(), sidecar, proxy_env("DISABLE_ENVOY", "false"), proxy_env("DISABLE_ENVOY", "x")]
    {
        assert_eq!(captured(&pod(&APP_AND_PROXY, &[INJECTED], proxy)), istio(&[]));
    }
    let mut label_wins = pod(&APP_AND_PROXY, &[INJECTED, (INJECT, "false")], Proxy::default());
    label_wins.labels = Some(map(&[(INJECT, "true")]));
    assert_eq!(captured(&label_wins), istio(&[]));
    assert_eq!(captured(&pod(&APP_AND_PROXY, &[INJECTED, (INJECT, "maybe")], Proxy::default())), istio(&[]));
}

#[test]
fn annotations_become_the_options_that_istio_uses() {
    let of = |annotations: &[(&str, &str)]| {
        let annotations = [&[INJECTED], annotations].concat();
        captured(&pod(&APP_AND_PROXY, &annotations, Proxy::default()))
    };
    let key = |name: &str| format!("traffic.sidecar.istio.io/{name}");
    let ranges =
        [(key("includeOutboundIPRanges"), "127.0.0.0/8"), (key("excludeOutboundIPRanges"), "10.0.0.0/8")];
    let ranges: Vec<(&str, &str)> = ranges.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    assert_eq!(
        of(&ranges),
        istio(&[(Key::ServiceCidr, "127.0.0.0/8"), (Key::ServiceExcludeCidr, "10.0.0.0/8")])
    );
    let ports = [
        (key("includeInboundPorts"), "1111,2222"),
        (key("excludeInboundPorts"), "3333,4444"),
        (key("excludeOutboundPorts"), "5555,6666"),
        (key("includeOutboundPorts"), "7777"),
    ];
    let ports: Vec<(&str, &str)> = ports.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    let wanted = [
        (Key::InboundPorts, "1111,2222"),
        (Key::LocalExcludePorts, "3333,4444,15020,15021,15090"),
        (Key::LocalOutboundPortsExclude, "5555,6666"),
        (Key::OutboundPorts, "7777"),
    ];
    assert_eq!(of(&ports), istio(&wanted));
    assert_eq!(
        of(&[("traffic.sidecar.istio.io/includeInboundPorts", "")]),
        istio(&[(Key::InboundPorts, "")])
    );
    for (given, wanted) in [
        ("", EXCLUDED_INBOUND),
        ("3306", "3306,15020,15021,15090"),
        ("3306,", "3306,15020,15021,15090"),
        ("15090,3306,3306", "15090,3306,15020,15021"),
    ] {
        let options = of(&[("traffic.sidecar.istio.io/excludeInboundPorts", given)]);
        assert_eq!(options, istio(&[(Key::LocalExcludePorts, wanted)]), "{given:?}");
    }
    assert_eq!(of(&[(INTERCEPTION_MODE, "TPROXY")]), istio(&[(Key::InboundInterceptionMode, "TPROXY")]));
    let interfaces = [
        ("istio.io/reroute-virtual-interfaces", "net1"),
        ("traffic.sidecar.istio.io/kubevirtInterfaces", "net2"),
        ("traffic.sidecar.istio.io/excludeInterfaces", "eth1"),
    ];
    let wanted = |name| istio(&[(Key::KubeVirtInterfaces, name), (Key::ExcludeInterfaces, "eth1")]);
    assert_eq!(of(&interfaces), wanted("net1"));
    assert_eq!(of(&interfaces[1..]), wanted("net2"));
}

#[test]
fn proxy_container_sets_user_dns_families_and_invalid_packets() {
    let of = |proxy: Proxy| captured(&pod(&APP_AND_PROXY, &[INJECTED], proxy));
    let ids = |uid, gid| of(Proxy { uid, gid, ..Proxy::default() });
    let custom = [(Key::ProxyUid, "1000670000"), (Key::ProxyGid, "1000670001")];
    assert_eq!(ids(Some(1_000_670_000), Some(1_000_670_001)), istio(&custom));
    assert_eq!(ids(Some(0), None), istio(&[]));
    let dns = [(Key::RedirectDns, "true"), (Key::CaptureAllDns, "true")];
    assert_eq!(of(proxy_env("ISTIO_META_DNS_CAPTURE", "true")), istio(&dns));
    assert_eq!(of(proxy_env("ISTIO_META_DNS_CAPTURE", "bogus")), istio(&[]));
    assert_eq!(of(proxy_env("ISTIO_DUAL_STACK", "1")), istio(&[(Key::DualStack, "true")]));
    assert_eq!(of(proxy_env("INVALID_DROP", "true")), istio(&[(Key::DropInvalid, "true")]));
}

#[test]
fn bad_annotations_are_refused_by_name() {
    for (key, value, part) in [
        ("traffic.sidecar.istio.io/excludeInboundPorts", "80,x", "\"x\" is not accepted, expected"),
        (
            "traffic.sidecar.istio.io/includeOutboundIPRanges",
            "10.0.0.0/33",
            "\"10.0.0.0/33\" is not accepted",
        ),
        (INTERCEPTION_MODE, "tproxy", "\"tproxy\" is not accepted"),
        ("traffic.sidecar.istio.io/excludeInterfaces", "a/b", "\"a/b\" is not accepted"),
    ] {
        for pod in [
            pod(&APP_AND_PROXY, &[INJECTED, (key, value)], Proxy::default()),
            annotated(&[(STATUS, WITH_VALIDATION), (key, value)]),
        ] {
            let Decision::Refuse(Refusal::BadAnnotation(problem)) = decided(&pod) else { panic!("{pod:?}") };
            assert!(
                problem.starts_with(&format!("annotation {key}: ")) && problem.contains(part),
                "{problem}"
            );
        }
    }
}

const WITH_VALIDATION: &str =
    r#"{"initContainers":["istio-validation","istio-proxy"],"containers":null,"revision":"default"}"#;
const WITH_INIT: &str = r#"{"initContainers":["istio-init"],"containers":["istio-proxy"]}"#;
const OWN: &str = r#"{"version":1,"options":{"istio-inbound-ports":"*"}}"#;
const PROXY_ALONE: &str = r#"{"initContainers":null,"containers":["istio-proxy"]}"#;

#[test]
fn options_of_the_injector_without_its_status_do_not_decide() {
    let pod = annotated(&[(CAPTURE_ANNOTATION, OWN)]);
    let Decision::Refuse(Refusal::Unknown(problem)) = decided(&pod) else { panic!("{:?}", decided(&pod)) };
    assert!(problem.contains(CAPTURE_ANNOTATION) && problem.contains(STATUS), "{problem}");
}

#[test]
fn status_says_what_annotations_lack() {
    assert_eq!(captured(&annotated(&[(STATUS, WITH_VALIDATION)])), istio(&[]));
    for (annotations, not_captured) in [
        (&[("a", "b")][..], NotCaptured::NotInjected),
        (&[(STATUS, WITH_INIT)], NotCaptured::InitContainer),
        (&[(STATUS, WITH_INIT), (CAPTURE_ANNOTATION, "not read")], NotCaptured::InitContainer),
        (&[(STATUS, PROXY_ALONE), (INJECT, "false")], NotCaptured::InjectionDisabled),
        (&[(STATUS, "true"), (INJECT, "false")], NotCaptured::InjectionDisabled),
        (&[(STATUS, WITH_INIT), (INJECT, "false")], NotCaptured::InitContainer),
        (&[(STATUS, WITH_VALIDATION), (INJECT, "false"), (INTERCEPTION_MODE, "NONE")], NotCaptured::ModeNone),
        (&[(STATUS, PROXY_ALONE), (INTERCEPTION_MODE, "NONE")], NotCaptured::ModeNone),
        (&[(STATUS, PROXY_ALONE), (TEMPLATES, "gateway")], NotCaptured::ProxyType("gateway".to_owned())),
        (&[(STATUS, "{}")], NotCaptured::NoProxy),
    ] {
        assert_eq!(decided(&annotated(annotations)), Decision::NotCaptured(not_captured), "{annotations:?}");
    }
}

#[test]
fn what_annotations_cannot_say_is_unknown_not_uncaptured() {
    for annotations in [
        &[(STATUS, "true")][..],
        &[(STATUS, "[]")],
        &[(STATUS, "[[\"istio-validation\"],[\"istio-proxy\"]]")],
        &[(STATUS, PROXY_ALONE)],
        &[(STATUS, PROXY_ALONE), (TEMPLATES, "sidecar,gateway")],
        &[(STATUS, PROXY_ALONE), (TEMPLATES, "custom")],
        // A label that annotations do not report may have enabled injection.
        &[(STATUS, WITH_VALIDATION), (INJECT, "false")],
        &[(STATUS, PROXY_ALONE), (CAPTURE_ANNOTATION, OWN), (INJECT, "false")],
        &[(STATUS, WITH_VALIDATION), (PROXY_CONFIG, "proxyMetadata: {ISTIO_META_DNS_CAPTURE: \"true\"}")],
    ] {
        let decision = decided(&annotated(annotations));
        assert!(matches!(decision, Decision::Refuse(Refusal::Unknown(_))), "{annotations:?}: {decision:?}");
    }
}

#[test]
fn configured_defaults_fill_in_what_annotations_lack() {
    let defaults = Defaults { dns: true, dual_stack: true, uid: Some(1000), gid: Some(1001) };
    let plain = annotated(&[(STATUS, WITH_VALIDATION)]);
    let common = [(Key::RedirectDns, "true"), (Key::CaptureAllDns, "true"), (Key::DualStack, "true")];
    let ids = [(Key::ProxyUid, "1000"), (Key::ProxyGid, "1001")];
    assert_eq!(captured_with(&plain, &defaults), istio(&[&common[..], &ids].concat()));
    // As `-u 0` of the init binary.
    let root = Defaults { uid: Some(0), gid: Some(0), ..Defaults::default() };
    assert_eq!(captured_with(&plain, &root), istio(&[(Key::ProxyUid, "0"), (Key::ProxyGid, "0")]));
    // Istio's injector runs that proxy as root, in the group 1337, whatever user it gives to others.
    let tproxy = annotated(&[(STATUS, WITH_VALIDATION), (INTERCEPTION_MODE, "TPROXY")]);
    let mode = [(Key::InboundInterceptionMode, "TPROXY")];
    assert_eq!(captured_with(&tproxy, &defaults), istio(&[&common[..], &mode].concat()));
    // A source that reports containers needs none.
    let whole = pod(&APP_AND_PROXY, &[INJECTED], Proxy::default());
    assert_eq!(captured_with(&whole, &defaults), istio(&[]));
}

#[test]
fn own_annotation_is_used_alone() {
    let text =
        r#"{"version":1,"options":{"proxy-uid":"7","istio-inbound-ports":"80","redirect-dns":"true"}}"#;
    let annotations = [
        (STATUS, WITH_VALIDATION),
        (CAPTURE_ANNOTATION, text),
        ("traffic.sidecar.istio.io/includeInboundPorts", "not read"),
        (PROXY_CONFIG, "ISTIO_META_DNS_CAPTURE"),
    ];
    let Decision::Capture(options) =
        decide(&annotated(&annotations), &Defaults { uid: Some(1), ..Defaults::default() })
    else {
        panic!("not captured")
    };
    let values: Vec<(Key, &str)> = options.values().iter().map(|(key, text)| (*key, text.as_str())).collect();
    let wanted = [
        (Key::ProxyUid, "7"),
        (Key::InboundPorts, "80"),
        (Key::RedirectDns, "true"),
        (Key::CaptureAllDns, "true"),
    ];
    assert_eq!(values, wanted);
    let resolved = options.resolve(None).unwrap();
    assert_eq!(resolved.intent.traffic.mode, Mode::Redirect);
    assert_eq!((resolved.intent.traffic.proxy.uids, resolved.intent.traffic.proxy.gids), (vec![7], vec![7]));
    assert!(resolved.run.verify && resolved.run.cni_mode && resolved.run.network_namespace.is_none());
}

#[test]
fn bad_own_annotation_is_refused() {
    for (text, part) in [
        ("x", "expected value"),
        (r#"{"version":2,"options":{}}"#, "version 2 is not accepted, expected 1"),
        (r#"{"version":1,"options":{"rules-file":"/etc/passwd"}}"#, "option \"rules-file\" is not accepted"),
        (
            r#"{"version":1,"options":{"istio-inbound-ports":"x"}}"#,
            "option istio-inbound-ports: \"x\" is not accepted",
        ),
        (
            r#"{"version":1,"options":{"ISTIO_OUTBOUND_OWNER_GROUPS":"java"}}"#,
            "OWNER_GROUPS: \"java\" is not accepted",
        ),
    ] {
        let pod = annotated(&[(STATUS, WITH_VALIDATION), (CAPTURE_ANNOTATION, text)]);
        let Decision::Refuse(Refusal::BadAnnotation(problem)) = decided(&pod) else { panic!("{text}") };
        assert!(
            problem.starts_with(&format!("annotation {CAPTURE_ANNOTATION}")) && problem.contains(part),
            "{problem}"
        );
    }
}
