use serde_json::json;

use super::*;
use crate::config::{Source, Sources};

fn shareable<T: Send + Sync>(value: T) -> T {
    value
}

fn injector(config: &Value) -> Injector {
    let config = Source { name: "config".to_owned(), text: config.to_string() };
    let sources = Sources { config: Some(config), ..Sources::default() };
    shareable(Injector::new(sources.load(&functions(|_| None)).unwrap(), Options::default()))
}

fn inject(injector: &Injector, pod: &Value) -> Injected {
    let workload = Workload::of_pod(pod, "");
    injector.inject(Request { pod, workload: &workload, context: &InjectionContext::default() }).unwrap()
}

/// A config with one template, in JSON, which is YAML.
fn config(image: &str, arguments: &[&str], volume: &str) -> Value {
    let template = json!({"spec": {
        "containers": [{"name": "istio-proxy", "image": image, "args": arguments, "env": [{"name": "A", "value": "1"}]}],
        "volumes": [{"name": volume, "emptyDir": {}}],
    }});
    json!({"policy": "enabled", "templates": {"sidecar": template.to_string()}})
}

fn app() -> Value {
    json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "app", "image": "i"}]}})
}

fn proxy(injected: &Injected) -> &Value {
    list::proxy(&injected.pod).unwrap()
}

#[test]
fn new_template_refreshes_and_what_it_lacks_goes() {
    let first = inject(&injector(&config("p:1", &["a"], "old")), &app());
    let again = inject(&injector(&config("p:2", &["b"], "new")), &first.pod);
    assert_eq!((&proxy(&again)["image"], &proxy(&again)["args"]), (&json!("p:2"), &json!(["b"])));
    assert_eq!(again.pod["spec"]["volumes"], json!([{"name": "new", "emptyDir": {}}]));
    let mut used = first.pod;
    used["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "old", "mountPath": "/x"}]);
    let again = inject(&injector(&config("p:2", &["b"], "new")), &used);
    assert_eq!(again.pod["spec"]["volumes"].as_array().unwrap().len(), 2);
}

/// Any client can write a status: a container that the templates define in the other list is the app's.
#[test]
fn app_container_that_the_status_lists_is_not_removed() {
    for (list, templates) in [("containers", "initContainers"), ("initContainers", "containers")] {
        let template = json!({"spec": {templates: [{"name": "setup", "image": "s"}]}});
        let injector =
            injector(&json!({"policy": "enabled", "templates": {"sidecar": template.to_string()}}));
        let mut pod = app();
        let mut items = pod["spec"][list].as_array().cloned().unwrap_or_default();
        items.push(json!({"name": "setup", "image": "own"}));
        pod["spec"][list] = json!(items);
        pod["metadata"]["annotations"] = json!({(keys::STATUS): json!({list: ["setup"]}).to_string()});
        let (workload, context) = (Workload::of_pod(&pod, ""), InjectionContext::default());
        let result = injector.inject(Request { pod: &pod, workload: &workload, context: &context });
        assert!(matches!(result, Err(InjectError::ContainerNameConflict { .. })), "{list}: {result:?}");
    }
}

/// Work is counted, not timed.
#[test]
fn work_grows_linearly_with_volumes_and_variables() {
    let names_read = |count: usize| {
        let named = |prefix: &str| -> Value {
            (0..count).map(|n| json!({"name": format!("{prefix}{n}"), "emptyDir": {}})).collect()
        };
        let template = json!({"spec": {
            "containers": [{"name": "istio-proxy", "image": "p", "env": named("E")}],
            "volumes": named("added"),
        }});
        let injector =
            injector(&json!({"policy": "enabled", "templates": {"sidecar": template.to_string()}}));
        let mut pod = app();
        pod["spec"]["volumes"] = named("own");
        let before = list::NAMES_READ.get();
        let once = inject(&injector, &pod);
        let twice = inject(&injector, &once.pod);
        assert_eq!(twice.pod["spec"]["volumes"].as_array().unwrap().len(), 2 * count);
        list::NAMES_READ.get() - before
    };
    let (few, many) = (names_read(2_000), names_read(20_000));
    assert!(many <= 11 * few, "{few} names are read for 2,000, {many} for 20,000");
}

/// A status that lists containers which no template has: all of them stay where they are.
#[test]
fn work_grows_linearly_with_containers_that_a_status_lists() {
    let injector = injector(&config("p:1", &["a"], "v"));
    let names_read = |count: usize| {
        let names: Vec<String> = (0..count).map(|n| format!("c{n}")).collect();
        let mut pod = app();
        let all = pod["spec"]["containers"].as_array_mut().unwrap();
        all.extend(names.iter().map(|name| json!({"name": name, "image": "i"})));
        let status = json!({"containers": names, "initContainers": null}).to_string();
        pod["metadata"] = json!({"annotations": {"sidecar.istio.io/status": status}});
        let before = list::NAMES_READ.get();
        let injected = inject(&injector, &pod).pod;
        let read = list::NAMES_READ.get() - before;
        let kept: Vec<&str> =
            list::containers(&injected, list::List::Containers).iter().map(list::name).collect();
        let expected: Vec<&str> = std::iter::once("app").chain(names.iter().map(String::as_str)).collect();
        assert_eq!(&kept[..=count], expected, "in their order");
        read
    };
    let (few, many) = (names_read(200), names_read(2_000));
    assert!(many <= 11 * few, "{few} names are read for 200, {many} for 2,000");
}

#[test]
fn arguments_added_since_the_injection_are_preserved() {
    let injector = injector(&config("p:1", &["a"], "v"));
    let mut pod = inject(&injector, &app()).pod;
    pod["spec"]["containers"][1]["args"] = json!(["a", "mine"]);
    let again = inject(&injector, &pod);
    assert_eq!(proxy(&again)["args"], json!(["a", "mine"]));
    assert!(
        again.warnings.iter().any(|warning| warning.contains("it is not changed")),
        "{:?}",
        again.warnings
    );
    assert_eq!(inject(&injector, &again.pod).pod, again.pod);
}

#[test]
fn arguments_follow_annotations() {
    let template = "spec: {containers: [{name: istio-proxy, image: p, args: [{{ annotation .ObjectMeta `level` `info` }}]}]}";
    let injector = injector(&json!({"policy": "enabled", "templates": {"sidecar": template}}));
    let mut pod = inject(&injector, &app()).pod;
    pod["metadata"]["annotations"]["level"] = json!("debug");
    let again = inject(&injector, &pod);
    assert_eq!(proxy(&again)["args"], json!(["debug"]));
    assert_eq!(again.warnings, [""; 0]);
}

#[test]
fn every_annotation_that_is_wrong_is_reported_at_once() {
    let mut pod = app();
    pod["metadata"]["annotations"] = json!({
        "proxy.istio.io/config": "proxyMetadata: {A: 1}",
        "proxy.istio.io/overrides": "[]",
        "sidecar.istio.io/status": "{}",
        "sidecar.istio.io/proxyCPU": "x",
    });
    let injector = injector(&config("p:1", &[], "v"));
    let workload = Workload::of_pod(&pod, "");
    let error = injector
        .inject(Request { pod: &pod, workload: &workload, context: &InjectionContext::default() })
        .unwrap_err();
    let text = error.to_string();
    let keys: Vec<&str> = text.lines().map(|line| line.split([' ', ':']).nth(1).unwrap()).collect();
    assert_eq!(
        keys,
        ["proxy.istio.io/config", "proxy.istio.io/overrides", "sidecar.istio.io/proxyCPU"],
        "{text}"
    );
}

#[test]
fn unknown_fields_of_the_proxy_config_get_a_warning() {
    let mut pod = app();
    pod["metadata"]["annotations"] = json!({"proxy.istio.io/config": "concurency: 2"});
    let injected = inject(&injector(&config("p:1", &[], "v")), &pod);
    assert_eq!(
        injected.warnings,
        ["annotation proxy.istio.io/config: concurency: not known, ignored; did you mean concurrency?"]
    );
}

#[test]
fn environment_network_and_injected_annotations() {
    let mut config = config("p:1", &[], "v");
    config["injectedAnnotations"] = json!({"x": "y"});
    let environment = vec![
        ("ISTIO_META_NETWORK".to_owned(), "n".to_owned()),
        ("ISTIO_META_CLUSTER_ID".to_owned(), "c".to_owned()),
    ];
    let (injector, workload, pod) = (injector(&config), Workload::default(), app());
    let context = InjectionContext { environment, ..InjectionContext::default() };
    let injected = injector.inject(Request { pod: &pod, workload: &workload, context: &context }).unwrap();
    let names: Vec<&Value> =
        proxy(&injected)["env"].as_array().unwrap().iter().map(|item| &item["name"]).collect();
    assert_eq!(names, ["A", "ISTIO_META_CLUSTER_ID", "ISTIO_META_NETWORK"]);
    assert_eq!(injected.pod["metadata"]["labels"]["topology.istio.io/network"], "n");
    assert_eq!(injected.pod["metadata"]["annotations"]["x"], "y");
}

#[test]
fn template_removes_nothing_without_a_directive() {
    let mut pod = app();
    pod["metadata"]["labels"] = json!({"app": "web"});
    pod["spec"]["initContainers"] = json!([{"name": "first", "image": "i"}]);
    pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    let with = |template: &str| injector(&json!({"policy": "enabled", "templates": {"sidecar": template}}));
    for silent in [
        "spec:",
        "metadata:",
        "spec: {containers: , initContainers: , volumes: }",
        "metadata: {labels: , annotations: }",
        "# nothing",
    ] {
        let injected = inject(&with(silent), &pod).pod;
        assert_eq!(injected["spec"], pod["spec"], "{silent}");
        assert_eq!(injected["metadata"]["labels"], pod["metadata"]["labels"], "{silent}");
    }
    let deletes = "spec: {volumes: [{name: data, $patch: delete}], priority: }";
    assert_eq!(inject(&with(deletes), &pod).pod["spec"]["volumes"], json!([]));
    // Templates of the 1.0 era are read forgivingly.
    for text in ["text", "containers: text", "[]"] {
        let old = injector(&json!({"policy": "enabled", "template": text}));
        let workload = Workload::of_pod(&pod, "");
        let request = Request { pod: &pod, workload: &workload, context: &InjectionContext::default() };
        let error = old.inject(request).unwrap_err().to_string();
        assert!(error.contains("template sidecar"), "{error}");
        assert!(error.contains("spec.containers app"), "{error}");
    }
}

#[test]
fn job_with_a_classic_proxy_gets_a_warning() {
    let injector = injector(&config("p:1", &["a"], "v"));
    let warned = |kind: &str| {
        let workload = Workload { kind: kind.to_owned(), ..Workload::default() };
        let request = Request { pod: &app(), workload: &workload, context: &InjectionContext::default() };
        injector.inject(request).unwrap().warnings.iter().any(|warning| warning.contains("never completes"))
    };
    assert!(warned("Job") && warned("CronJob") && !warned("Deployment"));
}

/// As a reinvocation finds it: defaults of the API server, and another webhook's limit on a volume.
#[test]
fn defaults_of_the_api_server_are_no_difference() {
    let template = json!({"spec": {
        "containers": [{"name": "istio-proxy", "image": "p", "env": [
            {"name": "A", "value": ""}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "readinessProbe": {"tcpSocket": {"port": 1}, "initialDelaySeconds": 0, "periodSeconds": 3}}],
        "volumes": [
            {"name": "podinfo", "downwardAPI": {"items": [
                {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                {"path": "annotations", "fieldRef": {"fieldPath": "metadata.annotations"}}]}},
            {"name": "data", "emptyDir": {}},
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "a"}}]}},
        ],
    }});
    let injector = injector(&json!({"policy": "enabled", "templates": {"sidecar": template.to_string()}}));
    let mut pod = inject(&injector, &app()).pod;
    let proxy = &mut pod["spec"]["containers"][1];
    assert_eq!(proxy["name"], "istio-proxy");
    proxy["env"][0].as_object_mut().unwrap().remove("value");
    proxy["env"][1]["valueFrom"]["fieldRef"]["apiVersion"] = json!("v1");
    proxy["readinessProbe"].as_object_mut().unwrap().remove("initialDelaySeconds");
    proxy["readinessProbe"]["successThreshold"] = json!(1);
    proxy["terminationMessagePath"] = json!("/dev/termination-log");
    let volumes = &mut pod["spec"]["volumes"];
    for item in volumes[0]["downwardAPI"]["items"].as_array_mut().unwrap() {
        item["fieldRef"]["apiVersion"] = json!("v1");
    }
    volumes[0]["downwardAPI"]["defaultMode"] = json!(420);
    volumes[1]["emptyDir"]["sizeLimit"] = json!("1Gi");
    volumes[2]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"] = json!(3600);
    assert_eq!(inject(&injector, &pod).pod, pod);
}
