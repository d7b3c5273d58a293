{{- define "sidecar-injector.installation" }}
{{- $revision := .Values.revision | default "" }}
{{- if and (eq $revision "") (not .Values.replaceIstiod) }}
{{- fail "revision is missing: without one the objects have the names of istiod's and overwrite them: set revision, or replaceIstiod=true" }}
{{- end }}
{{- if not .Values.image }}{{ fail "image is missing: the injector's image, as the nodes pull it" }}{{ end }}
{{- if not .Values.initImage }}{{ fail "initImage is missing: the init container's image, as the nodes pull it" }}{{ end }}
{{- $injector := printf "istio-sidecar-injector%s" (ternary "" (printf "-%s" $revision) (eq $revision "")) }}
{{- $webhooks := fromJson @WEBHOOKS@ }}
{{- $hooks := get $webhooks (ternary (ternary "all" "default" (.Values.enableNamespacesByDefault | default false)) "revision" (eq $revision "")) }}
{{- $hooks = $hooks | toJson | replace "@REVISION" $revision | replace "@NAMESPACE" .Release.Namespace }}
{{- $values := mergeOverwrite (fromJson @VALUES@) (.Values.values | default dict) }}
{{- $values = mergeOverwrite $values (dict "global" (dict "proxy_init" (dict "image" .Values.initImage))) }}
{{- $mesh := @MESH@ }}
{{- with .Values.meshConfig }}{{ $mesh = toJson . }}{{ end }}
{{- $texts := dict "config" (.Values.config | default @CONFIG@) "values" (toJson $values) "mesh" $mesh }}
{{- template "sidecar-injector.objects" (dict
  "namespace" .Release.Namespace
  "revision" ($revision | default "default")
  "injector" $injector
  "mesh" (printf "istio%s" (trimPrefix "istio-sidecar-injector" $injector))
  "keepMesh" (eq $revision "")
  "secret" (printf "%s-tls" $injector)
  "managedSecret" (printf "%s-cert-manager" $injector)
  "clusterRole" (printf "%s-%s" $injector .Release.Namespace)
  "image" .Values.image
  "minReplicas" (int .Values.replicas)
  "maxReplicas" (add (int .Values.replicas) 3)
  "failurePolicy" .Values.failurePolicy
  "certManager" .Values.certManager
  "openshift" (eq .Values.platform "openshift")
  "validatingPolicy" .Values.validatingPolicy
  "texts" $texts
  "httpsPort" 15017
  "monitoringPort" 15014
  "webhooks" (fromJson (printf "{\"all\": %s}" $hooks)).all
) }}
{{- end }}
