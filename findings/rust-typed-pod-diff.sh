#!/bin/bash
# A JSON patch from a pod and its copy with a sidecar, through the types of the crate k8s-openapi.
. "$(dirname "$0")/lib.sh"
guess 'the patch adds the sidecar and leaves all other fields alone, also those that the chosen Kubernetes version does not have'
mkdir -p "$folder/patch/src"
cat >"$folder/patch/src/main.rs" <<'R'
use k8s_openapi::api::core::v1::{Container, Pod};

fn main() {
    let before: serde_json::Value = serde_json::from_reader(std::io::stdin()).unwrap();
    let mut pod: Pod = serde_json::from_value(before.clone()).unwrap();
    let sidecar = Container { name: "proxy".into(), ..Default::default() };
    pod.spec.get_or_insert_default().containers.push(sidecar);
    for step in json_patch::diff(&before, &serde_json::to_value(&pod).unwrap()).0 {
        println!("{}", serde_json::to_string(&step).unwrap());
    }
}
R
cargo_build "$folder/patch" k8s-openapi==0.28.0:earliest json-patch==4.1.0 serde_json==1.0.154
# The patch for a pod with these fields of metadata, of spec and of its container.
patch() {
    printf '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"%s}, "spec": {%s"containers": [{"name": "app"%s}]}}' \
        "$@" | "$folder/patch/program"
}
add='{"op":"add","path":"/spec/containers/1","value":{"name":"proxy"}}'
expect 'a pod of known fields' "$add" "$(patch '' '"hostname": "web", ' ', "resources": {}')"
expect 'spec.hostnameOverride, since Kubernetes 1.34 (the feature earliest is 1.33)' "$add
{\"op\":\"remove\",\"path\":\"/spec/hostnameOverride\"}" "$(patch '' '"hostnameOverride": "web.example", ' '')"
expect 'restartPolicyRules of a container, since 1.34' "{\"op\":\"remove\",\"path\":\"/spec/containers/0/restartPolicyRules\"}
$add" "$(patch '' '' ', "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [75]}}]')"
expect 'creationTimestamp: null, as the API server sends it for new pods' "{\"op\":\"remove\",\"path\":\"/metadata/creationTimestamp\"}
$add" "$(patch ', "creationTimestamp": null' '' '')"
expect 'a CPU limit that is a number' "{\"op\":\"replace\",\"path\":\"/spec/containers/0/resources/limits/cpu\",\"value\":\"2\"}
$add" "$(patch '' '' ', "resources": {"limits": {"cpu": 2}}')"
