{{/* Made by `make gallery` from injector/src/manifests; do not edit by hand. */ -}}
{{- define "istio-cni.labels" }}{app: istio-cni-node-agent, istio: cni, istio.io/rev: default}{{ end -}}
{{- define "istio-cni.metadata" }}{name: {{ .agent }}, namespace: {{ quote .namespace }}, labels: {{ template "istio-cni.labels" . }}}{{ end -}}
{{- define "istio-cni.mount" }}{mountPath: {{ quote .path }}, name: {{ .name }}{{ if .propagation }}, mountPropagation: {{ .propagation }}{{ end }}{{ if .readOnly }}, readOnly: true{{ end }}}{{ end -}}
{{- define "istio-cni.volume" }}{name: {{ .name }}, hostPath: {path: {{ quote .path }}, type: DirectoryOrCreate}}{{ end -}}
{{ define "istio-cni.objects" -}}
{{- $volumes := list (dict "name" "programs" "path" .binDir) (dict "name" "configurations" "path" .netDir) (dict "name" "run" "path" .runDir) (dict "name" "netns" "path" .netnsDir "propagation" "HostToContainer") -}}
{{- if ne .settings.REPAIR "off" }}{{ $volumes = append $volumes (dict "name" "results" "path" .resultsDir "readOnly" true) }}{{ end -}}
apiVersion: v1
kind: ServiceAccount
metadata: {{ template "istio-cni.metadata" . }}
# Only the pods of the DaemonSet have its token.
automountServiceAccountToken: false
---
# For pods whose annotations the runtime does not hand over, or do not decide. The watch selects the pods of a node, which RBAC cannot.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: {{ .inCluster }}-api, labels: {{ template "istio-cni.labels" . }}}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get, list, watch]}
{{- if eq .settings.REMOVE_TAINT "true" }}
# The taint of the agent's own node, which RBAC cannot single out.
- {apiGroups: [""], resources: [nodes], verbs: [get, patch]}
{{- else if eq .settings.DROP_IN "auto" }}
# The container runtime of the agent's own node, which RBAC cannot single out.
- {apiGroups: [""], resources: [nodes], verbs: [get]}
{{- end }}
{{- if eq .settings.REPAIR "label" }}
# The label of pods that have started without capture.
- {apiGroups: [""], resources: [pods], verbs: [patch]}
{{- else if eq .settings.REPAIR "delete" }}
# Pods that have started without capture.
- {apiGroups: [""], resources: [pods], verbs: [delete]}
{{- end }}
{{- if and (eq .settings.POD_EVENTS "true") (or (ne .settings.GUARD "off") (ne .settings.REPAIR "off")) }}
# What guard and repair report about pods, which RBAC cannot limit to those of the agent's own node.
- {apiGroups: [""], resources: [events], verbs: [create, patch]}
- {apiGroups: [""], resources: [pods/status], verbs: [patch]}
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: {{ .inCluster }}-api, labels: {{ template "istio-cni.labels" . }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ .inCluster }}-api}
subjects: [{kind: ServiceAccount, name: {{ .agent }}, namespace: {{ quote .namespace }}}]
---
{{- if .openshift }}
# What the pods of the DaemonSet need, and no more: `privileged` would allow everything.
apiVersion: security.openshift.io/v1
kind: SecurityContextConstraints
metadata: {name: {{ .inCluster }}, labels: {{ template "istio-cni.labels" . }}}
allowHostDirVolumePlugin: true
allowHostIPC: false
allowHostNetwork: false
allowHostPID: false
allowHostPorts: false
allowPrivilegeEscalation: false
allowPrivilegedContainer: false
allowedCapabilities: [NET_ADMIN, NET_BROADCAST, SYS_ADMIN]
fsGroup: {type: RunAsAny}
readOnlyRootFilesystem: true
requiredDropCapabilities: [ALL]
runAsUser: {type: RunAsAny}
seLinuxContext: {type: RunAsAny}
seccompProfiles: [runtime/default]
supplementalGroups: {type: RunAsAny}
# The token is in a projected volume.
volumes: [hostPath, projected]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: {{ .inCluster }}, labels: {{ template "istio-cni.labels" . }}}
rules:
- {apiGroups: [security.openshift.io], resources: [securitycontextconstraints], verbs: [use], resourceNames: [{{ .inCluster }}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{ template "istio-cni.metadata" . }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ .inCluster }}}
subjects: [{kind: ServiceAccount, name: {{ .agent }}, namespace: {{ quote .namespace }}}]
---
{{- end }}
{{- if ne .namespace "kube-system" }}
# Where the API server limits system-node-critical (GKE does), pods have it outside of kube-system only by such a quota.
apiVersion: v1
kind: ResourceQuota
metadata: {{ template "istio-cni.metadata" . }}
spec:
  hard: {pods: 5k}
  scopeSelector: {matchExpressions: [{operator: In, scopeName: PriorityClass, values: [system-node-critical]}]}
---
{{- end }}
# The options of docs/cni.md, as the arguments below read them. A change counts after `kubectl rollout restart`.
apiVersion: v1
kind: ConfigMap
metadata: {{ template "istio-cni.metadata" . }}
data: {{ toJson .settings }}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {{ template "istio-cni.metadata" . }}
spec:
  selector: {matchLabels: {{ template "istio-cni.labels" . }}}
  # The plugin works without the agent: a node without one starts pods as before. A version that does not get ready stops at one node.
  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}
  template:
    metadata:
      labels:
        app: istio-cni-node-agent
        istio: cni
        istio.io/rev: default
        # Istiod takes the taint cni.istio.io/not-ready off nodes with a ready pod of this label.
        k8s-app: istio-cni-node
        istio.io/dataplane-mode: none
        sidecar.istio.io/inject: "false"
      annotations:
        checksum/config: {{ .settings | toJson | sha256sum }}
        # Of the containers it is the one that logs are about.
        kubectl.kubernetes.io/default-container: install-cni
    spec:
      containers:
      - name: install-cni
        image: {{ quote .image }}
        imagePullPolicy: IfNotPresent
        args:
        - install
        {{- if ne .platform "default" }}
        - --platform={{ .platform }}
        {{- end }}
        - --run-dir={{ .runDir }}
        - --netns-dir={{ .netnsDir }}
        - --results-dir={{ .resultsDir }}
        - --listen=[::]:{{ .port }}
        - --node-name=$(NODE_NAME)
        - --pod-namespace=$(POD_NAMESPACE)
        {{- range $option, $variable := .variables }}
        - --{{ $option }}=$({{ $variable }})
        {{- end }}
        env:
        - {name: NODE_NAME, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: spec.nodeName}}}
        - {name: POD_NAMESPACE, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}}
        envFrom:
        - {configMapRef: {name: {{ .agent }}}}
        ports:
        - {containerPort: {{ .port }}, name: probes, protocol: TCP}
        livenessProbe: {failureThreshold: 3, httpGet: {path: /healthz, port: probes}, initialDelaySeconds: 5, periodSeconds: 20, timeoutSeconds: 5}
        readinessProbe: {failureThreshold: 3, httpGet: {path: /readyz, port: probes}, periodSeconds: 5, timeoutSeconds: 5}
        resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 128Mi}}
        # Root, as the directories are root's. NET_ADMIN and SYS_ADMIN are for the trial of ADD in a network namespace of its own, for the
        # guard, which enters those of captured pods, and for repair; NET_BROADCAST is for notices of changes there.
        securityContext:
          allowPrivilegeEscalation: false
          capabilities: {add: [NET_ADMIN, NET_BROADCAST, SYS_ADMIN], drop: [ALL]}
          privileged: false
          readOnlyRootFilesystem: true
          runAsGroup: 0
          runAsNonRoot: false
          runAsUser: 0
          # Where SELinux is enforced, no other domain of containers writes to the node's directories.
          seLinuxOptions: {type: spc_t}
        volumeMounts:
        {{- range $volumes }}
        - {{ template "istio-cni.mount" . }}
        {{- end }}
      automountServiceAccountToken: true
      enableServiceLinks: false
      nodeSelector: {kubernetes.io/os: linux}
      priorityClassName: system-node-critical
      securityContext: {seccompProfile: {type: RuntimeDefault}}
      serviceAccountName: {{ .agent }}
      terminationGracePeriodSeconds: 10
      # Every node: also those that are not ready, or are reserved.
      tolerations: [{operator: Exists}]
      volumes:
      {{- range $volumes }}
      - {{ template "istio-cni.volume" . }}
      {{- end }}
{{- end }}
{{- define "istio-cni.installation" }}
{{- if not .Values.image }}{{ fail "image is missing: the node agent's image, as the nodes pull it" }}{{ end }}
{{- $platforms := fromJson "{\"kubernetes\":{\"name\":\"default\",\"binDir\":\"/opt/cni/bin\",\"netDir\":\"/etc/cni/net.d\"},\"gke\":{\"name\":\"gke\",\"binDir\":\"/home/kubernetes/bin\",\"netDir\":\"/etc/cni/net.d\"},\"k3d\":{\"name\":\"k3d\",\"binDir\":\"/bin\",\"netDir\":\"/var/lib/rancher/k3s/agent/etc/cni/net.d\"},\"k3s\":{\"name\":\"k3s\",\"binDir\":\"/var/lib/rancher/k3s/data/cni\",\"netDir\":\"/var/lib/rancher/k3s/agent/etc/cni/net.d\"},\"microk8s\":{\"name\":\"microk8s\",\"binDir\":\"/var/snap/microk8s/current/opt/cni/bin\",\"netDir\":\"/var/snap/microk8s/current/args/cni-network\"},\"openshift\":{\"name\":\"openshift\",\"binDir\":\"/var/lib/cni/bin\",\"netDir\":\"/etc/cni/multus/net.d\"}}" }}
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
  "agent" "istio-cni-node-agent"
  "namespace" .Release.Namespace
  "inCluster" (printf "%s-%s" "istio-cni-node-agent" .Release.Namespace)
  "image" .Values.image
  "platform" $platform.name
  "openshift" (eq $platform.name "openshift")
  "binDir" $platform.binDir
  "netDir" $platform.netDir
  "runDir" "/var/run/istio-cni"
  "netnsDir" "/var/run/netns"
  "resultsDir" "/var/lib/cni/results"
  "port" 8000
  "settings" $settings
  "variables" (fromJson "{\"backend\":\"BACKEND\",\"capture\":\"CAPTURE\",\"cni-conf-name\":\"CNI_CONF_NAME\",\"deadline-ms\":\"DEADLINE_MS\",\"drop-in\":\"DROP_IN\",\"exclude-namespaces\":\"EXCLUDE_NAMESPACES\",\"guard\":\"GUARD\",\"log-level\":\"LOG_LEVEL\",\"on-unknown\":\"ON_UNKNOWN\",\"pod-events\":\"POD_EVENTS\",\"remove-taint\":\"REMOVE_TAINT\",\"repair\":\"REPAIR\",\"repair-broken-pod-label-key\":\"REPAIR_BROKEN_POD_LABEL_KEY\",\"repair-broken-pod-label-value\":\"REPAIR_BROKEN_POD_LABEL_VALUE\",\"replace-istio\":\"REPLACE_ISTIO\",\"reset-escaped\":\"RESET_ESCAPED\"}")
) }}
{{- end }}
