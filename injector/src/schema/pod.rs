//! `ObjectMeta`, `PodSpec`, `Container` and what they are made of (Kubernetes 1.36).

use super::volume::VOLUME;
use super::{
    ANY, BOOL, INT, INT_OR_STRING, Kind, ListMerge, QUANTITY, QUANTITY_MAP, STR, STR_LIST, STR_MAP, Struct,
};
use super::{atomic, keyed, object};

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

/// `ObjectMeta`.
pub static OBJECT_META: Struct = Struct {
    name: "ObjectMeta",
    fields: &[
        ("annotations", STR_MAP),
        ("creationTimestamp", STR),
        ("deletionGracePeriodSeconds", INT),
        ("deletionTimestamp", STR),
        ("finalizers", Kind::List(&STR, ListMerge::Set)),
        ("generateName", STR),
        ("generation", INT),
        ("labels", STR_MAP),
        ("managedFields", atomic(&ANY)),
        ("name", STR),
        ("namespace", STR),
        ("ownerReferences", keyed(&object(&OWNER_REFERENCE), "uid")),
        ("resourceVersion", STR),
        ("selfLink", STR),
        ("uid", STR),
    ],
};

static OWNER_REFERENCE: Struct = Struct {
    name: "OwnerReference",
    fields: &[
        ("apiVersion", STR),
        ("blockOwnerDeletion", BOOL),
        ("controller", BOOL),
        ("kind", STR),
        ("name", STR),
        ("uid", STR),
    ],
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
        (
            "topologySpreadConstraints",
            keyed(&object(&TOPOLOGY_SPREAD), "topologyKey"),
        ),
        ("volumes", keyed(&object(&VOLUME), "name")),
        ("workloadRef", ANY),
    ],
};

/// `Container`; ephemeral containers have one field more.
pub static CONTAINER: Struct = Struct {
    name: "Container",
    fields: &[
        ("args", STR_LIST),
        ("command", STR_LIST),
        ("env", keyed(&object(&ENV_VAR), "name")),
        ("envFrom", atomic(&object(&ENV_FROM))),
        ("image", STR),
        ("imagePullPolicy", STR),
        ("lifecycle", object(&LIFECYCLE)),
        ("livenessProbe", object(&PROBE)),
        ("name", STR),
        ("ports", keyed(&object(&PORT), "containerPort")),
        ("readinessProbe", object(&PROBE)),
        ("resizePolicy", atomic(&object(&RESIZE_POLICY))),
        ("resources", object(&RESOURCES)),
        ("restartPolicy", STR),
        ("restartPolicyRules", atomic(&ANY)),
        ("securityContext", object(&SECURITY_CONTEXT)),
        ("startupProbe", object(&PROBE)),
        ("stdin", BOOL),
        ("stdinOnce", BOOL),
        ("targetContainerName", STR),
        ("terminationMessagePath", STR),
        ("terminationMessagePolicy", STR),
        ("tty", BOOL),
        ("volumeDevices", keyed(&object(&VOLUME_DEVICE), "devicePath")),
        ("volumeMounts", keyed(&object(&VOLUME_MOUNT), "mountPath")),
        ("workingDir", STR),
    ],
};

static ENV_VAR: Struct = Struct {
    name: "EnvVar",
    fields: &[("name", STR), ("value", STR), ("valueFrom", object(&ENV_SOURCE))],
};

static ENV_SOURCE: Struct = Struct {
    name: "EnvVarSource",
    fields: &[
        ("configMapKeyRef", object(&KEY_SELECTOR)),
        ("fieldRef", object(&FIELD_SELECTOR)),
        ("fileKeyRef", object(&FILE_KEY_SELECTOR)),
        ("resourceFieldRef", object(&RESOURCE_FIELD_SELECTOR)),
        ("secretKeyRef", object(&KEY_SELECTOR)),
    ],
};

static KEY_SELECTOR: Struct = Struct {
    name: "KeySelector",
    fields: &[("key", STR), ("name", STR), ("optional", BOOL)],
};

static FILE_KEY_SELECTOR: Struct = Struct {
    name: "FileKeySelector",
    fields: &[
        ("key", STR),
        ("optional", BOOL),
        ("path", STR),
        ("volumeName", STR),
    ],
};

pub(super) static FIELD_SELECTOR: Struct = Struct {
    name: "ObjectFieldSelector",
    fields: &[("apiVersion", STR), ("fieldPath", STR)],
};

pub(super) static RESOURCE_FIELD_SELECTOR: Struct = Struct {
    name: "ResourceFieldSelector",
    fields: &[("containerName", STR), ("divisor", QUANTITY), ("resource", STR)],
};

static ENV_FROM: Struct = Struct {
    name: "EnvFromSource",
    fields: &[
        ("configMapRef", object(&OPTIONAL_REFERENCE)),
        ("prefix", STR),
        ("secretRef", object(&OPTIONAL_REFERENCE)),
    ],
};

static OPTIONAL_REFERENCE: Struct = Struct {
    name: "EnvSource",
    fields: &[("name", STR), ("optional", BOOL)],
};

pub(super) static LOCAL_REFERENCE: Struct = Struct {
    name: "LocalObjectReference",
    fields: &[("name", STR)],
};

static PORT: Struct = Struct {
    name: "ContainerPort",
    fields: &[
        ("containerPort", INT),
        ("hostIP", STR),
        ("hostPort", INT),
        ("name", STR),
        ("protocol", STR),
    ],
};

static VOLUME_DEVICE: Struct = Struct {
    name: "VolumeDevice",
    fields: &[("devicePath", STR), ("name", STR)],
};

static VOLUME_MOUNT: Struct = Struct {
    name: "VolumeMount",
    fields: &[
        ("mountPath", STR),
        ("mountPropagation", STR),
        ("name", STR),
        ("readOnly", BOOL),
        ("recursiveReadOnly", STR),
        ("subPath", STR),
        ("subPathExpr", STR),
    ],
};

static RESIZE_POLICY: Struct = Struct {
    name: "ContainerResizePolicy",
    fields: &[("resourceName", STR), ("restartPolicy", STR)],
};

pub(super) static RESOURCES: Struct = Struct {
    name: "ResourceRequirements",
    fields: &[
        ("claims", atomic(&object(&RESOURCE_CLAIM))),
        ("limits", QUANTITY_MAP),
        ("requests", QUANTITY_MAP),
    ],
};

static RESOURCE_CLAIM: Struct = Struct {
    name: "ResourceClaim",
    fields: &[("name", STR), ("request", STR)],
};

static POD_RESOURCE_CLAIM: Struct = Struct {
    name: "PodResourceClaim",
    fields: &[
        ("name", STR),
        ("resourceClaimName", STR),
        ("resourceClaimTemplateName", STR),
    ],
};

static LIFECYCLE: Struct = Struct {
    name: "Lifecycle",
    fields: &[
        ("postStart", object(&HANDLER)),
        ("preStop", object(&HANDLER)),
        ("stopSignal", STR),
    ],
};

static HANDLER: Struct = Struct {
    name: "LifecycleHandler",
    fields: &[
        ("exec", object(&EXEC)),
        ("httpGet", object(&HTTP_GET)),
        ("sleep", object(&SLEEP)),
        ("tcpSocket", object(&TCP_SOCKET)),
    ],
};

static PROBE: Struct = Struct {
    name: "Probe",
    fields: &[
        ("exec", object(&EXEC)),
        ("failureThreshold", INT),
        ("grpc", object(&GRPC)),
        ("httpGet", object(&HTTP_GET)),
        ("initialDelaySeconds", INT),
        ("periodSeconds", INT),
        ("successThreshold", INT),
        ("tcpSocket", object(&TCP_SOCKET)),
        ("terminationGracePeriodSeconds", INT),
        ("timeoutSeconds", INT),
    ],
};

static EXEC: Struct = Struct {
    name: "ExecAction",
    fields: &[("command", STR_LIST)],
};
static GRPC: Struct = Struct {
    name: "GRPCAction",
    fields: &[("port", INT), ("service", STR)],
};
static SLEEP: Struct = Struct {
    name: "SleepAction",
    fields: &[("seconds", INT)],
};
static TCP_SOCKET: Struct = Struct {
    name: "TCPSocketAction",
    fields: &[("host", STR), ("port", INT_OR_STRING)],
};
static HTTP_GET: Struct = Struct {
    name: "HTTPGetAction",
    fields: &[
        ("host", STR),
        ("httpHeaders", atomic(&object(&NAME_VALUE))),
        ("path", STR),
        ("port", INT_OR_STRING),
        ("scheme", STR),
    ],
};

static NAME_VALUE: Struct = Struct {
    name: "NameValue",
    fields: &[("name", STR), ("value", STR)],
};

static SECURITY_CONTEXT: Struct = Struct {
    name: "SecurityContext",
    fields: &[
        ("allowPrivilegeEscalation", BOOL),
        ("appArmorProfile", object(&SECURITY_PROFILE)),
        ("capabilities", object(&CAPABILITIES)),
        ("privileged", BOOL),
        ("procMount", STR),
        ("readOnlyRootFilesystem", BOOL),
        ("runAsGroup", INT),
        ("runAsNonRoot", BOOL),
        ("runAsUser", INT),
        ("seLinuxOptions", object(&SELINUX)),
        ("seccompProfile", object(&SECURITY_PROFILE)),
        ("windowsOptions", object(&WINDOWS)),
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

static CAPABILITIES: Struct = Struct {
    name: "Capabilities",
    fields: &[("add", STR_LIST), ("drop", STR_LIST)],
};
static SECURITY_PROFILE: Struct = Struct {
    name: "SeccompProfile",
    fields: &[("localhostProfile", STR), ("type", STR)],
};
static SELINUX: Struct = Struct {
    name: "SELinuxOptions",
    fields: &[("level", STR), ("role", STR), ("type", STR), ("user", STR)],
};
static WINDOWS: Struct = Struct {
    name: "WindowsSecurityContextOptions",
    fields: &[
        ("gmsaCredentialSpec", STR),
        ("gmsaCredentialSpecName", STR),
        ("hostProcess", BOOL),
        ("runAsUserName", STR),
    ],
};

static HOST_ALIAS: Struct = Struct {
    name: "HostAlias",
    fields: &[("hostnames", STR_LIST), ("ip", STR)],
};
static POD_DNS_CONFIG: Struct = Struct {
    name: "PodDNSConfig",
    fields: &[
        ("nameservers", STR_LIST),
        ("options", atomic(&object(&NAME_VALUE))),
        ("searches", STR_LIST),
    ],
};
static READINESS_GATE: Struct = Struct {
    name: "PodReadinessGate",
    fields: &[("conditionType", STR)],
};
static TOLERATION: Struct = Struct {
    name: "Toleration",
    fields: &[
        ("effect", STR),
        ("key", STR),
        ("operator", STR),
        ("tolerationSeconds", INT),
        ("value", STR),
    ],
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

pub(super) static LABEL_SELECTOR: Struct = Struct {
    name: "LabelSelector",
    fields: &[
        ("matchExpressions", atomic(&object(&REQUIREMENT))),
        ("matchLabels", STR_MAP),
    ],
};

static REQUIREMENT: Struct = Struct {
    name: "Requirement",
    fields: &[("key", STR), ("operator", STR), ("values", STR_LIST)],
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
        (
            "preferredDuringSchedulingIgnoredDuringExecution",
            atomic(&object(&PREFERRED_NODE)),
        ),
        (
            "requiredDuringSchedulingIgnoredDuringExecution",
            object(&NODE_SELECTOR),
        ),
    ],
};

static PREFERRED_NODE: Struct = Struct {
    name: "PreferredSchedulingTerm",
    fields: &[("preference", object(&NODE_TERM)), ("weight", INT)],
};

static NODE_SELECTOR: Struct = Struct {
    name: "NodeSelector",
    fields: &[("nodeSelectorTerms", atomic(&object(&NODE_TERM)))],
};

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
        (
            "preferredDuringSchedulingIgnoredDuringExecution",
            atomic(&object(&WEIGHTED_POD_TERM)),
        ),
        (
            "requiredDuringSchedulingIgnoredDuringExecution",
            atomic(&object(&POD_TERM)),
        ),
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
