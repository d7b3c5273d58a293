//! The validating policy: a pod that still has `image: auto` was not injected, and is rejected with the reasons instead of
//! failing to pull that image.

use serde_json::{Value, json};

use super::names::Names;
use crate::pod::{AUTO_IMAGE, PROXY};

/// The message for the user.
const MESSAGE: &str = "image: auto is still there: no sidecar injector was called for this pod. Either its namespace has neither \
                       the label istio-injection=enabled nor istio.io/rev with an installed revision, or the pod's own label \
                       sidecar.istio.io/inject is not \"true\", or the namespace is that of the injector, or the injector was \
                       away and failurePolicy is Ignore. `sidecar-injector doctor` says which";

pub(super) fn objects(names: &Names) -> Vec<Value> {
    let name = format!("{}-image-auto", names.injector());
    // Both fields are optional for CEL; initContainers are absent in most pods.
    let none_left = |list: &str| {
        format!("{list}.all(c, c.name != '{PROXY}' || !has(c.image) || c.image != '{AUTO_IMAGE}')")
    };
    let (containers, init) = (none_left("object.spec.containers"), none_left("object.spec.initContainers"));
    let validation =
        |expression: String| json!({"expression": expression, "message": MESSAGE, "reason": "Invalid"});
    vec![
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": names.cluster_metadata(&name),
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
                }]},
                "validations": [
                    validation(containers),
                    validation(format!("!has(object.spec.initContainers) || {init}")),
                ],
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": names.cluster_metadata(&name),
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        }),
    ]
}
