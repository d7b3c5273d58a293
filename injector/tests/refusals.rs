//! Pods that injection refuses.

use crate::builtin::{deployment, inject, injector, with};
use serde_json::json;
use sidecar_injector::inject::InjectError;

#[test]
fn bad_annotations_are_all_named() {
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
    assert!(matches!(&error, InjectError::Clash { container, .. } if container == "istio-init"), "{error}");
    let mut pod = deployment();
    pod["spec"]["initContainers"] = json!([{"name": "a", "image": "i"}, {"name": "web", "image": "i"}]);
    let error = inject(&injector(), &pod).unwrap_err();
    assert!(matches!(error, InjectError::Duplicate { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.starts_with("spec.containers[0], spec.initContainers[1]: they are all named web;"),
        "{text}"
    );
}
