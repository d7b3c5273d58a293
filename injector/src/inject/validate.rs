//! Validation of a config: injects sample pods with it.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::annotations::keys;
use crate::decide::Policy;
use crate::inject::{InjectError, Injected, InjectionContext, Injector, InvalidField, Request};
use crate::pod::init_options::without_proxy;
use crate::pod::list::{List, all_containers, containers, find, metadata_mut, name, proxy};
use crate::pod::workload::Workload;
use crate::pod::{AUTO_IMAGE, PROXY};
use crate::template::Data;

/// The error of a policy: with values other than `enabled` and `disabled` no pod is injected.
pub(crate) fn policy(policy: &Policy) -> Option<String> {
    match policy {
        Policy::Unknown(text) => Some(format!(
            "policy: {text:?} is not accepted, expected enabled or disabled: no pod is injected"
        )),
        Policy::Enabled | Policy::Disabled => None,
    }
}

/// The container of the sample pod.
const SAMPLE: &str = "sample";

/// Errors of the injection of the sample pod.
#[derive(Debug, thiserror::Error)]
enum Fault {
    /// There is none.
    #[error("a pod with one container cannot be injected: {0}")]
    Injection(InjectError),
    /// There is none with this template.
    #[error("a pod that chooses template {0} cannot be injected: {1}")]
    Chosen(String, InjectError),
    /// The sample's own container is gone.
    #[error(
        "a pod with one container loses it: the default templates remove it; expected templates that add to a pod"
    )]
    AppGone,
    /// This container sends all traffic to a proxy, and there is none.
    #[error(
        "a pod with one container gets {0} and no {PROXY} with an image: captured traffic has no destination; expected a \
         template with both (is the file truncated?)"
    )]
    NoProxy(&'static str),
    /// What comes in is not valid in Kubernetes.
    #[error("{0}")]
    Invalid(String),
    /// Nothing has come in.
    #[error(
        "the default templates add no container; expected one that adds a proxy (is the file truncated?), or policy: \
         disabled"
    )]
    NothingAdded,
}

impl Fault {
    /// Whether it is the same one, though the line or the list in which it shows may be another.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Injection(one), Self::Injection(other)) => one.is_like(other),
            (Self::Chosen(one, error), Self::Chosen(other, same)) => one == other && error.is_like(same),
            (Self::NoProxy(one), Self::NoProxy(other)) => one == other,
            (Self::Invalid(one), Self::Invalid(other)) => in_either_list(one) == in_either_list(other),
            (Self::AppGone, Self::AppGone) | (Self::NothingAdded, Self::NothingAdded) => true,
            _ => false,
        }
    }
}

/// A pod to be injected.
#[derive(Clone)]
struct Sample {
    pod: Value,
    workload: Workload,
    /// What it is, for messages; nothing for the usual one.
    title: String,
}

/// Kinds of workloads that templates tell apart.
const KINDS: [&str; 6] = ["CronJob", "DaemonSet", "Deployment", "Job", "ReplicaSet", "StatefulSet"];

impl Sample {
    fn usual() -> Self {
        let pod = json!({
            "metadata": {"name": SAMPLE, "labels": {"app": SAMPLE}},
            "spec": {"containers": [{"name": SAMPLE, "image": SAMPLE, "ports": [{"containerPort": 8080}]}]},
        });
        Self { workload: Workload::of_pod(&pod, "default"), pod, title: String::new() }
    }

    /// Samples for which templates may have something else: only those that one of the texts names.
    fn others(templates: &[&str]) -> Vec<Self> {
        // As Go writes a text in a template.
        let literals = |word: &str| [format!("\"{word}\""), format!("`{word}`")];
        let is_named = |word: &str| {
            literals(word).iter().any(|literal| templates.iter().any(|text| text.contains(literal.as_str())))
        };
        let mut all = Vec::new();
        if is_named("TPROXY") {
            let mut sample = Self::usual();
            if let Some(annotations) = metadata_mut(&mut sample.pod, "annotations") {
                annotations.insert(keys::INTERCEPTION_MODE.to_owned(), json!("TPROXY"));
            }
            sample.title = format!(", in a pod with annotation {}: TPROXY", keys::INTERCEPTION_MODE);
            all.push(sample);
        }
        for kind in KINDS.into_iter().filter(|kind| is_named(kind)) {
            let mut sample = Self::usual();
            sample.workload.kind = kind.to_owned();
            sample.title = format!(", in a pod of a {kind}");
            all.push(sample);
        }
        all
    }
}

/// Faults of samples, each once.
#[derive(Default)]
struct Faults(Vec<(Fault, String)>);

impl Faults {
    fn add(&mut self, found: Vec<Fault>, sample: &Sample) {
        for fault in found {
            if !self.0.iter().any(|(known, _)| known.is_like(&fault)) {
                self.0.push((fault, sample.title.clone()));
            }
        }
    }
}

/// Injects sample pods: reports values that templates miss, output that is not a pod, and pods that cannot
/// work. What is wrong both with native sidecars and without is reported once.
pub(crate) fn inject(injector: &Injector) -> Vec<String> {
    let config = &injector.settings.injector;
    let by_default: HashSet<String> =
        config.default_templates.iter().filter_map(|name| config.resolve(name)).flatten().collect();
    let text = |name: &String| config.templates.get(name).map_or("", |one| one.template.text());
    let mut faults = Faults::default();
    let usual = Sample::usual();
    for native_sidecars in [true, false] {
        faults.add(examine(injector, &usual, native_sidecars), &usual);
    }
    for sample in Sample::others(&by_default.iter().map(text).collect::<Vec<_>>()) {
        faults.add(examine(injector, &sample, true), &sample);
    }
    for name in config.templates.keys().filter(|name| !by_default.contains(*name)) {
        for sample in [Sample::usual()].into_iter().chain(Sample::others(&[text(name)])) {
            faults.add(of_other_template(injector, name, &sample), &sample);
        }
    }
    for name in config.aliases.keys().filter(|name| !config.default_templates.contains(name)) {
        let ways = usual.with_and_without_proxy().map(|sample| choosing(injector, &sample, name));
        faults.add(in_every_way(name, ways.to_vec(), &|_| true), &usual);
    }
    faults.0.iter().map(|(fault, title)| format!("{fault}{title}")).collect()
}

/// A message, whichever list of containers it is about.
fn in_either_list(message: &str) -> String {
    message.replace("spec.initContainers", "spec.containers")
}

impl Sample {
    fn with_and_without_proxy(&self) -> [Self; 2] {
        let mut with_proxy = self.clone();
        if let Some(all) = with_proxy.pod.pointer_mut("/spec/containers").and_then(Value::as_array_mut) {
            all.push(json!({"name": PROXY, "image": AUTO_IMAGE}));
        }
        [self.clone(), with_proxy]
    }
}

/// What is wrong with a template that pods choose by annotation. One with a proxy of its own may be written
/// for all of a pod, the others add to the default ones: what is wrong in every way in which a pod can use
/// one is the template's. Where each way has another fault, such as a container without an image alone and
/// two of its name beside the default ones, those are named that it has beside them.
fn of_other_template(injector: &Injector, name: &str, sample: &Sample) -> Vec<Fault> {
    let samples = sample.with_and_without_proxy();
    let own = |one: &InvalidField| one.templates.iter().any(|template| template == name);
    let added = format!("{},{name}", injector.settings.injector.default_templates.join(","));
    let mut ways = samples.each_ref().map(|sample| choosing(injector, sample, &added)).to_vec();
    let alone = samples.map(|sample| choosing(injector, &sample, name));
    if alone.iter().flatten().any(|one| has_proxy(&one.pod)) {
        ways.extend(alone);
    }
    in_every_way(name, ways, &own)
}

/// A sample pod that chooses templates.
#[inline(never)]
fn choosing(injector: &Injector, sample: &Sample, templates: &str) -> Result<Injected, InjectError> {
    let mut pod = sample.pod.clone();
    if let Some(annotations) = metadata_mut(&mut pod, "annotations") {
        annotations.insert(keys::TEMPLATES.to_owned(), json!(templates));
    }
    let context = InjectionContext { native_sidecars: true, ..InjectionContext::default() };
    injector.inject(Request { pod: &pod, workload: &sample.workload, context: &context })
}

fn has_proxy(pod: &Value) -> bool {
    let image = proxy(pod).and_then(|proxy| proxy.get("image")?.as_str());
    image.is_some_and(|image| !image.is_empty())
}

/// What is wrong in all of the ways in which `name` is chosen.
fn in_every_way(
    name: &str,
    ways: Vec<Result<Injected, InjectError>>,
    own: &dyn Fn(&InvalidField) -> bool,
) -> Vec<Fault> {
    let mut found: Vec<Vec<InvalidField>> = Vec::new();
    let mut errors: Vec<InjectError> = Vec::new();
    for way in ways {
        match way {
            Ok(injected) => found.push(injected.invalid.into_iter().filter(own).collect()),
            Err(error) => errors.push(error),
        }
    }
    if found.is_empty() {
        // A template for another program, such as a controller of gateways, reads what a pod does not have.
        let own = errors.into_iter().find(|error| !reads_other_data(error));
        return own.map(|error| Fault::Chosen(name.to_owned(), error)).into_iter().collect();
    }
    common(found).into_iter().map(|one| Fault::Invalid(one.message)).collect()
}

/// What is wrong in all of the ways; where they have nothing in common and none is right, what is wrong in
/// the first.
fn common(found: Vec<Vec<InvalidField>>) -> Vec<InvalidField> {
    let is_right_in_one = found.iter().any(Vec::is_empty);
    let mut ways = found.into_iter();
    let first = ways.next().filter(|_| !is_right_in_one).unwrap_or_default();
    let others: Vec<_> = ways.collect();
    let is_in_all =
        |one: &InvalidField| others.iter().all(|found| found.iter().any(|other| is_same(one, other)));
    let common: Vec<InvalidField> = first.iter().filter(|one| is_in_all(one)).cloned().collect();
    if common.is_empty() { first } else { common }
}

/// Whether a template reads fields that templates for pods do not get.
fn reads_other_data(error: &InjectError) -> bool {
    matches!(error, InjectError::Render(error) if error.message.contains(Data::TYPE))
}

fn is_same(one: &InvalidField, other: &InvalidField) -> bool {
    one.fault == other.fault
}

fn examine(injector: &Injector, Sample { pod, workload, .. }: &Sample, native_sidecars: bool) -> Vec<Fault> {
    let context = InjectionContext { native_sidecars, ..InjectionContext::default() };
    let injected = match injector.inject(Request { pod, workload, context: &context }) {
        Ok(injected) => injected,
        Err(error) => return vec![Fault::Injection(error)],
    };
    let Injected { pod: injected, invalid, .. } = injected;
    let mut faults = Vec::new();
    if find(containers(&injected, List::Containers), SAMPLE).is_none() {
        faults.push(Fault::AppGone);
    }
    faults.extend(without_proxy(&injected).map(Fault::NoProxy));
    let enabled = injector.settings.injector.rules.policy == Policy::Enabled;
    if enabled && all_containers(&injected).all(|container| name(container) == SAMPLE) {
        faults.push(Fault::NothingAdded);
    }
    // What is missing as a whole is not reported part by part.
    if faults.is_empty() {
        faults.extend(invalid.into_iter().map(|one| Fault::Invalid(one.message)));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{BUILTIN_CONFIG, BUILTIN_VALUES, Source, Sources};
    use crate::inject::{Options, functions};

    fn injector(text: &str) -> Option<Injector> {
        let source = |name: &str, text: &str| Some(Source { name: name.to_owned(), text: text.to_owned() });
        let sources =
            Sources { config: source("config", text), values: source("values", BUILTIN_VALUES), mesh: None };
        Some(Injector::new(sources.load(&functions(|_| None)).ok()?, Options::default()))
    }

    fn faults(text: &str) -> Vec<String> {
        inject(&injector(text).unwrap())
    }

    fn names(pod: &Value, list: &str) -> Vec<String> {
        let items = pod["spec"][list].as_array();
        items.into_iter().flatten().map(|item| name(item).to_owned()).collect()
    }

    /// An injected typical pod; `None` if it is denied.
    fn injected(injector: &Injector, native_sidecars: bool, mode: &str) -> Option<Value> {
        let pod = json!({
            "metadata": {"labels": {"app": "web"}, "annotations": {"own": "1", "sidecar.istio.io/interceptionMode": mode}},
            "spec": {
                "containers": [{"name": "web", "image": "web"}],
                "initContainers": [{"name": "first", "image": "first"}],
                "volumes": [{"name": "data", "emptyDir": {}}],
            },
        });
        let workload = Workload::of_pod(&pod, "default");
        let context = InjectionContext { native_sidecars, ..InjectionContext::default() };
        injector.inject(Request { pod: &pod, workload: &workload, context: &context }).ok().map(|one| one.pod)
    }

    #[test]
    fn truncated_config_removes_nothing() {
        let (mut refused, mut accepted) = (0, 0);
        for (end, _) in BUILTIN_CONFIG.match_indices('\n') {
            let text = &BUILTIN_CONFIG[..=end];
            let Some(injector) = injector(text) else { continue };
            let faults = inject(&injector);
            let unique: HashSet<String> = faults.iter().map(|fault| in_either_list(fault)).collect();
            assert_eq!(unique.len(), faults.len(), "{text}\n{faults:?}");
            for (native, mode) in [(true, "REDIRECT"), (false, "REDIRECT"), (false, "NONE")] {
                let Some(pod) = injected(&injector, native, mode) else { continue };
                // In force or not: what is the pod's own stays.
                for (list, own) in [("containers", "web"), ("initContainers", "first"), ("volumes", "data")] {
                    assert!(names(&pod, list).iter().any(|name| name == own), "{text}\n{list}");
                }
                assert_eq!(
                    (&pod["metadata"]["labels"]["app"], &pod["metadata"]["annotations"]["own"]),
                    (&json!("web"), &json!("1"))
                );
                if faults.is_empty() {
                    let all = [names(&pod, "containers"), names(&pod, "initContainers")].concat();
                    assert!(all.iter().any(|name| name == PROXY), "{text}\n{all:?}");
                    assert!(all.len() > 2, "{text}\n{all:?}");
                }
            }
            *if faults.is_empty() { &mut accepted } else { &mut refused } += 1;
        }
        assert!(refused > 20 && accepted > 80, "{refused} refused, {accepted} accepted");
    }

    #[test]
    fn a_template_for_the_injected_pod_is_checked_in_it() {
        for (spec, part) in [
            ("initContainers: [{name: istio-proxy, resources: {requests: {cpu: 4}}}]", "cpu"),
            ("initContainers: [{name: istio-proxy, resources: {limits: {cpu: 50m}}}]", "cpu"),
            (
                "initContainers: [{name: istio-proxy, ports: [{name: http-envoy-prom, containerPort: 9}]}]",
                "ports",
            ),
            (
                "containers: [{name: x, image: x, volumeDevices: [{name: istio-data, devicePath: /a}]}]",
                "volume",
            ),
            (
                "containers: [{name: x, image: x, readinessProbe: {exec: {command: [a]}, tcpSocket: {port: 1}}}]",
                "readinessProbe",
            ),
        ] {
            let found = faults(&format!("{BUILTIN_CONFIG}\n  zz: |\n    spec:\n      {spec}\n"));
            assert!(!found.is_empty(), "{spec}");
            assert!(found.iter().all(|fault| fault.contains(part)), "{spec}: {found:?}");
        }
        for spec in [
            "initContainers: [{name: istio-proxy, resources: {requests: {cpu: 1}}}]",
            "containers: [{name: x, image: x, volumeMounts: [{name: istio-data, mountPath: /a}]}]",
        ] {
            let found = faults(&format!("{BUILTIN_CONFIG}\n  zz: |\n    spec:\n      {spec}\n"));
            assert_eq!(found, [""; 0], "{spec}");
        }
    }

    /// A fault in a value of `--set` names its path, since a built-in template cannot be corrected.
    #[test]
    fn values_of_set_are_named() {
        for (set, part) in [
            (
                json!({"global": {"imagePullPolicy": "always"}}),
                "; --set global.imagePullPolicy has this value",
            ),
            (
                json!({"global": {"proxy": {"lifecycle": {"preStop": {"foo": 1}}}}}),
                "; it is in --set global.proxy.lifecycle.preStop.foo",
            ),
        ] {
            let settings = Sources::default().load_with(&functions(|_| None), set).unwrap();
            let found = inject(&Injector::new(settings, Options::default()));
            assert!(found.iter().any(|one| one.contains(part)), "{part}: {found:?}");
        }
    }

    /// What a template has only for some pods: those that templates are known to tell apart.
    #[test]
    fn what_a_condition_of_a_template_brings_is_checked() {
        let mode = r#"{{ if eq (annotation .ObjectMeta "sidecar.istio.io/interceptionMode" .ProxyConfig.InterceptionMode) "TPROXY" }}"#;
        let kind = |kind: &str| format!("{{{{ if eq .TypeMeta.Kind {kind:?} }}}}");
        let rest = "spec: {containers: [{name: istio-proxy, image: p, BAD}]}";
        let wrong =
            |condition: &str| rest.replace("BAD", &format!("{condition}imagePullPolicie: x{{{{ end }}}}"));
        let config = |template: &str| format!("policy: enabled\ntemplates: {{sidecar: {template:?}}}\n");
        for (condition, sample) in [
            (mode.to_owned(), "in a pod with annotation sidecar.istio.io/interceptionMode: TPROXY"),
            (kind("Deployment"), "in a pod of a Deployment"),
            (kind("Job"), "in a pod of a Job"),
            ("{{ if eq .TypeMeta.Kind `StatefulSet` }}".to_owned(), "in a pod of a StatefulSet"),
        ] {
            let template = wrong(&condition);
            let as_default = faults(&config(&template));
            let chosen = faults(&format!("{BUILTIN_CONFIG}\n  zz: |\n    {template}\n"));
            for found in [as_default, chosen] {
                assert_eq!(found.len(), 1, "{condition}: {found:?}");
                assert!(found[0].contains("imagePullPolicie") && found[0].ends_with(sample), "{found:?}");
            }
        }
        // What every pod gets is reported once.
        let found = faults(&config(&wrong(r#"{{ if or true (eq .TypeMeta.Kind "Job" "CronJob") }}"#)));
        assert!(found.len() == 1 && !found[0].contains("in a pod of"), "{found:?}");
    }

    #[test]
    fn a_template_that_changes_the_identity_of_a_pod_is_a_fault() {
        let config = |template: &str| format!("policy: enabled\ntemplates: {{sidecar: {template:?}}}\n");
        let rest = "spec: {containers: [{name: istio-proxy, image: p}]}";
        for (identity, field) in [
            ("metadata: {namespace: other}", "metadata.namespace"),
            ("metadata: {name: other}", "metadata.name"),
            ("metadata: {name: null}", "metadata.name"),
            ("metadata: {generateName: other-}", "metadata.generateName"),
            ("kind: Deployment", "kind"),
            ("apiVersion: v2", "apiVersion"),
        ] {
            let found = faults(&config(&format!("{identity}\n{rest}")));
            assert_eq!(found.len(), 1, "{identity}: {found:?}");
            assert!(
                found[0].contains(&format!("template sidecar: its output would change {field}")),
                "{found:?}"
            );
        }
        for same in [
            "apiVersion: v1\nkind: Pod\nmetadata: {name: '{{ .ObjectMeta.Name }}'}",
            "metadata: {namespace: '{{ .DeploymentMeta.Namespace }}', generateName: ''}",
        ] {
            assert_eq!(faults(&config(&format!("{same}\n{rest}"))), [""; 0]);
        }
    }

    #[test]
    fn faults_of_a_config() {
        let config = |template: &str| format!("policy: enabled\ntemplates: {{sidecar: {template:?}}}\n");
        let proxy = "spec: {containers: [{name: istio-proxy, image: p}]}";
        let init = "spec: {initContainers: [{name: istio-init, image: i}, {name: istio-proxy}]}";
        let gone = "spec: {containers: [{name: sample, $patch: delete}, {name: istio-proxy, image: p}]}";
        for (text, fault) in [
            (config(proxy), None),
            (config(init), Some("gets istio-init and no istio-proxy")),
            (config(gone), Some("loses it")),
            (config("metadata: {labels: {a: b}}"), Some("add no container")),
            (config("spec:"), Some("add no container")),
            (config("").replace("enabled", "disabled"), None),
            (format!("aliases: {{none: []}}\ndefaultTemplates: [none]\n{}", config(proxy)), Some("add no")),
            (config("spec: {containers: [{image: p}]}"), Some("merge key")),
            // The line differs, with what is wrong there.
            (
                config("{{ if .NativeSidecars }}\n{{ end }}\nspec: {containers: x}"),
                Some("output is not a pod"),
            ),
        ] {
            let faults = faults(&text);
            assert_eq!(faults.len(), usize::from(fault.is_some()), "{text}{faults:?}");
            assert!(fault.is_none_or(|part| faults[0].contains(part)), "{text}{faults:?}");
        }
    }
}
