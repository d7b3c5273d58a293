//! What a pod has of its own that a sidecar collides with.

use crate::builtin::{deployment, inject, injector, native, workload};
use serde_json::{Value, json};
use sidecar_injector::config::Sources;
use sidecar_injector::inject::{InjectError, Injector, Options, Request, functions};

/// The warnings of an injection.
fn warnings(pod: &Value) -> Vec<String> {
    inject(&injector(), pod).unwrap().warnings
}

fn with_volume(volume: &Value) -> Value {
    let mut pod = deployment();
    pod["spec"]["volumes"] = json!([volume]);
    pod
}

#[test]
fn volume_with_a_name_of_the_template_is_reported() {
    // Kubernetes: "may not specify more than 1 volume type".
    let error =
        inject(&injector(), &with_volume(&json!({"name": "istio-envoy", "hostPath": {"path": "/x"}})));
    let Err(InjectError::VolumeNameConflict { volume, sources, templates }) = error else {
        panic!("{error:?}")
    };
    assert_eq!(
        (volume.as_str(), sources, templates),
        ("istio-envoy", vec!["hostPath".to_owned(), "emptyDir".to_owned()], vec!["sidecar".to_owned()])
    );

    let mut other = with_volume(
        &json!({"name": "istiod-ca-cert", "configMap": {"name": "the-app-s", "defaultMode": 256}}),
    );
    let found = warnings(&other);
    assert!(
        found.len() == 1 && found[0].starts_with("volume istiod-ca-cert: the pod has its own"),
        "{found:?}"
    );
    other["spec"]["volumes"][0]["name"] = json!("app-ca-cert");
    assert_eq!(warnings(&other), [""; 0]);
}

#[test]
fn volumes_of_an_earlier_injection_are_not_the_pod_s_own() {
    let once = inject(&injector(), &deployment()).unwrap();
    assert_eq!(once.warnings, [""; 0]);
    let again = inject(&injector(), &once.pod).unwrap();
    assert_eq!((again.warnings, again.pod), (Vec::new(), once.pod.clone()));
    // Without the record of the injection its volumes are as the templates have them.
    let mut bare = once.pod;
    bare["metadata"]["annotations"] = json!({});
    assert!(warnings(&bare).iter().all(|warning| !warning.starts_with("volume ")));
}

#[test]
fn containers_with_names_of_istio_s_are_reported_unless_they_customize() {
    let with_container = |list: &str, container: Value| {
        let mut pod = deployment();
        let mut all = pod["spec"][list].as_array().cloned().unwrap_or_default();
        all.push(container);
        pod["spec"][list] = json!(all);
        pod
    };
    let found =
        warnings(&with_container("initContainers", json!({"name": "istio-init", "image": "busybox"})));
    assert!(
        found
            .iter()
            .any(|warning| warning
                .starts_with("container istio-init: the pod has its own, with image busybox")),
        "{found:?}"
    );
    let found = warnings(&with_container("containers", json!({"name": "istio-proxy", "image": "nginx:1"})));
    assert!(
        found
            .iter()
            .any(|warning| warning
                .starts_with("container istio-proxy: the pod has its own, with image nginx:1")),
        "{found:?}"
    );
    let customized = with_container("containers", json!({"name": "istio-proxy", "image": "auto"}));
    assert_eq!(warnings(&customized), [""; 0]);
}

/// `kubectl debug --copy-to` keeps the containers, which the API server has given defaults, but no
/// annotation.
#[test]
fn a_copy_of_an_injected_pod_gets_one_warning() {
    let mut app = deployment();
    app["spec"]["containers"][0]["livenessProbe"] = json!({"httpGet": {"port": 80}});
    let mut copy = inject(&injector(), &app).unwrap().pod;
    copy["metadata"]["annotations"] = json!({});
    let volumes = copy["spec"]["volumes"].as_array_mut().unwrap();
    for volume in volumes.iter_mut().filter(|volume| volume["downwardAPI"].is_object()) {
        volume["downwardAPI"]["items"][0]["fieldRef"]["apiVersion"] = json!("v1");
    }
    let found = warnings(&copy);
    assert_eq!(
        found,
        [
            "annotation sidecar.istio.io/status: missing, and container istio-proxy is that of an injected pod: a copy keeps its sidecar \
          as it was; expected the annotations of the copied pod (kubectl debug --copy-to: --keep-annotations)"
        ]
    );
}

#[test]
fn ports_of_the_proxy_are_reported() {
    for port in [15000, 15001, 15004, 15006, 15008, 15020, 15021, 15053, 15090] {
        let mut pod = deployment();
        pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80}, {"containerPort": port}]);
        let found = warnings(&pod);
        let expected = format!("container web: port {port} is Istio's (");
        assert!(found.len() == 1 && found[0].starts_with(&expected), "{found:?}");
        pod["spec"]["containers"][0]["ports"][1]["protocol"] = json!("UDP");
        assert_eq!(warnings(&pod).len(), usize::from(port == 15053), "{port}");
        let mut probed = deployment();
        probed["spec"]["containers"][0]["readinessProbe"] = json!({"tcpSocket": {"port": port}});
        let found = warnings(&probed);
        let expected = format!("container web: readinessProbe probes port {port}, which is Istio's (");
        assert!(found.iter().any(|warning| warning.starts_with(&expected)), "{found:?}");
    }
    // Another injection finds the app's probes at the agent's port, and none of the app's own there.
    let mut probed = deployment();
    probed["spec"]["containers"][0]["livenessProbe"] = json!({"httpGet": {"port": 80}});
    let once = inject(&injector(), &probed).unwrap();
    assert_eq!((once.warnings, warnings(&once.pod)), (Vec::new(), Vec::new()));
}

#[test]
fn sidecars_of_another_mesh_are_reported() {
    for (container, mesh, remedy) in [
        ("linkerd-proxy", "Linkerd", "linkerd.io/inject: disabled"),
        ("kuma-sidecar", "Kuma", "kuma.io/sidecar-injection: disabled"),
        ("consul-dataplane", "Consul", "consul.hashicorp.com/connect-inject: false"),
    ] {
        let mut pod = deployment();
        pod["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": container, "image": "x"}));
        let found = warnings(&pod);
        assert!(
            found.len() == 1
                && found[0].starts_with(&format!("container {container}: "))
                && found[0].contains(mesh),
            "{found:?}"
        );
        assert!(found[0].contains(remedy), "{found:?}");
    }
    let mut osm = deployment();
    osm["spec"]["initContainers"] = json!([{"name": "osm-init", "image": "x"}]);
    assert!(warnings(&osm)[0].contains("Open Service Mesh"));
    // Its webhook is called after ours.
    for (map, value, named) in
        [("annotations", "enabled", true), ("annotations", "disabled", false), ("labels", "x", false)]
    {
        let mut pod = deployment();
        pod["metadata"][map] = json!({"linkerd.io/inject": value});
        assert_eq!(warnings(&pod).iter().any(|warning| warning.contains("Linkerd")), named, "{map} {value}");
    }
}

#[test]
fn an_injection_by_another_revision_is_reported() {
    let with_revision = |revision: &str| {
        let settings = Sources::default().load(&functions(|_| None)).unwrap();
        Injector::new(settings, Options { revision: revision.to_owned(), ..Options::default() })
    };
    let inject = |injector: &Injector, pod: &Value| {
        injector.inject(Request { pod, workload: &workload(), context: &native() }).unwrap()
    };
    let old = inject(&with_revision("1-27"), &deployment());
    let new = inject(&with_revision("canary"), &old.pod);
    assert!(
        new.warnings.len() == 1
            && new.warnings[0]
                .contains("revision 1-27 has injected the pod, and revision canary injects it again"),
        "{:?}",
        new.warnings
    );
    assert_eq!(inject(&with_revision("canary"), &new.pod).warnings, [""; 0]);
}

#[test]
fn nodes_with_windows_are_reported() {
    let mut pod = deployment();
    pod["spec"]["nodeSelector"] = json!({"kubernetes.io/os": "windows"});
    let found = warnings(&pod);
    assert!(
        found.len() == 1 && found[0].starts_with("spec.nodeSelector kubernetes.io/os is windows"),
        "{found:?}"
    );
    pod["spec"]["nodeSelector"] = json!({"kubernetes.io/os": "linux"});
    assert_eq!(warnings(&pod), [""; 0]);
}
