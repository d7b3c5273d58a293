//! What each command needs of variables and configuration, and what it prints.

use serde_json::{Value, json};

use crate::common::{call, plugin};
use crate::{GOOD, conf, run};

#[test]
fn version_is_printed_whatever_the_input_is() {
    for (input, version) in [
        ("", "1.1.0"),
        ("no JSON", "1.1.0"),
        (r#"{"cniVersion":"0.4.0"}"#, "0.4.0"),
        (r#"{"cniVersion":"9.9.9"}"#, "9.9.9"),
        (r#"{"cniVersion":"\"x"}"#, "1.1.0"),
        (r#"{"cniVersion":7}"#, "1.1.0"),
    ] {
        let output: Value = serde_json::from_str(run("VERSION", input).printed()).unwrap();
        let supported = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
        assert_eq!(output, json!({"cniVersion": version, "supportedVersions": supported}), "{input}");
    }
}

#[test]
fn variables_are_checked_before_anything_else() {
    let folder = tempfile::tempdir().unwrap();
    let input = conf(&folder, &json!({})).to_string();
    let call_with = |variables: &[(&str, &str)]| call(plugin(), variables, input.as_bytes());
    assert!(call_with(&[]).error(4).contains("CNI_COMMAND"));
    assert!(call_with(&[("CNI_COMMAND", "ERASE")]).error(4).contains("\"ERASE\" is not accepted"));
    for command in ["ADD", "CHECK"] {
        for (name, _) in &GOOD[..3] {
            let others = GOOD.iter().copied().filter(|(other, _)| other != name);
            let variables: Vec<_> = [("CNI_COMMAND", command)].into_iter().chain(others).collect();
            assert!(call_with(&variables).error(4).contains(name), "{command}: {name}");
        }
        let escaping = [("CNI_COMMAND", command), ("CNI_CONTAINERID", "../../etc/x"), GOOD[1], GOOD[2]];
        assert!(call_with(&escaping).error(4).contains("CNI_CONTAINERID"));
    }
}

#[test]
fn del_succeeds_whatever_is_wrong() {
    for input in ["", "no JSON", "{}", r#"{"cniVersion":"9"}"#, r#"{"cni_agent_run_dir": 7}"#] {
        assert_eq!(run("DEL", input).printed(), "", "{input}");
    }
    assert_eq!(call(plugin(), &[("CNI_COMMAND", "DEL")], b"").printed(), "");
    assert_eq!(call(plugin(), &[("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", "/")], b"").printed(), "");
}

#[test]
fn versions_decide_which_commands_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let versions = ["0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0", "2.0.0"];
    for (command, since) in [("ADD", 1), ("CHECK", 3), ("GC", 5), ("STATUS", 5)] {
        for (at, version) in versions.iter().enumerate() {
            let more = json!({
                "cniVersion": version, "cni.dev/valid-attachments": [],
                "capabilities": {"io.kubernetes.cri.pod-annotations": true},
                "runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"kubernetes.io/config.source": "api"}}
            });
            let output = run(command, &conf(&folder, &more).to_string());
            if at >= since && at < versions.len() - 1 {
                output.printed();
            } else {
                assert!(output.error(1).contains(version), "{command} {version}");
            }
        }
    }
    run("ADD", r#"{"name":"x"}"#).error(1);
}

/// The agent's own pod among them: it takes the entry out of a list of such a version.
#[test]
fn excluded_pods_start_in_a_list_of_an_unsupported_version() {
    let folder = tempfile::tempdir().unwrap();
    let result = json!({"cniVersion": "9.9.9", "future": [1]});
    let with = |more: &Value| {
        let mut all = json!({"cniVersion": "9.9.9", "prevResult": result});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        conf(&folder, &all).to_string()
    };
    let as_pod = |args: &str, more: &Value| {
        let variables = [("CNI_COMMAND", "ADD"), GOOD[0], GOOD[1], GOOD[2], ("CNI_ARGS", args)];
        call(plugin(), &variables, with(more).as_bytes())
    };
    let agent = "K8S_POD_NAMESPACE=istio-system;K8S_POD_NAME=istio-cni-node-x1";
    for (args, more) in [
        (agent, json!({"pod_namespace": "istio-system"})),
        (GOOD[3].1, json!({"exclude_namespaces": ["a"]})),
        ("", json!({})),
    ] {
        assert_eq!(as_pod(args, &more).printed(), result.to_string(), "{args}");
    }
    assert!(run("ADD", &with(&json!({}))).error(1).contains("9.9.9"), "it may have to be captured");
    let without = with(&json!({"exclude_namespaces": ["a"], "prevResult": null, "standalone": true}));
    run("ADD", &without).error(1);
    for command in ["CHECK", "GC", "STATUS"] {
        run(command, &with(&json!({"exclude_namespaces": ["a"]}))).error(1);
    }
}

#[test]
fn excluded_pods_do_not_depend_on_the_rest_of_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let broken = json!({"source": ["nowhere"], "backend": 7, "ambient_enabled": true});
    let with = |more: Value| {
        let mut all = broken.clone();
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        conf(&folder, &all).to_string()
    };
    let result = r#"{"cniVersion":"1.1.0"}"#;
    assert_eq!(run("ADD", &with(json!({"exclude_namespaces": ["a"]}))).printed(), result);
    let variables =
        |args: &'static str| [("CNI_COMMAND", "ADD"), GOOD[0], GOOD[1], GOOD[2], ("CNI_ARGS", args)];
    let input = with(json!({"pod_namespace": "istio-system"}));
    let as_pod = |args| call(plugin(), &variables(args), input.as_bytes());
    assert_eq!(as_pod("K8S_POD_NAMESPACE=istio-system;K8S_POD_NAME=istio-cni-node-x1").printed(), result);
    assert_eq!(as_pod("").printed(), result, "not a pod of Kubernetes");
    assert!(as_pod("K8S_POD_NAMESPACE=other;K8S_POD_NAME=istio-cni-node-x1").error(7).contains("ambient"));
}

/// Podman names a container by `K8S_POD_NAME`, and passes no annotations. Annotations are those of a pod of
/// Kubernetes.
#[test]
fn what_has_no_name_starts_only_if_nothing_says_that_it_is_to_be_captured() {
    const INJECTED: &str = r#"{"initContainers":["istio-validation"],"containers":["istio-proxy"]}"#;
    let folder = tempfile::tempdir().unwrap();
    let of_kubelet = json!({"kubernetes.io/config.source": "api"});
    let injected = json!({"kubernetes.io/config.source": "api", "sidecar.istio.io/status": INJECTED});
    let by_init = json!({"sidecar.istio.io/status": INJECTED.replace("validation", "init")});
    let invalid = json!({"sidecar.istio.io/status": INJECTED, "sidecar.istio.io/interceptionMode": "X"});
    let add = |args: Option<&str>, annotations: &Value, more: &Value| {
        let mut all = json!({"runtimeConfig": {"io.kubernetes.cri.pod-annotations": annotations}});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut variables = vec![("CNI_COMMAND", "ADD"), GOOD[0], GOOD[1], GOOD[2]];
        variables.extend(args.map(|args| ("CNI_ARGS", args)));
        call(plugin(), &variables, conf(&folder, &all).to_string().as_bytes())
    };
    for args in [None, Some(""), Some("IgnoreUnknown=1"), Some("K8S_POD_NAME=b"), Some("K8S_POD_NAMESPACE=")]
    {
        for annotations in [&Value::Null, &of_kubelet, &by_init] {
            let output = add(args, annotations, &json!({}));
            assert_eq!(output.printed(), r#"{"cniVersion":"1.1.0"}"#, "{args:?} {annotations}");
            assert!(output.stderr.contains(r#""outcome":"not_captured""#), "{}", output.stderr);
        }
        for annotations in [
            &injected,
            &invalid,
            &json!({}),
            &json!({"a": "b"}),
            &json!({"istio-iptables/capture-options": r#"{"version":1,"options":{}}"#}),
            &json!({"sidecar.istio.io/status": "no JSON"}),
        ] {
            for more in [json!({}), json!({"on_unknown": "pass"}), json!({"source": ["agent"]})] {
                let problem = add(args, annotations, &more).error(4);
                assert!(
                    problem.starts_with("CNI_ARGS: missing K8S_POD_NAMESPACE or K8S_POD_NAME"),
                    "{args:?} {annotations}: {problem}"
                );
            }
        }
    }
    for args in ["K8S_POD_NAMESPACE=a", "K8S_POD_UID=u", "K8S_POD_NAME=b;K8S_POD_INFRA_CONTAINER_ID=c"] {
        assert!(add(Some(args), &Value::Null, &json!({})).error(4).contains("is set"), "{args}");
    }
    let unsupported = add(None, &injected, &json!({"cniVersion": "9.9.9"}));
    unsupported.error(1);
}

#[test]
fn add_needs_a_previous_result_unless_it_is_alone() {
    let folder = tempfile::tempdir().unwrap();
    let input = |more: Value| conf(&folder, &more).to_string();
    assert!(run("ADD", &input(json!({"prevResult": null}))).error(7).contains("no prevResult"));
    assert!(run("CHECK", &input(json!({"prevResult": null}))).error(7).contains("no prevResult"));
    let alone =
        json!({"prevResult": null, "standalone": true, "exclude_namespaces": ["a"], "cniVersion": "0.3.1"});
    assert_eq!(run("ADD", &input(alone)).printed(), r#"{"cniVersion":"0.3.1"}"#);
}

#[test]
fn pod_that_no_source_knows_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let unknown = run("ADD", &conf(&folder, &json!({})).to_string()).error(11);
    assert!(
        unknown.contains("pod a/b")
            && unknown.contains("\"capabilities\": {\"io.kubernetes.cri.pod-annotations\": true}"),
        "{unknown}"
    );
    let pass = run("ADD", &conf(&folder, &json!({"on_unknown": "pass"})).to_string());
    assert_eq!(pass.printed(), r#"{"cniVersion":"1.1.0"}"#);
    assert!(pass.stderr.contains("NOT captured"), "{}", pass.stderr);
    let source = run("ADD", &conf(&folder, &json!({"source": ["annotations", "x"]})).to_string()).error(7);
    assert!(source.contains("\"x\" is not accepted, expected a list of annotations, agent, api"), "{source}");
}

/// The owner of a pod cannot change the list.
#[test]
fn error_about_the_list_has_no_hint_about_annotations() {
    let folder = tempfile::tempdir().unwrap();
    let annotations = json!({"sidecar.istio.io/status": r#"{"initContainers":["istio-validation"],"containers":["istio-proxy"]}"#});
    let add = |annotations: &Value, backend: Value| {
        let runtime = json!({"io.kubernetes.cri.pod-annotations": annotations});
        run("ADD", &conf(&folder, &json!({"runtimeConfig": runtime, "backend": backend})).to_string())
            .error(7)
    };
    let accepted = "is not accepted, expected auto, iptables, iptables-nft, iptables-legacy or nftables";
    assert_eq!(add(&annotations, json!("foo")), format!("configuration key backend: \"foo\" {accepted}"));
    assert_eq!(
        add(&annotations, json!(7)),
        "configuration key backend: 7 is not accepted, expected the name of a backend, such as \"nftables\""
    );
    let mut wrong = annotations;
    wrong["sidecar.istio.io/interceptionMode"] = json!("X");
    let problem = add(&wrong, json!("foo"));
    assert!(problem.starts_with("annotation ") && problem.contains("sidecar-injector check"), "{problem}");
}

#[test]
fn status_reports_what_would_make_every_add_fail() {
    let folder = tempfile::tempdir().unwrap();
    let capabilities = json!({"capabilities": {"io.kubernetes.cri.pod-annotations": true}});
    assert_eq!(run("STATUS", &conf(&folder, &capabilities).to_string()).printed(), "");
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let unusable = run("STATUS", &conf(&folder, &json!({ "cni_agent_run_dir": file })).to_string()).error(50);
    assert!(unusable.contains("file/state") && unusable.contains("cni_agent_run_dir"), "{unusable}");
    run("STATUS", &conf(&folder, &json!({"source": []})).to_string()).error(7);
    run("STATUS", &conf(&folder, &json!({"ambient_enabled": true})).to_string()).error(7);
}
