use super::*;

fn pod() -> Value {
    json!({"spec": {
        "containers": [
            {"name": "app", "ports": [{"name": "http", "containerPort": 80}],
             "livenessProbe": {"httpGet": {"port": "http", "scheme": "HTTPS"}, "timeoutSeconds": 4},
             "readinessProbe": {"exec": {"command": ["true"]}},
             "startupProbe": {"grpc": {"port": 9090}},
             "lifecycle": {"preStop": {"tcpSocket": {"port": 93}}}},
            {"name": "istio-proxy", "readinessProbe": {"httpGet": {"port": 15021}}},
        ],
    }})
}

#[test]
fn originals_are_recorded_and_probes_go_to_the_agent() {
    let mut pod = pod();
    rewrite(&mut pod, 15020, 15020);
    let app = containers(&pod, List::Containers).first().unwrap();
    assert_eq!(
        app["livenessProbe"],
        json!({"timeoutSeconds": 4, "httpGet": {"port": 15020, "scheme": "HTTP", "path": "/app-health/app/livez"}})
    );
    assert_eq!(app["readinessProbe"], json!({"exec": {"command": ["true"]}}));
    assert_eq!(app["lifecycle"]["preStop"]["httpGet"]["path"], "/app-lifecycle/app/prestopz");
    let proxy = list::proxy(&pod).unwrap();
    assert_eq!(
        env::value(proxy, VARIABLE).unwrap(),
        concat!(
            r#"{"/app-health/app/livez":{"httpGet":{"port":80,"scheme":"HTTPS"},"timeoutSeconds":4},"#,
            r#""/app-health/app/startupz":{"grpc":{"port":9090,"service":null}},"#,
            r#""/app-lifecycle/app/prestopz":{"tcpSocket":{"port":93}}}"#
        )
    );
    assert_eq!(proxy["readinessProbe"]["httpGet"]["port"], 15021);
}

#[test]
fn protocols_are_restored_and_unserved_ones_are_not_rewritten() {
    let probes = |probe: Value| json!({"spec": {"containers": [{"name": "app", "readinessProbe": probe}, {"name": "istio-proxy"}]}});
    for probe in [
        json!({"httpGet": {"port": 80, "protocol": "HTTP1"}}),
        json!({"grpc": {"port": 90, "mode": "Plaintext"}}),
    ] {
        let before = probes(probe);
        let mut pod = before.clone();
        assert_eq!(rewrite(&mut pod, 15020, 15020).warnings, [""; 0]);
        assert_ne!(pod, before);
        let originals = noted(list::proxy(&pod).unwrap());
        restore(&mut pod, &originals);
        assert_eq!(pod["spec"]["containers"][0], before["spec"]["containers"][0]);
    }
    for (probe, part) in [
        (json!({"httpGet": {"port": 80, "protocol": "HTTP2"}}), "HTTP/2"),
        (json!({"grpc": {"port": 90, "mode": "TLS"}}), "gRPC with TLS"),
    ] {
        let before = probes(probe);
        let mut pod = before.clone();
        let warnings = rewrite(&mut pod, 15020, 15020).warnings;
        assert!(warnings.len() == 1 && warnings[0].contains(part), "{warnings:?}");
        assert_eq!(pod, before);
    }
}

/// The injected pod fails as the pod would: the API server refuses it, or kubelet cannot probe.
#[test]
fn what_kubernetes_does_not_accept_or_cannot_call_is_not_rewritten() {
    for probe in [
        json!({"httpGet": {"port": "nope"}}),
        json!({"httpGet": {"path": "/"}}),
        json!({"httpGet": {"port": 0}}),
        json!({"tcpSocket": {"port": 99999}}),
        json!({"grpc": {"port": -1}}),
        json!({"httpGet": {"port": 80}, "exec": {"command": ["x"]}}),
        json!({"httpGet": {"port": 80}, "tcpSocket": {"port": 80}}),
    ] {
        let before = json!({"spec": {"containers": [
            {"name": "app", "livenessProbe": probe, "lifecycle": {"preStop": probe}}, {"name": "istio-proxy"},
        ]}});
        let mut pod = before.clone();
        assert_eq!(rewrite(&mut pod, 15020, 15020), Rewritten::default());
        assert_eq!(pod, before);
    }
}

#[test]
fn restoring_undoes_rewriting_up_to_names_of_ports() {
    let mut changed = pod();
    rewrite(&mut changed, 15020, 15020);
    let originals = noted(list::proxy(&changed).unwrap());
    restore(&mut changed, &originals);
    let app = &changed["spec"]["containers"][0];
    assert_eq!(app["livenessProbe"]["httpGet"], json!({"port": 80, "scheme": "HTTPS"}));
    assert_eq!(app["startupProbe"], json!({"grpc": {"port": 9090}}));
    assert_eq!(app["lifecycle"]["preStop"], json!({"tcpSocket": {"port": 93}}));
    assert!(rewritten_paths(&changed).is_empty());
}

#[test]
fn without_a_proxy_nothing_happens() {
    let mut bare =
        json!({"spec": {"containers": [{"name": "app", "livenessProbe": {"httpGet": {"port": 1}}}]}});
    let before = bare.clone();
    rewrite(&mut bare, 15020, 15020);
    assert_eq!(bare, before);
}
