//! What an injection does not record is named when it is taken out: nothing is lost in silence.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::builtin::{injector, workload};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};
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

/// Fields of which `after` differs from `before`, each as it is named to the user. Empty maps and lists are
/// none.
fn lost(before: &Value, after: &Value) -> Vec<String> {
    let mut lost = Vec::new();
    for key in ["labels", "annotations"] {
        let of = |pod: &Value| pod["metadata"][key].as_object().cloned().unwrap_or_default();
        let (before, after) = (of(before), of(after));
        let keys = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)));
        let differs = keys.filter(|key| before.get(*key) != after.get(*key));
        // Other spellings of one key are named by it.
        lost.extend(differs.map(|key| {
            key.replace("prometheus/io", "prometheus.io").replace("prometheus_io_", "prometheus.io/")
        }));
    }
    let (before, after) = (&before["spec"], &after["spec"]);
    let keys = |spec: &Value| spec.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut all = keys(before);
    all.extend(keys(after).into_iter().filter(|key| before.get(key).is_none()));
    for key in all {
        match (&before[&key], &after[&key]) {
            (one, other) if without_empty(&json!([one])) == without_empty(&json!([other])) => {}
            (Value::Array(one), Value::Array(other))
                if one.iter().chain(other).any(|item| item.get("name").is_some()) =>
            {
                lost.extend(items(&key, one, other));
            }
            (one, other) => {
                lost.push(if one.is_object() { first_field(&key, one, other) } else { format!("spec.{key}") })
            }
        }
    }
    lost
}

fn first_field(key: &str, one: &Value, other: &Value) -> String {
    let mut fields = one.as_object().unwrap().keys();
    let inner = fields.find(|field| one[*field] != other[*field]);
    inner.map_or_else(|| format!("spec.{key}"), |field| format!("spec.{key}.{field}"))
}

/// Items that differ or moved.
fn items(key: &str, before: &[Value], after: &[Value]) -> Vec<String> {
    let name = |item: &Value| item["name"].as_str().unwrap().to_owned();
    let names = |items: &[Value]| items.iter().map(name).collect::<Vec<_>>();
    let (had, has) = (names(before), names(after));
    let mut lost: Vec<String> = Vec::new();
    for item in before {
        let found = after.iter().find(|other| name(other) == name(item));
        if found.map(without_empty) != Some(without_empty(item)) {
            lost.push(if key.ends_with("ontainers") {
                format!("container {}", name(item))
            } else {
                format!("spec.{key} {}", name(item))
            });
        }
    }
    lost.extend(has.iter().filter(|name| !had.contains(name)).map(|name| {
        if key.ends_with("ontainers") { format!("container {name}") } else { format!("spec.{key} {name}") }
    }));
    // The order of volumes means nothing.
    let own = |names: &[String]| {
        names.iter().filter(|name| !name.starts_with("istio-")).cloned().collect::<Vec<_>>()
    };
    let same = had.iter().all(|name| has.contains(name)) && has.len() == had.len();
    if same && had != has && key.ends_with("ontainers") {
        lost.push(if own(&had) == own(&has) { "container istio-".to_owned() } else { format!("spec.{key}") });
    }
    lost
}

/// Empty lists and maps count as absent.
fn without_empty(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().map(|(key, value)| (key.clone(), without_empty(value)));
            Value::Object(kept.filter(|(_, value)| *value != json!([]) && *value != json!({})).collect())
        }
        Value::Array(items) => {
            let kept = items.iter().map(without_empty);
            Value::Array(
                kept.filter(|value| *value != json!([]) && *value != json!({}) && !value.is_null()).collect(),
            )
        }
        other => other.clone(),
    }
}

/// As the API server stores it.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().map(|(key, value)| (key.clone(), sorted(value))).collect();
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            Value::Object(entries.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

/// What `uninject` lost of the pod and did not name; `None` where the pod cannot be injected.
fn silent(injector: &Injector, pod: &Value, context: &InjectionContext, stored: bool) -> Option<Vec<String>> {
    let workload = workload();
    let injected = injector.inject(Request { pod, workload: &workload, context }).ok()?.pod;
    let injected = if stored { sorted(&injected) } else { injected };
    let out = injector.uninject(Request { pod: &injected, workload: &workload, context }).unwrap().unwrap();
    let lost = lost(pod, &out.pod);
    let named = |what: &String| {
        let (list, item) = what.split_once(' ').unwrap_or(("", what));
        let lines = out.left.iter().flat_map(|line| line.split(';'));
        lines.into_iter().any(|part| part.contains(list) && part.contains(item))
    };
    Some(lost.into_iter().filter(|what| !named(what)).collect())
}

fn pairs(
    choices: &'static [(&'static str, &'static [&'static str])],
    most: usize,
) -> impl Strategy<Value = Map<String, Value>> {
    let pair = prop::sample::select(choices)
        .prop_flat_map(|(key, values)| (Just(key), prop::sample::select(values)));
    prop::collection::vec(pair, 0..=most)
        .prop_map(|pairs| pairs.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect())
}

const LABELS: &[(&str, &[&str])] = &[
    ("app", &["web"]),
    ("version", &["v1"]),
    ("team", &["own", "platform"]),
    ("istio.io/rev", &["default", "canary", ""]),
    ("security.istio.io/tlsMode", &["istio", "disabled"]),
    ("service.istio.io/canonical-name", &["web", "own"]),
    ("service.istio.io/canonical-revision", &["latest", "v2"]),
    ("topology.istio.io/network", &["n1"]),
];

const ANNOTATIONS: &[(&str, &[&str])] = &[
    ("istio.io/rev", &["default", "canary"]),
    ("kubectl.kubernetes.io/default-container", &["web", "other"]),
    ("kubectl.kubernetes.io/default-logs-container", &["web"]),
    ("prometheus.io/path", &["/metrics", "/stats/prometheus", ""]),
    ("prometheus.io/port", &["8080", "15020", ""]),
    ("prometheus.io/scrape", &["true", "false", ""]),
    ("prometheus/io/path", &["/metrics", ""]),
    ("prometheus_io_port", &["8080"]),
    ("prometheus.istio.io/scrape-targets", &["8080:/metrics", "8080", ",", "8080, 9100:/x"]),
    ("prometheus.istio.io/merge-metrics", &["false", "true"]),
    ("sidecar.istio.io/nativeSidecar", &["true", "false"]),
    ("sidecar.istio.io/interceptionMode", &["REDIRECT", "TPROXY", "NONE"]),
    ("sidecar.istio.io/rewriteAppHTTPProbers", &["false", "true"]),
    ("status.sidecar.istio.io/port", &["0", "15021"]),
    ("proxy.istio.io/config", &["holdApplicationUntilProxyStarts: true", "statusPort: 15022"]),
    ("traffic.sidecar.istio.io/excludeInboundPorts", &["15020", "80"]),
    ("sidecar.istio.io/userVolume", &["{\"extra\": {\"emptyDir\": {}}}"]),
    ("cost-center", &["7", "8"]),
    ("owner", &["platform", "shop"]),
];

fn volumes() -> impl Strategy<Value = Vec<Value>> {
    let names = prop::sample::subsequence(
        vec!["istio-envoy", "istio-data", "istiod-ca-cert", "extra", "own", "plain"],
        0..=3,
    );
    let sources = vec![
        json!({"emptyDir": {}}),
        json!({"emptyDir": {"medium": "Memory"}}),
        json!({"hostPath": {"path": "/d"}}),
    ];
    (names, prop::sample::select(sources)).prop_map(|(names, source)| {
        let volume = |name: &str| {
            let mut volume = source.clone();
            volume["name"] = json!(name);
            volume
        };
        names.into_iter().map(volume).collect()
    })
}

fn apps() -> impl Strategy<Value = Vec<Value>> {
    let probes = vec![
        json!({}),
        json!({"livenessProbe": {"httpGet": {"port": "http", "path": "/live"}}, "ports": [{"name": "http", "containerPort": 80}]}),
        json!({"readinessProbe": {"tcpSocket": {"port": 5}, "timeoutSeconds": 3}}),
        json!({"startupProbe": {"grpc": {"port": 9}}, "lifecycle": {"preStop": {"httpGet": {"port": 80, "scheme": "HTTPS"}}}}),
        json!({"volumeMounts": [{"name": "own", "mountPath": "/own"}, {"name": "istio-envoy", "mountPath": "/e"}]}),
        json!({"env": [{"name": "MESH", "value": "0"}, {"name": "A"}], "resources": {"limits": {"cpu": "1"}}}),
    ];
    prop::collection::vec(prop::sample::select(probes), 1..=3).prop_map(|apps| {
        let named = apps.into_iter().zip(["web", "other", "third"]).map(|(mut app, name)| {
            app["name"] = json!(name);
            app["image"] = json!("app:1");
            app
        });
        named.collect()
    })
}

/// A container of Istio's that the user customizes, with its place.
fn own_containers() -> impl Strategy<Value = Vec<(bool, usize, Value)>> {
    let proxies = vec![
        json!({"name": "istio-proxy", "image": "auto"}),
        json!({"name": "istio-proxy", "image": "auto", "restartPolicy": "Always", "ports": [{"containerPort": 9901}]}),
        json!({"name": "istio-proxy", "image": "own:1", "ports": [{"containerPort": 9901}], "env": [{"name": "A", "value": "1"}]}),
        json!({"name": "istio-init", "image": "own:1"}),
        json!({"name": "istio-validation", "image": "own:1"}),
    ];
    prop::collection::vec((0_usize..3, prop::sample::select(proxies)), 0..=2).prop_map(|all| {
        let mut kept: Vec<(bool, usize, Value)> = Vec::new();
        for (at, container) in all {
            if !kept.iter().any(|(_, _, other)| other["name"] == container["name"]) {
                let native = container.get("restartPolicy").is_some();
                let proxy = container["name"] == "istio-proxy";
                kept.push((!proxy || native, at, container));
            }
        }
        kept
    })
}

fn settings() -> impl Strategy<Value = Map<String, Value>> {
    let all = vec![
        ("dnsPolicy", json!("Default")),
        ("dnsConfig", json!({"searches": ["own"], "nameservers": ["10.0.0.2"]})),
        ("tolerations", json!([{"key": "own"}])),
        (
            "hostAliases",
            json!([{"ip": "10.0.0.1", "hostnames": ["own"]}, {"ip": "10.0.0.3", "hostnames": ["x"]}]),
        ),
        ("serviceAccountName", json!("own")),
        ("priorityClassName", json!("high")),
        ("securityContext", json!({"fsGroup": 5, "runAsUser": 9})),
        ("imagePullSecrets", json!([{"name": "mesh"}, {"name": "own"}])),
        ("terminationGracePeriodSeconds", json!(5)),
        ("readinessGates", json!([{"conditionType": "c"}])),
        ("shareProcessNamespace", json!(false)),
    ];
    prop::sample::subsequence(all, 0..=5)
        .prop_map(|all| all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn pods() -> impl Strategy<Value = Value> {
    let init = prop::sample::subsequence(vec!["migrate", "fetch"], 0..=2);
    (pairs(LABELS, 4), pairs(ANNOTATIONS, 5), volumes(), apps(), own_containers(), settings(), init).prop_map(
        |(labels, annotations, volumes, mut apps, own, settings, init)| {
            let mut init: Vec<Value> =
                init.into_iter().map(|name| json!({"name": name, "image": "i"})).collect();
            for (is_init, at, container) in own {
                let list = if is_init { &mut init } else { &mut apps };
                list.insert(at.min(list.len()), container);
            }
            let mut spec = json!({"containers": apps, "initContainers": init, "volumes": volumes});
            spec.as_object_mut().unwrap().extend(settings);
            json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": spec})
        },
    )
}

/// The number of pods: `UNINJECT_PODS`.
fn count() -> usize {
    std::env::var("UNINJECT_PODS").ok().map_or(100, |text| text.parse().unwrap())
}

#[test]
fn nothing_is_lost_in_silence() {
    let mut runner = TestRunner::deterministic();
    let strategy = (pods(), any::<bool>(), any::<bool>(), any::<bool>());
    let (mut taken, mut problems) = (0, BTreeMap::new());
    for _ in 0..count() {
        let (pod, custom, native, stored) = strategy.new_tree(&mut runner).unwrap().current();
        let context = InjectionContext { native_sidecars: native, ..InjectionContext::default() };
        let Some(silent) = silent(&INJECTORS[usize::from(custom)], &pod, &context, stored) else { continue };
        taken += 1;
        for what in silent {
            let (count, _) =
                problems.entry(what).or_insert((0, format!("custom {custom}, native {native}: {pod}")));
            *count += 1;
        }
    }
    assert!(problems.is_empty(), "of {taken} pods: {problems:#?}");
    assert!(taken > count() / 3, "{taken} of {} pods can be injected", count());
}

/// What an injection notes for this purpose.
fn own_forms() -> Value {
    let container = |name: &str| {
        json!({
            "name": name, "image": "i", "ports": [{"name": "http", "containerPort": 80}, {"name": "admin", "containerPort": 81}],
            "livenessProbe": {"httpGet": {"path": "/", "port": "http"}},
            "readinessProbe": {"tcpSocket": {"port": 81}},
            "lifecycle": {"preStop": {"httpGet": {"port": "admin"}}},
            "resources": {"limits": {"cpu": "1000m", "memory": "0.5Gi", "example.com/gpu": 1}, "requests": {"cpu": "1"}},
        })
    };
    json!({
        "metadata": {"labels": {"app": "web"}, "annotations": {
            "kubectl.kubernetes.io/default-container": "web", "kubectl.kubernetes.io/default-logs-container": "other",
        }},
        "spec": {
            "containers": [container("web"), container("other")],
            "volumes": [{"name": "cache", "emptyDir": {"sizeLimit": "1024Mi"}}],
        },
    })
}

fn injected(injector: &Injector, pod: &Value, context: &InjectionContext) -> Value {
    injector.inject(Request { pod, workload: &workload(), context }).unwrap().pod
}

fn uninjected(injector: &Injector, pod: &Value, context: &InjectionContext) -> Uninjected {
    injector.uninject(Request { pod, workload: &workload(), context }).unwrap().unwrap()
}

#[test]
fn what_the_user_wrote_comes_back_as_written() {
    let [injector, _] = &*INJECTORS;
    let pod = own_forms();
    for native_sidecars in [true, false] {
        let context = InjectionContext { native_sidecars, ..InjectionContext::default() };
        let once = injected(injector, &pod, &context);
        let note = once["metadata"]["annotations"]["istio-iptables/uninject"].as_str().unwrap();
        assert!(!note.contains("default-logs-container") && !note.contains("requests"), "{note}");
        let twice = injected(injector, &once, &context);
        assert_eq!(twice.to_string(), once.to_string());
        for again in [once, sorted(&twice)] {
            let out = uninjected(injector, &again, &context);
            assert_eq!(out.pod, pod, "{:?}", out.left);
        }
    }
}

/// A template may choose another container than the first, and the same as the user did.
#[test]
fn own_default_container_comes_back_whatever_a_template_chooses() {
    let text = r#"
policy: enabled
templates:
  sidecar: |
    metadata:
      annotations:
        {{- if not (isset .ObjectMeta.Annotations "kubectl.kubernetes.io/default-container") }}
        kubectl.kubernetes.io/default-container: {{ (last .Spec.Containers).Name }}
        {{- end }}
    spec: {containers: [{name: istio-proxy, image: "proxy:1"}]}
"#;
    let source = |name: &str, text: &str| Some(Source { name: name.to_owned(), text: text.to_owned() });
    let values = source("values", r#"{"sidecarInjectorWebhook": {"uninjectAnnotation": true}}"#);
    let sources = Sources { config: source("config", text), values, ..Sources::default() };
    let injector = Injector::new(sources.load(&functions(|_| None)).unwrap(), Options::default());
    let context = InjectionContext::default();
    for own in [Some("web"), Some("other"), None] {
        let mut pod = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
            {"name": "web", "image": "i"}, {"name": "other", "image": "i"}]}});
        if let Some(own) = own {
            pod["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/default-container": own});
        }
        let once = injected(&injector, &pod, &context);
        let noted = once["metadata"]["annotations"].get("istio-iptables/uninject").is_some();
        assert_eq!(noted, own == Some("other"), "{once}");
        assert_eq!(uninjected(&injector, &once, &context).pod, pod);
    }
}

#[test]
fn changes_since_the_injection_stay() {
    let [injector, _] = &*INJECTORS;
    let context = InjectionContext::default();
    let mut pod = injected(injector, &own_forms(), &context);
    let mut apps = pod["spec"]["containers"].as_array_mut().unwrap().iter_mut();
    let app = apps.find(|one| one["name"] == "web").unwrap();
    app["resources"]["limits"]["cpu"] = json!("2");
    app["ports"][0]["containerPort"] = json!(8080);
    let out = uninjected(injector, &pod, &context).pod;
    let web = &out["spec"]["containers"][0];
    assert_eq!(web["resources"]["limits"]["cpu"], "2");
    assert_eq!(web["livenessProbe"]["httpGet"]["port"], 80);
    assert_eq!(web["lifecycle"]["preStop"]["httpGet"]["port"], "admin");
}

#[test]
fn nothing_is_noted_where_a_guess_is_right_or_the_values_say_so() {
    let plain = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{
        "name": "web", "image": "i", "ports": [{"name": "http", "containerPort": 80}],
        "livenessProbe": {"httpGet": {"port": 80}}, "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}},
    }]}});
    let mut off = injector();
    off.settings.values["sidecarInjectorWebhook"]["uninjectAnnotation"] = json!(false);
    let context = InjectionContext::default();
    for (injector, pod) in [(&INJECTORS[0], &plain), (&off, &own_forms())] {
        let injected = injected(injector, pod, &context);
        assert_eq!(injected["metadata"]["annotations"].get("istio-iptables/uninject"), None);
    }
}

/// The built-in config with other values, by their pointers, and mesh config.
fn injector_with(values: &[(&str, Value)], mesh: &str) -> Injector {
    let mesh = Source { name: "mesh".to_owned(), text: mesh.to_owned() };
    let sources = Sources { mesh: Some(mesh).filter(|mesh| !mesh.text.is_empty()), ..Sources::default() };
    let mut settings = sources.load(&functions(|_| None)).unwrap();
    for (pointer, value) in values {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        settings.values.pointer_mut(parent).unwrap()[key] = value.clone();
    }
    Injector::new(settings, Options::default())
}

/// Without annotations, and with those that values set, too.
fn annotated_pods() -> [Value; 3] {
    [
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "i"}]}}),
        json!({
            "metadata": {"labels": {"app": "web", "topology.istio.io/network": "own"}, "annotations": {
                "traffic.sidecar.istio.io/excludeInboundPorts": "8080", "prometheus.io/port": "8080", "owner": "shop"}},
            "spec": {"dnsPolicy": "ClusterFirst", "containers": [{
                "name": "web", "image": "i", "livenessProbe": {"httpGet": {"port": 80}}}]},
        }),
        json!({
            "metadata": {"labels": {"app": "web"}, "annotations": {"sidecar.istio.io/interceptionMode": "TPROXY",
                "traffic.sidecar.istio.io/includeOutboundIPRanges": "10.0.0.0/8"}},
            "spec": {"containers": [{"name": "web", "image": "i"}]},
        }),
    ]
}

/// The built-in config takes out what an injection with other values, mesh config or templates brought in.
#[test]
fn uninject_needs_neither_values_nor_templates() {
    let default = &INJECTORS[0];
    let pods = annotated_pods();
    let cni = || ("/pilot/cni/enabled", json!(true));
    let injectors: [(&[(&str, Value)], &str); 13] = [
        (&[cni()], ""),
        (&[cni(), ("/pilot/cni/provider", json!("multus"))], ""),
        (
            &[
                cni(),
                ("/global/proxy/excludeOutboundPorts", json!("80")),
                ("/global/proxy/excludeIPRanges", json!("10.0.0.0/8")),
            ],
            "",
        ),
        (&[("/global/network", json!("n1")), ("/global/meshID", json!("m"))], ""),
        (&[("/global/proxy/statusPort", json!(15055))], ""),
        (&[("/sidecarInjectorWebhook/rewriteAppHTTPProbe", json!(false))], ""),
        (
            &[
                ("/global/proxy/holdApplicationUntilProxyStarts", json!(true)),
                ("/global/proxy/capNetBindService", json!("true")),
            ],
            "",
        ),
        (&[("/global/mountMtlsCerts", json!(true)), ("/global/logAsJson", json!(true))], ""),
        (&[("/global/imagePullSecrets", json!(["regcred"])), ("/global/proxy/privileged", json!(true))], ""),
        (&[], "defaultConfig: {statusPort: 15055}"),
        (&[], "enablePrometheusMerge: false"),
        (&[], "defaultConfig: {interceptionMode: TPROXY, holdApplicationUntilProxyStarts: true}"),
        (&[], "defaultConfig: {proxyMetadata: {ISTIO_META_ENABLE_HBONE: 'true'}}"),
    ];
    let injectors =
        injectors.map(|(values, mesh)| (format!("{values:?} {mesh}"), injector_with(values, mesh)));
    let mut wrong = Vec::new();
    for (name, injector) in
        injectors.iter().map(|(name, one)| (name.as_str(), one)).chain([("custom", &INJECTORS[1])])
    {
        for (at, pod) in pods.iter().enumerate() {
            for native_sidecars in [true, false] {
                let context = InjectionContext { native_sidecars, ..InjectionContext::default() };
                let once = injected(injector, pod, &context);
                let twice = injected(injector, &once, &context);
                assert_eq!(twice.to_string(), once.to_string());
                let out = uninjected(default, &sorted(&twice), &InjectionContext::default());
                // The user's version of a container may have been changed since: that is reported.
                let expected: &[&str] = if name == "custom" { &["container web"] } else { &[] };
                if lost(pod, &out.pod) != expected {
                    wrong.push(format!("{name}, pod {at}: {:?}: {}", lost(pod, &out.pod), out.pod));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// What the user set since the injection is the user's.
#[test]
fn added_annotation_that_has_changed_stays() {
    let injector = injector_with(&[("/pilot/cni/enabled", json!(true))], "");
    let context = InjectionContext::default();
    let pod = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "i"}]}});
    let key = "traffic.sidecar.istio.io/includeInboundPorts";
    let mut once = injected(&injector, &pod, &context);
    once["metadata"]["annotations"][key] = json!("80");
    let twice = injected(&injector, &once, &context);
    for again in [once, twice] {
        let out = uninjected(&INJECTORS[0], &again, &context).pod;
        assert_eq!(out["metadata"]["annotations"], json!({key: "80"}));
    }
}

/// An empty annotation is set: kubectl then takes the first container of the pod.
#[test]
fn empty_default_container_stays() {
    let [injector, _] = &*INJECTORS;
    let context = InjectionContext::default();
    for key in ["kubectl.kubernetes.io/default-container", "kubectl.kubernetes.io/default-logs-container"] {
        let pod = json!({"metadata": {"labels": {"app": "web"}, "annotations": {key: ""}}, "spec": {"containers": [{"name": "web", "image": "i"}]}});
        let once = injected(injector, &pod, &context);
        assert_eq!(once["metadata"]["annotations"][key], "");
        assert_eq!(uninjected(injector, &once, &context).pod, pod);
    }
}
