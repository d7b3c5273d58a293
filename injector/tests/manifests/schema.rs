//! Every object is of the type that Kubernetes has for it: it goes through that type without losing or
//! changing a field.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ResourceQuota, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde_json::Value;
use sidecar_injector::manifests;

use super::{all, node_agent, objects};

macro_rules! through {
    ($type:ty, $object:expr) => {{
        let typed: $type = serde_json::from_value($object.clone()).unwrap();
        serde_json::to_value(&typed).unwrap()
    }};
}

fn through_its_type(object: &Value) -> Option<Value> {
    Some(match object["kind"].as_str().unwrap() {
        "ClusterRole" => through!(ClusterRole, object),
        "ClusterRoleBinding" => through!(ClusterRoleBinding, object),
        "ConfigMap" => through!(ConfigMap, object),
        "DaemonSet" => through!(DaemonSet, object),
        "Deployment" => through!(Deployment, object),
        "HorizontalPodAutoscaler" => through!(HorizontalPodAutoscaler, object),
        "MutatingWebhookConfiguration" => through!(MutatingWebhookConfiguration, object),
        "Namespace" => through!(Namespace, object),
        "NetworkPolicy" => through!(NetworkPolicy, object),
        "PodDisruptionBudget" => through!(PodDisruptionBudget, object),
        "ResourceQuota" => through!(ResourceQuota, object),
        "Role" => through!(Role, object),
        "RoleBinding" => through!(RoleBinding, object),
        "Service" => through!(Service, object),
        "ServiceAccount" => through!(ServiceAccount, object),
        "ValidatingAdmissionPolicy" => through!(ValidatingAdmissionPolicy, object),
        "ValidatingAdmissionPolicyBinding" => through!(ValidatingAdmissionPolicyBinding, object),
        // cert-manager's own; Kubernetes has no type for them.
        "Certificate" | "Issuer" => {
            assert_eq!(object["apiVersion"], "cert-manager.io/v1");
            return None;
        }
        "SecurityContextConstraints" => {
            assert_eq!(object["apiVersion"], "security.openshift.io/v1");
            return None;
        }
        other => panic!("no type for {other}"),
    })
}

#[test]
fn kubernetes_knows_every_field() {
    let agents =
        node_agent::all().into_iter().flat_map(|options| manifests::node_agent::objects(&options).unwrap());
    for object in all().iter().flat_map(objects).chain(agents) {
        if let Some(typed) = through_its_type(&object) {
            assert_eq!(typed, object);
        }
    }
}

#[test]
fn an_unknown_field_would_be_noticed() {
    let mut object = objects(&all()[0])[0].clone();
    object["metadata"]["nmae"] = "x".into();
    assert_ne!(through_its_type(&object).unwrap(), object);
}
