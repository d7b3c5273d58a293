//! Pods that a CNI plugin captures: what injection writes for it, and what the plugin makes of that.

use std::collections::BTreeMap;

use crate::builtin::{self, deployment, inject, with};
use istio_cni::decide::{Decision, NotCaptured, decide};
use istio_cni::netconf::Defaults;
use istio_cni::pod::Pod;
use istio_iptables::config::{CAPTURE_ANNOTATION, DnsChoice, Intent, read_capture_annotation};
use serde_json::{Value, json};
use sidecar_injector::config::{Source, Sources};
use sidecar_injector::inject::{Injector, Options, functions};
use sidecar_injector::pod::init_options::InitOptions;

fn injector(cni: &Value) -> Injector {
    let text = json!({"pilot": {"cni": cni}}).to_string();
    let values = Some(Source { name: "values.yaml".to_owned(), text });
    let settings = Sources { values, ..Sources::default() }.load(&functions(|_| None)).unwrap();
    Injector::new(settings, Options::default())
}

fn annotations(pod: &Value) -> BTreeMap<String, String> {
    serde_json::from_value(pod["metadata"]["annotations"].clone()).unwrap()
}

/// What the plugin sees: annotations alone.
fn decided(pod: &Value) -> Decision {
    decide(&Pod { annotations: annotations(pod), ..Pod::default() }, &Defaults::default())
}

fn of_plugin(pod: &Value) -> Intent {
    match decided(pod) {
        Decision::Capture(options) => options.resolve(None).unwrap().intent,
        other @ (Decision::NotCaptured(_) | Decision::Refuse(_)) => panic!("{other:?}"),
    }
}

fn variants() -> Vec<Value> {
    vec![
        json!({}),
        json!({"sidecar.istio.io/interceptionMode": "TPROXY"}),
        json!({"sidecar.istio.io/capNetBindService": "true"}),
        json!({
            "traffic.sidecar.istio.io/includeInboundPorts": "80,81",
            "traffic.sidecar.istio.io/excludeOutboundPorts": "5432",
            "traffic.sidecar.istio.io/includeOutboundPorts": "9000",
            "traffic.sidecar.istio.io/includeOutboundIPRanges": "10.0.0.0/8,fd00::/8",
            "traffic.sidecar.istio.io/excludeOutboundIPRanges": "10.1.0.0/16",
            "traffic.sidecar.istio.io/excludeInterfaces": "eth1",
            "istio.io/reroute-virtual-interfaces": "net1",
        }),
        json!({"traffic.sidecar.istio.io/excludeInboundPorts": "8000", "status.sidecar.istio.io/port": "15030"}),
        json!({"proxy.istio.io/config": "proxyMetadata: {ISTIO_DUAL_STACK: 'true', INVALID_DROP: 'true', \
                                         ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE: '202'}"}),
    ]
}

#[test]
fn plugin_captures_what_the_init_container_would() {
    let (cni, init) = (injector(&json!({"enabled": true})), injector(&json!({"enabled": false})));
    for variant in variants() {
        let pod = with(&deployment(), &variant);
        let by_plugin = of_plugin(&inject(&cni, &pod).unwrap().pod);
        let by_init = InitOptions::of(&inject(&init, &pod).unwrap().pod).unwrap().resolved.unwrap().intent;
        assert_eq!(by_plugin, by_init, "{variant}");
    }
}

#[test]
fn all_dns_is_captured_since_the_plugin_knows_no_name_servers() {
    let pod = with(
        &deployment(),
        &json!({"proxy.istio.io/config": "proxyMetadata: {ISTIO_META_DNS_CAPTURE: 'true'}"}),
    );
    let injected = inject(&injector(&json!({"enabled": true})), &pod).unwrap().pod;
    assert_eq!(of_plugin(&injected).dns, DnsChoice::All);
}

#[test]
fn user_and_group_are_those_of_the_proxy_that_comes_out() {
    let mut pod = deployment();
    let own = json!({"name": "istio-proxy", "image": "auto", "securityContext": {"runAsUser": 1234, "runAsGroup": 5678}});
    pod["spec"]["containers"].as_array_mut().unwrap().push(own);
    let traffic = of_plugin(&inject(&injector(&json!({"enabled": true})), &pod).unwrap().pod).traffic;
    assert_eq!((traffic.proxy.uids, traffic.proxy.gids), (vec![1234], vec![5678]));
}

#[test]
fn annotation_is_written_where_it_is_wanted_and_read() {
    let of = |cni: &Value, pod: &Value| {
        let injected = inject(&injector(cni), pod).unwrap().pod;
        (annotations(&injected).get(CAPTURE_ANNOTATION).cloned(), decided(&injected))
    };
    let (written, decision) = of(&json!({"enabled": true}), &deployment());
    assert!(read_capture_annotation(&written.unwrap()).is_ok());
    assert!(matches!(decision, Decision::Capture(_)));
    let (absent, decision) = of(&json!({"enabled": true, "captureAnnotation": false}), &deployment());
    assert_eq!(absent, None);
    assert!(matches!(decision, Decision::Capture(_)), "by Istio's annotations");
    let (absent, decision) = of(&json!({"enabled": false}), &deployment());
    assert_eq!((absent, decision), (None, Decision::NotCaptured(NotCaptured::InitContainer)));
    let none = with(&deployment(), &json!({"sidecar.istio.io/interceptionMode": "NONE"}));
    assert_eq!(of(&json!({"enabled": true}), &none), (None, Decision::NotCaptured(NotCaptured::ModeNone)));
    let gateway = json!({"metadata": {"annotations": {"inject.istio.io/templates": "gateway"}},
                         "spec": {"containers": [{"name": "istio-proxy", "image": "auto"}]}});
    let (absent, decision) = of(&json!({"enabled": true}), &gateway);
    assert_eq!(
        (absent, decision),
        (None, Decision::NotCaptured(NotCaptured::ProxyType("gateway".to_owned())))
    );
}

#[test]
fn second_injection_changes_nothing_and_removal_leaves_nothing() {
    let cni = injector(&json!({"enabled": true}));
    for variant in variants() {
        let pod = with(&deployment(), &variant);
        let once = inject(&cni, &pod).unwrap().pod;
        assert_eq!(inject(&cni, &once).unwrap().pod.to_string(), once.to_string());
    }
    let request = sidecar_injector::inject::Request {
        pod: &inject(&cni, &deployment()).unwrap().pod,
        workload: &builtin::workload(),
        context: &builtin::native(),
    };
    let removed = cni.uninject(request).unwrap().unwrap();
    assert_eq!(removed.pod, deployment());
}

#[test]
fn names_of_groups_are_warned_of() {
    let config = json!({"proxy.istio.io/config": "proxyMetadata: {ISTIO_OUTBOUND_OWNER_GROUPS: 'java'}"});
    let injected = inject(&injector(&json!({"enabled": true})), &with(&deployment(), &config)).unwrap();
    let wanted = "\"java\" is the name of a group, which the CNI plugin cannot look up: it refuses the pod";
    assert!(injected.warnings.iter().any(|warning| warning.contains(wanted)), "{:?}", injected.warnings);
    assert!(matches!(decided(&injected.pod), Decision::Refuse(_)));
}
