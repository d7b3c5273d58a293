//! `PodSpec`, `Container` and their parts (Kubernetes 1.37).

use super::meta::*;
use super::volume::VOLUME;
use super::*;

types! {
    POD "v1.Pod" {
        "apiVersion" APIVersion: STR; "kind" Kind: STR; "metadata" Metadata: object(&OBJECT_META);
        "spec" Spec: object(&POD_SPEC); "status" Status: ANY;
    }
    POD_TEMPLATE "v1.PodTemplateSpec" { "metadata" Metadata: object(&OBJECT_META); "spec" Spec: object(&POD_SPEC); }
    POD_SPEC "v1.PodSpec" {
        "volumes" Volumes: list(&object(&VOLUME)), merge("name");
        "initContainers" InitContainers: list(&object(&CONTAINER)), merge("name");
        "containers" Containers: list(&object(&CONTAINER)), always, merge("name");
        "ephemeralContainers" EphemeralContainers: list(&object(&CONTAINER)), merge("name");
        "restartPolicy" RestartPolicy: STR; "terminationGracePeriodSeconds" TerminationGracePeriodSeconds: INT64_PTR;
        "activeDeadlineSeconds" ActiveDeadlineSeconds: INT64_PTR; "dnsPolicy" DNSPolicy: STR;
        "nodeSelector" NodeSelector: STR_MAP; "serviceAccountName" ServiceAccountName: STR;
        "serviceAccount" DeprecatedServiceAccount: STR;
        "automountServiceAccountToken" AutomountServiceAccountToken: BOOL_PTR; "nodeName" NodeName: STR;
        "hostNetwork" HostNetwork: BOOL; "hostPID" HostPID: BOOL; "hostIPC" HostIPC: BOOL;
        "shareProcessNamespace" ShareProcessNamespace: BOOL_PTR;
        "securityContext" SecurityContext: pointer(&object(&POD_SECURITY_CONTEXT));
        "imagePullSecrets" ImagePullSecrets: list(&object(&LOCAL_REFERENCE)), merge("name"); "hostname" Hostname: STR;
        "subdomain" Subdomain: STR; "affinity" Affinity: pointer(&object(&AFFINITY));
        "schedulerName" SchedulerName: STR; "tolerations" Tolerations: list(&object(&TOLERATION));
        "hostAliases" HostAliases: list(&object(&HOST_ALIAS)), merge("ip");
        "priorityClassName" PriorityClassName: STR; "priority" Priority: INT32_PTR;
        "dnsConfig" DNSConfig: pointer(&object(&POD_DNS_CONFIG));
        "readinessGates" ReadinessGates: list(&object(&READINESS_GATE)); "runtimeClassName" RuntimeClassName: STR_PTR;
        "enableServiceLinks" EnableServiceLinks: BOOL_PTR; "preemptionPolicy" PreemptionPolicy: STR_PTR;
        "overhead" Overhead: QUANTITY_MAP;
        "topologySpreadConstraints" TopologySpreadConstraints: list(&object(&TOPOLOGY_SPREAD)), merge("topologyKey");
        "setHostnameAsFQDN" SetHostnameAsFQDN: BOOL_PTR; "os" OS: pointer(&object(&LOCAL_REFERENCE));
        "hostUsers" HostUsers: BOOL_PTR;
        "schedulingGates" SchedulingGates: list(&object(&LOCAL_REFERENCE)), merge("name");
        "resourceClaims" ResourceClaims: list(&object(&POD_RESOURCE_CLAIM)), merge("name");
        "resources" Resources: pointer(&object(&RESOURCES)); "hostnameOverride" HostnameOverride: STR_PTR;
        "schedulingGroup" SchedulingGroup: ANY; "workloadRef" WorkloadRef: ANY;
        "evictionResponders" EvictionResponders: list(&object(&EVICTION_RESPONDER)), merge("name");
    }
    POD_SECURITY_CONTEXT "v1.PodSecurityContext" {
        "seLinuxOptions" SELinuxOptions: pointer(&object(&SELINUX));
        "windowsOptions" WindowsOptions: pointer(&object(&WINDOWS)); "runAsUser" RunAsUser: INT64_PTR;
        "runAsGroup" RunAsGroup: INT64_PTR; "runAsNonRoot" RunAsNonRoot: BOOL_PTR;
        "supplementalGroups" SupplementalGroups: INT64_LIST;
        "supplementalGroupsPolicy" SupplementalGroupsPolicy: STR_PTR; "fsGroup" FSGroup: INT64_PTR;
        "sysctls" Sysctls: list(&object(&NAME_VALUE)); "fsGroupChangePolicy" FSGroupChangePolicy: STR_PTR;
        "seccompProfile" SeccompProfile: pointer(&object(&SECURITY_PROFILE));
        "appArmorProfile" AppArmorProfile: pointer(&object(&SECURITY_PROFILE));
        "seLinuxChangePolicy" SELinuxChangePolicy: STR_PTR;
    }
    POD_RESOURCE_CLAIM "v1.PodResourceClaim" {
        "name" Name: STR, always; "resourceClaimName" ResourceClaimName: STR_PTR;
        "resourceClaimTemplateName" ResourceClaimTemplateName: STR_PTR;
    }
    EVICTION_RESPONDER "v1.EvictionResponder" { "name" Name: STR, always; "priority" Priority: INT32, always; }
    HOST_ALIAS "v1.HostAlias" { "hostnames" Hostnames: STR_LIST; "ip" IP: STR, always; }
    POD_DNS_CONFIG "v1.PodDNSConfig" {
        "nameservers" Nameservers: STR_LIST; "options" Options: list(&object(&DNS_OPTION));
        "searches" Searches: STR_LIST;
    }
    READINESS_GATE "v1.PodReadinessGate" { "conditionType" ConditionType: STR, always; }
    TOLERATION "v1.Toleration" {
        "key" Key: STR; "operator" Operator: STR; "value" Value: STR; "effect" Effect: STR;
        "tolerationSeconds" TolerationSeconds: INT64_PTR;
    }
    TOPOLOGY_SPREAD "v1.TopologySpreadConstraint" {
        "labelSelector" LabelSelector: pointer(&object(&LABEL_SELECTOR)); "matchLabelKeys" MatchLabelKeys: STR_LIST;
        "maxSkew" MaxSkew: INT32, always; "minDomains" MinDomains: INT32_PTR;
        "nodeAffinityPolicy" NodeAffinityPolicy: STR_PTR; "nodeTaintsPolicy" NodeTaintsPolicy: STR_PTR;
        "topologyKey" TopologyKey: STR, always; "whenUnsatisfiable" WhenUnsatisfiable: STR, always;
    }
    AFFINITY "v1.Affinity" {
        "nodeAffinity" NodeAffinity: pointer(&object(&NODE_AFFINITY));
        "podAffinity" PodAffinity: pointer(&object(&POD_AFFINITY));
        "podAntiAffinity" PodAntiAffinity: pointer(&object(&POD_AFFINITY));
    }
    NODE_AFFINITY "v1.NodeAffinity" {
        "preferredDuringSchedulingIgnoredDuringExecution" PreferredDuringSchedulingIgnoredDuringExecution: list(&object(&PREFERRED_NODE));
        "requiredDuringSchedulingIgnoredDuringExecution" RequiredDuringSchedulingIgnoredDuringExecution: pointer(&object(&NODE_SELECTOR));
    }
    PREFERRED_NODE "v1.PreferredSchedulingTerm" {
        "preference" Preference: object(&NODE_TERM), always; "weight" Weight: INT32, always;
    }
    NODE_SELECTOR "v1.NodeSelector" { "nodeSelectorTerms" NodeSelectorTerms: list(&object(&NODE_TERM)), always; }
    NODE_TERM "v1.NodeSelectorTerm" {
        "matchExpressions" MatchExpressions: list(&object(&REQUIREMENT));
        "matchFields" MatchFields: list(&object(&REQUIREMENT));
    }
    POD_AFFINITY "v1.PodAffinity" {
        "preferredDuringSchedulingIgnoredDuringExecution" PreferredDuringSchedulingIgnoredDuringExecution: list(&object(&WEIGHTED_POD_TERM));
        "requiredDuringSchedulingIgnoredDuringExecution" RequiredDuringSchedulingIgnoredDuringExecution: list(&object(&POD_TERM));
    }
    WEIGHTED_POD_TERM "v1.WeightedPodAffinityTerm" {
        "podAffinityTerm" PodAffinityTerm: object(&POD_TERM), always; "weight" Weight: INT32, always;
    }
    POD_TERM "v1.PodAffinityTerm" {
        "labelSelector" LabelSelector: pointer(&object(&LABEL_SELECTOR)); "matchLabelKeys" MatchLabelKeys: STR_LIST;
        "mismatchLabelKeys" MismatchLabelKeys: STR_LIST;
        "namespaceSelector" NamespaceSelector: pointer(&object(&LABEL_SELECTOR)); "namespaces" Namespaces: STR_LIST;
        "topologyKey" TopologyKey: STR, always;
    }
    DNS_OPTION "v1.PodDNSConfigOption" { "name" Name: STR; "value" Value: STR_PTR; }
    CONTAINER "v1.Container" {
        "name" Name: STR, always; "image" Image: STR; "command" Command: STR_LIST; "args" Args: STR_LIST;
        "workingDir" WorkingDir: STR; "ports" Ports: list(&object(&PORT)), merge("containerPort");
        "envFrom" EnvFrom: list(&object(&ENV_FROM)); "env" Env: list(&object(&ENV_VAR)), merge("name");
        "resources" Resources: object(&RESOURCES), always; "resizePolicy" ResizePolicy: list(&object(&RESIZE_POLICY));
        "restartPolicy" RestartPolicy: STR_PTR;
        "volumeMounts" VolumeMounts: list(&object(&VOLUME_MOUNT)), merge("mountPath");
        "volumeDevices" VolumeDevices: list(&object(&VOLUME_DEVICE)), merge("devicePath");
        "livenessProbe" LivenessProbe: pointer(&object(&PROBE));
        "readinessProbe" ReadinessProbe: pointer(&object(&PROBE));
        "startupProbe" StartupProbe: pointer(&object(&PROBE)); "lifecycle" Lifecycle: pointer(&object(&LIFECYCLE));
        "terminationMessagePath" TerminationMessagePath: STR;
        "terminationMessagePolicy" TerminationMessagePolicy: STR; "imagePullPolicy" ImagePullPolicy: STR;
        "securityContext" SecurityContext: pointer(&object(&SECURITY_CONTEXT)); "stdin" Stdin: BOOL;
        "stdinOnce" StdinOnce: BOOL; "tty" TTY: BOOL; "restartPolicyRules" RestartPolicyRules: OBJECTS;
        "targetContainerName" TargetContainerName: STR;
    }
    ENV_VAR "v1.EnvVar" { "name" Name: STR, always; "value" Value: STR; "valueFrom" ValueFrom: pointer(&object(&ENV_SOURCE)); }
    ENV_SOURCE "v1.EnvVarSource" {
        "configMapKeyRef" ConfigMapKeyRef: pointer(&object(&KEY_SELECTOR));
        "fieldRef" FieldRef: pointer(&object(&FIELD_SELECTOR));
        "fileKeyRef" FileKeyRef: pointer(&object(&FILE_KEY_SELECTOR));
        "resourceFieldRef" ResourceFieldRef: pointer(&object(&RESOURCE_FIELD_SELECTOR));
        "secretKeyRef" SecretKeyRef: pointer(&object(&KEY_SELECTOR));
    }
    KEY_SELECTOR "v1.SecretKeySelector" { "key" Key: STR, always; "name" Name: STR; "optional" Optional: BOOL_PTR; }
    FILE_KEY_SELECTOR "v1.FileKeySelector" {
        "key" Key: STR, always; "optional" Optional: BOOL_PTR; "path" Path: STR, always;
        "volumeName" VolumeName: STR, always;
    }
    ENV_FROM "v1.EnvFromSource" {
        "configMapRef" ConfigMapRef: pointer(&object(&OPTIONAL_REFERENCE)); "prefix" Prefix: STR;
        "secretRef" SecretRef: pointer(&object(&OPTIONAL_REFERENCE));
    }
    OPTIONAL_REFERENCE "v1.SecretEnvSource" { "name" Name: STR; "optional" Optional: BOOL_PTR; }
    PORT "v1.ContainerPort" {
        "name" Name: STR; "hostPort" HostPort: INT32; "containerPort" ContainerPort: INT32, always;
        "protocol" Protocol: STR; "hostIP" HostIP: STR;
    }
    VOLUME_DEVICE "v1.VolumeDevice" { "devicePath" DevicePath: STR, always; "name" Name: STR, always; }
    VOLUME_MOUNT "v1.VolumeMount" {
        "name" Name: STR, always; "readOnly" ReadOnly: BOOL; "recursiveReadOnly" RecursiveReadOnly: STR_PTR;
        "mountPath" MountPath: STR, always; "subPath" SubPath: STR; "mountPropagation" MountPropagation: STR_PTR;
        "subPathExpr" SubPathExpr: STR; "bindMountOptions" BindMountOptions: STR_LIST;
    }
    RESIZE_POLICY "v1.ContainerResizePolicy" {
        "resourceName" ResourceName: STR, always; "restartPolicy" RestartPolicy: STR, always;
    }
    LIFECYCLE "v1.Lifecycle" {
        "postStart" PostStart: pointer(&object(&HANDLER)); "preStop" PreStop: pointer(&object(&HANDLER));
        "stopSignal" StopSignal: STR_PTR;
    }
    HANDLER "v1.LifecycleHandler" {
        "exec" Exec: pointer(&object(&EXEC)); "httpGet" HTTPGet: pointer(&object(&HTTP_GET));
        "sleep" Sleep: pointer(&object(&SLEEP)); "tcpSocket" TCPSocket: pointer(&object(&TCP_SOCKET));
    }
    PROBE "v1.Probe" {
        "exec" Exec: pointer(&object(&EXEC)); "httpGet" HTTPGet: pointer(&object(&HTTP_GET));
        "tcpSocket" TCPSocket: pointer(&object(&TCP_SOCKET)); "grpc" GRPC: pointer(&object(&GRPC));
        "initialDelaySeconds" InitialDelaySeconds: INT32; "timeoutSeconds" TimeoutSeconds: INT32;
        "periodSeconds" PeriodSeconds: INT32; "successThreshold" SuccessThreshold: INT32;
        "failureThreshold" FailureThreshold: INT32;
        "terminationGracePeriodSeconds" TerminationGracePeriodSeconds: INT64_PTR;
    }
    EXEC "v1.ExecAction" { "command" Command: STR_LIST; }
    GRPC "v1.GRPCAction" { "port" Port: INT32, always; "service" Service: STR_PTR, always; "mode" Mode: STR_PTR; }
    SLEEP "v1.SleepAction" { "seconds" Seconds: INT64, always; }
    TCP_SOCKET "v1.TCPSocketAction" { "port" Port: INT_OR_STRING, always; "host" Host: STR; }
    HTTP_GET "v1.HTTPGetAction" {
        "path" Path: STR; "port" Port: INT_OR_STRING, always; "host" Host: STR; "scheme" Scheme: STR;
        "httpHeaders" HTTPHeaders: list(&object(&NAME_VALUE)); "protocol" Protocol: STR_PTR;
    }
    NAME_VALUE "v1.HTTPHeader" { "name" Name: STR, always; "value" Value: STR, always; }
    SECURITY_CONTEXT "v1.SecurityContext" {
        "capabilities" Capabilities: pointer(&object(&CAPABILITIES)); "privileged" Privileged: BOOL_PTR;
        "seLinuxOptions" SELinuxOptions: pointer(&object(&SELINUX));
        "windowsOptions" WindowsOptions: pointer(&object(&WINDOWS)); "runAsUser" RunAsUser: INT64_PTR;
        "runAsGroup" RunAsGroup: INT64_PTR; "runAsNonRoot" RunAsNonRoot: BOOL_PTR;
        "readOnlyRootFilesystem" ReadOnlyRootFilesystem: BOOL_PTR;
        "allowPrivilegeEscalation" AllowPrivilegeEscalation: BOOL_PTR; "procMount" ProcMount: STR_PTR;
        "seccompProfile" SeccompProfile: pointer(&object(&SECURITY_PROFILE));
        "appArmorProfile" AppArmorProfile: pointer(&object(&SECURITY_PROFILE));
    }
    CAPABILITIES "v1.Capabilities" { "add" Add: STR_LIST; "drop" Drop: STR_LIST; }
    SECURITY_PROFILE "v1.SeccompProfile" { "localhostProfile" LocalhostProfile: STR; "type" Type: STR, always; }
    SELINUX "v1.SELinuxOptions" { "level" Level: STR; "role" Role: STR; "type" Type: STR; "user" User: STR; }
    WINDOWS "v1.WindowsSecurityContextOptions" {
        "gmsaCredentialSpec" GMSACredentialSpec: STR_PTR; "gmsaCredentialSpecName" GMSACredentialSpecName: STR_PTR;
        "hostProcess" HostProcess: BOOL_PTR; "runAsUserName" RunAsUserName: STR_PTR;
    }
}
