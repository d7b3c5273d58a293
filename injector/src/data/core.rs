//! Kubernetes' types as templates see them: Go's field names, in the order of their declaration.

use crate::template::{Field, Kind, Schema};

macro_rules! types {
    ($($name:ident $go:literal { $($field:literal $key:literal $kind:expr $(, $how:ident $(($of:literal))?)?;)* })*) => {
        $(
            #[doc = concat!("`", $go, "`")]
            pub(crate) static $name: Schema = Schema {
                name: $go,
                proto: false,
                fields: &[$(Field::new($field, $key, $kind)$(.$how($($of)?))?),*],
            };
        )*
    };
}

const STRINGS: Kind = Kind::List(&Kind::Str);
const STRING_MAP: Kind = Kind::Map(&Kind::Str);
const QUANTITIES: Kind = Kind::Map(&Kind::Str);
const OBJECT: Kind = Kind::Map(&Kind::Any);
const OBJECTS: Kind = Kind::List(&Kind::Map(&Kind::Any));

const fn pointer(to: &'static Kind) -> Kind {
    Kind::Ptr(to)
}

const INT64: Kind = pointer(&Kind::Int64);
const INT32: Kind = pointer(&Kind::Int32);
const BOOL: Kind = pointer(&Kind::Bool);
const STR: Kind = pointer(&Kind::Str);

types! {
    OBJECT_META "v1.ObjectMeta" {
        "Name" "name" Kind::Str, from("metadata");
        "GenerateName" "generateName" Kind::Str, from("metadata");
        "Namespace" "namespace" Kind::Str, from("metadata");
        "SelfLink" "selfLink" Kind::Str;
        "UID" "uid" Kind::Str;
        "ResourceVersion" "resourceVersion" Kind::Str;
        "Generation" "generation" Kind::Int64;
        "CreationTimestamp" "creationTimestamp" Kind::Str;
        "DeletionTimestamp" "deletionTimestamp" STR;
        "DeletionGracePeriodSeconds" "deletionGracePeriodSeconds" INT64;
        "Labels" "labels" STRING_MAP, from("label");
        "Annotations" "annotations" STRING_MAP, from("annotation");
        "OwnerReferences" "ownerReferences" Kind::List(&Kind::Struct(&OWNER_REFERENCE));
        "Finalizers" "finalizers" STRINGS;
        "ManagedFields" "managedFields" OBJECTS;
    }
    OWNER_REFERENCE "v1.OwnerReference" {
        "APIVersion" "apiVersion" Kind::Str, always;
        "Kind" "kind" Kind::Str, always;
        "Name" "name" Kind::Str, always;
        "UID" "uid" Kind::Str, always;
        "Controller" "controller" BOOL;
        "BlockOwnerDeletion" "blockOwnerDeletion" BOOL;
    }
    POD_SPEC "v1.PodSpec" {
        "Volumes" "volumes" Kind::List(&Kind::Struct(&VOLUME));
        "InitContainers" "initContainers" Kind::List(&Kind::Struct(&CONTAINER));
        "Containers" "containers" Kind::List(&Kind::Struct(&CONTAINER)), always;
        "EphemeralContainers" "ephemeralContainers" OBJECTS;
        "RestartPolicy" "restartPolicy" Kind::Str;
        "TerminationGracePeriodSeconds" "terminationGracePeriodSeconds" INT64;
        "ActiveDeadlineSeconds" "activeDeadlineSeconds" INT64;
        "DNSPolicy" "dnsPolicy" Kind::Str;
        "NodeSelector" "nodeSelector" STRING_MAP;
        "ServiceAccountName" "serviceAccountName" Kind::Str;
        "DeprecatedServiceAccount" "serviceAccount" Kind::Str;
        "AutomountServiceAccountToken" "automountServiceAccountToken" BOOL;
        "NodeName" "nodeName" Kind::Str;
        "HostNetwork" "hostNetwork" Kind::Bool;
        "HostPID" "hostPID" Kind::Bool;
        "HostIPC" "hostIPC" Kind::Bool;
        "ShareProcessNamespace" "shareProcessNamespace" BOOL;
        "SecurityContext" "securityContext" pointer(&Kind::Struct(&POD_SECURITY_CONTEXT));
        "ImagePullSecrets" "imagePullSecrets" Kind::List(&Kind::Struct(&LOCAL_REFERENCE));
        "Hostname" "hostname" Kind::Str;
        "Subdomain" "subdomain" Kind::Str;
        "Affinity" "affinity" pointer(&OBJECT);
        "SchedulerName" "schedulerName" Kind::Str;
        "Tolerations" "tolerations" Kind::List(&Kind::Struct(&TOLERATION));
        "HostAliases" "hostAliases" OBJECTS;
        "PriorityClassName" "priorityClassName" Kind::Str;
        "Priority" "priority" INT32;
        "DNSConfig" "dnsConfig" pointer(&OBJECT);
        "ReadinessGates" "readinessGates" OBJECTS;
        "RuntimeClassName" "runtimeClassName" STR;
        "EnableServiceLinks" "enableServiceLinks" BOOL;
        "PreemptionPolicy" "preemptionPolicy" STR;
        "Overhead" "overhead" QUANTITIES;
        "TopologySpreadConstraints" "topologySpreadConstraints" OBJECTS;
        "SetHostnameAsFQDN" "setHostnameAsFQDN" BOOL;
        "OS" "os" pointer(&OBJECT);
        "HostUsers" "hostUsers" BOOL;
        "SchedulingGates" "schedulingGates" OBJECTS;
        "ResourceClaims" "resourceClaims" OBJECTS;
        "Resources" "resources" pointer(&Kind::Struct(&RESOURCES));
        "HostnameOverride" "hostnameOverride" STR;
    }
    POD_SECURITY_CONTEXT "v1.PodSecurityContext" {
        "SELinuxOptions" "seLinuxOptions" pointer(&OBJECT);
        "WindowsOptions" "windowsOptions" pointer(&OBJECT);
        "RunAsUser" "runAsUser" INT64;
        "RunAsGroup" "runAsGroup" INT64;
        "RunAsNonRoot" "runAsNonRoot" BOOL;
        "SupplementalGroups" "supplementalGroups" Kind::List(&Kind::Int64);
        "SupplementalGroupsPolicy" "supplementalGroupsPolicy" STR;
        "FSGroup" "fsGroup" INT64;
        "Sysctls" "sysctls" OBJECTS;
        "FSGroupChangePolicy" "fsGroupChangePolicy" STR;
        "SeccompProfile" "seccompProfile" pointer(&OBJECT);
        "AppArmorProfile" "appArmorProfile" pointer(&OBJECT);
        "SELinuxChangePolicy" "seLinuxChangePolicy" STR;
    }
    LOCAL_REFERENCE "v1.LocalObjectReference" {
        "Name" "name" Kind::Str;
    }
    TOLERATION "v1.Toleration" {
        "Key" "key" Kind::Str;
        "Operator" "operator" Kind::Str;
        "Value" "value" Kind::Str;
        "Effect" "effect" Kind::Str;
        "TolerationSeconds" "tolerationSeconds" INT64;
    }
    VOLUME "v1.Volume" {
        "Name" "name" Kind::Str, always;
        "HostPath" "hostPath" pointer(&OBJECT);
        "EmptyDir" "emptyDir" pointer(&OBJECT);
        "Secret" "secret" pointer(&OBJECT);
        "NFS" "nfs" pointer(&OBJECT);
        "PersistentVolumeClaim" "persistentVolumeClaim" pointer(&OBJECT);
        "DownwardAPI" "downwardAPI" pointer(&OBJECT);
        "ConfigMap" "configMap" pointer(&OBJECT);
        "Projected" "projected" pointer(&OBJECT);
        "CSI" "csi" pointer(&OBJECT);
        "Ephemeral" "ephemeral" pointer(&OBJECT);
        "Image" "image" pointer(&OBJECT);
    }
    CONTAINER "v1.Container" {
        "Name" "name" Kind::Str, always;
        "Image" "image" Kind::Str;
        "Command" "command" STRINGS;
        "Args" "args" STRINGS;
        "WorkingDir" "workingDir" Kind::Str;
        "Ports" "ports" Kind::List(&Kind::Struct(&CONTAINER_PORT));
        "EnvFrom" "envFrom" OBJECTS;
        "Env" "env" Kind::List(&Kind::Struct(&ENV_VAR));
        "Resources" "resources" Kind::Struct(&RESOURCES), always;
        "ResizePolicy" "resizePolicy" OBJECTS;
        "RestartPolicy" "restartPolicy" STR;
        "VolumeMounts" "volumeMounts" Kind::List(&Kind::Struct(&VOLUME_MOUNT));
        "VolumeDevices" "volumeDevices" OBJECTS;
        "LivenessProbe" "livenessProbe" pointer(&Kind::Struct(&PROBE));
        "ReadinessProbe" "readinessProbe" pointer(&Kind::Struct(&PROBE));
        "StartupProbe" "startupProbe" pointer(&Kind::Struct(&PROBE));
        "Lifecycle" "lifecycle" pointer(&Kind::Struct(&LIFECYCLE));
        "TerminationMessagePath" "terminationMessagePath" Kind::Str;
        "TerminationMessagePolicy" "terminationMessagePolicy" Kind::Str;
        "ImagePullPolicy" "imagePullPolicy" Kind::Str;
        "SecurityContext" "securityContext" pointer(&Kind::Struct(&SECURITY_CONTEXT));
        "Stdin" "stdin" Kind::Bool;
        "StdinOnce" "stdinOnce" Kind::Bool;
        "TTY" "tty" Kind::Bool;
    }
    CONTAINER_PORT "v1.ContainerPort" {
        "Name" "name" Kind::Str;
        "HostPort" "hostPort" Kind::Int32;
        "ContainerPort" "containerPort" Kind::Int32, always;
        "Protocol" "protocol" Kind::Str;
        "HostIP" "hostIP" Kind::Str;
    }
    ENV_VAR "v1.EnvVar" {
        "Name" "name" Kind::Str, always;
        "Value" "value" Kind::Str;
        "ValueFrom" "valueFrom" pointer(&OBJECT);
    }
    RESOURCES "v1.ResourceRequirements" {
        "Limits" "limits" QUANTITIES;
        "Requests" "requests" QUANTITIES;
        "Claims" "claims" OBJECTS;
    }
    VOLUME_MOUNT "v1.VolumeMount" {
        "Name" "name" Kind::Str, always;
        "ReadOnly" "readOnly" Kind::Bool;
        "RecursiveReadOnly" "recursiveReadOnly" STR;
        "MountPath" "mountPath" Kind::Str, always;
        "SubPath" "subPath" Kind::Str;
        "MountPropagation" "mountPropagation" STR;
        "SubPathExpr" "subPathExpr" Kind::Str;
    }
    PROBE "v1.Probe" {
        "Exec" "exec" pointer(&Kind::Struct(&EXEC));
        "HTTPGet" "httpGet" pointer(&Kind::Struct(&HTTP_GET));
        "TCPSocket" "tcpSocket" pointer(&Kind::Struct(&TCP_SOCKET));
        "GRPC" "grpc" pointer(&Kind::Struct(&GRPC));
        "InitialDelaySeconds" "initialDelaySeconds" Kind::Int32;
        "TimeoutSeconds" "timeoutSeconds" Kind::Int32;
        "PeriodSeconds" "periodSeconds" Kind::Int32;
        "SuccessThreshold" "successThreshold" Kind::Int32;
        "FailureThreshold" "failureThreshold" Kind::Int32;
        "TerminationGracePeriodSeconds" "terminationGracePeriodSeconds" INT64;
    }
    EXEC "v1.ExecAction" {
        "Command" "command" STRINGS;
    }
    HTTP_GET "v1.HTTPGetAction" {
        "Path" "path" Kind::Str;
        "Port" "port" Kind::Any, always;
        "Host" "host" Kind::Str;
        "Scheme" "scheme" Kind::Str;
        "HTTPHeaders" "httpHeaders" OBJECTS;
    }
    TCP_SOCKET "v1.TCPSocketAction" {
        "Port" "port" Kind::Any, always;
        "Host" "host" Kind::Str;
    }
    GRPC "v1.GRPCAction" {
        "Port" "port" Kind::Int32, always;
        "Service" "service" STR, always;
    }
    LIFECYCLE "v1.Lifecycle" {
        "PostStart" "postStart" pointer(&OBJECT);
        "PreStop" "preStop" pointer(&OBJECT);
        "StopSignal" "stopSignal" STR;
    }
    SECURITY_CONTEXT "v1.SecurityContext" {
        "Capabilities" "capabilities" pointer(&OBJECT);
        "Privileged" "privileged" BOOL;
        "SELinuxOptions" "seLinuxOptions" pointer(&OBJECT);
        "WindowsOptions" "windowsOptions" pointer(&OBJECT);
        "RunAsUser" "runAsUser" INT64;
        "RunAsGroup" "runAsGroup" INT64;
        "RunAsNonRoot" "runAsNonRoot" BOOL;
        "ReadOnlyRootFilesystem" "readOnlyRootFilesystem" BOOL;
        "AllowPrivilegeEscalation" "allowPrivilegeEscalation" BOOL;
        "ProcMount" "procMount" STR;
        "SeccompProfile" "seccompProfile" pointer(&OBJECT);
        "AppArmorProfile" "appArmorProfile" pointer(&OBJECT);
    }
}
