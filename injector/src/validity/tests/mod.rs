//! Each rule, broken in a pod that is valid otherwise.

mod cases;
mod pod_cases;

use cases::CASES;
use pod_cases::POD_CASES;
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
        (
            "{\"hostNetwork\": true}",
            "{\"securityContext\": {\"sysctls\": [{\"name\": \"net/core/somaxconn\", \"value\": \"1\"}]}}",
            "spec.securityContext",
        ),
        (
            "{\"securityContext\": {\"sysctls\": [{\"name\": \"kernel.sem\", \"value\": \"1\"}]}}",
            "{\"hostIPC\": true}",
            "spec.securityContext",
        ),
        (
            "{\"os\": {\"name\": \"linux\"}}",
            "{\"securityContext\": {\"windowsOptions\": {\"runAsUserName\": \"a\"}}}",
            "spec.securityContext.windowsOptions",
        ),
        (
            "{\"hostNetwork\": true, \"securityContext\": {\"windowsOptions\": {\"hostProcess\": true}}}",
            "{\"hostNetwork\": false}",
            "spec.hostNetwork",
        ),
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
    pod["spec"]["resources"] = json!({"limits": {"cpu": "1"}});
    pod["spec"]["initContainers"][1]["resources"] =
        json!({"requests": {"cpu": "950m"}, "limits": {"cpu": "2"}});
    let only = |pod: &Value, accepted: &str| {
        let found = faults(pod);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            (found[0].location.to_string().as_str(), found[0].given.as_str()),
            ("spec.resources", "limit of cpu 1")
        );
        assert!(found[0].accepted.contains(accepted), "{found:?}");
    };
    only(&pod, "request together (web 100m, proxy 950m)");
    pod["spec"]["initContainers"][1]["resources"]["requests"]["cpu"] = json!("900m");
    assert_eq!(faults(&pod), []);
    pod["spec"]["containers"][0]["resources"]["limits"]["cpu"] = json!("2");
    only(&pod, "the limit of each container (web 2)");
    pod["spec"]["containers"][0]["resources"]["limits"]["cpu"] = json!("1");
    assert_eq!(faults(&pod), []);
    pod["spec"]["restartPolicy"] = json!("Never");
    pod["spec"]["containers"][0]["resizePolicy"] =
        json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]);
    let found: Vec<String> = faults(&pod).iter().map(|fault| fault.location.to_string()).collect();
    assert_eq!(found, ["spec.containers[web].resizePolicy"]);
}

/// As kube-apiserver 1.36 refuses them, field by field.
#[test]
fn windows_has_no_field_of_linux() {
    let places =
        |pod: &Value| -> Vec<String> { faults(pod).iter().map(|fault| fault.location.to_string()).collect() };
    let mut windows = pod();
    windows["spec"]["os"] = json!({"name": "windows"});
    assert_eq!(places(&windows), ["spec.containers[web].securityContext", "spec"]);
    windows["spec"]["resources"] = Value::Null;
    windows["spec"]["containers"][0]["securityContext"] =
        json!({"runAsNonRoot": true, "windowsOptions": {"runAsUserName": "a"}});
    windows["spec"]["securityContext"] =
        json!({"runAsNonRoot": true, "supplementalGroups": [], "sysctls": []});
    windows["spec"]["hostPID"] = json!(false);
    assert_eq!(places(&windows), [""; 0]);
    for (pointer, value) in [
        ("/spec/hostPID", "true"),
        ("/spec/hostIPC", "true"),
        ("/spec/hostUsers", "true"),
        ("/spec/shareProcessNamespace", "false"),
        ("/spec/securityContext/fsGroup", "1"),
        ("/spec/securityContext/fsGroupChangePolicy", "\"Always\""),
        ("/spec/securityContext/runAsGroup", "1"),
        ("/spec/securityContext/supplementalGroups", "[1]"),
        ("/spec/securityContext/supplementalGroupsPolicy", "\"Merge\""),
        ("/spec/securityContext/sysctls", "[{\"name\": \"net.a\", \"value\": \"1\"}]"),
        ("/spec/securityContext/seLinuxChangePolicy", "\"Recursive\""),
        ("/spec/containers/0/securityContext/capabilities", "{}"),
        ("/spec/containers/0/securityContext/seLinuxOptions", "{}"),
        ("/spec/containers/0/securityContext/privileged", "false"),
        ("/spec/containers/0/securityContext/readOnlyRootFilesystem", "true"),
        ("/spec/containers/0/securityContext/procMount", "\"Default\""),
    ] {
        let mut pod = windows.clone();
        put(&mut pod, pointer, serde_json::from_str(value).unwrap());
        let found = faults(&pod);
        assert_eq!(found.len(), 1, "{pointer}: {found:?}");
        assert_eq!(found[0].fields, [pointer.rsplit_once('/').unwrap().1]);
    }
}

#[test]
fn processes_of_the_node_and_devices_exclude_other_fields() {
    let places =
        |pod: &Value| -> Vec<String> { faults(pod).iter().map(|fault| fault.location.to_string()).collect() };
    let mut windows = pod();
    windows["spec"]["containers"][0]["securityContext"] = json!({"windowsOptions": {"hostProcess": true}});
    let process = "spec.containers[web].securityContext.windowsOptions.hostProcess";
    assert_eq!(places(&windows), [process, "spec.hostNetwork"]);
    windows["spec"]["securityContext"] = json!({"windowsOptions": {"hostProcess": true}});
    windows["spec"]["hostNetwork"] = json!(true);
    assert_eq!(places(&windows), [""; 0]);

    let mut pod = pod();
    put(&mut pod, "/spec/volumes/2", json!({"name": "disk", "persistentVolumeClaim": {"claimName": "c"}}));
    pod["spec"]["containers"][0]["volumeDevices"] = json!([{"name": "disk", "devicePath": "/dev/a"}]);
    assert_eq!(places(&pod), [""; 0]);
    pod["spec"]["hostUsers"] = json!(false);
    assert_eq!(places(&pod), ["spec.containers[web].volumeDevices"]);
    pod["spec"]["hostUsers"] = json!(true);
    pod["spec"]["containers"][0]["volumeDevices"][0]["devicePath"] = json!("/data");
    assert_eq!(places(&pod), ["spec.containers[web]"]);
    let search = "a".repeat(60) + "." + &"b".repeat(60);
    pod["spec"]["containers"][0]["volumeDevices"] = Value::Null;
    pod["spec"]["dnsConfig"] = json!({"searches": vec![search; 17]});
    assert_eq!(places(&pod), ["spec.dnsConfig.searches"]);
    pod["spec"]["dnsConfig"] = Value::Null;
    pod["metadata"]["annotations"] = json!({"a": "x".repeat(256 * 1024)});
    assert_eq!(places(&pod), ["metadata.annotations"]);
}

#[test]
fn every_broken_rule_is_one_fault_in_its_place() {
    let mut wrong = Vec::new();
    for (pointer, value, place) in CASES.iter().chain(POD_CASES) {
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
