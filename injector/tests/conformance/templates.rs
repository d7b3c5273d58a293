//! Istio's own injection templates: all eight parse, the sidecar and the gateway render.

use gotemplate::{EnumType, Field, Functions, Kind, Limits, Options, Schema, Template, Value};
use serde_json::{Value as Json, json};

static PORT: Schema = Schema {
    name: "v1.ContainerPort",
    proto: false,
    fields: &[
        Field::new("Name", "name", Kind::Str),
        Field::new("HostPort", "hostPort", Kind::Int32),
        Field::new("ContainerPort", "containerPort", Kind::Int32).always(),
        Field::new("Protocol", "protocol", Kind::Str),
        Field::new("HostIP", "hostIP", Kind::Str),
    ],
};

static CONTAINER: Schema = Schema {
    name: "v1.Container",
    proto: false,
    fields: &[
        Field::new("Name", "name", Kind::Str),
        Field::new("Image", "image", Kind::Str),
        Field::new("Ports", "ports", Kind::List(&Kind::Struct(&PORT))),
    ],
};

static SPEC: Schema = Schema {
    name: "v1.PodSpec",
    proto: false,
    fields: &[
        Field::new("Containers", "containers", Kind::List(&Kind::Struct(&CONTAINER))),
        Field::new("ServiceAccountName", "serviceAccountName", Kind::Str),
    ],
};

static META: Schema = Schema {
    name: "v1.ObjectMeta",
    proto: false,
    fields: &[
        Field::new("Name", "name", Kind::Str).from("metadata"),
        Field::new("Namespace", "namespace", Kind::Str).from("metadata"),
        Field::new("Labels", "labels", Kind::Map(&Kind::Str)).from("label"),
        Field::new("Annotations", "annotations", Kind::Map(&Kind::Str)).from("annotation"),
    ],
};

static TYPE_META: Schema = Schema {
    name: "v1.TypeMeta",
    proto: false,
    fields: &[Field::new("Kind", "kind", Kind::Str), Field::new("APIVersion", "apiVersion", Kind::Str)],
};

static MODE: EnumType = EnumType {
    name: "v1alpha1.ProxyConfig_InboundInterceptionMode",
    values: &[("REDIRECT", 0), ("TPROXY", 1), ("NONE", 2)],
};

static TLS: Schema = Schema {
    name: "v1alpha1.ClientTLSSettings",
    proto: true,
    fields: &[Field::new("CaCertificates", "caCertificates", Kind::Str)],
};

static TRACING: Schema = Schema {
    name: "v1alpha1.Tracing",
    proto: true,
    fields: &[Field::new("TlsSettings", "tlsSettings", Kind::Ptr(&Kind::Struct(&TLS)))],
};

static PROXY_CONFIG: Schema = Schema {
    name: "meshconfig.ProxyConfig",
    proto: true,
    fields: &[
        Field::new("DiscoveryAddress", "discoveryAddress", Kind::Str),
        Field::new("DrainDuration", "drainDuration", Kind::Duration),
        Field::new("InterceptionMode", "interceptionMode", Kind::Enum(&MODE)),
        Field::new("Tracing", "tracing", Kind::Ptr(&Kind::Struct(&TRACING))),
        Field::new("ProxyMetadata", "proxyMetadata", Kind::Map(&Kind::Str)),
        Field::new(
            "HoldApplicationUntilProxyStarts",
            "holdApplicationUntilProxyStarts",
            Kind::Wrapper(&Kind::Bool),
        ),
    ],
};

static MESH: Schema = Schema {
    name: "meshconfig.MeshConfig",
    proto: true,
    fields: &[
        Field::new("ProxyListenPort", "proxyListenPort", Kind::Int32),
        Field::new("ProxyInboundListenPort", "proxyInboundListenPort", Kind::Int32),
        Field::new("TrustDomain", "trustDomain", Kind::Str),
    ],
};

fn functions() -> Functions {
    sidecar_injector::inject::functions(|_| None)
}

fn templates() -> Vec<(String, Template)> {
    let config = crate::common::read("inject-config.yaml");
    let functions = functions();
    let all = config["templates"].as_object().unwrap();
    let parse = |(name, text): (&String, &Json)| {
        let text = text.as_str().unwrap();
        (name.clone(), Template::parse(name, text, &functions, Options::default()).unwrap())
    };
    all.iter().map(parse).collect()
}

struct Data {
    pod: Json,
    owner: Json,
    proxy: Json,
    mesh: Json,
    values: Json,
}

fn data(pod: Json, values: Json) -> Data {
    Data {
        pod,
        owner: json!({"kind": "Deployment", "apiVersion": "apps/v1", "name": "app", "namespace": "shop"}),
        proxy: json!({"discoveryAddress": "istiod.istio-system.svc:15012", "proxyMetadata": {"B": "2", "A": "1"}}),
        mesh: json!({"proxyListenPort": 15001, "proxyInboundListenPort": 15006, "trustDomain": "cluster.local"}),
        values,
    }
}

impl Data {
    fn value(&self) -> Value<'_> {
        let text = |text: &'static str| Value::Str(text.into());
        Value::record(
            "inject.SidecarTemplateData",
            vec![
                ("TypeMeta", Value::of_struct(&TYPE_META, self.owner.as_object(), None)),
                ("DeploymentMeta", Value::of_struct(&META, self.owner.as_object(), None)),
                ("ObjectMeta", Value::of_struct(&META, self.pod["metadata"].as_object(), None)),
                ("Spec", Value::of_struct(&SPEC, self.pod["spec"].as_object(), Some("spec"))),
                ("ProxyConfig", Value::of_struct(&PROXY_CONFIG, self.proxy.as_object(), None)),
                ("MeshConfig", Value::of_struct(&MESH, self.mesh.as_object(), None)),
                ("Values", Value::any(&self.values)),
                ("Revision", text("default")),
                ("NativeSidecars", Value::Bool(true)),
                ("ProxyImage", text("istio/proxyv2:1.31")),
                ("ProxyInitImage", text("istio/proxyv2:1.31")),
                ("ProxyUID", Value::Nil),
                ("ProxyGID", Value::Nil),
                ("InboundTrafficPolicyMode", text("PASSTHROUGH")),
                ("CompliancePolicy", text("")),
            ],
        )
    }
}

pub(crate) fn all_eight_templates_parse() {
    let templates = templates();
    let names: Vec<&str> = templates.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "sidecar",
            "gateway",
            "grpc-simple",
            "grpc-agent",
            "waypoint",
            "kube-gateway",
            "agentgateway",
            "agentgateway-waypoint"
        ]
    );
}

pub(crate) fn the_pod_templates_render_to_yaml() {
    let (templates, values) = (templates(), crate::common::read("inject-values.json"));
    let pod = json!({
        "metadata": {"labels": {"app": "shop"}, "annotations": {"sidecar.istio.io/proxyCPU": "100m"}},
        "spec": {"containers": [{"name": "app", "ports": [{"containerPort": 80, "name": "http"}]}]},
    });
    let data = data(pod, values);
    for (name, template) in &templates {
        if !["sidecar", "gateway", "grpc-simple", "grpc-agent"].contains(&name.as_str()) {
            continue;
        }
        let rendered = template.render(data.value(), Limits::default()).unwrap();
        let yaml: Json = sidecar_injector::yaml::read(&rendered.text).unwrap();
        assert!(yaml["spec"].is_object(), "{name}: {}", rendered.text);
        assert!(!rendered.text.contains("<no value>"), "{name}: {}", rendered.text);
        if name == "sidecar" {
            assert!(rendered.text.contains(r#"{"name":"http","containerPort":80}"#), "{}", rendered.text);
            let cpu = rendered.spans.iter().find(|s| s.origin.key == "sidecar.istio.io/proxyCPU").unwrap();
            assert_eq!((cpu.origin.kind, &rendered.text[cpu.start..cpu.end]), ("annotation", "100m"));
        }
    }
}

/// 2,000 environment variables that no template reads cost nothing.
pub(crate) fn a_big_pod_renders_quickly() {
    let (templates, values) = (templates(), crate::common::read("inject-values.json"));
    let env: Vec<Json> =
        (0..2000).map(|i| json!({"name": format!("E{i}"), "value": "x".repeat(50)})).collect();
    let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "app", "env": env}]}});
    let data = data(pod, values);
    let (_, sidecar) = templates.iter().find(|(name, _)| name == "sidecar").unwrap();
    let start = std::time::Instant::now();
    for _ in 0..20 {
        sidecar.render(data.value(), Limits::default()).unwrap();
    }
    let each = start.elapsed() / 20;
    println!("sidecar, 2,000 environment variables: {each:?} each");
    assert!(each.as_millis() < 50, "{each:?}");
}
