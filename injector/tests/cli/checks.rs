//! `check`: why a pod is injected or not, and the webhooks that are called.

use super::*;

#[test]
fn check_says_why_and_why_not() {
    let folder = Folder::new();
    let file = folder.file("a.yaml", DEPLOYMENT);
    let namespace = |labels: &str| {
        let text =
            format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: shop, labels: {{{labels}}}}}\n");
        folder.file("namespace.yaml", &text)
    };
    let check = |more: &[&str]| {
        let output = run(&[&["check", "-o", "json", "-f", &file], more].concat()).unwrap();
        let answers: Value = serde_json::from_str(&output.text).unwrap();
        assert_eq!(output.refused, answers[0]["injected"] == false);
        (answers[0]["injected"] == true, answers[0]["reason"].as_str().unwrap().to_owned(), answers)
    };
    let (injected, reason, answers) = check(&["--namespace-file", &namespace("istio-injection: enabled")]);
    assert_eq!((injected, reason.as_str()), (true, "policy"));
    assert!(
        answers[0]["capture"].as_array().unwrap().iter().any(|line| line == "istio-inbound-ports=*"),
        "{answers}"
    );
    let (injected, reason, answers) = check(&["--namespace-file", &namespace("istio-injection: disabled")]);
    assert_eq!((injected, reason.as_str()), (false, "webhook"));
    assert!(answers[0]["webhook"]["webhooks"][0]["unmet"][0].is_string(), "{answers}");
    let (injected, ..) =
        check(&["--namespace-file", &namespace("istio.io/rev: canary"), "--revision", "canary"]);
    assert!(injected);
    let disabled = folder.file("config", "policy: disabled\ntemplates: {sidecar: ''}\n");
    let (injected, reason, _) = check(&["--inject-config", &disabled]);
    assert_eq!((injected, reason.as_str()), (false, "policy"));
    let text = run(&["check", "-f", &file]).unwrap().text;
    assert!(text.starts_with("Deployment \"shop/web\": injected: policy"), "{text}");
}

#[test]
fn inject_warns_of_what_check_refuses() {
    let folder = Folder::new();
    let file = folder.file("a.yaml", DEPLOYMENT);
    let windows = DEPLOYMENT.replacen("      containers:", "      os: {name: windows}\n      containers:", 1);
    assert_ne!(windows, DEPLOYMENT);
    let windows = folder.file("windows.yaml", &windows);
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {pod-security.kubernetes.io/enforce: baseline}}\n";
    let namespace = folder.file("namespace.yaml", namespace);
    for (options, begins) in [
        (vec!["-f", &windows], "Kubernetes rejects the injected pod: spec.initContainers[istio-init]."),
        (
            vec!["-f", &file, "--namespace-file", &namespace],
            "pod-security.kubernetes.io/enforce=baseline of the namespace rejects the pod: ",
        ),
    ] {
        let checked = run(&[&["check", "-o", "json"], &options[..]].concat()).unwrap();
        assert!(checked.refused, "{}", checked.text);
        let answers: Value = serde_json::from_str(&checked.text).unwrap();
        let error = answers[0]["error"].as_str().unwrap();
        assert!(error.starts_with(begins), "{error}");
        let notes = run(&[&["inject"], &options[..]].concat()).unwrap().notes;
        for line in error.lines() {
            let warning = format!("warning: Deployment \"shop/web\": {line}");
            assert!(notes.contains(&warning), "{warning}\n{notes:#?}");
        }
    }
}

#[test]
fn a_file_without_webhooks_is_refused() {
    let folder = Folder::new();
    let file = folder.file("a.yaml", DEPLOYMENT);
    let failure =
        run(&["check", "-f", &file, "--webhooks", &folder.file("hooks.yaml", SERVICE)]).unwrap_err();
    assert_eq!(failure.exit, Exit::Data);
    assert!(failure.problems[0].contains("there is no MutatingWebhookConfiguration"), "{failure}");
    let hooks = "apiVersion: v1\nkind: List\nitems:\n- {kind: MutatingWebhookConfiguration, webhooks: []}\n";
    assert!(run(&["check", "-f", &file, "--webhooks", &folder.file("hooks.yaml", hooks)]).is_ok());
}

/// Webhooks for pods without selectors, such as those of autoscalers and policy engines, are in most
/// clusters.
#[test]
fn webhooks_of_other_programs_inject_nothing() {
    let folder = Folder::new();
    let file = folder.file("a.yaml", DEPLOYMENT);
    let namespace = folder.file("n.yaml", "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}");
    let other = r#"{"kind": "MutatingWebhookConfiguration", "metadata": {"name": "vpa-webhook-config"}, "webhooks": [
        {"name": "vpa.k8s.io", "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]}]}"#;
    let check = |hooks: &str, more: &[&str]| {
        let hooks = folder.file("hooks.yaml", hooks);
        let given = ["check", "-f", &file, "--namespace-file", &namespace, "--webhooks", &hooks];
        run(&[&given, more].concat()).unwrap()
    };
    let output = check(other, &[]);
    assert!(
        output.text.starts_with("Deployment \"shop/web\": not injected: no webhook is called"),
        "{}",
        output.text
    );
    assert!(output.text.contains("name ends with sidecar-injector.istio.io"), "{}", output.text);
    assert!(output.refused);
    // Two that inject are both named.
    let ours = |name: &str| {
        format!(
            r#"{{"kind": "MutatingWebhookConfiguration", "metadata": {{"name": "{name}"}}, "webhooks": [{{"name": "namespace.sidecar-injector.istio.io"}}]}}"#
        )
    };
    let both = format!("{}\n---\n{other}\n---\n{}", ours("one"), ours("two"));
    let output = check(&both, &[]);
    assert!(output.text.contains("sidecar-injector.istio.io of one is called\n"), "{}", output.text);
    assert!(
        output.text.contains("injected again, by namespace.sidecar-injector.istio.io of two"),
        "{}",
        output.text
    );
    assert!(!output.text.contains("vpa"), "{}", output.text);
    let answers: Value = serde_json::from_str(&check(&both, &["-o", "json"]).text).unwrap();
    assert_eq!(
        answers[0]["webhook"]["also"],
        serde_json::json!(["namespace.sidecar-injector.istio.io of two"])
    );
}

/// The labels of a pod, the key of its annotation, and what the error says.
const MISSPELT: &[(&str, &str, &str)] = &[
    (
        "",
        "traffic.sidecar.istio.io/excludeOutboundPort",
        "did you mean traffic.sidecar.istio.io/excludeOutboundPorts?",
    ),
    ("", "sidecar.istio.io/nothingLikeIt", "annotation sidecar.istio.io/nothingLikeIt is not known"),
    ("", "istio.io/inject", "annotation istio.io/inject has no effect"),
    (
        "",
        "traffic.istio.io/excludeOutboundPorts",
        "did you mean traffic.sidecar.istio.io/excludeOutboundPorts?",
    ),
    ("", "istio.io/reroute-virtual-interface", "did you mean istio.io/reroute-virtual-interfaces?"),
    ("sidecar.istio.io/injct: 'true'", "a", "label sidecar.istio.io/injct is not known"),
    (
        "istio.io/revision: '1'",
        "a",
        "label istio.io/revision is not known and has no effect; did you mean istio.io/rev?",
    ),
    ("istio.io/revs: '1'", "a", "did you mean istio.io/rev?"),
    ("istio-injection: enabled", "a", "label istio-injection has no effect: it is a label of the namespace"),
    (
        "traffic.sidecar.istio.io/excludeOutboundPorts: '80'",
        "a",
        "label traffic.sidecar.istio.io/excludeOutboundPorts has no effect: it is an annotation",
    ),
    // Of a pod that is not to be injected, too: the key may be the one that decides.
    (
        "sidecar.istio.io/inject: 'false'",
        "sidecar.istio.io/proxyCPUs",
        "did you mean sidecar.istio.io/proxyCPU?",
    ),
];

#[test]
fn a_misspelt_key_is_an_error_with_strict() {
    let folder = Folder::new();
    let pod = |labels: &str, annotation: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: web, labels: {{{labels}}}, annotations: {{{annotation}}}}}\n\
             spec: {{containers: [{{name: app, image: app}}]}}\n"
        );
        folder.file("pod.yaml", &text)
    };
    for (labels, key, says) in MISSPELT {
        let file = pod(labels, &format!("{key}: '80'"));
        run(&["inject", "-f", &file]).unwrap();
        let failure = run(&["inject", "--strict", "-f", &file]).unwrap_err();
        assert_eq!(failure.exit, Exit::Data);
        assert!(failure.to_string().contains(&format!("error: {file}: Pod \"web\": ")), "{failure}");
        assert!(failure.to_string().contains(says), "{failure}");
        strict_check_has_the_error(&file, says);
    }
    // Other keys and labels of Istio, and of programs beside it.
    let known = pod(
        "istio.io/rev: default, istio.io/tag: x, istio.io/dataplane-mode: none, istio.io/use-waypoint: w, \
         operator.istio.io/component: x, service.istio.io/canonical-name: web",
        "traffic.sidecar.istio.io/excludeOutboundPorts: '80', example.com/a: b, ambient.istio.io/redirection: disabled",
    );
    assert!(!run(&["check", "--strict", "-f", &known]).unwrap().refused);
    let injected = run(&["inject", "--strict", "-f", &known]).unwrap().text;
    assert_eq!(injected, run(&["inject", "-f", &known]).unwrap().text);
    let misspelt = injected.replacen("example.com/a:", "sidecar.istio.io/proxyCPUs:", 1);
    assert_ne!(misspelt, injected);
    strict_check_has_the_error(
        &folder.file("injected.yaml", &misspelt),
        "did you mean sidecar.istio.io/proxyCPU?",
    );
}

#[test]
fn a_misspelt_field_of_a_proxy_config_is_an_error_with_strict() {
    let folder = Folder::new();
    let pod = |config: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: web, annotations: {{proxy.istio.io/config: '{config}'}}}}\n\
             spec: {{containers: [{{name: app, image: app}}]}}\n"
        );
        folder.file("pod.yaml", &text)
    };
    for (config, says) in [
        ("{holdApplicationUntilProxyStart: true}", "did you mean holdApplicationUntilProxyStarts?"),
        ("{proxyMetdata: {A: b}}", "annotation proxy.istio.io/config: proxyMetdata: not known, ignored"),
        ("{tracing: {samplin: 1}}", "annotation proxy.istio.io/config: tracing.samplin: not known"),
    ] {
        let file = pod(config);
        run(&["inject", "-f", &file]).unwrap();
        let failure = run(&["inject", "--strict", "-f", &file]).unwrap_err();
        assert!(failure.exit == Exit::Data && failure.to_string().contains(says), "{failure}");
        strict_check_has_the_error(&file, says);
    }
    let known = pod("{holdApplicationUntilProxyStarts: true, proxyMetadata: {ANY: b}}");
    assert!(!run(&["check", "--strict", "-f", &known]).unwrap().refused);
}

/// The sentence is an error with `--strict`, with exit code 1, and no warning beside it.
#[track_caller]
fn strict_check_has_the_error(file: &str, says: &str) {
    let strict = run(&["check", "--strict", "-o", "json", "-f", file]).unwrap();
    assert!(strict.refused, "{}", strict.text);
    let answers: Value = serde_json::from_str(&strict.text).unwrap();
    let has = |key: &str| answers[0][key].to_string().contains(says);
    assert!(has("error") && !has("warnings"), "{answers:#}");
    let text = run(&["check", "--strict", "-f", file]).unwrap().text;
    assert!(text.lines().any(|line| line.starts_with("  error: ") && line.contains(says)), "{text}");
}
