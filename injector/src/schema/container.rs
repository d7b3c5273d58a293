//! `Container` and what it is made of.

use super::ANY;
use super::{BOOL, INT, INT_OR_STRING, QUANTITY, QUANTITY_MAP, STR, STR_LIST, Struct, atomic, keyed, object};

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

static ENV_VAR: Struct =
    Struct { name: "EnvVar", fields: &[("name", STR), ("value", STR), ("valueFrom", object(&ENV_SOURCE))] };

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

static KEY_SELECTOR: Struct =
    Struct { name: "KeySelector", fields: &[("key", STR), ("name", STR), ("optional", BOOL)] };

static FILE_KEY_SELECTOR: Struct = Struct {
    name: "FileKeySelector",
    fields: &[("key", STR), ("optional", BOOL), ("path", STR), ("volumeName", STR)],
};

pub(super) static FIELD_SELECTOR: Struct =
    Struct { name: "ObjectFieldSelector", fields: &[("apiVersion", STR), ("fieldPath", STR)] };

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

static OPTIONAL_REFERENCE: Struct =
    Struct { name: "EnvSource", fields: &[("name", STR), ("optional", BOOL)] };

pub(super) static LOCAL_REFERENCE: Struct = Struct { name: "LocalObjectReference", fields: &[("name", STR)] };

static PORT: Struct = Struct {
    name: "ContainerPort",
    fields: &[("containerPort", INT), ("hostIP", STR), ("hostPort", INT), ("name", STR), ("protocol", STR)],
};

static VOLUME_DEVICE: Struct = Struct { name: "VolumeDevice", fields: &[("devicePath", STR), ("name", STR)] };

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

static RESIZE_POLICY: Struct =
    Struct { name: "ContainerResizePolicy", fields: &[("resourceName", STR), ("restartPolicy", STR)] };

pub(super) static RESOURCES: Struct = Struct {
    name: "ResourceRequirements",
    fields: &[
        ("claims", atomic(&object(&RESOURCE_CLAIM))),
        ("limits", QUANTITY_MAP),
        ("requests", QUANTITY_MAP),
    ],
};

static RESOURCE_CLAIM: Struct = Struct { name: "ResourceClaim", fields: &[("name", STR), ("request", STR)] };

static LIFECYCLE: Struct = Struct {
    name: "Lifecycle",
    fields: &[("postStart", object(&HANDLER)), ("preStop", object(&HANDLER)), ("stopSignal", STR)],
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

static EXEC: Struct = Struct { name: "ExecAction", fields: &[("command", STR_LIST)] };
static GRPC: Struct = Struct { name: "GRPCAction", fields: &[("port", INT), ("service", STR)] };
static SLEEP: Struct = Struct { name: "SleepAction", fields: &[("seconds", INT)] };
static TCP_SOCKET: Struct =
    Struct { name: "TCPSocketAction", fields: &[("host", STR), ("port", INT_OR_STRING)] };
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

pub(super) static NAME_VALUE: Struct = Struct { name: "NameValue", fields: &[("name", STR), ("value", STR)] };

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

static CAPABILITIES: Struct =
    Struct { name: "Capabilities", fields: &[("add", STR_LIST), ("drop", STR_LIST)] };
pub(super) static SECURITY_PROFILE: Struct =
    Struct { name: "SeccompProfile", fields: &[("localhostProfile", STR), ("type", STR)] };
pub(super) static SELINUX: Struct =
    Struct { name: "SELinuxOptions", fields: &[("level", STR), ("role", STR), ("type", STR), ("user", STR)] };
pub(super) static WINDOWS: Struct = Struct {
    name: "WindowsSecurityContextOptions",
    fields: &[
        ("gmsaCredentialSpec", STR),
        ("gmsaCredentialSpecName", STR),
        ("hostProcess", BOOL),
        ("runAsUserName", STR),
    ],
};
