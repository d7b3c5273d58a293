//! What an injection brought in is taken out, and the user's own stays as written or is named.

mod chosen;
mod losses;
mod other_values;
mod own_forms;
mod own_metadata;
mod positions;
mod silence;
mod templates;

use std::sync::LazyLock;

use crate::builtin::{injector, workload};
use serde_json::Value;
use sidecar_injector::config::{Source, Sources};
use sidecar_injector::inject::{InjectionContext, Injector, Options, Request, Uninjected, functions};

/// A template of an operator's own, beside Istio's.
const CUSTOM: &str = r#"
policy: enabled
defaultTemplates: [custom]
templates:
  custom: |
    metadata:
      labels: {team: platform, "istio.io/rev": "{{ .Revision }}"}
      annotations: {cost-center: "7", owner: '{{ index .ObjectMeta.Annotations "owner" | default "platform" }}'}
    spec:
      dnsPolicy: {{ if .Spec.DNSPolicy }}ClusterFirst{{ else }}ClusterFirst{{ end }}
      dnsConfig: {searches: [mesh.local], options: [{name: ndots, value: "2"}]}
      tolerations: [{key: mesh, operator: Exists}]
      hostAliases: [{ip: 10.0.0.1, hostnames: [mesh]}]
      serviceAccountName: mesh
      priorityClassName: null
      securityContext: {fsGroup: 1337}
      imagePullSecrets: [{name: mesh}]
      volumes: [{name: istio-envoy, emptyDir: {medium: Memory}}, {name: own, emptyDir: {}}]
      containers:
      - {name: istio-proxy, image: "proxy:1", args: [proxy], volumeMounts: [{name: istio-envoy, mountPath: /etc/envoy}]}
      - {name: web, env: [{name: MESH, value: "1"}]}
"#;

static INJECTORS: LazyLock<[Injector; 2]> = LazyLock::new(|| {
    let custom = Source { name: "custom".to_owned(), text: CUSTOM.to_owned() };
    let sources = Sources { config: Some(custom), ..Sources::default() };
    let custom = sources.load(&functions(|_| None)).unwrap();
    [injector(), Injector::new(custom, Options::default())]
});

fn injected(injector: &Injector, pod: &Value, context: &InjectionContext) -> Value {
    injector.inject(Request { pod, workload: &workload(), context }).unwrap().pod
}

fn uninjected(injector: &Injector, pod: &Value, context: &InjectionContext) -> Uninjected {
    injector.uninject(Request { pod, workload: &workload(), context }).unwrap().unwrap()
}
