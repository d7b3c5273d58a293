//! `PodSpec` and what they are made of (Kubernetes 1.36).

use super::container::{
    CONTAINER, LOCAL_REFERENCE, NAME_VALUE, RESOURCES, SECURITY_PROFILE, SELINUX, WINDOWS,
};
use super::meta::{LABEL_SELECTOR, OBJECT_META, REQUIREMENT};
use super::volume::VOLUME;
use super::{ANY, BOOL, INT, QUANTITY_MAP, STR, STR_LIST, STR_MAP, Struct, atomic, keyed, object};

/// `Pod`.
pub static POD: Struct = Struct {
    name: "Pod",
    fields: &[
        ("apiVersion", STR),
        ("kind", STR),
        ("metadata", object(&OBJECT_META)),
        ("spec", object(&POD_SPEC)),
        ("status", ANY),
    ],
};

/// `PodTemplateSpec`.
pub static POD_TEMPLATE: Struct = Struct {
    name: "PodTemplateSpec",
    fields: &[("metadata", object(&OBJECT_META)), ("spec", object(&POD_SPEC))],
};

/// `PodSpec`.
pub static POD_SPEC: Struct = Struct {
    name: "PodSpec",
    fields: &[
        ("activeDeadlineSeconds", INT),
        ("affinity", object(&AFFINITY)),
        ("automountServiceAccountToken", BOOL),
        ("containers", keyed(&object(&CONTAINER), "name")),
        ("dnsConfig", object(&POD_DNS_CONFIG)),
        ("dnsPolicy", STR),
        ("enableServiceLinks", BOOL),
        ("ephemeralContainers", keyed(&object(&CONTAINER), "name")),
        ("hostAliases", keyed(&object(&HOST_ALIAS), "ip")),
        ("hostIPC", BOOL),
        ("hostNetwork", BOOL),
        ("hostPID", BOOL),
        ("hostUsers", BOOL),
        ("hostname", STR),
        ("hostnameOverride", STR),
        ("imagePullSecrets", keyed(&object(&LOCAL_REFERENCE), "name")),
        ("initContainers", keyed(&object(&CONTAINER), "name")),
        ("nodeName", STR),
        ("nodeSelector", STR_MAP),
        ("os", object(&LOCAL_REFERENCE)),
        ("overhead", QUANTITY_MAP),
        ("preemptionPolicy", STR),
        ("priority", INT),
        ("priorityClassName", STR),
        ("readinessGates", atomic(&object(&READINESS_GATE))),
        ("resourceClaims", keyed(&object(&POD_RESOURCE_CLAIM), "name")),
        ("resources", object(&RESOURCES)),
        ("restartPolicy", STR),
        ("runtimeClassName", STR),
        ("schedulerName", STR),
        ("schedulingGates", keyed(&object(&LOCAL_REFERENCE), "name")),
        ("schedulingGroup", ANY),
        ("securityContext", object(&POD_SECURITY_CONTEXT)),
        ("serviceAccount", STR),
        ("serviceAccountName", STR),
        ("setHostnameAsFQDN", BOOL),
        ("shareProcessNamespace", BOOL),
        ("subdomain", STR),
        ("terminationGracePeriodSeconds", INT),
        ("tolerations", atomic(&object(&TOLERATION))),
        ("topologySpreadConstraints", keyed(&object(&TOPOLOGY_SPREAD), "topologyKey")),
        ("volumes", keyed(&object(&VOLUME), "name")),
        ("workloadRef", ANY),
    ],
};

static POD_SECURITY_CONTEXT: Struct = Struct {
    name: "PodSecurityContext",
    fields: &[
        ("appArmorProfile", object(&SECURITY_PROFILE)),
        ("fsGroup", INT),
        ("fsGroupChangePolicy", STR),
        ("runAsGroup", INT),
        ("runAsNonRoot", BOOL),
        ("runAsUser", INT),
        ("seLinuxChangePolicy", STR),
        ("seLinuxOptions", object(&SELINUX)),
        ("seccompProfile", object(&SECURITY_PROFILE)),
        ("supplementalGroups", atomic(&INT)),
        ("supplementalGroupsPolicy", STR),
        ("sysctls", atomic(&object(&NAME_VALUE))),
        ("windowsOptions", object(&WINDOWS)),
    ],
};

static POD_RESOURCE_CLAIM: Struct = Struct {
    name: "PodResourceClaim",
    fields: &[("name", STR), ("resourceClaimName", STR), ("resourceClaimTemplateName", STR)],
};

static HOST_ALIAS: Struct = Struct { name: "HostAlias", fields: &[("hostnames", STR_LIST), ("ip", STR)] };
static POD_DNS_CONFIG: Struct = Struct {
    name: "PodDNSConfig",
    fields: &[("nameservers", STR_LIST), ("options", atomic(&object(&NAME_VALUE))), ("searches", STR_LIST)],
};
static READINESS_GATE: Struct = Struct { name: "PodReadinessGate", fields: &[("conditionType", STR)] };
static TOLERATION: Struct = Struct {
    name: "Toleration",
    fields: &[("effect", STR), ("key", STR), ("operator", STR), ("tolerationSeconds", INT), ("value", STR)],
};
static TOPOLOGY_SPREAD: Struct = Struct {
    name: "TopologySpreadConstraint",
    fields: &[
        ("labelSelector", object(&LABEL_SELECTOR)),
        ("matchLabelKeys", STR_LIST),
        ("maxSkew", INT),
        ("minDomains", INT),
        ("nodeAffinityPolicy", STR),
        ("nodeTaintsPolicy", STR),
        ("topologyKey", STR),
        ("whenUnsatisfiable", STR),
    ],
};

static AFFINITY: Struct = Struct {
    name: "Affinity",
    fields: &[
        ("nodeAffinity", object(&NODE_AFFINITY)),
        ("podAffinity", object(&POD_AFFINITY)),
        ("podAntiAffinity", object(&POD_AFFINITY)),
    ],
};

static NODE_AFFINITY: Struct = Struct {
    name: "NodeAffinity",
    fields: &[
        ("preferredDuringSchedulingIgnoredDuringExecution", atomic(&object(&PREFERRED_NODE))),
        ("requiredDuringSchedulingIgnoredDuringExecution", object(&NODE_SELECTOR)),
    ],
};

static PREFERRED_NODE: Struct = Struct {
    name: "PreferredSchedulingTerm",
    fields: &[("preference", object(&NODE_TERM)), ("weight", INT)],
};

static NODE_SELECTOR: Struct =
    Struct { name: "NodeSelector", fields: &[("nodeSelectorTerms", atomic(&object(&NODE_TERM)))] };

static NODE_TERM: Struct = Struct {
    name: "NodeSelectorTerm",
    fields: &[
        ("matchExpressions", atomic(&object(&REQUIREMENT))),
        ("matchFields", atomic(&object(&REQUIREMENT))),
    ],
};

static POD_AFFINITY: Struct = Struct {
    name: "PodAffinity",
    fields: &[
        ("preferredDuringSchedulingIgnoredDuringExecution", atomic(&object(&WEIGHTED_POD_TERM))),
        ("requiredDuringSchedulingIgnoredDuringExecution", atomic(&object(&POD_TERM))),
    ],
};

static WEIGHTED_POD_TERM: Struct = Struct {
    name: "WeightedPodAffinityTerm",
    fields: &[("podAffinityTerm", object(&POD_TERM)), ("weight", INT)],
};

static POD_TERM: Struct = Struct {
    name: "PodAffinityTerm",
    fields: &[
        ("labelSelector", object(&LABEL_SELECTOR)),
        ("matchLabelKeys", STR_LIST),
        ("mismatchLabelKeys", STR_LIST),
        ("namespaceSelector", object(&LABEL_SELECTOR)),
        ("namespaces", STR_LIST),
        ("topologyKey", STR),
    ],
};
