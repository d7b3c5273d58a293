//! What capture depends on, from a pod of the API server. Nothing else is kept: neither other annotations nor the values of other
//! variables.

use istio_cni::lookup::{KnownPod, PROXY_VARIABLES, is_relevant_annotation};
use istio_cni::pod::{Containers, PROXY, Pod, Proxy};
use k8s_openapi::api::core::v1;

/// The facts of a pod.
pub(crate) fn known(pod: v1::Pod) -> KnownPod {
    let metadata = pod.metadata;
    let spec = pod.spec.unwrap_or_default();
    // A native sidecar is an init container that stays.
    let all: Vec<v1::Container> =
        spec.init_containers.unwrap_or_default().into_iter().chain(spec.containers).collect();
    let proxy = all.iter().find(|container| container.name == PROXY).map(proxy).unwrap_or_default();
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

fn proxy(container: &v1::Container) -> Proxy {
    let context = container.security_context.as_ref();
    let id = |id: Option<i64>| id.and_then(|id| u32::try_from(id).ok());
    let variables = container.env.iter().flatten();
    let relevant = variables.filter(|variable| PROXY_VARIABLES.contains(&variable.name.as_str()));
    Proxy {
        args: container.args.clone().unwrap_or_default(),
        env: relevant.filter_map(|variable| Some((variable.name.clone(), variable.value.clone()?))).collect(),
        uid: id(context.and_then(|context| context.run_as_user)),
        gid: id(context.and_then(|context| context.run_as_group)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_capture_depends_on_is_kept() {
        let pod: v1::Pod = serde_json::from_value(serde_json::json!({
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
        assert_eq!((containers.proxy.uid, containers.proxy.gid), (Some(1337), None));
    }
}
