//! Pods that injection refuses.

use crate::builtin::{deployment, inject, injector, with};
use serde_json::json;
use sidecar_injector::inject::InjectError;

#[test]
fn bad_annotations_are_all_reported() {
    let pod = with(
        &deployment(),
        &json!({"traffic.sidecar.istio.io/includeOutboundIPRanges": "x", "status.sidecar.istio.io/port": "y"}),
    );
    let error = inject(&injector(), &pod).unwrap_err();
    assert!(matches!(&error, InjectError::Annotations(all) if all.len() == 2), "{error}");
    assert_eq!(error.to_string().lines().count(), 2);
}

#[test]
fn images_and_templates_that_do_not_exist_are_refused() {
    let mut pod = deployment();
    pod["spec"]["containers"][0]["image"] = json!("auto");
    let error = inject(&injector(), &pod).unwrap_err().to_string();
    assert!(error.contains("container web") && error.contains("sidecar"), "{error}");
    let pod = with(&deployment(), &json!({"inject.istio.io/templates": "sidecar,nope"}));
    let error = inject(&injector(), &pod).unwrap_err().to_string();
    assert!(error.contains("\"nope\"") && error.contains("gateway, sidecar"), "{error}");
    let asked =
        |count| with(&deployment(), &json!({"inject.istio.io/templates": vec!["sidecar"; count].join(",")}));
    assert!(inject(&injector(), &asked(50)).is_ok());
    let error = inject(&injector(), &asked(51)).unwrap_err().to_string();
    assert!(error.contains("51 names, expected at most 50"), "{error}");
}

#[test]
fn a_container_name_is_unique_in_a_pod() {
    let mut pod = deployment();
    pod["spec"]["containers"][0]["name"] = json!("istio-init");
    let error = inject(&injector(), &pod).unwrap_err();
    assert!(
        matches!(&error, InjectError::ContainerNameConflict { container, .. } if container == "istio-init"),
        "{error}"
    );
    let mut pod = deployment();
    pod["spec"]["initContainers"] = json!([{"name": "a", "image": "i"}, {"name": "web", "image": "i"}]);
    let error = inject(&injector(), &pod).unwrap_err();
    assert!(matches!(error, InjectError::DuplicateContainer { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.starts_with("spec.containers[0], spec.initContainers[1]: they are all named web;"),
        "{text}"
    );
}

/// Kubernetes rejects such a pod, and a second injection would merge the two items into one.
#[test]
fn volumes_and_mount_paths_are_unique() {
    const VOLUME: &str = "sidecar.istio.io/userVolume";
    const MOUNT: &str = "sidecar.istio.io/userVolumeMount";
    for (key, value, parts) in [
        (
            MOUNT,
            json!({"a": {"mountPath": "/x"}, "b": {"mountPath": "/x"}}),
            [
                "container istio-proxy: volumes a and b are both mounted at /x;",
                "annotation sidecar.istio.io/userVolumeMount",
            ],
        ),
        (
            MOUNT,
            json!([{"name": "a", "mountPath": "/x"}, {"name": "a", "mountPath": "/x"}]),
            ["volumes a and a are both mounted at /x;", "expected another mountPath in annotation"],
        ),
        (
            MOUNT,
            json!({"a": {"mountPath": "/etc/istio/proxy"}}),
            ["volumes istio-envoy and a are both mounted at /etc/istio/proxy;", MOUNT],
        ),
        (
            VOLUME,
            json!([{"name": "a", "emptyDir": {}}, {"name": "a", "secret": {"secretName": "s"}}]),
            [
                "two volumes of the injected pod are named a;",
                "expected another name in annotation sidecar.istio.io/userVolume",
            ],
        ),
        (
            VOLUME,
            json!({"istio-data": {"emptyDir": {}}}),
            ["two volumes of the injected pod are named istio-data;", VOLUME],
        ),
    ] {
        let pod = with(&deployment(), &json!({key: value.to_string()}));
        let error = inject(&injector(), &pod).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{value}: {error}");
    }
    let mut pod = deployment();
    pod["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "a", "mountPath": "/x"}, {"name": "b", "mountPath": "/x"}]);
    let error = inject(&injector(), &pod).unwrap_err().to_string();
    assert!(error.ends_with("unique in a container: expected another mountPath"), "{error}");
}
