//! What capture depends on, from a pod of the API server. Nothing else is kept: neither other annotations nor
//! the values of other variables.

use std::collections::{BTreeMap, BTreeSet};

use istio_cni::lookup::{KnownPod, is_relevant_annotation, is_relevant_variable};
use istio_cni::pod::{Containers, PROXY, Pod, Proxy, VALIDATION};
use istio_iptables::exit::Exit;

use crate::objects;

/// How `istio-validation` ends where nothing captures.
const NOT_CAPTURED: i32 = Exit::ValidationFailed as i32;

/// A pod of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodePod {
    pub(crate) known: KnownPod,
    /// Whether it has started without capture.
    pub(crate) is_uncaptured: bool,
    /// Whether it is being deleted, or has ended.
    pub(crate) is_ending: bool,
}

impl NodePod {
    pub(crate) fn new(pod: objects::Pod) -> Self {
        let (is_uncaptured, is_ending) = (is_uncaptured(&pod), is_ending(&pod));
        Self { known: known(pod), is_uncaptured, is_ending }
    }
}

/// Whether the last run of its `istio-validation` says so. Its sandbox stays as it is until the pod is
/// deleted.
fn is_uncaptured(pod: &objects::Pod) -> bool {
    let all = pod.status.iter().flat_map(|status| status.init_container_statuses.iter().flatten());
    let validation = all.filter(|container| container.name == VALIDATION);
    let states = validation.flat_map(|container| [&container.state, &container.last_state]);
    let last = states.flatten().find_map(|state| state.terminated.as_ref());
    last.is_some_and(|end| end.exit_code == NOT_CAPTURED)
}

fn is_ending(pod: &objects::Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Succeeded" | "Failed"))
}

/// The facts of a pod.
pub(crate) fn known(pod: objects::Pod) -> KnownPod {
    let metadata = pod.metadata;
    let spec = pod.spec.unwrap_or_default();
    // A native sidecar is an init container that stays.
    let all: Vec<objects::Container> =
        [spec.init_containers, spec.containers].into_iter().flatten().flatten().collect();
    let of_pod = spec.security_context.unwrap_or_default();
    let proxy = all.iter().find(|container| container.name == PROXY);
    let proxy = proxy.map(|container| self::proxy(container, &of_pod)).unwrap_or_default();
    let names = all.into_iter().map(|container| container.name).collect();
    let mut annotations = metadata.annotations.unwrap_or_default();
    annotations.retain(|key, _| is_relevant_annotation(key));
    let mut labels = metadata.labels.unwrap_or_default();
    labels.retain(|key, _| is_relevant_annotation(key));
    KnownPod {
        namespace: metadata.namespace.unwrap_or_default(),
        name: metadata.name.unwrap_or_default(),
        uid: metadata.uid.unwrap_or_default(),
        pod: Pod { labels: Some(labels), annotations, containers: Some(Containers { names, proxy }) },
    }
}

fn proxy(container: &objects::Container, of_pod: &objects::SecurityContext) -> Proxy {
    let context = container.security_context.as_ref();
    let id = |own: Option<i64>, of_pod: Option<i64>| own.or(of_pod).and_then(|id| u32::try_from(id).ok());
    let (mut env, mut unresolved) = (BTreeMap::new(), BTreeSet::new());
    // Of several variables of a name the last one counts.
    for variable in container.env.iter().flatten() {
        let name = &variable.name;
        if is_relevant_variable(name) {
            env.remove(name);
            unresolved.remove(name);
            if variable.value_from.is_some() {
                unresolved.insert(name.clone());
            } else if let Some(value) = &variable.value {
                env.insert(name.clone(), value.clone());
            }
        }
    }
    Proxy {
        args: container.args.clone().unwrap_or_default(),
        env,
        unresolved,
        has_env_from: container.env_from.as_ref().is_some_and(|sources| !sources.is_empty()),
        uid: id(context.and_then(|context| context.run_as_user), of_pod.run_as_user),
        gid: id(context.and_then(|context| context.run_as_group), of_pod.run_as_group),
    }
}

#[cfg(test)]
mod tests {
    use istio_cni::decide::{Decision, decide};
    use istio_cni::netconf::Defaults;
    use serde_json::{Value, json};

    use super::*;

    /// What happens to a pod of the API server.
    fn decided(init: &Value, containers: &Value, annotations: &Value, labels: &Value) -> String {
        let pod = json!({
            "metadata": {"namespace": "a", "name": "b", "annotations": annotations, "labels": labels},
            "spec": {"initContainers": init, "containers": containers}
        });
        match decide(&known(serde_json::from_value(pod).unwrap()).pod, &Defaults::default()) {
            Decision::Capture(_) => "captured".to_owned(),
            Decision::NotCaptured(reason) => reason.to_string(),
            Decision::Refuse(reason) => format!("{reason:?}"),
        }
    }

    /// The cases of Istio's own plugin tests: containers.
    #[test]
    fn containers_of_the_api_server_are_decided_on_as_istio_does() {
        let (app, proxy) = (json!({"name": "app"}), json!({"name": "istio-proxy"}));
        let with = |key: &str, value: Value| {
            let mut proxy = proxy.clone();
            proxy[key] = value;
            json!([app, proxy])
        };
        let env = |value: &str| with("env", json!([{"name": "DISABLE_ENVOY", "value": value}]));
        let none = json!([]);
        let init = json!([{"name": "istio-init"}]);
        let native =
            json!([{"name": "istio-proxy", "restartPolicy": "Always"}, {"name": "istio-validation"}]);
        for (init, containers, expected) in [
            (&none, json!([app, proxy]), "captured"),
            (&native, json!([app]), "captured"),
            (&none, with("args", json!(["proxy", "sidecar"])), "captured"),
            (&none, with("args", json!(["proxy"])), "captured"),
            (&none, with("args", json!(["proxy", "router"])), "proxy type router"),
            (&init, json!([app, proxy]), "container istio-init"),
            (&none, env("true"), "DISABLE_ENVOY is true"),
            (&none, env("false"), "captured"),
            (&none, env("invalid"), "captured"),
            (&none, json!([app, {"name": "other"}]), "no container istio-proxy"),
            (&none, json!([app]), "no container istio-proxy"),
        ] {
            let text = decided(init, &containers, &json!({"sidecar.istio.io/status": "true"}), &json!({}));
            assert!(text.contains(expected), "{init} {containers}: {text}");
        }
    }

    /// The cases of Istio's own plugin tests: labels and annotations.
    #[test]
    fn metadata_of_the_api_server_is_decided_on_as_istio_does() {
        let inject = "sidecar.istio.io/inject";
        let and = |key: &str, value: &str| json!({"sidecar.istio.io/status": "true", key: value});
        let none = json!({});
        let disabled = "sidecar.istio.io/inject is false";
        for (annotations, labels, expected) in [
            (json!({}), &none, "no annotation sidecar.istio.io/status"),
            (and(inject, "false"), &none, disabled),
            (and(inject, "true"), &json!({inject: "false"}), disabled),
            (and(inject, "false"), &json!({inject: "true"}), "captured"),
            (and("sidecar.istio.io/interceptionMode", "NONE"), &none, "interceptionMode is NONE"),
        ] {
            let containers = json!([{"name": "app"}, {"name": "istio-proxy"}]);
            let text = decided(&json!([]), &containers, &annotations, labels);
            assert!(text.contains(expected), "{annotations} {labels}: {text}");
        }
    }

    #[test]
    fn options_are_those_of_the_proxys_container() {
        let pod = json!({
            "metadata": {"namespace": "a", "name": "b", "annotations": {
                "sidecar.istio.io/status": "true", "sidecar.istio.io/interceptionMode": "TPROXY",
                "traffic.sidecar.istio.io/includeInboundPorts": "*", "traffic.sidecar.istio.io/excludeInboundPorts": "4,5"
            }},
            "spec": {"initContainers": [{
                "name": "istio-proxy", "env": [{"name": "ISTIO_META_DNS_CAPTURE", "value": "true"}],
                "securityContext": {"runAsUser": 2000, "runAsGroup": 2001}
            }], "containers": [{"name": "app", "securityContext": {"runAsUser": 7}}]}
        });
        let decided = decide(&known(serde_json::from_value(pod).unwrap()).pod, &Defaults::default());
        let Decision::Capture(options) = decided else { panic!("{decided:?}") };
        let values: Vec<(&str, &str)> =
            options.values().iter().map(|(key, text)| (key.spec().name, text.as_str())).collect();
        for expected in [
            ("proxy-uid", "2000"),
            ("proxy-gid", "2001"),
            ("istio-inbound-interception-mode", "TPROXY"),
            ("istio-local-exclude-ports", "4,5,15020,15021,15090"),
            ("redirect-dns", "true"),
        ] {
            assert!(values.contains(&expected), "{expected:?}: {values:?}");
        }
    }

    /// As for the injector, which leaves out the annotation then.
    #[test]
    fn variables_with_values_elsewhere_are_undecided() {
        let decided = |env: &Value, own: bool| {
            let containers = json!([{"name": "app"}, {"name": "istio-proxy", "env": env}]);
            let mut annotations = json!({"sidecar.istio.io/status": "true"});
            if own {
                annotations["istio-iptables/capture-options"] = json!(r#"{"version":1,"options":{}}"#);
            }
            decided(&json!([]), &containers, &annotations, &json!({}))
        };
        let elsewhere = json!({"configMapKeyRef": {"name": "x", "key": "y"}});
        for name in ["ISTIO_META_DNS_CAPTURE", "ISTIO_DUAL_STACK", "INVALID_DROP", "DISABLE_ENVOY"] {
            let from = json!({"name": name, "valueFrom": elsewhere});
            let text = decided(&json!([from]), false);
            let wanted =
                format!("container istio-proxy sets {name} with valueFrom, which only the annotation");
            assert!(text.starts_with("Unknown") && text.contains(&wanted), "{text}");
            assert_eq!(decided(&json!([from]), true), "captured");
            // The last one of a name counts.
            let literal = json!({"name": name, "value": "false"});
            assert_eq!(decided(&json!([from, literal]), false), "captured");
            assert!(decided(&json!([literal, from]), false).starts_with("Unknown"));
        }
        assert_eq!(decided(&json!([{"name": "OTHER", "valueFrom": elsewhere}]), false), "captured");
    }

    #[test]
    fn user_and_group_of_the_pod_count_where_the_container_has_none() {
        for (own, expected) in
            [(json!({}), (Some(3000), Some(3001))), (json!({"runAsUser": 5}), (Some(5), Some(3001)))]
        {
            let pod = json!({"metadata": {"name": "b"}, "spec": {
                "securityContext": {"runAsUser": 3000, "runAsGroup": 3001},
                "containers": [{"name": "istio-proxy", "securityContext": own}]
            }});
            let proxy = known(serde_json::from_value(pod).unwrap()).pod.containers.unwrap().proxy;
            assert_eq!((proxy.uid, proxy.gid), expected);
        }
    }

    #[test]
    fn last_run_of_validation_says_whether_a_pod_is_captured() {
        let ended = |code: i32| json!({"terminated": {"exitCode": code}});
        let waits = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        for (name, state, last, expected) in [
            ("istio-validation", ended(126), json!({}), true),
            ("istio-validation", waits.clone(), ended(126), true),
            // After another program has corrected the rules.
            ("istio-validation", ended(0), ended(126), false),
            ("istio-validation", ended(1), json!({}), false),
            ("istio-validation", waits, json!({}), false),
            ("other", ended(126), json!({}), false),
        ] {
            let status = json!({"name": name, "state": state, "lastState": last, "image": "", "imageID": "", "ready": false,
                "restartCount": 0});
            let pod = json!({"metadata": {"name": "a"}, "status": {"initContainerStatuses": [status]}});
            assert_eq!(is_uncaptured(&serde_json::from_value(pod).unwrap()), expected, "{status}");
        }
        assert!(!is_uncaptured(&objects::Pod::default()));
    }

    #[test]
    fn pods_that_are_deleted_or_have_ended_are_ending() {
        for (metadata, phase, expected) in [
            (json!({"deletionTimestamp": "2026-03-01T05:12:03Z"}), "Running", true),
            (json!({}), "Succeeded", true),
            (json!({}), "Failed", true),
            (json!({}), "Pending", false),
            (json!({}), "Running", false),
        ] {
            let pod = json!({"metadata": metadata, "status": {"phase": phase}});
            assert_eq!(
                NodePod::new(serde_json::from_value(pod.clone()).unwrap()).is_ending,
                expected,
                "{pod}"
            );
        }
    }

    #[test]
    fn only_what_capture_depends_on_is_kept() {
        let pod: objects::Pod = serde_json::from_value(serde_json::json!({
            "metadata": {
                "namespace": "a", "name": "b", "uid": "u",
                "labels": {"app": "x", "sidecar.istio.io/inject": "true"},
                "annotations": {"sidecar.istio.io/status": "{}", "example.com/token": "secret"}
            },
            "spec": {
                "initContainers": [{"name": "istio-validation"}],
                "containers": [{"name": "app", "env": [{"name": "ISTIO_DUAL_STACK", "value": "app"}]}, {
                    "name": "istio-proxy", "args": ["proxy", "sidecar"],
                    "env": [
                        {"name": "ISTIO_DUAL_STACK", "value": "true"}, {"name": "TOKEN", "value": "secret"},
                        {"name": "DISABLE_ENVOY", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
                    ],
                    "securityContext": {"runAsUser": 1337, "runAsGroup": -1}
                }]
            }
        }))
        .unwrap();
        let known = known(pod);
        assert_eq!((known.namespace.as_str(), known.name.as_str(), known.uid.as_str()), ("a", "b", "u"));
        let keys: Vec<&str> = known.pod.annotations.keys().map(String::as_str).collect();
        assert_eq!(keys, ["sidecar.istio.io/status"]);
        assert_eq!(known.pod.labels.unwrap().len(), 1);
        let containers = known.pod.containers.unwrap();
        assert_eq!(containers.names, ["istio-validation", "app", "istio-proxy"]);
        assert_eq!(containers.proxy.args, ["proxy", "sidecar"]);
        let env: Vec<_> = containers.proxy.env.into_iter().collect();
        assert_eq!(env, [("ISTIO_DUAL_STACK".to_owned(), "true".to_owned())]);
        assert_eq!(containers.proxy.unresolved.iter().collect::<Vec<_>>(), ["DISABLE_ENVOY"]);
        assert_eq!((containers.proxy.uid, containers.proxy.gid), (Some(1337), None));
    }
}
