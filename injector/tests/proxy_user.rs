//! App containers with the proxy's user or group.

use crate::builtin::{deployment, inject, injector};
use serde_json::json;
use sidecar_injector::inject::InjectError;

#[test]
fn an_app_with_the_proxy_s_user_is_warned_of_or_refused() {
    let mut pod = deployment();
    pod["spec"]["securityContext"] = json!({"runAsUser": 1337});
    let mut injector = injector();
    let injected = inject(&injector, &pod).unwrap();
    assert_eq!(injected.warnings.len(), 1, "{:?}", injected.warnings);
    injector.options.reject_proxy_uid = true;
    assert!(matches!(inject(&injector, &pod), Err(InjectError::ProxyUid { .. })));
}

#[test]
fn apps_are_compared_with_the_excluded_user() {
    let mut pod = deployment();
    let apps = pod["spec"]["containers"].as_array_mut().unwrap();
    apps[0]["securityContext"] = json!({"runAsUser": 4444});
    apps.push(
        json!({"name": "other", "image": "o", "securityContext": {"runAsUser": 1337, "runAsGroup": 4444}}),
    );
    apps.push(json!({"name": "istio-proxy", "image": "auto", "securityContext": {"runAsUser": 4444}}));
    let mut injector = injector();
    let warnings = inject(&injector, &pod).unwrap().warnings;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].starts_with("container web runs as user 4444"), "{warnings:?}");
    assert!(warnings[1].starts_with("container other runs as group 4444"), "{warnings:?}");
    injector.options.reject_proxy_uid = true;
    let error = inject(&injector, &pod).unwrap_err();
    assert_eq!(error, InjectError::ProxyUid { containers: vec!["web".to_owned()], uid: 4444 });
}

#[test]
fn an_init_container_that_keeps_running_is_an_app() {
    let mut pod = deployment();
    let init = json!({"name": "sidekick", "image": "b", "securityContext": {"runAsUser": 1337}});
    pod["spec"]["initContainers"] = json!([init]);
    let mut injector = injector();
    injector.options.reject_proxy_uid = true;
    assert_eq!(inject(&injector, &pod).unwrap().warnings, [""; 0]);
    pod["spec"]["initContainers"][0]["restartPolicy"] = json!("Always");
    let error = inject(&injector, &pod).unwrap_err().to_string();
    assert!(error.starts_with("container sidekick runs as user 1337"), "{error}");
}
