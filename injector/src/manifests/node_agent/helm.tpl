{{- define "istio-cni.installation" }}
{{- if not .Values.image }}{{ fail "image is missing: the node agent's image, as the nodes pull it" }}{{ end }}
{{- $platforms := fromJson @PLATFORMS@ }}
{{- if not (hasKey $platforms .Values.platform) }}
{{- fail (printf "platform: %q is not accepted, expected one of %s" .Values.platform (keys $platforms | sortAlpha | join ", ")) }}
{{- end }}
{{- $platform := get $platforms .Values.platform }}
{{- $settings := dict
  "BACKEND" .Values.backend
  "CAPTURE" (toJson .Values.capture)
  "CNI_CONF_NAME" .Values.cniConfFileName
  "DEADLINE_MS" (int .Values.deadlineMs | toString)
  "DROP_IN" .Values.dropIn
  "EXCLUDE_NAMESPACES" (append .Values.excludeNamespaces .Release.Namespace | uniq | join ",")
  "GUARD" .Values.guard
  "LOG_LEVEL" .Values.logLevel
  "ON_UNKNOWN" .Values.onUnknown
  "POD_EVENTS" (toString .Values.podEvents)
  "REMOVE_TAINT" (toString .Values.removeTaint)
  "REPAIR" .Values.repair
  "REPAIR_BROKEN_POD_LABEL_KEY" .Values.brokenPodLabelKey
  "REPAIR_BROKEN_POD_LABEL_VALUE" .Values.brokenPodLabelValue
  "REPLACE_ISTIO" (toString .Values.replaceIstio)
  "RESET_ESCAPED" (toString .Values.resetEscaped)
}}
{{- template "istio-cni.objects" (dict
  "agent" @NAME@
  "namespace" .Release.Namespace
  "inCluster" (printf "%s-%s" @NAME@ .Release.Namespace)
  "image" .Values.image
  "platform" $platform.name
  "openshift" (eq $platform.name "openshift")
  "binDir" $platform.binDir
  "netDir" $platform.netDir
  "runDir" @RUN_DIR@
  "netnsDir" @NETNS_DIR@
  "resultsDir" @RESULTS_DIR@
  "port" @PORT@
  "settings" $settings
  "variables" (fromJson @VARIABLES@)
) }}
{{- end }}
