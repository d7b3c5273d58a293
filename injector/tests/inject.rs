//! The built-in config: the defaults, and what holds for every pod.

use crate::builtin::{deployment, inject, injector, native, with, workload};
use proptest::prelude::*;
use serde_json::{Value, json};
use sidecar_injector::config::{Source, Sources};
use sidecar_injector::inject::{InjectionContext, Injector, Options, Request, functions};
use sidecar_injector::pod::init_options::InitOptions;

fn names(pod: &Value, list: &str) -> Vec<String> {
    let items = pod["spec"][list].as_array().cloned().unwrap_or_default();
    items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
}

/// A pod whose proxy the user has customized.
fn customized() -> Value {
    let mut customized = deployment();
    customized["spec"]["containers"].as_array_mut().unwrap().insert(
        0,
        json!({"name": "istio-proxy", "image": "auto", "ports": [{"containerPort": 9901}],
               "env": [{"name": "EXTRA", "value": "1"}], "securityContext": {"runAsUser": 1234},
               "volumeMounts": [{"name": "own", "mountPath": "/own"}]}),
    );
    customized["spec"]["volumes"] = json!([{"name": "own", "emptyDir": {}}]);
    customized
}

/// Where the proxy is no native sidecar, what the user writes among the init containers customizes the one
/// among the containers.
#[test]
fn own_proxy_among_init_containers_customizes_a_regular_one() {
    let mut pod = deployment();
    let own = json!({"name": "istio-proxy", "image": "auto", "env": [{"name": "EXTRA", "value": "1"}]});
    pod["spec"]["initContainers"] =
        json!([{"name": "first", "image": "i"}, own, {"name": "last", "image": "i"}]);
    let (injector, workload, context) = (injector(), workload(), InjectionContext::default());
    let once = injector.inject(Request { pod: &pod, workload: &workload, context: &context }).unwrap().pod;
    assert_eq!(names(&once, "initContainers"), ["first", "last", "istio-init"]);
    assert_eq!(names(&once, "containers"), ["web", "istio-proxy"]);
    let proxy = &once["spec"]["containers"][1];
    assert!(proxy["env"].as_array().unwrap().contains(&json!({"name": "EXTRA", "value": "1"})), "{proxy}");
    assert_ne!(proxy["image"], "auto");
    // Only init containers have it.
    pod["spec"]["initContainers"][1]["restartPolicy"] = json!("Always");
    let error = injector.inject(Request { pod: &pod, workload: &workload, context: &context }).unwrap_err();
    assert!(error.to_string().contains("(sidecar) has this container in spec.initContainers"), "{error}");
}

fn pods() -> Vec<(&'static str, Value)> {
    let mut probed = deployment();
    let app = &mut probed["spec"]["containers"][0];
    app["livenessProbe"] = json!({"httpGet": {"port": 80, "path": "/live"}, "periodSeconds": 7});
    app["readinessProbe"] = json!({"grpc": {"port": 9090}});
    app["lifecycle"] = json!({"preStop": {"tcpSocket": {"port": 80}}});
    vec![
        ("plain", deployment()),
        ("customized", customized()),
        ("probed", probed.clone()),
        ("scraped", with(&probed, &json!({"prometheus.io/scrape": "true", "prometheus.io/port": "8080"}))),
        ("classic", with(&deployment(), &json!({"sidecar.istio.io/nativeSidecar": "false"}))),
        ("uncaptured", with(&deployment(), &json!({"sidecar.istio.io/interceptionMode": "NONE"}))),
        ("TPROXY", with(&deployment(), &json!({"sidecar.istio.io/interceptionMode": "TPROXY"}))),
        ("no probes", with(&probed, &json!({"status.sidecar.istio.io/port": "0"}))),
        ("resources", with(&deployment(), &json!({"sidecar.istio.io/proxyCPU": "50m"}))),
        (
            "proxy config",
            with(
                &deployment(),
                &json!({"proxy.istio.io/config": "proxyMetadata: {A: \"1\"}\nconcurrency: 2\n"}),
            ),
        ),
        (
            "volumes",
            with(
                &deployment(),
                &json!({"sidecar.istio.io/userVolume": "{\"extra\": {\"emptyDir\": {}}}",
                        "sidecar.istio.io/userVolumeMount": "{\"extra\": {\"mountPath\": \"/extra\"}}"}),
            ),
        ),
        (
            "gateway",
            json!({"metadata": {"annotations": {"inject.istio.io/templates": "gateway"}},
                   "spec": {"containers": [{"name": "istio-proxy", "image": "auto"}]}}),
        ),
    ]
}

#[test]
fn a_pod_gets_capture_and_proxy() {
    let injected = inject(&injector(), &deployment()).unwrap();
    assert_eq!(names(&injected.pod, "containers"), ["web"]);
    assert_eq!(names(&injected.pod, "initContainers"), ["istio-init", "istio-proxy"]);
    assert_eq!(injected.warnings, [""; 0]);
    let init = &injected.pod["spec"]["initContainers"][0];
    assert_eq!(init["name"], "istio-init");
    let resolved = InitOptions::of(&injected.pod).unwrap().resolved.unwrap();
    let given: Vec<String> = resolved.given.iter().map(ToString::to_string).collect();
    assert_eq!(
        given,
        [
            "proxy-uid=1337",
            "istio-inbound-ports=*",
            "istio-local-exclude-ports=15090,15021,15020",
            "istio-service-cidr=*"
        ]
    );
}

#[test]
fn every_pod_is_injected_with_arguments_that_the_init_binary_takes() {
    for (what, pod) in pods() {
        let injected = inject(&injector(), &pod).unwrap_or_else(|error| panic!("{what}: {error}"));
        if let Some(init) = InitOptions::of(&injected.pod) {
            assert!(init.resolved.is_some() && init.foreign.is_empty(), "{what}: {init:?}");
        }
    }
}

#[test]
fn a_second_injection_changes_no_byte() {
    for (what, pod) in pods() {
        let injector = injector();
        let once = inject(&injector, &pod).unwrap_or_else(|error| panic!("{what}: {error}"));
        let twice = inject(&injector, &once.pod).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(twice.pod.to_string(), once.pod.to_string(), "{what}");
    }
}

#[test]
fn nothing_stays_when_the_proxy_moves() {
    let (injector, workload) = (injector(), workload());
    let inject = |pod: &Value, native_sidecars| {
        let context = InjectionContext { native_sidecars, ..InjectionContext::default() };
        injector.inject(Request { pod, workload: &workload, context: &context }).unwrap().pod
    };
    let held = with(
        &deployment(),
        &json!({"proxy.istio.io/config": "holdApplicationUntilProxyStarts: true", "prometheus.io/port": "8080"}),
    );
    for (what, pod) in pods().into_iter().chain([("held", held.clone())]) {
        for native in [false, true] {
            let (direct, moved) = (inject(&pod, native), inject(&inject(&pod, !native), native));
            let spec = |pod: &Value, list: &str| {
                let mut items = pod["spec"][list].as_array().cloned().unwrap_or_default();
                items.sort_by_key(|item| item["name"].to_string());
                items
            };
            for list in ["containers", "initContainers"] {
                assert_eq!(spec(&moved, list), spec(&direct, list), "{what}, native: {native}");
            }
        }
    }
    // Later additions stay.
    let mut classic = inject(&held, false);
    let proxy = classic["spec"]["containers"].as_array_mut().unwrap();
    let proxy = proxy.iter_mut().find(|container| container["name"] == "istio-proxy").unwrap();
    assert_ne!(proxy["lifecycle"]["postStart"], json!(null));
    proxy["env"].as_array_mut().unwrap().push(json!({"name": "ADDED", "value": "1"}));
    proxy["terminationMessagePath"] = json!("/dev/termination-log");
    let native = inject(&classic, true);
    let proxy = &native["spec"]["initContainers"][1];
    assert_eq!(proxy["lifecycle"].get("postStart"), None);
    assert_eq!(proxy["terminationMessagePath"], "/dev/termination-log");
    assert!(proxy["env"].as_array().unwrap().contains(&json!({"name": "ADDED", "value": "1"})));
    assert_eq!(inject(&native, true).to_string(), native.to_string());
}

/// An upgrade that also makes the proxy a native sidecar.
#[test]
fn proxy_of_another_config_is_rendered_again_when_it_moves() {
    let workload = workload();
    let inject = |pod: &Value, tag: &str, native_sidecars| {
        let text = json!({"global": {"tag": tag}}).to_string();
        let values = Some(Source { name: "values.yaml".to_owned(), text });
        let settings = Sources { values, ..Sources::default() }.load(&functions(|_| None)).unwrap();
        let context = InjectionContext { native_sidecars, ..InjectionContext::default() };
        let injector = Injector::new(settings, Options::default());
        injector.inject(Request { pod, workload: &workload, context: &context }).unwrap().pod
    };
    fn proxy(pod: &mut Value) -> &mut Value {
        let lists = pod["spec"].as_object_mut().unwrap().iter_mut();
        let lists = lists.filter(|(list, _)| list.ends_with("ontainers"));
        let items = lists.flat_map(|(_, items)| items.as_array_mut().unwrap());
        let mut items = items.filter(|container| container["name"] == "istio-proxy");
        let proxy = items.next().unwrap();
        assert!(items.next().is_none(), "a second one");
        proxy
    }
    let held =
        with(&deployment(), &json!({"proxy.istio.io/config": "holdApplicationUntilProxyStarts: true"}));
    for native in [false, true] {
        let direct = proxy(&mut inject(&held, "1.29.0", native)).clone();
        let mut older = inject(&held, "1.28.0", !native);
        let mut moved = inject(&older, "1.29.0", native);
        assert_eq!(*proxy(&mut moved), direct);
        assert_eq!(inject(&moved, "1.29.0", native).to_string(), moved.to_string());
        // Additions by others stay.
        proxy(&mut older)["env"].as_array_mut().unwrap().push(json!({"name": "ADDED", "value": "1"}));
        let mut moved = inject(&older, "1.29.0", native);
        assert_eq!(proxy(&mut moved)["image"], direct["image"]);
        assert!(proxy(&mut moved)["env"].to_string().contains("ADDED"));
        assert_eq!(inject(&moved, "1.29.0", native).to_string(), moved.to_string());
        // More arguments count as the user's changes.
        proxy(&mut older)["args"].as_array_mut().unwrap().push(json!("--concurrency=2"));
        let mut same = inject(&older, "1.28.0", native);
        assert!(proxy(&mut same)["args"].to_string().contains("--concurrency=2"));
        assert_eq!(inject(&same, "1.28.0", native).to_string(), same.to_string());
    }
}

#[test]
fn uninject_gives_the_pod_back() {
    for (what, pod) in pods() {
        let (injector, workload) = (injector(), workload());
        let injected = inject(&injector, &pod).unwrap_or_else(|error| panic!("{what}: {error}"));
        let context = native();
        let request = |pod| Request { pod, workload: &workload, context: &context };
        let out = injector.uninject(request(&injected.pod)).unwrap().expect(what);
        assert_eq!(out.pod, pod, "{what}: {:?}", out.left);
        assert_eq!(injector.uninject(request(&pod)), Ok(None), "{what}");
    }
}

#[test]
fn what_others_change_after_an_injection_survives_the_next() {
    let injector = injector();
    let mut pod = inject(&injector, &deployment()).unwrap().pod;
    let apps = pod["spec"]["containers"].as_array_mut().unwrap();
    apps[0]["image"] = json!("web:2");
    apps.push(json!({"name": "agent", "image": "agent:1", "livenessProbe": {"httpGet": {"port": 5}}}));
    let env = pod["spec"]["initContainers"][1]["env"].as_array_mut().unwrap();
    env.push(json!({"name": "ADDED", "value": "1"}));
    let again = inject(&injector, &pod).unwrap().pod;
    assert_eq!(again["spec"]["containers"][0]["image"], "web:2");
    assert_eq!(again["spec"]["containers"][1]["livenessProbe"]["httpGet"]["path"], "/app-health/agent/livez");
    let env = again["spec"]["initContainers"][1]["env"].as_array().unwrap();
    let value = |name: &str| env.iter().find(|item| item["name"] == name).map(|item| item["value"].clone());
    assert_eq!(value("ADDED"), Some(json!("1")));
    assert_eq!(value("ISTIO_META_APP_CONTAINERS"), Some(json!("web,agent")));
}

#[test]
fn without_the_agent_s_port_probes_stay() {
    let port = "status.sidecar.istio.io/port";
    let mut pod = deployment();
    let probe = json!({"httpGet": {"path": "/ready", "port": "http"}});
    pod["spec"]["containers"][0]["readinessProbe"] = probe.clone();
    let none = with(&pod, &json!({ port: "0" }));
    let noted = |pod: &Value| pod.to_string().contains("ISTIO_KUBE_APP_PROBERS");
    let injected = inject(&injector(), &none).unwrap().pod;
    assert_eq!(injected["spec"]["containers"][0]["readinessProbe"], probe);
    assert!(!noted(&injected));
    assert_eq!(inject(&injector(), &injected).unwrap().pod, injected);
    let (workload, context) = (workload(), native());
    let request = Request { pod: &injected, workload: &workload, context: &context };
    assert_eq!(injector().uninject(request).unwrap().unwrap().pod, none);
    // The port is taken away, and given back, between two injections.
    let mut before = inject(&injector(), &pod).unwrap().pod;
    assert_eq!(before["spec"]["containers"][0]["readinessProbe"]["httpGet"]["port"], 15020);
    before["metadata"]["annotations"][port] = json!("0");
    let mut after = inject(&injector(), &before).unwrap().pod;
    assert_eq!(after["spec"]["containers"][0]["readinessProbe"], probe);
    assert!(!noted(&after));
    after["metadata"]["annotations"][port] = json!("15020");
    let again = inject(&injector(), &after).unwrap().pod;
    assert_eq!(again["spec"]["containers"][0]["readinessProbe"]["httpGet"]["path"], "/app-health/web/readyz");
    assert!(noted(&again));
}

#[test]
fn metrics_settings_that_no_note_records_are_named() {
    let workload = workload();
    let mut without_note = injector();
    without_note.settings.values["sidecarInjectorWebhook"]["uninjectAnnotation"] = json!(false);
    let uninjected = |injector: &Injector, pod: &Value| {
        let injected = inject(injector, pod).unwrap().pod;
        let request = Request { pod: &injected, workload: &workload, context: &native() };
        let out = injector.uninject(request).unwrap().unwrap();
        let start = "prometheus.io/port and prometheus.io/path:";
        (out.pod == *pod, out.left.iter().any(|note| note.starts_with(start)))
    };
    let targets = json!({"prometheus.istio.io/scrape-targets": "8080:/m", "prometheus.io/port": "9"});
    let targets = with(&deployment(), &targets);
    assert_eq!(uninjected(&without_note, &targets), (false, true));
    assert_eq!(uninjected(&injector(), &targets), (true, false));
    let port = with(&deployment(), &json!({"prometheus.io/port": "9"}));
    for injector in [without_note, injector()] {
        assert_eq!(uninjected(&injector, &port), (true, false));
    }
}

#[test]
fn a_foreign_status_removes_no_app_container() {
    let (injector, workload) = (injector(), workload());
    let status = r#"{"containers":["web","istio-proxy"],"volumes":["own","absent"]}"#;
    let mut pod = with(&deployment(), &json!({"sidecar.istio.io/status": status}));
    pod["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "other", "image": "i"}));
    pod["spec"]["volumes"] = json!([{"name": "own", "emptyDir": {}}]);
    let named = |lines: &[String]| -> Vec<String> {
        let lines =
            lines.iter().filter_map(|line| line.split_once(": annotation sidecar.istio.io/status says"));
        lines.map(|(what, _)| what.to_owned()).collect()
    };
    let expected = ["web stays in spec.containers", "own is removed from spec.volumes"];
    let injected = inject(&injector, &pod).unwrap();
    assert_eq!(named(&injected.warnings), expected);
    assert_eq!(names(&injected.pod, "containers"), ["web", "other"]);
    assert_eq!(injected.pod["spec"]["containers"][0], pod["spec"]["containers"][0]);
    let uninject = |pod: &Value| {
        let request = Request { pod, workload: &workload, context: &native() };
        injector.uninject(request).unwrap().unwrap()
    };
    let left = |pod: &Value| uninject(pod).left;
    assert_eq!(named(&left(&pod)), expected);
    assert_eq!(names(&uninject(&pod).pod, "containers"), ["web", "other"]);
    for (what, pod) in pods() {
        let injected = inject(&injector, &pod).unwrap().pod;
        assert_eq!(named(&inject(&injector, &injected).unwrap().warnings), [""; 0], "{what}");
        assert_eq!(named(&left(&injected)), [""; 0], "{what}");
    }
}

#[test]
fn the_built_in_templates_follow_image_and_volumes() {
    let annotations = json!({
        "sidecar.istio.io/proxyImage": "my/proxy:1",
        "sidecar.istio.io/userVolume": "{\"b\": {\"configMap\": {\"name\": \"c\"}}, \"a\": {\"emptyDir\": {}}}",
        "sidecar.istio.io/userVolumeMount": "{\"a\": {\"mountPath\": \"/a: x\", \"readOnly\": true}}",
    });
    let injected = inject(&injector(), &with(&deployment(), &annotations)).unwrap();
    assert_eq!(injected.warnings, [""; 0]);
    let [init, proxy] = injected.pod["spec"]["initContainers"].as_array().unwrap().as_slice() else {
        panic!("{}", injected.pod);
    };
    assert_eq!((&init["image"], &proxy["image"]), (&json!("my/proxy:1"), &json!("my/proxy:1")));
    let mounts = proxy["volumeMounts"].as_array().unwrap();
    assert!(mounts.contains(&json!({"name": "a", "mountPath": "/a: x", "readOnly": true})), "{mounts:?}");
    let volumes = injected.pod["spec"]["volumes"].as_array().unwrap();
    assert!(volumes.contains(&json!({"name": "a", "emptyDir": {}})), "{volumes:?}");
    assert!(volumes.contains(&json!({"name": "b", "configMap": {"name": "c"}})), "{volumes:?}");
    let gateway = json!({"metadata": {"annotations": {"inject.istio.io/templates": "gateway", "sidecar.istio.io/proxyImage": "my/proxy:1"}},
                         "spec": {"containers": [{"name": "istio-proxy", "image": "auto"}]}});
    assert_eq!(inject(&injector(), &gateway).unwrap().pod["spec"]["containers"][0]["image"], "my/proxy:1");
}

#[test]
fn annotations_that_no_applied_template_reads_are_warned_of() {
    let annotations = json!({"sidecar.istio.io/bootstrapOverride": "map", "sidecar.istio.io/capNetBindService": "true",
                             "inject.istio.io/templates": "gateway"});
    let warnings = inject(&injector(), &with(&deployment(), &annotations)).unwrap().warnings;
    let expected =
        "annotation sidecar.istio.io/capNetBindService has no effect: none of the applied templates reads it";
    assert_eq!(warnings, [expected]);
}

#[test]
fn log_as_json_reaches_every_container() {
    let gateway = json!({"metadata": {"annotations": {"inject.istio.io/templates": "gateway"}},
                         "spec": {"containers": [{"name": "istio-proxy", "image": "auto"}]}});
    for wanted in [true, false] {
        let text = json!({"global": {"logAsJson": wanted}}).to_string();
        let values = Some(Source { name: "values.yaml".to_owned(), text });
        let settings = Sources { values, ..Sources::default() }.load(&functions(|_| None)).unwrap();
        let injector = Injector::new(settings, Options::default());
        let given = |pod: &Value, list: &str, name: &str| {
            let pod = inject(&injector, pod).unwrap().pod;
            let containers = pod["spec"][list].as_array().unwrap();
            let container = containers.iter().find(|container| container["name"] == name).unwrap();
            container["args"].as_array().unwrap().contains(&json!("--log_as_json"))
        };
        assert_eq!(given(&deployment(), "initContainers", "istio-init"), wanted);
        assert_eq!(given(&deployment(), "initContainers", "istio-proxy"), wanted);
        assert_eq!(given(&gateway, "containers", "istio-proxy"), wanted);
    }
}

#[test]
fn config_from_before_istio_1_1_works() {
    let config = "policy: enabled\ntemplate: |-\n  initContainers:\n  - name: istio-init\n    image: proxy_init:1.0.2\n    args:\n    \
                  - \"-p\"\n    - [[ .MeshConfig.ProxyListenPort ]]\n    - \"-u\"\n    - 1337\n  containers:\n  - name: istio-proxy\n    \
                  image: [[ if (isset .ObjectMeta.Annotations \"sidecar.istio.io/proxyImage\") -]]\n    \
                  \"[[ index .ObjectMeta.Annotations \"sidecar.istio.io/proxyImage\" ]]\"\n    [[ else -]]\n    proxyv2:1.0.2\n    \
                  [[ end -]]\n    env:\n    - name: ISTIO_META_INTERCEPTION_MODE\n      value: [[ or (index .ObjectMeta.Annotations \
                  \"sidecar.istio.io/interceptionMode\") .ProxyConfig.InterceptionMode.String ]]\n";
    let sources = Sources {
        config: Some(Source { name: "inject-config.yaml".to_owned(), text: config.to_owned() }),
        mesh: Some(Source { name: "mesh-config.yaml".to_owned(), text: "proxyListenPort: 15002".to_owned() }),
        ..Sources::default()
    };
    let injector = Injector::new(sources.load(&functions(|_| None)).unwrap(), Options::default());
    let pod = inject(&injector, &deployment()).unwrap().pod;
    assert_eq!(pod["spec"]["initContainers"][0]["args"], json!(["-p", "15002", "-u", "1337"]));
    let proxy = &pod["spec"]["containers"][1];
    assert_eq!((&proxy["image"], &proxy["env"][0]["value"]), (&json!("proxyv2:1.0.2"), &json!("REDIRECT")));
    let own = with(&deployment(), &json!({"sidecar.istio.io/proxyImage": "my/proxy:1"}));
    assert_eq!(inject(&injector, &own).unwrap().pod["spec"]["containers"][1]["image"], "my/proxy:1");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_order_of_containers_is_a_fixed_point(
        apps in prop::collection::vec(("[a-z]{1,5}", 0u16..3, any::<bool>()), 1..4),
        init in prop::collection::vec("[a-z]{1,5}", 0..3),
        proxy in prop::option::of((0usize..4, any::<bool>())),
        native in any::<bool>(),
    ) {
        let app = |(at, (name, ports, probe)): (usize, &(String, u16, bool))| {
            let ports: Vec<Value> = (0..*ports).map(|port| json!({"containerPort": 100 * (at as u16 + 1) + port})).collect();
            let mut app = json!({"name": format!("{name}-{at}"), "image": "i", "ports": ports});
            if *probe {
                app["readinessProbe"] = json!({"httpGet": {"port": 8}});
            }
            app
        };
        let mut containers: Vec<Value> = apps.iter().enumerate().map(app).collect();
        if let Some((at, ports)) = proxy {
            let own = if ports { json!([{"containerPort": 77}]) } else { json!([]) };
            containers.insert(at.min(containers.len()), json!({"name": "istio-proxy", "image": "auto", "ports": own}));
        }
        let init: Vec<Value> = init.iter().enumerate().map(|(at, name)| json!({"name": format!("{name}-i{at}"), "image": "i"})).collect();
        let pod = json!({"metadata": {}, "spec": {"containers": containers, "initContainers": init}});
        let injector = injector();
        let context = InjectionContext { native_sidecars: native, ..InjectionContext::default() };
        let workload = workload();
        let request = |pod| Request { pod, workload: &workload, context: &context };
        let once = injector.inject(request(&pod)).unwrap().pod;
        let twice = injector.inject(request(&once)).unwrap().pod;
        prop_assert_eq!(twice.to_string(), once.to_string());
        // Without ports nothing says where among the containers the user's proxy stood.
        let all_have_ports = apps.iter().all(|(_, ports, _)| *ports > 0);
        if proxy.is_none_or(|(at, ports)| ports && all_have_ports || at >= apps.len()) {
            let out = injector.uninject(request(&once)).unwrap().unwrap();
            prop_assert_eq!(without_empty(out.pod), without_empty(pod));
        }
    }
}

/// Empty lists and maps count as absent.
fn without_empty(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().map(|(key, value)| (key, without_empty(value)));
            Value::Object(kept.filter(|(_, value)| *value != json!([]) && *value != json!({})).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_empty).collect()),
        other => other,
    }
}
