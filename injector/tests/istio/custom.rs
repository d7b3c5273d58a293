//! Random pods with containers of the names that Istio's have: a second injection changes no byte.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use sidecar_injector::inject::{InjectionContext, Injector, Request};

use crate::builtin::{deployment, injector, workload};

fn some<T: Clone + std::fmt::Debug + 'static>(values: &[T]) -> impl Strategy<Value = T> + use<T> {
    proptest::sample::select(values.to_vec())
}

/// What a container may have besides its name.
fn container(name: &'static str) -> impl Strategy<Value = Value> {
    let probe = some(&[
        json!(null),
        json!({"httpGet": {"path": "/", "port": 80}}),
        json!({"httpGet": {"path": "/", "port": "http"}, "timeoutSeconds": 3}),
        json!({"tcpSocket": {"port": 15020}}),
        json!({"grpc": {"port": 9000, "service": ""}}),
        json!({"exec": {"command": ["true"]}}),
    ]);
    let ports = some(&[
        json!([]),
        json!([{"name": "http", "containerPort": 80}]),
        json!([{"containerPort": 80}, {"containerPort": 81, "protocol": "UDP"}]),
        json!([{"name": "metrics", "containerPort": 9090}]),
    ]);
    let more = some(&[
        json!({}),
        json!({"env": [{"name": "A", "value": "b"}, {"name": "POD_NAME", "value": ""}]}),
        json!({"securityContext": {"runAsUser": 1000, "runAsGroup": 1000}}),
        json!({"securityContext": {"capabilities": {"drop": []}, "privileged": false}}),
        json!({"volumeMounts": [{"name": "own", "mountPath": "/own"}]}),
        json!({"resources": {"limits": {"cpu": "2000m"}}, "args": []}),
        json!({"lifecycle": {"preStop": {"httpGet": {"path": "/stop", "port": 80}}}}),
    ]);
    let image = some(&["auto", "own:1"]);
    (image, ports, probe, more).prop_map(move |(image, ports, probe, more)| {
        let image = if name.starts_with("istio") { image } else { "own:1" };
        let mut container = json!({"name": name, "image": image, "ports": ports, "readinessProbe": probe});
        container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        container.as_object_mut().unwrap().retain(|_, value| !value.is_null() && *value != json!([]));
        container
    })
}

fn pod() -> impl Strategy<Value = Value> {
    let annotations = proptest::collection::vec(
        some(&[
            ("prometheus.io/port", "9090"),
            ("prometheus.io/scrape", "true"),
            ("prometheus/io/path", "/own"),
            ("prometheus.istio.io/scrape-targets", "9090:/a"),
            ("proxy.istio.io/config", "{statusPort: 15999, holdApplicationUntilProxyStarts: true}"),
            ("sidecar.istio.io/nativeSidecar", "maybe"),
            ("sidecar.istio.io/rewriteAppHTTPProbers", "false"),
            ("sidecar.istio.io/interceptionMode", "TPROXY"),
            ("kubectl.kubernetes.io/default-container", "web"),
            ("istio.io/rev", "own"),
        ]),
        0..4,
    );
    let maybe = |name| proptest::option::weighted(0.4, container(name));
    let apps = (container("web"), maybe("istio-proxy"), maybe("second"));
    let init = (maybe("istio-init"), maybe("istio-validation"), maybe("setup"));
    let proxy_first = any::<bool>();
    let proxy_is_init = proptest::bool::weighted(0.3);
    (annotations, apps, init, proxy_first, proxy_is_init).prop_map(
        |(annotations, (web, proxy, second), (init, validation, setup), first, proxy_is_init)| {
            let mut pod = deployment();
            let mut apps: Vec<Value> = [Some(web), second].into_iter().flatten().collect();
            let mut inits: Vec<Value> = [setup, init, validation].into_iter().flatten().collect();
            match (proxy, proxy_is_init) {
                (Some(proxy), true) => inits.push(proxy),
                (Some(proxy), false) if first => apps.insert(0, proxy),
                (Some(proxy), false) => apps.push(proxy),
                (None, _) => {}
            }
            pod["spec"]["containers"] = json!(apps);
            pod["spec"]["initContainers"] = json!(inits);
            pod["spec"]["volumes"] = json!([{"name": "own", "emptyDir": {}}]);
            for (key, value) in annotations {
                pod["metadata"]["annotations"][key] = json!(value);
            }
            pod
        },
    )
}

fn run(check: impl Fn(&Injector, &Value, &InjectionContext) -> Result<bool, String>) {
    let injector = injector();
    let config = Config { cases: 2000, failure_persistence: None, ..Config::default() };
    let (problems, taken) = (std::cell::RefCell::new(Vec::new()), std::cell::Cell::new(0));
    let mut runner = TestRunner::new_with_rng(
        config,
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let strategy = (pod(), any::<bool>());
    runner
        .run(&strategy, |(pod, native_sidecars)| {
            let context = InjectionContext { native_sidecars, ..InjectionContext::default() };
            match check(&injector, &pod, &context) {
                Ok(checked) => taken.set(taken.get() + usize::from(checked)),
                Err(problem) => problems.borrow_mut().push(format!("{pod}\n    {problem}")),
            }
            Ok(())
        })
        .unwrap();
    let problems = problems.into_inner();
    assert!(
        problems.is_empty(),
        "{} of 2000:\n{}",
        problems.len(),
        problems[..problems.len().min(8)].join("\n")
    );
}

#[test]
fn a_second_injection_of_a_customized_pod_changes_no_byte() {
    run(|injector, pod, context| {
        let workload = workload();
        let inject = |pod: &Value| injector.inject(Request { pod, workload: &workload, context });
        let Ok(once) = inject(pod) else { return Ok(false) };
        let twice = inject(&once.pod).map_err(|error| error.to_string())?;
        let difference = super::difference("", &once.pod, &twice.pod);
        difference.map_or(Ok(true), Err)
    });
}
