//! Replicas share what a template makes of them. An injector that has injected other pods before gives the
//! same bytes as one that renders each time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use serde_json::{Value, json};
use sidecar_injector::config::{BUILTIN_CONFIG, ProxyConfig, Source, Sources};
use sidecar_injector::inject::{InjectionContext, Injector, Options, Request, functions};
use sidecar_injector::pod::ids::Ids;
use sidecar_injector::pod::workload::Workload;

use crate::builtin::{self, deployment};
use crate::{fixed_point, webhook_review_properties};

/// An injector with this config, whose templates may call `count`, and the number of such calls.
fn counting(config: String) -> (Injector, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let mut functions = functions(|_| None);
    let counted = Arc::clone(&calls);
    functions.add("count", &[], None, move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(gotemplate::Value::string("counted"))
    });
    let config = Some(Source { name: "config".to_owned(), text: config });
    let settings = Sources { config, ..Sources::default() }.load(&functions).unwrap();
    (Injector::new(settings, Options::default()), calls)
}

fn with_template(template: &str) -> (Injector, Arc<AtomicUsize>) {
    let templates = json!({"own": template});
    counting(json!({"policy": "enabled", "defaultTemplates": ["own"], "templates": templates}).to_string())
}

/// The built-in config, but nothing is kept: it reads the clock.
fn without_cache() -> Injector {
    let begin = "{{- $apps := list }}";
    assert!(BUILTIN_CONFIG.contains(begin));
    counting(BUILTIN_CONFIG.replace(begin, "{{- $_ := now }}{{- $apps := list }}")).0
}

/// The result as text, or the error.
fn result(injector: &Injector, pod: &Value, context: &InjectionContext) -> String {
    let workload = Workload::of_pod(pod, "shop");
    match injector.inject(Request { pod, workload: &workload, context }) {
        Ok(injected) => format!("{}\n{:?}\n{:?}", injected.pod, injected.warnings, injected.invalid),
        Err(error) => format!("{error:?}"),
    }
}

fn default_result(injector: &Injector, pod: &Value) -> String {
    result(injector, pod, &InjectionContext::default())
}

/// A pod with something in most places.
fn full_pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "web-0", "generateName": "web-", "namespace": "shop",
            "labels": {"app": "web"}, "annotations": {"own": "note"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "1", "controller": true}],
        },
        "spec": {
            "containers": [{
                "name": "web", "image": "web:1", "args": ["serve"], "env": [{"name": "A", "value": "b"}],
                "ports": [{"name": "http", "containerPort": 80, "protocol": "TCP"}],
                "resources": {"limits": {"cpu": "1"}}, "securityContext": {"runAsUser": 1000},
                "volumeMounts": [{"name": "token-a", "mountPath": "/token"}],
                "readinessProbe": {"httpGet": {"path": "/ready", "port": 80}},
            }],
            "volumes": [{"name": "token-a", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
            "nodeSelector": {"disk": "ssd"}, "nodeName": "node-1", "serviceAccountName": "web",
            "securityContext": {"runAsUser": 1001, "sysctls": [{"name": "x", "value": "y"}]},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}},
            "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
            "newerThanTheSchema": {"field": "value"},
        },
    })
}

/// Ways in which a template can read the pod. Each is printed into a label.
const READERS: &[&str] = &[
    "{{ .ObjectMeta.Name }}",
    "{{ .ObjectMeta.GetName }}",
    "{{ .DeploymentMeta.Name }}{{ .TypeMeta.Kind }}",
    "{{ range .Spec.Volumes }}{{ .Name }}{{ end }}",
    "{{ range $n, $c := .Spec.Containers }}{{ range $c.VolumeMounts }}{{ .Name }}{{ .MountPath }}{{ end }}{{ end }}",
    "{{ with .Spec.SecurityContext }}{{ range .Sysctls }}{{ .Value }}{{ end }}{{ end }}",
    "{{ if .Spec.Affinity }}{{ .Spec.Affinity.NodeAffinity }}{{ end }}",
    "{{ if eq .ObjectMeta.Name \"web-0\" }}{{ .Spec.NodeName }}{{ else }}{{ .Spec.ServiceAccountName }}{{ end }}",
    "{{ toJson .Spec }}",
    "{{ structToJSON (index .Spec.Containers 0) }}",
    "{{ .Spec }}",
    "{{ printf \"%v\" .ObjectMeta }}",
    "{{ (dict \"root\" .).root.Spec.NodeName }}{{ toYaml (list .Spec.Tolerations) | quote }}",
    "{{ annotation .ObjectMeta \"none\" .Spec }}",
    "{{ annotation .ObjectMeta \"own\" 0 }}",
    "{{ applicationPorts .Spec.Containers }}",
    "{{ (or .Spec.NodeSelector .Spec.Containers) }}{{ (and .Spec .Spec.Hostname) }}",
    "{{ $spec := .Spec }}{{ with $spec }}{{ (index .Containers 0).Resources.Limits.Cpu }}{{ end }}",
    "{{ define \"inner\" }}{{ .ServiceAccountName }}{{ end }}{{ template \"inner\" .Spec }}",
    "{{ len .Spec.Volumes }}{{ .Spec.NodeSelector }}",
    "{{ deepEqual .Spec .Spec }}{{ .ProxyUID }}{{ .ProxyGID }}{{ .NativeSidecars }}{{ .ProxyImage }}",
    "{{ .ProxyConfig.Concurrency.GetValue }}{{ toJson .ProxyConfig }}",
];

fn template(reader: &str) -> String {
    format!("metadata:\n  labels:\n    own: label\n  annotations:\n    read: |-\n      {reader}")
}

/// Every pod that differs from this one in one scalar, or lacks one map or list.
fn variants(pod: &Value) -> Vec<Value> {
    fn pointers(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(key, value)| {
                let path = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
                pointers(value, &path, found);
                if value.is_object() || value.is_array() {
                    found.push(path);
                }
            }),
            Value::Array(items) => {
                items
                    .iter()
                    .enumerate()
                    .for_each(|(at, item)| pointers(item, &format!("{path}/{at}"), found));
            }
            _ => found.push(path.to_owned()),
        }
    }
    let mut found = Vec::new();
    pointers(pod, "", &mut found);
    let mut all = Vec::new();
    for path in found {
        let mut changed = pod.clone();
        match changed.pointer_mut(&path).unwrap() {
            Value::String(text) => text.push('z'),
            number @ Value::Number(_) => *number = json!(number.as_i64().unwrap() + 1),
            Value::Bool(value) => *value = !*value,
            _ => changed = Value::Null,
        }
        if changed != Value::Null {
            all.push(changed);
            continue;
        }
        let mut without = pod.clone();
        let (parent, key) = path.rsplit_once('/').unwrap();
        if let Some(Value::Object(fields)) = without.pointer_mut(parent) {
            fields.shift_remove(&key.replace("~1", "/").replace("~0", "~"));
            all.push(without);
        }
    }
    all
}

#[test]
fn whatever_a_template_reads_makes_a_difference() {
    let pod = full_pod();
    let variants = variants(&pod);
    assert!(variants.len() > 60, "{}", variants.len());
    let mut different = 0;
    for reader in READERS {
        let (warm, _) = with_template(&template(reader));
        let (cold, _) = with_template(&template(&format!("{reader}{{{{ $_ := now }}}}")));
        let usual = default_result(&warm, &pod);
        assert_eq!(default_result(&warm, &pod), usual);
        for variant in &variants {
            let expected = default_result(&cold, variant);
            // The first two are rendered, the third is known.
            for round in 0..3 {
                assert_eq!(default_result(&warm, variant), expected, "{round}: {reader}: {variant}");
            }
            different += usize::from(expected != usual);
        }
        assert_eq!(default_result(&warm, &pod), usual, "{reader}");
    }
    assert!(different > variants.len(), "{different}");
}

#[test]
fn replicas_are_rendered_twice_and_then_known() {
    let (injector, calls) =
        with_template(&template("{{ count }}{{ range .Spec.Containers }}{{ .Name }}{{ end }}"));
    let mut after = Vec::new();
    for replica in 0..50 {
        let mut pod = full_pod();
        let token = json!(format!("token-{replica}"));
        pod["spec"]["volumes"][0]["name"] = token.clone();
        pod["spec"]["containers"][0]["volumeMounts"][0]["name"] = token;
        pod["metadata"]["name"] = json!(format!("web-{replica}"));
        let result = default_result(&injector, &pod);
        assert_eq!(result.matches(r#""read":"countedweb""#).count(), 1, "{result}");
        after.push(calls.load(Ordering::Relaxed));
    }
    // The first rendering shows what is read, the second that the key comes again.
    assert_eq!(after[3], after[49], "{after:?}");
    let mut other = full_pod();
    other["spec"]["containers"][0]["name"] = json!("other");
    default_result(&injector, &other);
    assert!(calls.load(Ordering::Relaxed) > after[49], "{after:?}");
}

#[test]
fn what_depends_on_the_time_is_rendered_each_time() {
    let (injector, calls) = with_template(&template("{{ count }}{{ now | date \"2006\" }}"));
    for _ in 0..5 {
        let before = calls.load(Ordering::Relaxed);
        default_result(&injector, &full_pod());
        assert!(calls.load(Ordering::Relaxed) > before);
    }
}

#[test]
fn context_counts_too() {
    let shared = builtin::injector();
    let ids = |uid, gid| InjectionContext { ids: Ids { uid, gid }, ..InjectionContext::default() };
    let contexts = [
        InjectionContext::default(),
        builtin::native(),
        ids(Some(5), None),
        ids(None, Some(5)),
        ids(Some(6), Some(5)),
    ];
    let expected: Vec<String> =
        contexts.iter().map(|context| result(&builtin::injector(), &deployment(), context)).collect();
    for _ in 0..4 {
        for (context, expected) in contexts.iter().zip(&expected) {
            assert_eq!(&result(&shared, &deployment(), context), expected, "{context:?}");
        }
    }
    assert!(expected.iter().enumerate().all(|(at, one)| !expected[..at].contains(one)));
}

#[test]
fn an_error_is_reported_each_time() {
    let (injector, calls) = with_template(&template("{{ count }}{{ fail \"refused\" }}"));
    let first = default_result(&injector, &full_pod());
    for _ in 0..4 {
        assert_eq!(default_result(&injector, &full_pod()), first);
    }
    assert_eq!(calls.load(Ordering::Relaxed), 5);
}

static COLD: LazyLock<Injector> = LazyLock::new(without_cache);

/// Where a value that is not the pod's own would change the structure, it is taken; one that the pod may have
/// set is refused.
#[test]
fn pod_that_sets_its_proxy_config_is_refused_beside_one_that_does_not() {
    let (injector, _) = with_template(
        "metadata:\n  annotations:\n{{ range $k, $v := .ProxyConfig.ProxyMetadata }}    {{ $k }}: {{ $v }}\n{{ end }}",
    );
    let spec = json!({"environmentVariables": {"EXTRA": "x\n    MORE: y"}});
    let metadata = json!({"name": "any", "creationTimestamp": "2026-01-02T03:04:05Z"});
    let resource = ProxyConfig::of_object(&json!({"metadata": metadata, "spec": spec})).unwrap();
    let proxy_configs = Arc::new([("shop".to_owned(), resource)].into_iter().collect());
    let context = InjectionContext { proxy_configs, ..InjectionContext::default() };
    let pod = full_pod();
    let mut own = pod.clone();
    own["metadata"]["annotations"]["proxy.istio.io/config"] = json!("{}");
    for _ in 0..4 {
        assert!(result(&injector, &pod, &context).contains("MORE"));
        assert!(result(&injector, &own, &context).contains("ValueChangesStructure"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn earlier_pods_make_no_difference(
        pods in prop::collection::vec(prop_oneof![fixed_point::pods(), webhook_review_properties::pods()], 1..6),
        native in any::<bool>(),
    ) {
        let context = InjectionContext { native_sidecars: native, ..InjectionContext::default() };
        let warm = builtin::injector();
        let expected: Vec<String> = pods.iter().map(|pod| result(&COLD, pod, &context)).collect();
        for _ in 0..4 {
            for (pod, expected) in pods.iter().zip(&expected) {
                prop_assert_eq!(&result(&warm, pod, &context), expected, "{}", pod);
            }
        }
    }
}
