//! Each rule, broken in a pod that is valid otherwise.

use serde_json::{Value, json};

use super::faults;

fn pod() -> Value {
    json!({
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "containers": [{
                "name": "web", "image": "web:1", "ports": [{"name": "http", "containerPort": 80, "hostPort": 80}],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "livenessProbe": {"httpGet": {"port": "http"}}, "lifecycle": {"preStop": {"sleep": {"seconds": 3}}},
                "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "0.1"}},
                "securityContext": {"runAsUser": 1, "seccompProfile": {"type": "RuntimeDefault"}},
            }],
            "initContainers": [
                {"name": "first", "image": "first"},
                {"name": "proxy", "image": "p", "restartPolicy": "Always", "startupProbe": {"exec": {"command": ["x"]}}},
            ],
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "token", "projected": {"sources": [
                {"serviceAccountToken": {"path": "a", "expirationSeconds": 600}}, {"downwardAPI": {"items": [
                    {"path": "b", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]}}],
            "tolerations": [{"operator": "Exists"}],
            "resources": {"requests": {"cpu": "1"}},
        },
    })
}

#[test]
fn valid_pod_has_no_fault() {
    assert_eq!(faults(&pod()), []);
}

/// A pointer, what is put there, and the place of the fault.
const CASES: &[(&str, &str, &str)] = &[
    ("/metadata/labels/app", "\"a b\"", "metadata.labels"),
    ("/metadata/labels/a b", "\"x\"", "metadata.labels"),
    ("/metadata/annotations", "{\"a/b/c\": \"\"}", "metadata.annotations"),
    ("/metadata/name", "\"A\"", "metadata.name"),
    ("/spec/containers", "[]", "spec.containers"),
    ("/spec/containers/0/name", "\"Web\"", "spec.containers[Web].name"),
    ("/spec/containers/0/name", "\"first\"", "spec"),
    ("/spec/containers/0/image", "\"\"", "spec.containers[web].image"),
    ("/spec/containers/0/image", "\" a\"", "spec.containers[web].image"),
    ("/spec/containers/0/imagePullPolicy", "\"always\"", "spec.containers[web].imagePullPolicy"),
    ("/spec/containers/0/terminationMessagePolicy", "\"x\"", "spec.containers[web].terminationMessagePolicy"),
    ("/spec/containers/0/ports/0/containerPort", "70000", "spec.containers[web].ports[70000].containerPort"),
    (
        "/spec/containers/0/ports/1",
        "{\"name\": \"HTTP\", \"containerPort\": 81}",
        "spec.containers[web].ports[81].name",
    ),
    ("/spec/containers/0/image", "\"docker.io/Istio/proxyv2\"", "spec.containers[web].image"),
    ("/spec/containers/0/image", "\"proxyv2:\"", "spec.containers[web].image"),
    ("/spec/containers/0/image", "\"localhost:5000/proxyv2:1\"", ""),
    ("/spec/containers/0/livenessProbe/httpGet/port", "\"admin\"", "spec.containers[web].livenessProbe"),
    (
        "/spec/containers/0/livenessProbe/httpGet/port",
        "\"80\"",
        "spec.containers[web].livenessProbe.httpGet.port",
    ),
    (
        "/spec/containers/0/lifecycle/preStop",
        "{\"tcpSocket\": {\"port\": \"admin\"}}",
        "spec.containers[web].lifecycle",
    ),
    ("/spec/containers/0/lifecycle/preStop", "{\"tcpSocket\": {\"port\": \"http\"}}", ""),
    (
        "/spec/containers/0/envFrom",
        "[{\"configMapRef\": {}}]",
        "spec.containers[web].envFrom[0].configMapRef.name",
    ),
    (
        "/spec/containers/0/env/1/valueFrom",
        "{\"secretKeyRef\": {\"key\": \"a\"}}",
        "spec.containers[web].env[B].valueFrom.secretKeyRef.name",
    ),
    (
        "/spec/containers/0/env/1/valueFrom",
        "{\"resourceFieldRef\": {\"resource\": \"limits.cpu\", \"divisor\": \"1Mi\"}}",
        "spec.containers[web].env[B].valueFrom.resourceFieldRef.divisor",
    ),
    (
        "/spec/containers/0/env/1/valueFrom",
        "{\"resourceFieldRef\": {\"resource\": \"limits.memory\", \"divisor\": \"1Mi\"}}",
        "",
    ),
    (
        "/spec/containers/0/env/1/valueFrom",
        "{\"resourceFieldRef\": {\"resource\": \"limits.memory\", \"divisor\": 0}}",
        "",
    ),
    (
        "/spec/containers/0/volumeMounts/0/mountPropagation",
        "\"Bidirectional\"",
        "spec.containers[web].volumeMounts",
    ),
    (
        "/spec/securityContext",
        "{\"sysctls\": [{\"name\": \"a//b\", \"value\": \"1\"}]}",
        "spec.securityContext.sysctls[a//b].name",
    ),
    ("/spec/containers/0/ports/0/protocol", "\"tcp\"", "spec.containers[web].ports[80].protocol"),
    ("/spec/containers/0/ports/0/hostIP", "\"x\"", "spec.containers[web].ports[80].hostIP"),
    (
        "/spec/containers/0/ports/1",
        "{\"name\": \"http\", \"containerPort\": 81}",
        "spec.containers[web].ports",
    ),
    ("/spec/containers/0/ports/1", "{\"containerPort\": 81, \"hostPort\": 80}", "spec"),
    ("/spec/containers/0/env/0/name", "\"1A\"", ""),
    ("/spec/containers/0/env/0/name", "\"A B\"", ""),
    ("/spec/containers/0/env/0/name", "\"A=\"", "spec.containers[web].env[A=].name"),
    (
        "/spec/containers/0/env/0/valueFrom",
        "{\"fieldRef\": {\"fieldPath\": \"metadata.name\"}}",
        "spec.containers[web].env[A]",
    ),
    ("/spec/containers/0/env/1/valueFrom", "{}", "spec.containers[web].env[B].valueFrom"),
    (
        "/spec/containers/0/env/1/valueFrom/fieldRef/fieldPath",
        "\"spec.nodename\"",
        "spec.containers[web].env[B].valueFrom.fieldRef.fieldPath",
    ),
    (
        "/spec/containers/0/env/1/valueFrom/secretKeyRef",
        "{\"name\": \"a\", \"key\": \"b\"}",
        "spec.containers[web].env[B].valueFrom",
    ),
    ("/spec/containers/0/envFrom", "[{}]", "spec.containers[web].envFrom[0]"),
    ("/spec/containers/0/volumeMounts/0/name", "\"x\"", "spec.containers[web].volumeMounts[/data].name"),
    (
        "/spec/containers/0/volumeMounts/0/subPath",
        "\"../x\"",
        "spec.containers[web].volumeMounts[/data].subPath",
    ),
    (
        "/spec/containers/0/volumeMounts/0/mountPropagation",
        "\"x\"",
        "spec.containers[web].volumeMounts[/data].mountPropagation",
    ),
    (
        "/spec/containers/0/volumeMounts/0/recursiveReadOnly",
        "\"Enabled\"",
        "spec.containers[web].volumeMounts[/data].recursiveReadOnly",
    ),
    (
        "/spec/containers/0/volumeMounts/1",
        "{\"name\": \"data\", \"mountPath\": \"/data\"}",
        "spec.containers[web].volumeMounts",
    ),
    (
        "/spec/containers/0/volumeMounts/1",
        "{\"name\": \"data\"}",
        "spec.containers[web].volumeMounts[1].mountPath",
    ),
    ("/spec/containers/0/livenessProbe/exec", "{\"command\": [\"x\"]}", "spec.containers[web].livenessProbe"),
    ("/spec/containers/0/livenessProbe", "{\"periodSeconds\": 1}", "spec.containers[web].livenessProbe"),
    (
        "/spec/containers/0/livenessProbe/successThreshold",
        "2",
        "spec.containers[web].livenessProbe.successThreshold",
    ),
    (
        "/spec/containers/0/livenessProbe/periodSeconds",
        "-1",
        "spec.containers[web].livenessProbe.periodSeconds",
    ),
    ("/spec/containers/0/livenessProbe/httpGet/port", "0", "spec.containers[web].livenessProbe.httpGet.port"),
    (
        "/spec/containers/0/livenessProbe/httpGet/scheme",
        "\"http\"",
        "spec.containers[web].livenessProbe.httpGet.scheme",
    ),
    (
        "/spec/containers/0/readinessProbe",
        "{\"exec\": {\"command\": []}}",
        "spec.containers[web].readinessProbe.exec.command",
    ),
    (
        "/spec/containers/0/readinessProbe",
        "{\"tcpSocket\": {\"port\": 1}, \"terminationGracePeriodSeconds\": 1}",
        "spec.containers[web].readinessProbe.terminationGracePeriodSeconds",
    ),
    (
        "/spec/containers/0/lifecycle/preStop/exec",
        "{\"command\": [\"x\"]}",
        "spec.containers[web].lifecycle.preStop",
    ),
    (
        "/spec/containers/0/lifecycle/preStop/sleep/seconds",
        "31",
        "spec.containers[web].lifecycle.preStop.sleep",
    ),
    ("/spec/containers/0/lifecycle/stopSignal", "\"SIGTERM\"", "spec.containers[web].lifecycle.stopSignal"),
    ("/spec/containers/0/resources/requests/cpu", "\"101m\"", "spec.containers[web].resources"),
    ("/spec/containers/0/resources/requests/cpus", "\"1\"", "spec.containers[web].resources.requests"),
    ("/spec/containers/0/resources/limits/memory", "\"-1\"", "spec.containers[web].resources.limits"),
    ("/spec/containers/0/resources/claims", "[{\"name\": \"gpu\"}]", "spec.containers[web].resources"),
    ("/spec/containers/0/securityContext/runAsUser", "-1", "spec.containers[web].securityContext.runAsUser"),
    (
        "/spec/containers/0/securityContext/seccompProfile/type",
        "\"Localhost\"",
        "spec.containers[web].securityContext.seccompProfile.localhostProfile",
    ),
    (
        "/spec/containers/0/securityContext",
        "{\"privileged\": true, \"allowPrivilegeEscalation\": false}",
        "spec.containers[web].securityContext",
    ),
    (
        "/spec/initContainers/0/readinessProbe",
        "{\"exec\": {\"command\": [\"x\"]}}",
        "spec.initContainers[first].readinessProbe",
    ),
    ("/spec/initContainers/1/restartPolicy", "\"Never\"", "spec.initContainers[proxy].startupProbe"),
    ("/spec/initContainers/1/restartPolicy", "\"always\"", "spec.initContainers[proxy].restartPolicy"),
    ("/spec/volumes/1/name", "\"a_b\"", "spec.volumes[a_b].name"),
    ("/spec/volumes/0/configMap", "{\"name\": \"a\"}", "spec.volumes[data]"),
    ("/spec/volumes/0", "{\"name\": \"data\"}", "spec.volumes[data]"),
    ("/spec/volumes/2", "{\"name\": \"data\", \"emptyDir\": {}}", "spec.volumes"),
    ("/spec/volumes/0/emptyDir/medium", "\"memory\"", "spec.volumes[data].emptyDir.medium"),
    ("/spec/volumes/0", "{\"name\": \"data\", \"secret\": {}}", "spec.volumes[data].secret.secretName"),
    (
        "/spec/volumes/0",
        "{\"name\": \"data\", \"hostPath\": {\"path\": \"/a\", \"type\": \"Dir\"}}",
        "spec.volumes[data].hostPath.type",
    ),
    (
        "/spec/volumes/0",
        "{\"name\": \"data\", \"configMap\": {\"name\": \"a\", \"defaultMode\": 4096}}",
        "spec.volumes[data].configMap.defaultMode",
    ),
    (
        "/spec/volumes/1/projected/sources/0/serviceAccountToken/expirationSeconds",
        "60",
        "spec.volumes[token].projected.sources[0].serviceAccountToken.expirationSeconds",
    ),
    (
        "/spec/volumes/1/projected/sources/0/serviceAccountToken/path",
        "\"b\"",
        "spec.volumes[token].projected.sources",
    ),
    ("/spec/volumes/1/projected/sources/2", "{}", "spec.volumes[token].projected.sources[2]"),
    ("/spec/restartPolicy", "\"never\"", "spec.restartPolicy"),
    // The API server makes 1 of it.
    ("/spec/terminationGracePeriodSeconds", "-1", "spec.containers[web].lifecycle.preStop.sleep"),
    ("/spec/activeDeadlineSeconds", "0", "spec.activeDeadlineSeconds"),
    ("/spec/dnsPolicy", "\"None\"", "spec.dnsConfig"),
    ("/spec/dnsConfig", "{\"nameservers\": [\"a\"]}", "spec.dnsConfig.nameservers"),
    ("/spec/securityContext", "{\"fsGroup\": -1}", "spec.securityContext.fsGroup"),
    ("/spec/securityContext", "{\"supplementalGroups\": [-1]}", "spec.securityContext.supplementalGroups"),
    (
        "/spec/securityContext",
        "{\"sysctls\": [{\"name\": \"A B\", \"value\": \"1\"}]}",
        "spec.securityContext.sysctls[A B].name",
    ),
    (
        "/spec/tolerations/0",
        "{\"key\": \"a\", \"operator\": \"Exists\", \"value\": \"b\"}",
        "spec.tolerations[a].value",
    ),
    ("/spec/tolerations/0/tolerationSeconds", "1", "spec.tolerations[0].effect"),
    (
        "/spec/topologySpreadConstraints",
        "[{\"topologyKey\": \"a\", \"maxSkew\": 1}]",
        "spec.topologySpreadConstraints[a].whenUnsatisfiable",
    ),
    (
        "/spec/affinity",
        "{\"podAntiAffinity\": {\"requiredDuringSchedulingIgnoredDuringExecution\": [{}]}}",
        "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey",
    ),
    ("/spec/hostAliases", "[{\"ip\": \"x\"}]", "spec.hostAliases[x].ip"),
    ("/spec/nodeSelector", "{\"a b\": \"c\"}", "spec.nodeSelector"),
    ("/spec/serviceAccountName", "\"A\"", "spec.serviceAccountName"),
    ("/spec/resources/requests/cpu", "\"50m\"", "spec.resources"),
    ("/spec/hostUsers", "false", ""),
    (
        "/spec/containers/0/envFrom",
        "[{\"prefix\": \"A=\", \"secretRef\": {\"name\": \"s\"}}]",
        "spec.containers[web].envFrom[0].prefix",
    ),
    (
        "/spec/containers/0/env/1/valueFrom",
        "{\"fileKeyRef\": {\"path\": \"p\", \"key\": \"k\", \"volumeName\": \"token\"}}",
        "spec.containers[web].env[B].valueFrom.fileKeyRef.volumeName",
    ),
    (
        "/spec/containers/0/env/1/valueFrom",
        "{\"fileKeyRef\": {\"path\": \"p\", \"key\": \"k\", \"volumeName\": \"data\"}}",
        "",
    ),
    (
        "/spec/containers/0/env/1/valueFrom",
        "{\"fileKeyRef\": {\"path\": \"p\", \"key\": \"k=\", \"volumeName\": \"data\"}}",
        "spec.containers[web].env[B].valueFrom.fileKeyRef.key",
    ),
    (
        "/spec/containers/0/resources",
        "{\"limits\": {\"example.com/gpu\": \"1500m\"}}",
        "spec.containers[web].resources.limits",
    ),
    ("/spec/containers/0/resources", "{\"limits\": {\"kubernetes.io/gpu\": \"1500m\"}}", ""),
    (
        "/spec/containers/0/resources",
        "{\"requests\": {\"example.com/gpu\": 1}}",
        "spec.containers[web].resources",
    ),
    (
        "/spec/containers/0/resources",
        "{\"requests\": {\"kubernetes.io/gpu\": 1}, \"limits\": {\"kubernetes.io/gpu\": 2}}",
        "",
    ),
    ("/spec/containers/0/resources", "{\"limits\": {\"example.com/gpu\": 1}}", ""),
    (
        "/spec/containers/0/resources",
        "{\"limits\": {\"hugepages-2Mi\": \"4Mi\"}}",
        "spec.containers[web].resources",
    ),
    (
        "/spec/containers/0/resources",
        "{\"requests\": {\"cpu\": 1, \"hugepages-2Mi\": \"4Mi\"}}",
        "spec.containers[web].resources",
    ),
    ("/spec/containers/0/resources", "{\"limits\": {\"cpu\": 1, \"hugepages-2Mi\": \"4Mi\"}}", ""),
    (
        "/spec/containers/0/resources",
        "{\"limits\": {\"cpu\": 1, \"hugepages-2Mi\": \"3Mi\"}}",
        "spec.containers[web].resources.limits",
    ),
    (
        "/spec/containers/0/restartPolicyRules",
        "[{\"action\": \"Restart\", \"exitCodes\": {\"operator\": \"In\", \"values\": [1]}}]",
        "spec.containers[web].restartPolicy",
    ),
    (
        "/spec/containers/0",
        "{\"name\": \"web\", \"image\": \"w\", \"restartPolicy\": \"Never\", \"restartPolicyRules\": [{\"action\": \"restart\", \"exitCodes\": {\"operator\": \"In\"}}]}",
        "spec.containers[web].restartPolicyRules[0].action",
    ),
    (
        "/spec/containers/0/volumeDevices",
        "[{\"name\": \"token\", \"devicePath\": \"/dev/a\"}]",
        "spec.containers[web].volumeDevices",
    ),
    ("/spec/containers/0/volumeMounts/0/recursiveReadOnly", "\"Disabled\"", ""),
    (
        "/spec/containers/0/volumeMounts/0",
        "{\"name\": \"data\", \"mountPath\": \"/data\", \"readOnly\": true, \"recursiveReadOnly\": \"Enabled\", \"mountPropagation\": \"HostToContainer\"}",
        "spec.containers[web].volumeMounts[/data]",
    ),
    (
        "/spec/containers/0/securityContext/procMount",
        "\"Unmasked\"",
        "spec.containers[web].securityContext.procMount",
    ),
    (
        "/spec/containers/0/securityContext/seccompProfile",
        "{\"type\": \"Localhost\", \"localhostProfile\": \"../a\"}",
        "spec.containers[web].securityContext.seccompProfile.localhostProfile",
    ),
    (
        "/spec/volumes/0",
        "{\"name\": \"data\", \"csi\": {\"driver\": \"a_b\"}}",
        "spec.volumes[data].csi.driver",
    ),
    ("/spec/volumes/0", "{\"name\": \"data\", \"csi\": {\"driver\": \"A.b\"}}", ""),
    (
        "/spec/volumes/0",
        "{\"name\": \"data\", \"image\": {\"pullPolicy\": \"Never\"}}",
        "spec.volumes[data].image.reference",
    ),
    (
        "/spec/volumes/0",
        "{\"name\": \"data\", \"iscsi\": {\"targetPortal\": \"p\", \"iqn\": \"a\", \"lun\": 1}}",
        "spec.volumes[data].iscsi.iqn",
    ),
    (
        "/spec/volumes/0",
        "{\"name\": \"data\", \"iscsi\": {\"iqn\": \"eui.0123456789abcdef\", \"lun\": 1}}",
        "spec.volumes[data].iscsi.targetPortal",
    ),
    ("/spec/volumes/0", "{\"name\": \"data\", \"fc\": {}}", "spec.volumes[data].fc"),
    (
        "/spec/volumes/0",
        "{\"name\": \"data\", \"azureFile\": {\"secretName\": \"s\"}}",
        "spec.volumes[data].azureFile.shareName",
    ),
    (
        "/spec/volumes/0",
        "{\"name\": \"data\", \"gcePersistentDisk\": {\"pdName\": \"a\", \"partition\": 300}}",
        "spec.volumes[data].gcePersistentDisk.partition",
    ),
    (
        "/spec/volumes/0",
        "{\"name\": \"data\", \"gitRepo\": {\"repository\": \"a\", \"directory\": \"../b\"}}",
        "spec.volumes[data].gitRepo.directory",
    ),
    (
        "/spec/volumes/0",
        "{\"name\": \"data\", \"rbd\": {\"image\": \"a\"}}",
        "spec.volumes[data].rbd.monitors",
    ),
    (
        "/spec/volumes/0",
        "{\"name\": \"data\", \"ephemeral\": {\"volumeClaimTemplate\": {\"spec\": {\"accessModes\": [\"RWO\"], \"resources\": {\"requests\": {\"storage\": \"1Gi\"}}}}}}",
        "spec.volumes[data].ephemeral.volumeClaimTemplate.spec.accessModes",
    ),
    (
        "/spec/volumes/0",
        "{\"name\": \"data\", \"ephemeral\": {\"volumeClaimTemplate\": {\"spec\": {\"accessModes\": [\"ReadWriteOnce\"]}}}}",
        "spec.volumes[data].ephemeral.volumeClaimTemplate.spec.resources",
    ),
    ("/spec/hostnameOverride", "\"A\"", "spec.hostnameOverride"),
    ("/spec/hostnameOverride", "\"a.b\"", ""),
    ("/spec/hostnameOverride", "\"\"", "spec.hostnameOverride"),
    ("/spec/ephemeralContainers", "[{\"name\": \"debug\", \"image\": \"d\"}]", "spec.ephemeralContainers"),
    ("/spec/ephemeralContainers", "[]", ""),
    ("/spec/resources/requests", "{\"ephemeral-storage\": \"1Gi\"}", "spec.resources.requests"),
    (
        "/spec/topologySpreadConstraints",
        "[{\"topologyKey\": \"a\", \"maxSkew\": 1, \"whenUnsatisfiable\": \"ScheduleAnyway\", \"minDomains\": 2}]",
        "spec.topologySpreadConstraints[a].minDomains",
    ),
    (
        "/spec/topologySpreadConstraints",
        "[{\"topologyKey\": \"a\", \"maxSkew\": 1, \"whenUnsatisfiable\": \"ScheduleAnyway\", \"matchLabelKeys\": [\"a\"]}]",
        "spec.topologySpreadConstraints[a].matchLabelKeys",
    ),
    (
        "/spec/affinity",
        "{\"podAffinity\": {\"requiredDuringSchedulingIgnoredDuringExecution\": [{\"topologyKey\": \"a\", \"namespaces\": [\"A B\"]}]}}",
        "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].namespaces",
    ),
    ("/spec/hostAliases", "[{\"ip\": \"010.0.0.1\"}]", "spec.hostAliases[010.0.0.1].ip"),
];

/// Puts a value at a pointer whose last step may be new.
fn put(pod: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match pod.pointer_mut(parent).unwrap() {
        Value::Array(items) => {
            let at: usize = key.parse().unwrap();
            items.truncate(items.len().max(at));
            if at < items.len() { items[at] = value } else { items.push(value) }
        }
        Value::Object(fields) => {
            fields.insert(key.to_owned(), value);
        }
        other => panic!("{other}"),
    }
}

/// Rules over two fields of the pod's spec.
#[test]
fn fields_that_exclude_each_other_are_one_fault() {
    for (first, second, place) in [
        ("{\"schedulingGates\": [{\"name\": \"a\"}]}", "{\"nodeName\": \"n\"}", "spec.nodeName"),
        ("{\"hostnameOverride\": \"a\"}", "{\"setHostnameAsFQDN\": true}", "spec.hostnameOverride"),
    ] {
        let mut pod = pod();
        for fields in [first, second] {
            assert_eq!(faults(&pod), []);
            let fields: serde_json::Map<String, Value> = serde_json::from_str(fields).unwrap();
            pod["spec"].as_object_mut().unwrap().extend(fields);
        }
        let found: Vec<String> = faults(&pod).iter().map(|fault| fault.location.to_string()).collect();
        assert_eq!(found, [place]);
    }
    let mut pod = pod();
    pod["spec"]["restartPolicy"] = json!("Never");
    pod["spec"]["containers"][0]["resizePolicy"] =
        json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]);
    let found: Vec<String> = faults(&pod).iter().map(|fault| fault.location.to_string()).collect();
    assert_eq!(found, ["spec.containers[web].resizePolicy"]);
}

#[test]
fn every_broken_rule_is_one_fault_in_its_place() {
    let mut wrong = Vec::new();
    for (pointer, value, place) in CASES {
        let mut pod = pod();
        put(&mut pod, pointer, serde_json::from_str(value).unwrap());
        let found: Vec<String> = faults(&pod).iter().map(|fault| fault.location.to_string()).collect();
        let wanted = if place.is_empty() { vec![] } else { vec![(*place).to_owned()] };
        if found != wanted {
            wrong.push(format!("{pointer} {value}: {found:?}"));
        }
    }
    assert_eq!(wrong, [""; 0]);
}
