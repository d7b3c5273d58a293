//! `ObjectMeta`, and the types that pods and volumes share.

use super::*;

types! {
    OBJECT_META "v1.ObjectMeta" {
        "name" Name: STR, from("metadata"); "generateName" GenerateName: STR, from("metadata");
        "namespace" Namespace: STR, from("metadata"); "selfLink" SelfLink: STR; "uid" UID: STR;
        "resourceVersion" ResourceVersion: STR; "generation" Generation: INT64;
        "creationTimestamp" CreationTimestamp: STR; "deletionTimestamp" DeletionTimestamp: STR_PTR;
        "deletionGracePeriodSeconds" DeletionGracePeriodSeconds: INT64_PTR; "labels" Labels: STR_MAP, from("label");
        "annotations" Annotations: STR_MAP, from("annotation");
        "ownerReferences" OwnerReferences: list(&object(&OWNER_REFERENCE)), merge("uid");
        "finalizers" Finalizers: STR_LIST, merge("set"); "managedFields" ManagedFields: OBJECTS;
    }
    OWNER_REFERENCE "v1.OwnerReference" {
        "apiVersion" APIVersion: STR, always; "kind" Kind: STR, always; "name" Name: STR, always;
        "uid" UID: STR, always; "controller" Controller: BOOL_PTR; "blockOwnerDeletion" BlockOwnerDeletion: BOOL_PTR;
    }
    LABEL_SELECTOR "v1.LabelSelector" {
        "matchExpressions" MatchExpressions: list(&object(&REQUIREMENT)); "matchLabels" MatchLabels: STR_MAP;
    }
    REQUIREMENT "v1.LabelSelectorRequirement" {
        "key" Key: STR, always; "operator" Operator: STR, always; "values" Values: STR_LIST;
    }
    LOCAL_REFERENCE "v1.LocalObjectReference" { "name" Name: STR; }
    FIELD_SELECTOR "v1.ObjectFieldSelector" { "apiVersion" APIVersion: STR; "fieldPath" FieldPath: STR, always; }
    RESOURCE_FIELD_SELECTOR "v1.ResourceFieldSelector" {
        "containerName" ContainerName: STR; "divisor" Divisor: QUANTITY; "resource" Resource: STR, always;
    }
    RESOURCES "v1.ResourceRequirements" {
        "limits" Limits: QUANTITY_MAP; "requests" Requests: QUANTITY_MAP;
        "claims" Claims: list(&object(&RESOURCE_CLAIM));
    }
    RESOURCE_CLAIM "v1.ResourceClaim" { "name" Name: STR, always; "request" Request: STR; }
}
