{{/* Made by `make gallery` from injector/src/manifests; do not edit by hand. */ -}}
{{- define "sidecar-injector.labels" }}{app: istio-sidecar-injector, istio: sidecar-injector, istio.io/rev: {{ quote .revision }}}{{ end -}}
{{- define "sidecar-injector.metadata" }}{name: {{ .injector }}, namespace: {{ quote .namespace }}, labels: {{ template "sidecar-injector.labels" . }}}{{ end -}}
{{- define "sidecar-injector.subjects" }}[{kind: ServiceAccount, name: {{ .injector }}, namespace: {{ quote .namespace }}}]{{ end -}}
{{- define "sidecar-injector.message" -}}
image: auto is still there: no sidecar injector was called for this pod. Either its namespace has neither the label istio-injection=enabled nor istio.io/rev with an installed revision, or the pod's own label sidecar.istio.io/inject is not "true", or the namespace is that of the injector, or the injector was away and failurePolicy is Ignore. `sidecar-injector doctor` says which
{{- end -}}
{{- define "sidecar-injector.none-left" }}.all(c, c.name != 'istio-proxy' || !has(c.image) || c.image != 'auto'){{ end -}}
{{ define "sidecar-injector.objects" -}}
apiVersion: v1
kind: ServiceAccount
metadata: {{ template "sidecar-injector.metadata" . }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: {{ .clusterRole }}, labels: {{ template "sidecar-injector.labels" . }}}
rules:
- {apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}
{{- if .openshift }}
- {apiGroups: [""], resources: [namespaces], verbs: [get, list, watch]} # their user ranges
{{- end }}
- {apiGroups: [networking.istio.io], resources: [proxyconfigs], verbs: [get, list, watch]}
{{- if not .certManager }}
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingwebhookconfigurations]
  verbs: [get, list, watch, patch]
  resourceNames: [{{ .injector }}]
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: {{ .clusterRole }}, labels: {{ template "sidecar-injector.labels" . }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ .clusterRole }}}
subjects: {{ template "sidecar-injector.subjects" . }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{ template "sidecar-injector.metadata" . }}
rules:
# Lists and watches of one name are allowed when the request selects it by metadata.name.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch]
  resourceNames: [{{ .injector }}, {{ .mesh }}]
{{- if not .certManager }}
- {apiGroups: [""], resources: [secrets], verbs: [get, list, watch, update], resourceNames: [{{ .secret }}]}
# An object that does not exist yet has no name to be allowed by.
- {apiGroups: [""], resources: [secrets], verbs: [create]}
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{ template "sidecar-injector.metadata" . }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ .injector }}}
subjects: {{ template "sidecar-injector.subjects" . }}
---
apiVersion: v1
kind: ConfigMap
metadata: {{ template "sidecar-injector.metadata" . }}
data:
  config: {{ toJson .texts.config }}
  values: {{ toJson .texts.values }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .mesh }}
  namespace: {{ quote .namespace }}
  labels: {{ template "sidecar-injector.labels" . }}
  {{- if .keepMesh }}
  # A control plane may read it.
  annotations: {helm.sh/resource-policy: keep}
  {{- end }}
data:
  mesh: {{ toJson .texts.mesh }}
---
{{- if .certManager }}
# A CA of the installation's own and the certificate that it signs: a CA between the two keeps the trust that was handed
# out when the certificate is renewed.
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: {{ .injector }}-selfsigned, namespace: {{ quote .namespace }}, labels: {{ template "sidecar-injector.labels" . }}}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: {{ .injector }}-ca, namespace: {{ quote .namespace }}, labels: {{ template "sidecar-injector.labels" . }}}
spec:
  commonName: {{ .injector }}-ca
  duration: 87600h
  isCA: true
  issuerRef: {group: cert-manager.io, kind: Issuer, name: {{ .injector }}-selfsigned}
  privateKey: {algorithm: ECDSA, rotationPolicy: Always, size: 256}
  secretName: {{ .injector }}-ca
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: {{ .injector }}-ca, namespace: {{ quote .namespace }}, labels: {{ template "sidecar-injector.labels" . }}}
spec: {ca: {secretName: {{ .injector }}-ca}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {{ template "sidecar-injector.metadata" . }}
spec:
  dnsNames: [{{ .injector }}.{{ .namespace }}.svc, {{ .injector }}.{{ .namespace }}.svc.cluster.local]
  duration: 2160h
  issuerRef: {group: cert-manager.io, kind: Issuer, name: {{ .injector }}-ca}
  privateKey: {algorithm: ECDSA, rotationPolicy: Always, size: 256}
  renewBefore: 720h
  secretName: {{ .managedSecret }}
  usages: [server auth]
---
{{- end }}
apiVersion: v1
kind: Service
metadata: {{ template "sidecar-injector.metadata" . }}
spec:
  ports:
  - {name: https-webhook, port: 443, protocol: TCP, targetPort: https-webhook}
  - {name: http-monitoring, port: {{ .monitoringPort }}, protocol: TCP, targetPort: http-monitoring}
  selector: {{ template "sidecar-injector.labels" . }}
---
# Without `replicas`: they belong to the autoscaler, which brings a new Deployment to its minimum within seconds; applying
# this again does not remove replicas that it has added.
apiVersion: apps/v1
kind: Deployment
metadata: {{ template "sidecar-injector.metadata" . }}
spec:
  selector: {matchLabels: {{ template "sidecar-injector.labels" . }}}
  # A new pod is ready before an old one goes.
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  template:
    metadata:
      labels:
        app: istio-sidecar-injector
        istio: sidecar-injector
        istio.io/rev: {{ quote .revision }}
        # The injector must come up before anything can be injected.
        sidecar.istio.io/inject: "false"
      annotations: {prometheus.io/scrape: "true", prometheus.io/port: "{{ .monitoringPort }}", prometheus.io/path: /metrics}
    spec:
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - podAffinityTerm: {labelSelector: {matchLabels: {{ template "sidecar-injector.labels" . }}}, topologyKey: kubernetes.io/hostname}
            weight: 100
      containers:
      - name: sidecar-injector
        image: {{ quote .image }}
        imagePullPolicy: IfNotPresent
        args:
        - webhook
        - --https-addr=:{{ .httpsPort }}
        - --monitoring-addr=:{{ .monitoringPort }}
        - --watch-configmap=$(POD_NAMESPACE)/{{ .injector }}
        {{- if .certManager }}
        - --ca-managed-externally
        - --tls-cert=/etc/sidecar-injector/tls/tls.crt
        - --tls-key=/etc/sidecar-injector/tls/tls.key
        {{- else }}
        - --self-signed
        - --namespace=$(POD_NAMESPACE)
        - --service={{ .injector }}
        - --webhook-config={{ .injector }}
        {{- end }}
        {{- if ne .revision "default" }}
        - --revision={{ .revision }}
        {{- end }}
        {{- if .openshift }}
        - --platform=openshift
        {{- end }}
        - --native-sidecars=auto
        - --grace=20
        - --log-format=json
        env:
        - {name: POD_NAMESPACE, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}}
        ports:
        - {containerPort: {{ .httpsPort }}, name: https-webhook, protocol: TCP}
        - {containerPort: {{ .monitoringPort }}, name: http-monitoring, protocol: TCP}
        startupProbe: {failureThreshold: 60, httpGet: {path: /healthz, port: http-monitoring}, periodSeconds: 1, timeoutSeconds: 3}
        livenessProbe: {failureThreshold: 3, httpGet: {path: /healthz, port: http-monitoring}, periodSeconds: 10, timeoutSeconds: 3}
        readinessProbe: {failureThreshold: 3, httpGet: {path: /readyz, port: http-monitoring}, periodSeconds: 3, timeoutSeconds: 3}
        # No limit of processor time: a throttled injector makes every pod of the cluster wait.
        resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 512Mi}}
        securityContext:
          allowPrivilegeEscalation: false
          capabilities: {drop: [ALL]}
          privileged: false
          readOnlyRootFilesystem: true
        {{- if .certManager }}
        volumeMounts:
        - {mountPath: /etc/sidecar-injector/tls, name: certificate, readOnly: true}
        {{- end }}
      securityContext:
        runAsNonRoot: true
        seccompProfile: {type: RuntimeDefault}
        {{- if not .openshift }}
        # The image's user; any other one that is not root will do. OpenShift chooses from the namespace's range, and
        # rejects any other user.
        runAsUser: 65532
        runAsGroup: 65532
        {{- end }}
      serviceAccountName: {{ .injector }}
      # Longer than --grace, in which requests under way are finished: what is left is killed afterwards.
      terminationGracePeriodSeconds: 30
      topologySpreadConstraints:
      - labelSelector: {matchLabels: {{ template "sidecar-injector.labels" . }}}
        maxSkew: 1
        topologyKey: topology.kubernetes.io/zone
        whenUnsatisfiable: ScheduleAnyway
      {{- if .certManager }}
      volumes:
      - {name: certificate, secret: {secretName: {{ .managedSecret }}}}
      {{- end }}
---
# As `maxUnavailable`: a single replica never keeps a node from being drained.
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{ template "sidecar-injector.metadata" . }}
spec: {maxUnavailable: 1, selector: {matchLabels: {{ template "sidecar-injector.labels" . }}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{ template "sidecar-injector.metadata" . }}
spec:
  maxReplicas: {{ .maxReplicas }}
  minReplicas: {{ .minReplicas }}
  metrics:
  - type: Resource
    resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ .injector }}}
---
# API servers call from the network of their node, which no selector matches: all sources are allowed. They listen on 443
# in most clusters, on 6443 in kubeadm's, on 8443 in minikube's; a policy sees the port behind the Service.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{ template "sidecar-injector.metadata" . }}
spec:
  podSelector: {matchLabels: {{ template "sidecar-injector.labels" . }}}
  policyTypes: [Ingress, Egress]
  ingress:
  - ports: [{port: {{ .httpsPort }}, protocol: TCP}, {port: {{ .monitoringPort }}, protocol: TCP}]
  egress:
  - ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
  - ports: [{port: 443, protocol: TCP}, {port: 6443, protocol: TCP}, {port: 8443, protocol: TCP}]
---
{{- if .validatingPolicy }}
# A pod that still has `image: auto` was not injected: it is rejected with the reasons instead of failing to pull that
# image. For CEL, image is optional, and initContainers are absent in most pods.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: {{ .injector }}-image-auto, labels: {{ template "sidecar-injector.labels" . }}}
spec:
  failurePolicy: Fail
  # Defaults are written out here and in fieldRef: applying them again changes nothing.
  matchConstraints:
    matchPolicy: Equivalent
    namespaceSelector: {}
    objectSelector: {}
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods], scope: "*"}
  validations:
  - expression: object.spec.containers{{ template "sidecar-injector.none-left" }}
    message: |-
      {{ template "sidecar-injector.message" }}
    reason: Invalid
  - expression: "!has(object.spec.initContainers) || object.spec.initContainers{{ template "sidecar-injector.none-left" }}"
    message: |-
      {{ template "sidecar-injector.message" }}
    reason: Invalid
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: {{ .injector }}-image-auto, labels: {{ template "sidecar-injector.labels" . }}}
spec: {policyName: {{ .injector }}-image-auto, validationActions: [Deny]}
---
{{- end }}
# Without `caBundle`: applying it again keeps what the injector has written.
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata:
  name: {{ .injector }}
  labels: {{ template "sidecar-injector.labels" . }}
  {{- if .certManager }}
  annotations: {cert-manager.io/inject-ca-from: {{ .namespace }}/{{ .injector }}}
  {{- end }}
webhooks:
{{- range .webhooks }}
- name: {{ .name }}
  namespaceSelector: {{ toJson .namespaceSelector }}
  objectSelector: {{ toJson .objectSelector }}
  admissionReviewVersions: [v1, v1beta1]
  clientConfig: {service: {name: {{ $.injector }}, namespace: {{ quote $.namespace }}, path: /inject, port: 443}}
  failurePolicy: {{ $.failurePolicy }}
  matchPolicy: Equivalent
  reinvocationPolicy: IfNeeded
  rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods], scope: "*"}
  sideEffects: None
  timeoutSeconds: 10
{{- end }}
{{- end }}
{{- define "sidecar-injector.installation" }}
{{- $revision := .Values.revision | default "" }}
{{- if and (eq $revision "") (not .Values.replaceIstiod) }}
{{- fail "revision is missing: without one the objects have the names of istiod's and overwrite them: set revision, or replaceIstiod=true" }}
{{- end }}
{{- if not .Values.image }}{{ fail "image is missing: the injector's image, as the nodes pull it" }}{{ end }}
{{- if not .Values.initImage }}{{ fail "initImage is missing: the init container's image, as the nodes pull it" }}{{ end }}
{{- $injector := printf "istio-sidecar-injector%s" (ternary "" (printf "-%s" $revision) (eq $revision "")) }}
{{- $webhooks := fromJson "{\"default\":[{\"name\":\"rev.namespace.sidecar-injector.istio.io\",\"namespaceSelector\":{\"matchExpressions\":[{\"key\":\"istio.io/rev\",\"operator\":\"In\",\"values\":[\"default\"]},{\"key\":\"istio-injection\",\"operator\":\"DoesNotExist\"},{\"key\":\"kubernetes.io/metadata.name\",\"operator\":\"NotIn\",\"values\":[\"kube-system\",\"kube-public\",\"kube-node-lease\",\"local-path-storage\",\"@NAMESPACE\"]}]},\"objectSelector\":{\"matchExpressions\":[{\"key\":\"sidecar.istio.io/inject\",\"operator\":\"NotIn\",\"values\":[\"false\"]}]}},{\"name\":\"rev.object.sidecar-injector.istio.io\",\"namespaceSelector\":{\"matchExpressions\":[{\"key\":\"istio-injection\",\"operator\":\"DoesNotExist\"},{\"key\":\"istio.io/rev\",\"operator\":\"DoesNotExist\"},{\"key\":\"kubernetes.io/metadata.name\",\"operator\":\"NotIn\",\"values\":[\"kube-system\",\"kube-public\",\"kube-node-lease\",\"local-path-storage\",\"@NAMESPACE\"]}]},\"objectSelector\":{\"matchExpressions\":[{\"key\":\"sidecar.istio.io/inject\",\"operator\":\"NotIn\",\"values\":[\"false\"]},{\"key\":\"istio.io/rev\",\"operator\":\"In\",\"values\":[\"default\"]}]}},{\"name\":\"namespace.sidecar-injector.istio.io\",\"namespaceSelector\":{\"matchExpressions\":[{\"key\":\"istio-injection\",\"operator\":\"In\",\"values\":[\"enabled\"]},{\"key\":\"kubernetes.io/metadata.name\",\"operator\":\"NotIn\",\"values\":[\"kube-system\",\"kube-public\",\"kube-node-lease\",\"local-path-storage\",\"@NAMESPACE\"]}]},\"objectSelector\":{\"matchExpressions\":[{\"key\":\"sidecar.istio.io/inject\",\"operator\":\"NotIn\",\"values\":[\"false\"]}]}},{\"name\":\"object.sidecar-injector.istio.io\",\"namespaceSelector\":{\"matchExpressions\":[{\"key\":\"istio-injection\",\"operator\":\"DoesNotExist\"},{\"key\":\"istio.io/rev\",\"operator\":\"DoesNotExist\"},{\"key\":\"kubernetes.io/metadata.name\",\"operator\":\"NotIn\",\"values\":[\"kube-system\",\"kube-public\",\"kube-node-lease\",\"local-path-storage\",\"@NAMESPACE\"]}]},\"objectSelector\":{\"matchExpressions\":[{\"key\":\"sidecar.istio.io/inject\",\"operator\":\"In\",\"values\":[\"true\"]},{\"key\":\"istio.io/rev\",\"operator\":\"DoesNotExist\"}]}}],\"all\":[{\"name\":\"rev.namespace.sidecar-injector.istio.io\",\"namespaceSelector\":{\"matchExpressions\":[{\"key\":\"istio.io/rev\",\"operator\":\"In\",\"values\":[\"default\"]},{\"key\":\"istio-injection\",\"operator\":\"DoesNotExist\"},{\"key\":\"kubernetes.io/metadata.name\",\"operator\":\"NotIn\",\"values\":[\"kube-system\",\"kube-public\",\"kube-node-lease\",\"local-path-storage\",\"@NAMESPACE\"]}]},\"objectSelector\":{\"matchExpressions\":[{\"key\":\"sidecar.istio.io/inject\",\"operator\":\"NotIn\",\"values\":[\"false\"]}]}},{\"name\":\"rev.object.sidecar-injector.istio.io\",\"namespaceSelector\":{\"matchExpressions\":[{\"key\":\"istio-injection\",\"operator\":\"DoesNotExist\"},{\"key\":\"istio.io/rev\",\"operator\":\"DoesNotExist\"},{\"key\":\"kubernetes.io/metadata.name\",\"operator\":\"NotIn\",\"values\":[\"kube-system\",\"kube-public\",\"kube-node-lease\",\"local-path-storage\",\"@NAMESPACE\"]}]},\"objectSelector\":{\"matchExpressions\":[{\"key\":\"sidecar.istio.io/inject\",\"operator\":\"NotIn\",\"values\":[\"false\"]},{\"key\":\"istio.io/rev\",\"operator\":\"In\",\"values\":[\"default\"]}]}},{\"name\":\"namespace.sidecar-injector.istio.io\",\"namespaceSelector\":{\"matchExpressions\":[{\"key\":\"istio-injection\",\"operator\":\"In\",\"values\":[\"enabled\"]},{\"key\":\"kubernetes.io/metadata.name\",\"operator\":\"NotIn\",\"values\":[\"kube-system\",\"kube-public\",\"kube-node-lease\",\"local-path-storage\",\"@NAMESPACE\"]}]},\"objectSelector\":{\"matchExpressions\":[{\"key\":\"sidecar.istio.io/inject\",\"operator\":\"NotIn\",\"values\":[\"false\"]}]}},{\"name\":\"object.sidecar-injector.istio.io\",\"namespaceSelector\":{\"matchExpressions\":[{\"key\":\"istio-injection\",\"operator\":\"DoesNotExist\"},{\"key\":\"istio.io/rev\",\"operator\":\"DoesNotExist\"},{\"key\":\"kubernetes.io/metadata.name\",\"operator\":\"NotIn\",\"values\":[\"kube-system\",\"kube-public\",\"kube-node-lease\",\"local-path-storage\",\"@NAMESPACE\"]}]},\"objectSelector\":{\"matchExpressions\":[{\"key\":\"sidecar.istio.io/inject\",\"operator\":\"In\",\"values\":[\"true\"]},{\"key\":\"istio.io/rev\",\"operator\":\"DoesNotExist\"}]}},{\"name\":\"auto.sidecar-injector.istio.io\",\"namespaceSelector\":{\"matchExpressions\":[{\"key\":\"istio-injection\",\"operator\":\"DoesNotExist\"},{\"key\":\"istio.io/rev\",\"operator\":\"DoesNotExist\"},{\"key\":\"kubernetes.io/metadata.name\",\"operator\":\"NotIn\",\"values\":[\"kube-system\",\"kube-public\",\"kube-node-lease\",\"local-path-storage\",\"@NAMESPACE\"]}]},\"objectSelector\":{\"matchExpressions\":[{\"key\":\"sidecar.istio.io/inject\",\"operator\":\"DoesNotExist\"},{\"key\":\"istio.io/rev\",\"operator\":\"DoesNotExist\"}]}}],\"revision\":[{\"name\":\"rev.namespace.sidecar-injector.istio.io\",\"namespaceSelector\":{\"matchExpressions\":[{\"key\":\"istio.io/rev\",\"operator\":\"In\",\"values\":[\"@REVISION\"]},{\"key\":\"istio-injection\",\"operator\":\"DoesNotExist\"},{\"key\":\"kubernetes.io/metadata.name\",\"operator\":\"NotIn\",\"values\":[\"kube-system\",\"kube-public\",\"kube-node-lease\",\"local-path-storage\",\"@NAMESPACE\"]}]},\"objectSelector\":{\"matchExpressions\":[{\"key\":\"sidecar.istio.io/inject\",\"operator\":\"NotIn\",\"values\":[\"false\"]}]}},{\"name\":\"rev.object.sidecar-injector.istio.io\",\"namespaceSelector\":{\"matchExpressions\":[{\"key\":\"istio-injection\",\"operator\":\"DoesNotExist\"},{\"key\":\"istio.io/rev\",\"operator\":\"DoesNotExist\"},{\"key\":\"kubernetes.io/metadata.name\",\"operator\":\"NotIn\",\"values\":[\"kube-system\",\"kube-public\",\"kube-node-lease\",\"local-path-storage\",\"@NAMESPACE\"]}]},\"objectSelector\":{\"matchExpressions\":[{\"key\":\"sidecar.istio.io/inject\",\"operator\":\"NotIn\",\"values\":[\"false\"]},{\"key\":\"istio.io/rev\",\"operator\":\"In\",\"values\":[\"@REVISION\"]}]}}]}" }}
{{- $hooks := get $webhooks (ternary (ternary "all" "default" (.Values.enableNamespacesByDefault | default false)) "revision" (eq $revision "")) }}
{{- $hooks = $hooks | toJson | replace "@REVISION" $revision | replace "@NAMESPACE" .Release.Namespace }}
{{- $values := mergeOverwrite (fromJson "{\"revision\":\"\",\"pilot\":{\"cni\":{\"enabled\":false,\"provider\":\"default\",\"captureAnnotation\":true},\"env\":{}},\"gateways\":{\"seccompProfile\":{\"type\":\"RuntimeDefault\"},\"securityContext\":{}},\"sidecarInjectorWebhook\":{\"rewriteAppHTTPProbe\":true,\"enableNamespacesByDefault\":false,\"uninjectAnnotation\":true},\"global\":{\"hub\":\"docker.io/istio\",\"tag\":\"1.28.0\",\"variant\":\"\",\"imagePullPolicy\":\"\",\"imagePullSecrets\":[],\"istioNamespace\":\"istio-system\",\"network\":\"\",\"meshID\":\"\",\"multiCluster\":{\"clusterName\":\"\"},\"caAddress\":\"\",\"caName\":\"\",\"pilotCertProvider\":\"istiod\",\"mountMtlsCerts\":false,\"nativeNftables\":false,\"logAsJson\":false,\"logging\":{\"level\":\"default:info\"},\"sds\":{\"token\":{\"aud\":\"istio-ca\"}},\"sts\":{\"servicePort\":0},\"platform\":\"\",\"priorityClassName\":\"\",\"proxy\":{\"image\":\"proxyv2\",\"clusterDomain\":\"cluster.local\",\"logLevel\":\"warning\",\"componentLogLevel\":\"misc:error\",\"includeIPRanges\":\"*\",\"excludeIPRanges\":\"\",\"includeInboundPorts\":\"*\",\"excludeInboundPorts\":\"\",\"includeOutboundPorts\":\"\",\"excludeOutboundPorts\":\"\",\"holdApplicationUntilProxyStarts\":false,\"outlierLogPath\":\"\",\"privileged\":false,\"capNetBindService\":\"false\",\"seccompProfile\":{\"type\":\"RuntimeDefault\"},\"statusPort\":15020,\"tracer\":\"none\",\"startupProbe\":{\"enabled\":true,\"failureThreshold\":600},\"readinessInitialDelaySeconds\":0,\"readinessPeriodSeconds\":15,\"readinessFailureThreshold\":4,\"resources\":{\"requests\":{\"cpu\":\"100m\",\"memory\":\"128Mi\"},\"limits\":{\"cpu\":\"2\",\"memory\":\"1Gi\"}}},\"waypoint\":{\"resources\":{},\"affinity\":{},\"topologySpreadConstraints\":[],\"nodeSelector\":{},\"tolerations\":[]},\"proxy_init\":{\"forceApplyIptables\":false,\"image\":\"localhost/istio-iptables:0.1.0\"}}}") (.Values.values | default dict) }}
{{- $values = mergeOverwrite $values (dict "global" (dict "proxy_init" (dict "image" .Values.initImage))) }}
{{- $mesh := "# The default mesh config, with all defaults written out.\ntrustDomain: cluster.local\nrootNamespace: istio-system\nenablePrometheusMerge: true\ndefaultConfig:\n  discoveryAddress: istiod.istio-system.svc:15012\n" }}
{{- with .Values.meshConfig }}{{ $mesh = toJson . }}{{ end }}
{{- $texts := dict "config" (.Values.config | default "# The default injector config: templates for a sidecar and a gateway. They treat every value as Istio's\n# templates do.\npolicy: enabled\ndefaultTemplates: [sidecar]\nalwaysInjectSelector: []\nneverInjectSelector: []\ninjectedAnnotations: {}\ntemplates:\n  sidecar: |\n    {{- define \"env\" }}\n        - {name: PILOT_CERT_PROVIDER, value: {{ .Values.global.pilotCertProvider | quote }}}\n        - name: CA_ADDR\n          {{- if .Values.global.caAddress }}\n          value: {{ .Values.global.caAddress | quote }}\n          {{- else if or .Values.revision (ne .Values.global.istioNamespace \"istio-system\") }}\n          value: istiod{{ with .Values.revision }}-{{ . }}{{ end }}.{{ .Values.global.istioNamespace }}.svc:15012\n          {{- else }}\n          value: {{ .ProxyConfig.DiscoveryAddress | quote }}\n          {{- end }}\n        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}\n        - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}\n        - {name: INSTANCE_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}\n        - {name: SERVICE_ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}\n        - {name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}\n        - {name: ISTIO_META_NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}\n        - {name: ISTIO_CPU_LIMIT, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: \"1\"}}}\n        - {name: GOMEMLIMIT, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: \"1\"}}}\n        - name: PROXY_CONFIG\n          value: |\n            {{ protoToJSON .ProxyConfig }}\n        - name: ISTIO_META_POD_PORTS\n          value: |-\n            [\n            {{- $separator := \"\" }}\n            {{- range .Spec.Containers }}{{ range .Ports }}\n                {{ $separator }}{{ structToJSON . }}{{ $separator = \",\" }}\n            {{- end }}{{ end }}\n            ]\n        {{- with .CompliancePolicy }}\n        - {name: COMPLIANCE_POLICY, value: {{ . | quote }}}\n        {{- if eq . \"fips-140-3\" }}\n        - {name: GODEBUG, value: \"fips140=only\"}\n        {{- end }}{{ end }}\n        - name: ISTIO_META_CLUSTER_ID\n          value: {{ .Values.global.multiCluster.clusterName | default \"Kubernetes\" | quote }}\n        {{- with .Values.global.network }}\n        - {name: ISTIO_META_NETWORK, value: {{ . | quote }}}\n        {{- end }}\n        {{- if and .TypeMeta.APIVersion .DeploymentMeta.Name }}\n        - name: ISTIO_META_OWNER\n          value: \"kubernetes://apis/{{ .TypeMeta.APIVersion }}/namespaces/{{ .DeploymentMeta.Namespace | default \"default\" }}/{{ toLower .TypeMeta.Kind }}s/{{ .DeploymentMeta.Name }}\"\n        {{- end }}\n        {{- if isset .ObjectMeta.Annotations \"sidecar.istio.io/bootstrapOverride\" }}\n        - {name: ISTIO_BOOTSTRAP_OVERRIDE, value: /etc/istio/custom-bootstrap/custom_bootstrap.json}\n        {{- end }}\n        {{- $domain := .MeshConfig.TrustDomain | default .Values.global.trustDomain }}\n        {{- with .Values.global.meshID | default $domain }}\n        - {name: ISTIO_META_MESH_ID, value: {{ . | quote }}}\n        {{- end }}\n        {{- with $domain }}\n        - {name: TRUST_DOMAIN, value: {{ . | quote }}}\n        {{- end }}\n    {{- end }}\n\n    {{- define \"metadata\" }}\n        {{- range $name, $value := .ProxyConfig.ProxyMetadata }}\n        - {name: {{ $name | quote }}, value: {{ $value | quote }}}\n        {{- end }}\n    {{- end }}\n\n    {{- define \"mounts\" }}\n        - {name: workload-socket, mountPath: /var/run/secrets/workload-spiffe-uds}\n        - {name: credential-socket, mountPath: /var/run/secrets/credential-uds}\n        {{- if eq .Values.global.caName \"GkeWorkloadCertificate\" }}\n        - {name: gke-workload-certificate, mountPath: /var/run/secrets/workload-spiffe-credentials, readOnly: true}\n        {{- else }}\n        - {name: workload-certs, mountPath: /var/run/secrets/workload-spiffe-credentials}\n        {{- end }}\n        {{- if eq .Values.global.pilotCertProvider \"istiod\" }}\n        - {name: istiod-ca-cert, mountPath: /var/run/secrets/istio}\n        {{- end }}\n        - {name: istio-data, mountPath: /var/lib/istio/data}\n        {{- if isset .ObjectMeta.Annotations \"sidecar.istio.io/bootstrapOverride\" }}\n        - {name: custom-bootstrap-volume, mountPath: /etc/istio/custom-bootstrap}\n        {{- end }}\n        - {name: istio-envoy, mountPath: /etc/istio/proxy}\n        - {name: istio-token, mountPath: /var/run/secrets/tokens}\n        {{- if .Values.global.mountMtlsCerts }}\n        - {name: istio-certs, mountPath: /etc/certs/, readOnly: true}\n        {{- end }}\n        - {name: istio-podinfo, mountPath: /etc/istio/pod}\n    {{- end }}\n\n    {{- define \"volumes\" }}\n      - {name: workload-socket, emptyDir: {}}\n      - {name: credential-socket, emptyDir: {}}\n      {{- if eq .Values.global.caName \"GkeWorkloadCertificate\" }}\n      - {name: gke-workload-certificate, csi: {driver: workloadcertificates.security.cloud.google.com}}\n      {{- else }}\n      - {name: workload-certs, emptyDir: {}}\n      {{- end }}\n      {{- with index .ObjectMeta.Annotations \"sidecar.istio.io/bootstrapOverride\" }}\n      - {name: custom-bootstrap-volume, configMap: {name: {{ . | quote }}}}\n      {{- end }}\n      - {name: istio-envoy, emptyDir: {medium: Memory}}\n      - {name: istio-data, emptyDir: {}}\n      - name: istio-podinfo\n        downwardAPI:\n          items:\n          - {path: labels, fieldRef: {fieldPath: metadata.labels}}\n          - {path: annotations, fieldRef: {fieldPath: metadata.annotations}}\n      - name: istio-token\n        projected:\n          sources:\n          - serviceAccountToken: {path: istio-token, expirationSeconds: 43200, audience: {{ .Values.global.sds.token.aud | quote }}}\n      {{- if eq .Values.global.pilotCertProvider \"istiod\" }}\n      - name: istiod-ca-cert\n        {{- if eq (.Values.pilot.env).ENABLE_CLUSTER_TRUST_BUNDLE_API true }}\n        projected:\n          sources:\n          - clusterTrustBundle: {name: \"istio.io:istiod-ca:{{ .Values.global.trustBundleName | default \"root-cert\" }}\", path: root-cert.pem}\n        {{- else }}\n        configMap: {name: {{ .Values.global.trustBundleName | default \"istio-ca-root-cert\" | quote }}}\n        {{- end }}\n      {{- end }}\n      {{- if .Values.global.mountMtlsCerts }}\n      - {name: istio-certs, secret: {optional: true, secretName: {{ printf \"istio.%s\" (.Spec.ServiceAccountName | default \"default\") | quote }}}}\n      {{- end }}\n    {{- end }}\n\n    {{- define \"pullSecrets\" }}\n      {{- with .Values.global.imagePullSecrets }}\n      imagePullSecrets:\n      {{- range . }}\n      - name: {{ . | quote }}\n      {{- end }}\n      {{- end }}\n    {{- end }}\n\n    {{- $apps := list }}\n    {{- range .Spec.Containers }}{{ if ne .Name \"istio-proxy\" }}{{ $apps = append $apps .Name }}{{ end }}{{ end }}\n    {{- $image := index .ObjectMeta.Annotations \"sidecar.istio.io/proxyImage\" }}\n    {{- define \"defaultContainer\" }}\n        {{- range $key := list \"kubectl.kubernetes.io/default-logs-container\" \"kubectl.kubernetes.io/default-container\" }}\n        {{ $key }}: {{ ternary (index $.pod $key) (index $.apps 0) (isset $.pod $key) | quote }}\n        {{- end }}\n    {{- end }}\n    {{- define \"logArgs\" }}\n        - $(POD_NAMESPACE).svc.{{ .Values.global.proxy.clusterDomain }}\n        - {{ printf \"--proxyLogLevel=%s\" (annotation .ObjectMeta \"sidecar.istio.io/logLevel\" .Values.global.proxy.logLevel) | quote }}\n        - {{ printf \"--proxyComponentLogLevel=%s\" (annotation .ObjectMeta \"sidecar.istio.io/componentLogLevel\" .Values.global.proxy.componentLogLevel) | quote }}\n        - {{ printf \"--log_output_level=%s\" (annotation .ObjectMeta \"sidecar.istio.io/agentLogLevel\" .Values.global.logging.level) | quote }}\n        {{- with .Values.global.sts.servicePort }}\n        - --stsPort={{ . }}\n        {{- end }}\n        {{- if .Values.global.logAsJson }}\n        - --log_as_json\n        {{- end }}\n    {{- end }}\n    {{- define \"resources\" }}\n    {{- $own := dict }}\n    {{- range $kind, $keys := dict \"requests\" (dict \"cpu\" \"proxyCPU\" \"memory\" \"proxyMemory\") \"limits\" (dict \"cpu\" \"proxyCPULimit\" \"memory\" \"proxyMemoryLimit\") }}\n    {{- range $resource, $key := $keys }}\n    {{- with index $.ObjectMeta.Annotations (printf \"sidecar.istio.io/%s\" $key) }}\n    {{- $_ := set $own $kind (set (get $own $kind | default dict) $resource .) }}\n    {{- end }}{{ end }}{{ end }}\n    {{- toYaml ($own | default (omitNil .Values.global.proxy.resources)) | nindent 10 }}\n    {{- end }}\n\n    {{- $mode := annotation .ObjectMeta \"sidecar.istio.io/interceptionMode\" .ProxyConfig.InterceptionMode }}\n    {{- $tproxy := eq $mode \"TPROXY\" }}\n    {{- $uid := ternary \"1337\" (.ProxyUID | default \"1337\") $tproxy }}\n    {{- $cni := .Values.pilot.cni.enabled }}\n    {{- $bind := eq (annotation .ObjectMeta \"sidecar.istio.io/capNetBindService\" .Values.global.proxy.capNetBindService) \"true\" }}\n    {{- $trace := eq (index .ProxyConfig.ProxyMetadata \"IPTABLES_TRACE_LOGGING\") \"true\" }}\n    {{- $root := or $tproxy $bind $trace }}\n    {{- $add := list }}\n    {{- if or $tproxy $trace }}{{ $add = append $add \"NET_ADMIN\" }}{{ end }}\n    {{- if and $bind (not $trace) }}{{ $add = append $add \"NET_BIND_SERVICE\" }}{{ end }}\n    {{- $lightstep := and (eq .Values.global.proxy.tracer \"lightstep\") .ProxyConfig.GetTracing.GetTlsSettings }}\n    {{- $native := ne (index .ObjectMeta.Annotations \"sidecar.istio.io/nativeSidecar\" | default (printf \"%t\" .NativeSidecars)) \"false\" }}\n    {{- $statusPort := annotation .ObjectMeta \"status.sidecar.istio.io/port\" .Values.global.proxy.statusPort }}\n    {{- $excludeInbound := excludeInboundPort $statusPort (annotation .ObjectMeta \"traffic.sidecar.istio.io/excludeInboundPorts\" .Values.global.proxy.excludeInboundPorts) }}\n    metadata:\n      labels:\n        security.istio.io/tlsMode: {{ index .ObjectMeta.Labels \"security.istio.io/tlsMode\" | default \"istio\" | quote }}\n        {{- if eq (index .ProxyConfig.ProxyMetadata \"ISTIO_META_ENABLE_HBONE\") \"true\" }}\n        networking.istio.io/tunnel: {{ index .ObjectMeta.Labels \"networking.istio.io/tunnel\" | default \"http\" | quote }}\n        {{- end }}\n        service.istio.io/canonical-name: {{ index .ObjectMeta.Labels \"service.istio.io/canonical-name\" | default (index .ObjectMeta.Labels \"app.kubernetes.io/name\") | default (index .ObjectMeta.Labels \"app\") | default .DeploymentMeta.Name | trunc 63 | trimAll \"-_.\" | quote }}\n        service.istio.io/canonical-revision: {{ index .ObjectMeta.Labels \"service.istio.io/canonical-revision\" | default (index .ObjectMeta.Labels \"app.kubernetes.io/version\") | default (index .ObjectMeta.Labels \"version\") | default \"latest\" | quote }}\n      annotations:\n        istio.io/rev: {{ .Revision | default \"default\" | quote }}\n        {{- if $apps }}{{ template \"defaultContainer\" (dict \"apps\" $apps \"pod\" .ObjectMeta.Annotations) }}{{ end }}\n        {{- if $cni }}\n        {{- if eq .Values.pilot.cni.provider \"multus\" }}\n        k8s.v1.cni.cncf.io/networks: {{ appendMultusNetwork (index .ObjectMeta.Annotations \"k8s.v1.cni.cncf.io/networks\") \"default/istio-cni\" | quote }}\n        {{- end }}\n        sidecar.istio.io/interceptionMode: {{ $mode | quote }}\n        traffic.sidecar.istio.io/includeInboundPorts: {{ annotation .ObjectMeta \"traffic.sidecar.istio.io/includeInboundPorts\" .Values.global.proxy.includeInboundPorts | quote }}\n        traffic.sidecar.istio.io/excludeInboundPorts: {{ $excludeInbound | quote }}\n        {{- range $key, $value := dict \"includeOutboundIPRanges\" .Values.global.proxy.includeIPRanges \"excludeOutboundIPRanges\" .Values.global.proxy.excludeIPRanges \"includeOutboundPorts\" .Values.global.proxy.includeOutboundPorts \"excludeOutboundPorts\" .Values.global.proxy.excludeOutboundPorts }}\n        {{- $key = printf \"traffic.sidecar.istio.io/%s\" $key }}\n        {{- with annotation $.ObjectMeta $key $value }}\n        {{ $key }}: {{ . | quote }}\n        {{- end }}{{ end }}\n        {{- end }}\n    spec:\n      initContainers:\n    {{- if ne $mode \"NONE\" }}\n      - name: {{ ternary \"istio-validation\" \"istio-init\" $cni }}\n        image: {{ ternary $image .ProxyInitImage (contains \"/\" $image) | quote }}\n        {{- with .Values.global.imagePullPolicy }}\n        imagePullPolicy: {{ . | quote }}\n        {{- end }}\n        args:\n        - istio-iptables\n        - -p\n        - {{ .MeshConfig.ProxyListenPort | default \"15001\" | quote }}\n        - -z\n        - {{ .MeshConfig.ProxyInboundListenPort | default \"15006\" | quote }}\n        - -u\n        - {{ $uid | quote }}\n        - -m\n        - {{ $mode | quote }}\n        - -i\n        - {{ annotation .ObjectMeta \"traffic.sidecar.istio.io/includeOutboundIPRanges\" .Values.global.proxy.includeIPRanges | quote }}\n        - -x\n        - {{ annotation .ObjectMeta \"traffic.sidecar.istio.io/excludeOutboundIPRanges\" .Values.global.proxy.excludeIPRanges | quote }}\n        - -b\n        - {{ annotation .ObjectMeta \"traffic.sidecar.istio.io/includeInboundPorts\" .Values.global.proxy.includeInboundPorts | quote }}\n        - -d\n        - \"15090,15021{{ with $excludeInbound }},{{ . }}{{ end }}\"\n        {{- with annotation .ObjectMeta \"traffic.sidecar.istio.io/includeOutboundPorts\" .Values.global.proxy.includeOutboundPorts }}\n        - -q\n        - {{ . | quote }}\n        {{- end }}\n        {{- with annotation .ObjectMeta \"traffic.sidecar.istio.io/excludeOutboundPorts\" .Values.global.proxy.excludeOutboundPorts }}\n        - -o\n        - {{ . | quote }}\n        {{- end }}\n        {{- with index .ObjectMeta.Annotations \"istio.io/reroute-virtual-interfaces\" | default (index .ObjectMeta.Annotations \"traffic.sidecar.istio.io/kubevirtInterfaces\") }}\n        - -k\n        - {{ . | quote }}\n        {{- end }}\n        {{- with index .ObjectMeta.Annotations \"traffic.sidecar.istio.io/excludeInterfaces\" }}\n        - -c\n        - {{ . | quote }}\n        {{- end }}\n        - {{ printf \"--log_output_level=%s\" (annotation .ObjectMeta \"sidecar.istio.io/agentLogLevel\" .Values.global.logging.level) | quote }}\n        {{- if .Values.global.logAsJson }}\n        - --log_as_json\n        {{- end }}\n        {{- if $cni }}\n        - --run-validation\n        - --skip-rule-apply\n        {{- else if .Values.global.proxy_init.forceApplyIptables }}\n        - --force-apply\n        {{- end }}\n        {{- if .Values.global.nativeNftables }}\n        - --native-nftables\n        {{- end }}\n        env: {{ template \"metadata\" . }}\n        resources: {{ template \"resources\" . }}\n        securityContext:\n          allowPrivilegeEscalation: {{ .Values.global.proxy.privileged }}\n          capabilities: {drop: [ALL]{{ if not $cni }}, add: [NET_ADMIN, NET_RAW]{{ end }}}\n          privileged: {{ .Values.global.proxy.privileged }}\n          readOnlyRootFilesystem: {{ $cni }}\n          runAsUser: {{ if $cni }}{{ $uid }}{{ else }}0{{ end }}\n          runAsGroup: {{ if not $cni }}0{{ else if $tproxy }}1337{{ else }}{{ .ProxyGID | default \"1337\" }}{{ end }}\n          runAsNonRoot: {{ $cni }}\n          {{- with .Values.global.proxy.seccompProfile }}\n          seccompProfile: {{ toJson . }}\n          {{- end }}\n    {{- end }}\n    {{- if not $native }}\n      containers:\n    {{- end }}\n      - name: istio-proxy\n        image: {{ ternary $image .ProxyImage (contains \"/\" $image) | quote }}\n        {{- with .Values.global.imagePullPolicy }}\n        imagePullPolicy: {{ . | quote }}\n        {{- end }}\n        {{- if $native }}\n        restartPolicy: Always\n        {{- end }}\n        args:\n        - proxy\n        - sidecar\n        - --domain {{- template \"logArgs\" . }}\n        {{- with .Values.global.proxy.outlierLogPath }}\n        - --outlierLogPath={{ . }}\n        {{- end }}\n        env: {{- template \"env\" . }}\n        {{- if eq .InboundTrafficPolicyMode \"localhost\" }}\n        - {name: REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION, value: \"true\"}\n        {{- end }}\n        - {name: ISTIO_META_APP_CONTAINERS, value: {{ join \",\" $apps | quote }}}\n        - {name: ISTIO_META_INTERCEPTION_MODE, value: {{ $mode | quote }}}\n        {{- with index .ObjectMeta.Labels \"service.istio.io/workload-name\" | default .DeploymentMeta.Name }}\n        - {name: ISTIO_META_WORKLOAD_NAME, value: {{ . | quote }}}\n        {{- end }}\n        {{- if and (eq .Values.global.proxy.tracer \"datadog\") (isset .ObjectMeta.Annotations \"apm.datadoghq.com/env\") }}\n        {{- range $name, $value := fromJSON (index .ObjectMeta.Annotations \"apm.datadoghq.com/env\") }}\n        - {name: {{ $name | quote }}, value: {{ $value | quote }}}\n        {{- end }}{{ end }}\n        {{- with otelResourceAttributes .MeshConfig .ObjectMeta.Annotations .ObjectMeta.Labels .DeploymentMeta.Namespace .Spec.Containers }}\n        - {name: OTEL_RESOURCE_ATTRIBUTES, value: {{ . | quote }}}\n        {{- end }}\n        {{- template \"metadata\" . }}\n        ports:\n        - {name: http-envoy-prom, containerPort: 15090, protocol: TCP}\n        lifecycle:\n        {{- if .Values.global.proxy.lifecycle }} {{ toJson .Values.global.proxy.lifecycle }}\n        {{- else if $native }}\n          preStop: {exec: {command: [pilot-agent, request, \"--debug-port={{ $statusPort }}\", POST, drain]}}\n        {{- else if or .ProxyConfig.HoldApplicationUntilProxyStarts.GetValue .Values.global.proxy.holdApplicationUntilProxyStarts }}\n          postStart: {exec: {command: [pilot-agent, wait]}}\n        {{- else }} {}\n        {{- end }}\n        {{- if ne $statusPort \"0\" }}\n        {{- if .Values.global.proxy.startupProbe.enabled }}\n        startupProbe:\n          httpGet: {path: /healthz/ready, port: 15021}\n          periodSeconds: 1\n          timeoutSeconds: 3\n          failureThreshold: {{ .Values.global.proxy.startupProbe.failureThreshold }}\n        {{- end }}\n        readinessProbe:\n          httpGet: {path: /healthz/ready, port: 15021}\n          initialDelaySeconds: {{ annotation .ObjectMeta \"readiness.status.sidecar.istio.io/initialDelaySeconds\" .Values.global.proxy.readinessInitialDelaySeconds }}\n          periodSeconds: {{ annotation .ObjectMeta \"readiness.status.sidecar.istio.io/periodSeconds\" .Values.global.proxy.readinessPeriodSeconds }}\n          failureThreshold: {{ annotation .ObjectMeta \"readiness.status.sidecar.istio.io/failureThreshold\" .Values.global.proxy.readinessFailureThreshold }}\n          timeoutSeconds: 3\n        {{- end }}\n        resources: {{ template \"resources\" . }}\n        securityContext:\n          allowPrivilegeEscalation: {{ or $trace .Values.global.proxy.privileged }}\n          capabilities: {drop: [ALL]{{ with $add }}, add: [{{ join \", \" . }}]{{ end }}}\n          privileged: {{ or $trace .Values.global.proxy.privileged }}\n          readOnlyRootFilesystem: true\n          runAsUser: {{ if $root }}0{{ else }}{{ .ProxyUID | default \"1337\" }}{{ end }}\n          runAsGroup: {{ if and $root (not $trace) }}1337{{ else }}{{ .ProxyGID | default \"1337\" }}{{ end }}\n          runAsNonRoot: {{ not $root }}\n          {{- with .Values.global.proxy.seccompProfile }}\n          seccompProfile: {{ toJson . }}\n          {{- end }}\n        volumeMounts: {{- template \"mounts\" . }}\n        {{- if eq .Values.global.pilotCertProvider \"istiod\" }}\n        - {name: istio-ca-crl, mountPath: /var/run/secrets/istio/crl}\n        {{- end }}\n        {{- if $lightstep }}\n        - {name: lightstep-certs, mountPath: {{ directory .ProxyConfig.GetTracing.GetTlsSettings.GetCaCertificates | quote }}, readOnly: true}\n        {{- end }}\n        {{- with index .ObjectMeta.Annotations \"sidecar.istio.io/userVolumeMount\" }}\n        {{- range $name, $mount := fromJSON . }}\n        - {{ set $mount \"name\" ($mount.name | default $name) | toJson }}\n        {{- end }}{{ end }}\n      volumes: {{- template \"volumes\" . }}\n      - {name: istio-ca-crl, configMap: {optional: true, name: {{ .Values.pilot.crlConfigMapName | default \"istio-ca-crl\" | quote }}}}\n      {{- if $lightstep }}\n      - {name: lightstep-certs, secret: {optional: true, secretName: lightstep.cacert}}\n      {{- end }}\n      {{- with index .ObjectMeta.Annotations \"sidecar.istio.io/userVolume\" }}\n      {{- range $name, $source := fromJSON . }}\n      - {{ set $source \"name\" ($source.name | default $name) | toJson }}\n      {{- end }}{{ end }}\n      {{- template \"pullSecrets\" . }}\n  gateway: |\n    {{- define \"env\" }}\n        - {name: PILOT_CERT_PROVIDER, value: {{ .Values.global.pilotCertProvider | quote }}}\n        - name: CA_ADDR\n          {{- if .Values.global.caAddress }}\n          value: {{ .Values.global.caAddress | quote }}\n          {{- else if or .Values.revision (ne .Values.global.istioNamespace \"istio-system\") }}\n          value: istiod{{ with .Values.revision }}-{{ . }}{{ end }}.{{ .Values.global.istioNamespace }}.svc:15012\n          {{- else }}\n          value: {{ .ProxyConfig.DiscoveryAddress | quote }}\n          {{- end }}\n        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}\n        - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}\n        - {name: INSTANCE_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}\n        - {name: SERVICE_ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}\n        - {name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}\n        - {name: ISTIO_META_NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}\n        - {name: ISTIO_CPU_LIMIT, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: \"1\"}}}\n        - {name: GOMEMLIMIT, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: \"1\"}}}\n        - name: PROXY_CONFIG\n          value: |\n            {{ protoToJSON .ProxyConfig }}\n        - name: ISTIO_META_POD_PORTS\n          value: |-\n            [\n            {{- $separator := \"\" }}\n            {{- range .Spec.Containers }}{{ range .Ports }}\n                {{ $separator }}{{ structToJSON . }}{{ $separator = \",\" }}\n            {{- end }}{{ end }}\n            ]\n        {{- with .CompliancePolicy }}\n        - {name: COMPLIANCE_POLICY, value: {{ . | quote }}}\n        {{- if eq . \"fips-140-3\" }}\n        - {name: GODEBUG, value: \"fips140=only\"}\n        {{- end }}{{ end }}\n        - name: ISTIO_META_CLUSTER_ID\n          value: {{ .Values.global.multiCluster.clusterName | default \"Kubernetes\" | quote }}\n        {{- with .Values.global.network }}\n        - {name: ISTIO_META_NETWORK, value: {{ . | quote }}}\n        {{- end }}\n        {{- if and .TypeMeta.APIVersion .DeploymentMeta.Name }}\n        - name: ISTIO_META_OWNER\n          value: \"kubernetes://apis/{{ .TypeMeta.APIVersion }}/namespaces/{{ .DeploymentMeta.Namespace | default \"default\" }}/{{ toLower .TypeMeta.Kind }}s/{{ .DeploymentMeta.Name }}\"\n        {{- end }}\n        {{- if isset .ObjectMeta.Annotations \"sidecar.istio.io/bootstrapOverride\" }}\n        - {name: ISTIO_BOOTSTRAP_OVERRIDE, value: /etc/istio/custom-bootstrap/custom_bootstrap.json}\n        {{- end }}\n        {{- $domain := .MeshConfig.TrustDomain | default .Values.global.trustDomain }}\n        {{- with .Values.global.meshID | default $domain }}\n        - {name: ISTIO_META_MESH_ID, value: {{ . | quote }}}\n        {{- end }}\n        {{- with $domain }}\n        - {name: TRUST_DOMAIN, value: {{ . | quote }}}\n        {{- end }}\n    {{- end }}\n\n    {{- define \"metadata\" }}\n        {{- range $name, $value := .ProxyConfig.ProxyMetadata }}\n        - {name: {{ $name | quote }}, value: {{ $value | quote }}}\n        {{- end }}\n    {{- end }}\n\n    {{- define \"mounts\" }}\n        - {name: workload-socket, mountPath: /var/run/secrets/workload-spiffe-uds}\n        - {name: credential-socket, mountPath: /var/run/secrets/credential-uds}\n        {{- if eq .Values.global.caName \"GkeWorkloadCertificate\" }}\n        - {name: gke-workload-certificate, mountPath: /var/run/secrets/workload-spiffe-credentials, readOnly: true}\n        {{- else }}\n        - {name: workload-certs, mountPath: /var/run/secrets/workload-spiffe-credentials}\n        {{- end }}\n        {{- if eq .Values.global.pilotCertProvider \"istiod\" }}\n        - {name: istiod-ca-cert, mountPath: /var/run/secrets/istio}\n        {{- end }}\n        - {name: istio-data, mountPath: /var/lib/istio/data}\n        {{- if isset .ObjectMeta.Annotations \"sidecar.istio.io/bootstrapOverride\" }}\n        - {name: custom-bootstrap-volume, mountPath: /etc/istio/custom-bootstrap}\n        {{- end }}\n        - {name: istio-envoy, mountPath: /etc/istio/proxy}\n        - {name: istio-token, mountPath: /var/run/secrets/tokens}\n        {{- if .Values.global.mountMtlsCerts }}\n        - {name: istio-certs, mountPath: /etc/certs/, readOnly: true}\n        {{- end }}\n        - {name: istio-podinfo, mountPath: /etc/istio/pod}\n    {{- end }}\n\n    {{- define \"volumes\" }}\n      - {name: workload-socket, emptyDir: {}}\n      - {name: credential-socket, emptyDir: {}}\n      {{- if eq .Values.global.caName \"GkeWorkloadCertificate\" }}\n      - {name: gke-workload-certificate, csi: {driver: workloadcertificates.security.cloud.google.com}}\n      {{- else }}\n      - {name: workload-certs, emptyDir: {}}\n      {{- end }}\n      {{- with index .ObjectMeta.Annotations \"sidecar.istio.io/bootstrapOverride\" }}\n      - {name: custom-bootstrap-volume, configMap: {name: {{ . | quote }}}}\n      {{- end }}\n      - {name: istio-envoy, emptyDir: {medium: Memory}}\n      - {name: istio-data, emptyDir: {}}\n      - name: istio-podinfo\n        downwardAPI:\n          items:\n          - {path: labels, fieldRef: {fieldPath: metadata.labels}}\n          - {path: annotations, fieldRef: {fieldPath: metadata.annotations}}\n      - name: istio-token\n        projected:\n          sources:\n          - serviceAccountToken: {path: istio-token, expirationSeconds: 43200, audience: {{ .Values.global.sds.token.aud | quote }}}\n      {{- if eq .Values.global.pilotCertProvider \"istiod\" }}\n      - name: istiod-ca-cert\n        {{- if eq (.Values.pilot.env).ENABLE_CLUSTER_TRUST_BUNDLE_API true }}\n        projected:\n          sources:\n          - clusterTrustBundle: {name: \"istio.io:istiod-ca:{{ .Values.global.trustBundleName | default \"root-cert\" }}\", path: root-cert.pem}\n        {{- else }}\n        configMap: {name: {{ .Values.global.trustBundleName | default \"istio-ca-root-cert\" | quote }}}\n        {{- end }}\n      {{- end }}\n      {{- if .Values.global.mountMtlsCerts }}\n      - {name: istio-certs, secret: {optional: true, secretName: {{ printf \"istio.%s\" (.Spec.ServiceAccountName | default \"default\") | quote }}}}\n      {{- end }}\n    {{- end }}\n\n    {{- define \"pullSecrets\" }}\n      {{- with .Values.global.imagePullSecrets }}\n      imagePullSecrets:\n      {{- range . }}\n      - name: {{ . | quote }}\n      {{- end }}\n      {{- end }}\n    {{- end }}\n\n    {{- $apps := list }}\n    {{- range .Spec.Containers }}{{ if ne .Name \"istio-proxy\" }}{{ $apps = append $apps .Name }}{{ end }}{{ end }}\n    {{- $image := index .ObjectMeta.Annotations \"sidecar.istio.io/proxyImage\" }}\n    {{- define \"defaultContainer\" }}\n        {{- range $key := list \"kubectl.kubernetes.io/default-logs-container\" \"kubectl.kubernetes.io/default-container\" }}\n        {{ $key }}: {{ ternary (index $.pod $key) (index $.apps 0) (isset $.pod $key) | quote }}\n        {{- end }}\n    {{- end }}\n    {{- define \"logArgs\" }}\n        - $(POD_NAMESPACE).svc.{{ .Values.global.proxy.clusterDomain }}\n        - {{ printf \"--proxyLogLevel=%s\" (annotation .ObjectMeta \"sidecar.istio.io/logLevel\" .Values.global.proxy.logLevel) | quote }}\n        - {{ printf \"--proxyComponentLogLevel=%s\" (annotation .ObjectMeta \"sidecar.istio.io/componentLogLevel\" .Values.global.proxy.componentLogLevel) | quote }}\n        - {{ printf \"--log_output_level=%s\" (annotation .ObjectMeta \"sidecar.istio.io/agentLogLevel\" .Values.global.logging.level) | quote }}\n        {{- with .Values.global.sts.servicePort }}\n        - --stsPort={{ . }}\n        {{- end }}\n        {{- if .Values.global.logAsJson }}\n        - --log_as_json\n        {{- end }}\n    {{- end }}\n    metadata:\n      labels:\n        service.istio.io/canonical-name: {{ index .ObjectMeta.Labels \"service.istio.io/canonical-name\" | default (index .ObjectMeta.Labels \"app.kubernetes.io/name\") | default (index .ObjectMeta.Labels \"app\") | default .DeploymentMeta.Name | quote }}\n        service.istio.io/canonical-revision: {{ index .ObjectMeta.Labels \"service.istio.io/canonical-revision\" | default (index .ObjectMeta.Labels \"app.kubernetes.io/version\") | default (index .ObjectMeta.Labels \"version\") | default \"latest\" | quote }}\n      annotations:\n        istio.io/rev: {{ .Revision | default \"default\" | quote }}\n        {{- if $apps }}{{ template \"defaultContainer\" (dict \"apps\" $apps \"pod\" .ObjectMeta.Annotations) }}{{ end }}\n    spec:\n      securityContext: {{ toJson (.Values.gateways.securityContext | default (dict \"sysctls\" (list (dict \"name\" \"net.ipv4.ip_unprivileged_port_start\" \"value\" \"0\")))) }}\n      containers:\n      - name: istio-proxy\n        image: {{ ternary $image .ProxyImage (contains \"/\" $image) | quote }}\n        {{- with .Values.global.imagePullPolicy }}\n        imagePullPolicy: {{ . | quote }}\n        {{- end }}\n        args:\n        - proxy\n        - router\n        - --domain {{- template \"logArgs\" . }}\n        {{- with .Values.global.proxy.lifecycle }}\n        lifecycle: {{ toJson . }}\n        {{- end }}\n        env: {{- template \"env\" . }}\n        - {name: ISTIO_META_APP_CONTAINERS, value: {{ join \",\" $apps | quote }}}\n        - {name: ISTIO_META_INTERCEPTION_MODE, value: {{ .ProxyConfig.InterceptionMode.String | quote }}}\n        {{- with .DeploymentMeta.Name }}\n        - {name: ISTIO_META_WORKLOAD_NAME, value: {{ . | quote }}}\n        {{- end }}\n        {{- template \"metadata\" . }}\n        ports:\n        - {name: http-envoy-prom, containerPort: 15090, protocol: TCP}\n        readinessProbe:\n          httpGet: {path: /healthz/ready, port: 15021}\n          initialDelaySeconds: {{ .Values.global.proxy.readinessInitialDelaySeconds }}\n          periodSeconds: {{ .Values.global.proxy.readinessPeriodSeconds }}\n          failureThreshold: {{ .Values.global.proxy.readinessFailureThreshold }}\n          timeoutSeconds: 3\n        securityContext:\n          allowPrivilegeEscalation: false\n          capabilities: {drop: [ALL]}\n          privileged: false\n          readOnlyRootFilesystem: true\n          runAsUser: {{ .ProxyUID | default \"1337\" }}\n          runAsGroup: {{ .ProxyGID | default \"1337\" }}\n          runAsNonRoot: true\n          {{- with .Values.gateways.seccompProfile }}\n          seccompProfile: {{ toJson . }}\n          {{- end }}\n        volumeMounts: {{- template \"mounts\" . }}\n      volumes: {{- template \"volumes\" . }}\n      {{- template \"pullSecrets\" . }}\n") "values" (toJson $values) "mesh" $mesh }}
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
