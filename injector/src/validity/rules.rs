//! The table of rules for pods and containers; [`super::volumes`] has that for volumes.

use super::checks::{
    ANNOTATION_KEYS, FINALIZERS, LABEL, LABEL_KEYS, LABEL_VALUES, QUALIFIED, RELATIVE, SELECTOR, SUBDOMAIN,
    USER, rules,
};
use super::text::*;
use super::{
    Check, Inner, PORT_NAME, Row, Rule, Type, containers, metadata, relations, resources, scheduling,
    volumes, windows,
};
use Check::{AtMost, Items, Keys, NotEmpty, OneOf, Port, Range, Text, Unique};
use Rule::{AtMostOne, One, Relation, Required};

const NOT_NEGATIVE: Check = Range(0, i64::MAX);
const VARIABLE_NAME: &str = "printable ASCII characters other than =";
const HANDLERS: &[&str] = &["exec", "grpc", "httpGet", "tcpSocket"];
const PROFILE_TYPE: Check = OneOf(&["RuntimeDefault", "Unconfined", "Localhost"]);
const NODE_OPERATORS: Check = OneOf(&["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]);

rules! {
    POD {
        "metadata": [] object(METADATA);
        "spec": [] object(SPEC);
    } []
    METADATA {
        "name": [SUBDOMAIN];
        "generateName": [Text(generate_name, "a-z, 0-9, - and ., with a letter or digit at the start of each part")];
        "namespace": [LABEL];
        "labels": [LABEL_KEYS, LABEL_VALUES];
        "annotations": [ANNOTATION_KEYS];
        "finalizers": [FINALIZERS];
        "ownerReferences": [] list(OWNER, "uid");
    } [Relation(metadata::annotations), Relation(metadata::owners)]
    OWNER {} [Required(&["apiVersion", "kind", "name", "uid"])]
    SPEC {
        "volumes": [Unique(&["name"])] list(volumes::VOLUME, "name");
        "containers": [] list(CONTAINER, "name");
        "initContainers": [] list(CONTAINER, "name");
        "ephemeralContainers": [AtMost(0)];
        "restartPolicy": [OneOf(&["Always", "OnFailure", "Never"])];
        "activeDeadlineSeconds": [Range(1, i32::MAX as i64)];
        "dnsPolicy": [OneOf(&["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"])];
        "dnsConfig": [] object(DNS);
        "nodeSelector": [LABEL_KEYS, LABEL_VALUES];
        "serviceAccountName": [SUBDOMAIN];
        "nodeName": [SUBDOMAIN];
        "overhead": [Keys(resource, "cpu, memory, ephemeral-storage, hugepages-SIZE or DOMAIN/NAME")];
        "securityContext": [] object(POD_SECURITY);
        "hostname": [LABEL];
        "hostnameOverride": [Text(dns_subdomain, "a DNS name")];
        "subdomain": [LABEL];
        "hostAliases": [] list(HOST_ALIAS, "ip");
        "priorityClassName": [SUBDOMAIN];
        "runtimeClassName": [NotEmpty, SUBDOMAIN];
        "preemptionPolicy": [NotEmpty, OneOf(&["PreemptLowerPriority", "Never"])];
        "tolerations": [] list(TOLERATION, "key");
        "affinity": [] object(AFFINITY);
        "readinessGates": [] list(READINESS_GATE, "conditionType");
        "topologySpreadConstraints": [Unique(&["topologyKey", "whenUnsatisfiable"])] list(SPREAD, "topologyKey");
        "schedulingGates": [Unique(&["name"])] list(QUALIFIED_NAME, "name");
        "resourceClaims": [Unique(&["name"])] list(CLAIM, "name");
        "evictionResponders": [Unique(&["name"])] list(EVICTION_RESPONDER, "name");
        "resources": [] object(POD_RESOURCES);
        "os": [] object(OS);
    } [
        Relation(relations::containers), Relation(relations::names), Relation(relations::host_ports), Relation(relations::mounts), Relation(relations::dns_policy),
        Relation(resources::pod_resources), Relation(relations::host_namespaces),
        Relation(scheduling::gates), Relation(scheduling::host_name), Relation(scheduling::priority), Relation(relations::sysctls), Relation(resources::overhead),
        Relation(windows::host_network), Relation(windows::spec)
    ]
    OS { "name": [OneOf(&["linux", "windows"])]; } [Required(&["name"])]
    EVICTION_RESPONDER { "name": [Text(prefixed_key, "DOMAIN/NAME")]; } [Required(&["name"])]
    QUALIFIED_NAME { "name": [Text(qualified_name, QUALIFIED)]; } [Required(&["name"])]
    READINESS_GATE { "conditionType": [Text(qualified_name, QUALIFIED)]; } [Required(&["conditionType"])]
    CLAIM { "name": [LABEL]; "resourceClaimName": [NotEmpty, SUBDOMAIN]; "resourceClaimTemplateName": [NotEmpty, SUBDOMAIN]; }
        [Required(&["name"]), One(&["resourceClaimName", "resourceClaimTemplateName"])]
    HOST_ALIAS { "ip": [Text(address, "an IP address")]; "hostnames": [Items(dns_subdomain, "DNS names")]; } [Required(&["ip"])]
    DNS {
        "nameservers": [AtMost(3), Items(address, "IP addresses")];
        "searches": [AtMost(32), Items(search_domain, "DNS names")];
        "options": [] list(NAMED, "name");
    } [Relation(scheduling::searches)]
    NAMED {} [Required(&["name"])]
    POD_SECURITY {
        "runAsUser": [USER]; "runAsGroup": [USER]; "fsGroup": [USER];
        "fsGroupChangePolicy": [NotEmpty, OneOf(&["OnRootMismatch", "Always"])];
        "supplementalGroupsPolicy": [NotEmpty, OneOf(&["Merge", "Strict"])];
        "seLinuxChangePolicy": [NotEmpty, OneOf(&["MountOption", "Recursive"])];
        "sysctls": [Unique(&["name"])] list(SYSCTL, "name");
        "seccompProfile": [] object(SECCOMP);
        "appArmorProfile": [] object(APP_ARMOR);
        "windowsOptions": [] object(WINDOWS);
    } [Relation(relations::groups), Relation(windows::pod_security)]
    WINDOWS {} [Relation(windows::options)]
    SYSCTL { "name": [Text(sysctl, "the name of a sysctl")]; } [Required(&["name"])]
    SECCOMP { "type": [PROFILE_TYPE]; "localhostProfile": [RELATIVE]; } [Required(&["type"]), Relation(relations::profile)]
    APP_ARMOR { "type": [PROFILE_TYPE]; "localhostProfile": [Text(profile_path, "a path of at most 4095 bytes without blanks around it")]; }
        [Required(&["type"]), Relation(relations::profile)]
    TOLERATION {
        "key": [Text(qualified_name, QUALIFIED)];
        "operator": [OneOf(&["Exists", "Equal"])];
        "effect": [OneOf(&["NoSchedule", "PreferNoSchedule", "NoExecute"])];
    } [Relation(relations::toleration)]
    SPREAD {
        "maxSkew": [Range(1, i32::MAX as i64)];
        "minDomains": [Range(1, i32::MAX as i64)];
        "whenUnsatisfiable": [OneOf(&["DoNotSchedule", "ScheduleAnyway"])];
        "nodeAffinityPolicy": [NotEmpty, OneOf(&["Honor", "Ignore"])];
        "nodeTaintsPolicy": [NotEmpty, OneOf(&["Honor", "Ignore"])];
        "labelSelector": [] object(SELECTOR);
        "matchLabelKeys": [Items(qualified_name, QUALIFIED)];
    } [Required(&["maxSkew", "topologyKey", "whenUnsatisfiable"]), Relation(scheduling::spread)]
    NODE_REQUIREMENT { "key": [Text(qualified_name, QUALIFIED)]; "operator": [NODE_OPERATORS]; }
        [Required(&["key", "operator"]), Relation(relations::requirement)]
    AFFINITY { "nodeAffinity": [] object(NODE_AFFINITY); "podAffinity": [] object(POD_AFFINITY); "podAntiAffinity": [] object(POD_AFFINITY); } []
    NODE_AFFINITY {
        "requiredDuringSchedulingIgnoredDuringExecution": [] object(NODE_SELECTOR);
        "preferredDuringSchedulingIgnoredDuringExecution": [] list(PREFERRED_NODE, "");
    } []
    NODE_SELECTOR { "nodeSelectorTerms": [] list(NODE_TERM, ""); } [Required(&["nodeSelectorTerms"])]
    PREFERRED_NODE { "weight": [Range(1, 100)]; "preference": [] object(NODE_TERM); } [Required(&["weight"])]
    NODE_TERM { "matchExpressions": [] list(NODE_REQUIREMENT, "key"); "matchFields": [] list(NODE_FIELD, "key"); } []
    NODE_FIELD { "key": [OneOf(&["metadata.name"])]; "operator": [OneOf(&["In", "NotIn"])]; }
        [Required(&["key", "operator"]), Relation(scheduling::node_field)]
    POD_AFFINITY {
        "requiredDuringSchedulingIgnoredDuringExecution": [] list(POD_TERM, "");
        "preferredDuringSchedulingIgnoredDuringExecution": [] list(PREFERRED_POD, "");
    } []
    PREFERRED_POD { "weight": [Range(1, 100)]; "podAffinityTerm": [] object(POD_TERM); } [Required(&["weight", "podAffinityTerm"])]
    POD_TERM {
        "topologyKey": [Text(qualified_name, QUALIFIED)]; "labelSelector": [] object(SELECTOR); "namespaceSelector": [] object(SELECTOR);
        "namespaces": [Items(dns_label, "names of namespaces")];
        "matchLabelKeys": [Items(qualified_name, QUALIFIED)]; "mismatchLabelKeys": [Items(qualified_name, QUALIFIED)];
    } [Required(&["topologyKey"]), Relation(scheduling::label_keys)]

    CONTAINER {
        "name": [LABEL];
        "image": [Text(trimmed, "text without blanks around it")];
        "imagePullPolicy": [OneOf(&["Always", "IfNotPresent", "Never"])];
        "terminationMessagePolicy": [OneOf(&["File", "FallbackToLogsOnError"])];
        "restartPolicy": [NotEmpty, OneOf(&["Always", "OnFailure", "Never"])];
        "restartPolicyRules": [] list(RESTART_RULE, "");
        "ports": [Unique(&["name"])] list(PORT, "containerPort");
        "env": [] list(VARIABLE, "name");
        "envFrom": [] list(ENV_FROM, "");
        "volumeMounts": [Unique(&["mountPath"])] list(MOUNT, "mountPath");
        "volumeDevices": [Unique(&["devicePath"]), Unique(&["name"])] list(DEVICE, "devicePath");
        "livenessProbe": [] object(ONCE_PROBE);
        "readinessProbe": [] object(READINESS_PROBE);
        "startupProbe": [] object(ONCE_PROBE);
        "lifecycle": [] object(LIFECYCLE);
        "resources": [] object(RESOURCES);
        "resizePolicy": [Unique(&["resourceName"])] list(RESIZE, "resourceName");
        "securityContext": [] object(SECURITY);
    } [
        Required(&["name", "image"]), Relation(relations::init_container), Relation(relations::claims), Relation(relations::non_root),
        Relation(containers::image), Relation(containers::probed_ports), Relation(containers::propagation),
        Relation(containers::restart_rules), Relation(containers::resize), Relation(containers::devices), Relation(containers::device_paths)
    ]
    RESTART_RULE { "action": [OneOf(&["Restart", "RestartAllContainers"])]; "exitCodes": [] object(EXIT_CODES); } [Required(&["action", "exitCodes"])]
    EXIT_CODES { "operator": [OneOf(&["In", "NotIn"])]; } [Required(&["operator"])]
    PORT {
        "containerPort": [Range(1, 65535)];
        "hostPort": [Range(0, 65535)];
        "name": [Text(port_name, PORT_NAME)];
        "protocol": [OneOf(&["TCP", "UDP", "SCTP"])];
    } [Required(&["containerPort"])]
    VARIABLE { "name": [Text(variable, VARIABLE_NAME)]; "valueFrom": [] object(VALUE_FROM); }
        [Required(&["name"]), Relation(relations::variable)]
    VALUE_FROM {
        "fieldRef": [] object(FIELD);
        "resourceFieldRef": [] object(RESOURCE_FIELD);
        "configMapKeyRef": [] object(KEY);
        "secretKeyRef": [] object(KEY);
        "fileKeyRef": [] object(FILE_KEY);
    } [One(&["configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef"])]
    FIELD { "apiVersion": [OneOf(&["v1"])]; "fieldPath": [Text(variable_field, "a field that a variable can have, such as metadata.name or status.podIP")]; }
        [Required(&["fieldPath"])]
    RESOURCE_FIELD { "resource": [Text(resource_field, "a resource such as limits.cpu or requests.memory")]; }
        [Required(&["resource"]), Relation(containers::divisor)]
    KEY { "name": [SUBDOMAIN]; "key": [Text(config_key, "letters, digits, -, _ and .")]; } [Required(&["name", "key"])]
    FILE_KEY { "path": [RELATIVE]; "key": [Text(variable, VARIABLE_NAME)]; }
        [Required(&["key", "path", "volumeName"]), Relation(containers::file_key)]
    ENV_FROM { "prefix": [Text(variable, VARIABLE_NAME)]; "configMapRef": [] object(REFERENCE); "secretRef": [] object(REFERENCE); } [One(&["configMapRef", "secretRef"])]
    REFERENCE { "name": [SUBDOMAIN]; } [Required(&["name"])]
    MOUNT {
        "subPath": [RELATIVE];
        "subPathExpr": [RELATIVE];
        "mountPropagation": [NotEmpty, OneOf(&["None", "HostToContainer", "Bidirectional"])];
        "recursiveReadOnly": [NotEmpty, OneOf(&["Disabled", "IfPossible", "Enabled"])];
        "bindMountOptions": [Items(|word| matches!(word, "noexec" | "nodev" | "nosuid"), "noexec, nodev or nosuid")];
    } [Required(&["name", "mountPath"]), AtMostOne(&["subPath", "subPathExpr"]), Relation(relations::read_only)]
    DEVICE { "devicePath": [Text(no_parent, "a path without ..")]; } [Required(&["name", "devicePath"])]
    RESIZE { "resourceName": [OneOf(&["cpu", "memory"])]; "restartPolicy": [OneOf(&["NotRequired", "RestartContainer"])]; }
        [Required(&["resourceName", "restartPolicy"])]
    ONCE_PROBE {
        "initialDelaySeconds": [NOT_NEGATIVE]; "timeoutSeconds": [NOT_NEGATIVE]; "periodSeconds": [NOT_NEGATIVE];
        "successThreshold": [Range(0, 1)]; "failureThreshold": [NOT_NEGATIVE];
        "terminationGracePeriodSeconds": [Range(1, i64::MAX)];
        "httpGet": [] object(HTTP); "tcpSocket": [] object(TCP); "grpc": [] object(GRPC); "exec": [] object(EXEC);
    } [One(HANDLERS)]
    READINESS_PROBE {
        "initialDelaySeconds": [NOT_NEGATIVE]; "timeoutSeconds": [NOT_NEGATIVE]; "periodSeconds": [NOT_NEGATIVE];
        "successThreshold": [NOT_NEGATIVE]; "failureThreshold": [NOT_NEGATIVE];
        "httpGet": [] object(HTTP); "tcpSocket": [] object(TCP); "grpc": [] object(GRPC); "exec": [] object(EXEC);
    } [One(HANDLERS), Relation(relations::readiness_probe)]
    LIFECYCLE { "postStart": [] object(HOOK); "preStop": [] object(HOOK); } []
    HOOK {
        "httpGet": [] object(HTTP); "tcpSocket": [] object(TCP); "exec": [] object(EXEC); "sleep": [] object(SLEEP);
    } [One(&["exec", "httpGet", "sleep", "tcpSocket"]), Relation(relations::sleep)]
    SLEEP { "seconds": [NOT_NEGATIVE]; } []
    EXEC {} [Required(&["command"])]
    HTTP {
        "port": [Port];
        "scheme": [OneOf(&["HTTP", "HTTPS"])];
        "httpHeaders": [] list(HEADER, "name");
    } [Required(&["port"])]
    HEADER { "name": [Text(header, "letters, digits and -")]; } [Required(&["name"])]
    TCP { "port": [Port]; } [Required(&["port"])]
    GRPC { "port": [Port]; "mode": [OneOf(&["Plaintext", "TLS"])]; } [Required(&["port"])]
    RESOURCES {
        "requests": [Keys(resource, "cpu, memory, ephemeral-storage, hugepages-SIZE or DOMAIN/NAME")];
        "limits": [Keys(resource, "cpu, memory, ephemeral-storage, hugepages-SIZE or DOMAIN/NAME")];
        "claims": [Unique(&["name"])] list(CONTAINER_CLAIM, "name");
    } [Relation(resources::requests)]
    CONTAINER_CLAIM { "name": [LABEL]; "request": [LABEL]; } [Required(&["name"])]
    POD_RESOURCES {
        "requests": [Keys(pod_resource, "cpu, memory or hugepages-SIZE")];
        "limits": [Keys(pod_resource, "cpu, memory or hugepages-SIZE")];
        "claims": [AtMost(0)];
    } [Relation(resources::requests)]
    SECURITY {
        "runAsUser": [USER]; "runAsGroup": [USER];
        "procMount": [NotEmpty, OneOf(&["Default", "Unmasked"])];
        "seccompProfile": [] object(SECCOMP);
        "appArmorProfile": [] object(APP_ARMOR);
        "windowsOptions": [] object(WINDOWS);
    } [Relation(relations::privileged), Relation(containers::proc_mount), Relation(windows::security)]
}
