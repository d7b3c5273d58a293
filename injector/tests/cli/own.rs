//! `check` on a pod that is injected already: what its own options do, not those of an injection that could
//! be.

use serde_json::{Value, json};
use sidecar_injector::cli::Exit;
use sidecar_injector::yaml;

use super::{DEPLOYMENT, Folder, run};

const CAPTURE: &str = "istio-iptables/capture-options";

/// A Pod as `inject` with these flags makes it, with these annotations from before.
fn injected(annotations: &Value, flags: &[&str]) -> Value {
    let folder = Folder::new();
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "annotations": annotations},
        "spec": {"containers": [{"name": "web", "image": "web:1"}]}});
    let file = folder.file("pod.json", &pod.to_string());
    let output = run(&[&["inject", "-f", &file], flags].concat()).unwrap();
    yaml::read(&output.text).unwrap()
}

struct Checked {
    refused: bool,
    text: String,
    json: Value,
}

fn check(pod: &Value, flags: &[&str]) -> Checked {
    let folder = Folder::new();
    let file = folder.file("pod.json", &pod.to_string());
    let output = run(&[&["check", "-f", &file], flags].concat()).unwrap();
    let json = run(&[&["check", "-o", "json", "-f", &file], flags].concat()).unwrap();
    assert_eq!(output.refused, json.refused);
    let all: Value = serde_json::from_str(&json.text).unwrap();
    Checked { refused: output.refused, text: output.text, json: all[0].clone() }
}

fn option<'a>(checked: &'a Checked, name: &str) -> (&'a str, &'a str) {
    let options = checked.json["own"]["options"].as_array().unwrap();
    let found = options.iter().find(|option| option["name"] == name);
    let found = found.unwrap_or_else(|| panic!("{name}: {options:#?}"));
    (found["value"].as_str().unwrap(), found["from"].as_str().unwrap())
}

#[test]
fn options_are_the_pod_s_own_and_not_those_of_the_config() {
    let pod = injected(&json!({}), &[]);
    let checked = check(&pod, &["--set", "global.proxy.includeIPRanges=10.0.0.0/8"]);
    assert!(!checked.refused);
    assert_eq!(option(&checked, "istio-service-cidr"), ("*", "arguments of container istio-init"));
    assert!(!checked.json.to_string().contains("10.0.0.0/8"), "{}", checked.text);
    let head = "Pod \"shop/web\": injected, by revision default; captured by container istio-init\n";
    assert!(checked.text.starts_with(head), "{}", checked.text);
    assert_eq!((&checked.json["reason"], &checked.json["injected"]), (&json!("injected"), &json!(true)));
    assert!(
        !checked.text.contains("namespace are unknown"),
        "no decision is about to be made: {}",
        checked.text
    );
}

#[test]
fn each_option_names_what_it_comes_from() {
    let pod = injected(
        &json!({
            "traffic.sidecar.istio.io/excludeOutboundPorts": "5432, 6379",
            "traffic.sidecar.istio.io/excludeInboundPorts": "9000",
            "sidecar.istio.io/interceptionMode": "TPROXY",
            "proxy.istio.io/config": "proxyMetadata: {ISTIO_DUAL_STACK: 'true'}",
        }),
        &[],
    );
    let checked = check(&pod, &[]);
    for (name, value, from) in [
        ("istio-inbound-ports", "*", "values global.proxy.includeInboundPorts"),
        ("istio-service-cidr", "*", "values global.proxy.includeIPRanges"),
        (
            "istio-local-outbound-ports-exclude",
            "5432, 6379",
            "annotation traffic.sidecar.istio.io/excludeOutboundPorts",
        ),
        ("istio-inbound-interception-mode", "TPROXY", "annotation sidecar.istio.io/interceptionMode"),
        ("proxy-uid", "1337", "arguments of container istio-init"),
        ("dual-stack", "true", "annotation proxy.istio.io/config: proxyMetadata.ISTIO_DUAL_STACK"),
    ] {
        assert_eq!(option(&checked, name), (value, from), "{name}");
    }
    let (value, from) = option(&checked, "istio-local-exclude-ports");
    assert!(
        value.contains("9000") && from == "annotation traffic.sidecar.istio.io/excludeInboundPorts",
        "{value} {from}"
    );
    assert!(
        checked
            .text
            .contains("  option   istio-inbound-ports=*  (values global.proxy.includeInboundPorts)\n")
    );
    let plain = check(&injected(&json!({}), &[]), &[]);
    assert_eq!(option(&plain, "proxy-uid"), ("1337", "securityContext.runAsUser of container istio-proxy"));
}

#[test]
fn annotations_changed_after_the_injection_have_no_effect() {
    let mut pod = injected(&json!({"traffic.sidecar.istio.io/excludeOutboundPorts": "5432"}), &[]);
    assert!(!check(&pod, &[]).text.contains("has no effect"));
    pod["metadata"]["annotations"]["traffic.sidecar.istio.io/excludeOutboundPorts"] = json!("5432,6379");
    let checked = check(&pod, &[]);
    let wanted = "warning: annotation traffic.sidecar.istio.io/excludeOutboundPorts: \"5432,6379\" has no effect: the pod was \
                  injected with istio-local-outbound-ports-exclude=\"5432\"\n";
    assert!(checked.text.contains(wanted), "{}", checked.text);
    assert_eq!(option(&checked, "istio-local-outbound-ports-exclude").1, "arguments of container istio-init");
}

#[test]
fn table_lists_every_kind_of_traffic() {
    let mut pod = injected(&json!({"traffic.sidecar.istio.io/excludeOutboundPorts": "5432"}), &[]);
    let rows = |checked: &Checked, family: &str| -> Vec<(String, String)> {
        let all = checked.json["own"]["traffic"].as_array().unwrap().iter();
        let word = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
        all.filter(|row| row["family"] == family)
            .map(|row| (word(row, "kind"), word(row, "verdict")))
            .collect()
    };
    let has = |rows: &[(String, String)], kind: &str, verdict: &str| {
        assert!(rows.contains(&(kind.to_owned(), verdict.to_owned())), "{kind}: {rows:#?}");
    };
    let example = check(&pod, &[]);
    has(&rows(&example, "IPv4"), "client to the app, port 8080", "captured");
    has(&rows(&example, "IPv4"), "client to the app, port 15021", "not-captured");
    has(&rows(&example, "IPv4"), "app to a server, excluded port 5432", "not-captured");
    assert!(example.text.contains("the pod's addresses are not known"), "{}", example.text);
    assert!(example.text.contains("\n    app to a server, excluded port 5432"), "{}", example.text);
    pod["status"] = json!({"podIPs": [{"ip": "10.9.8.7"}, {"ip": "fd00::7"}]});
    let running = check(&pod, &[]);
    assert!(!running.text.contains("the pod's addresses are not known"));
    has(&rows(&running, "IPv6"), "app to a server, IPv6", "not-captured");
    assert!(running.text.contains("IPv6 traffic is NOT captured"), "{}", running.text);
}

/// The init container reads name servers in the pod, where there always is one.
#[test]
fn dns_capture_does_not_depend_on_name_servers_that_are_not_known() {
    let config = json!({"proxy.istio.io/config": "proxyMetadata: {ISTIO_META_DNS_CAPTURE: 'true'}"});
    let checked = check(&injected(&config, &[]), &[]);
    assert!(checked.text.contains("the name server of the table is an example"), "{}", checked.text);
    let row = |checked: &Checked| {
        let rows = checked.json["own"]["traffic"].as_array().unwrap().clone();
        rows.into_iter().find(|row| row["kind"] == "app to a name server, UDP").unwrap()
    };
    assert_eq!((&row(&checked)["verdict"], &row(&checked)["port"]), (&json!("captured"), &json!(15053)));
    assert_eq!(row(&check(&injected(&json!({}), &[]), &[]))["verdict"], "not-captured");
}

#[test]
fn plugin_reads_the_annotation() {
    let cni = ["--set", "pilot.cni.enabled=true"];
    let mut pod = injected(&json!({"traffic.sidecar.istio.io/excludeOutboundPorts": "5432"}), &cni);
    let checked = check(&pod, &[]);
    assert!(checked.text.contains("; captured by CNI plugin istio-cni\n"), "{}", checked.text);
    let from = format!("annotation {CAPTURE}, option istio-local-outbound-ports-exclude");
    assert_eq!(option(&checked, "istio-local-outbound-ports-exclude"), ("5432", from.as_str()));
    // What the arguments of istio-validation say does not count.
    pod["metadata"]["annotations"][CAPTURE] = json!(
        json!({"version": 1, "options": {"istio-inbound-ports": "80", "istio-service-cidr": "*"}})
            .to_string()
    );
    assert_eq!(option(&check(&pod, &[]), "istio-inbound-ports").0, "80");
    let annotations = pod["metadata"]["annotations"].as_object_mut().unwrap();
    annotations.shift_remove(CAPTURE);
    let istio_s = check(&pod, &[]);
    let from = "annotation traffic.sidecar.istio.io/excludeOutboundPorts";
    assert_eq!(option(&istio_s, "istio-local-outbound-ports-exclude"), ("5432", from));
    pod["metadata"]["annotations"][CAPTURE] = json!("{");
    let bad = check(&pod, &[]);
    assert!(
        bad.refused && bad.text.contains("error: the CNI plugin istio-cni refuses the pod: "),
        "{}",
        bad.text
    );
    let none = check(&injected(&json!({"sidecar.istio.io/interceptionMode": "NONE"}), &cni), &[]);
    let head = "captured by nothing: sidecar.istio.io/interceptionMode is NONE\n";
    assert!(!none.refused && none.text.contains(head), "{}", none.text);
}

#[test]
fn options_that_are_refused_are_an_error() {
    let mut pod = injected(&json!({}), &[]);
    let init = pod["spec"]["initContainers"].as_array_mut().unwrap();
    let init = init.iter_mut().find(|one| one["name"] == "istio-init").unwrap();
    init["args"] = json!(["istio-iptables", "-b", "bogus"]);
    let checked = check(&pod, &[]);
    assert!(checked.refused && checked.json["injected"] == false);
    assert!(checked.text.contains("error: container istio-init refuses its options: "), "{}", checked.text);
    assert!(checked.text.contains("bogus"), "{}", checked.text);
}

#[test]
fn summary_has_a_line_for_each_object() {
    let folder = Folder::new();
    let pod = injected(&json!({}), &[]).to_string();
    let files = [folder.file("a.yaml", DEPLOYMENT), folder.file("b.json", &pod)];
    let output = run(&["check", "--summary", "-f", &files[0], "-f", &files[1]]).unwrap();
    let lines: Vec<&str> = output.text.lines().collect();
    assert_eq!(lines.len(), 2, "{}", output.text);
    assert!(
        lines[0].starts_with(&format!("{}: Deployment \"shop/web\": injected: policy", files[0])),
        "{}",
        lines[0]
    );
    assert!(
        lines[1].ends_with("\"shop/web\": injected, by revision default; captured by container istio-init")
    );
    let both = run(&["check", "--summary", "-o", "json", "-f", &files[0]]).unwrap_err();
    assert_eq!(both.exit, Exit::Usage);
}

#[test]
fn files_or_a_pod_are_required() {
    for (arguments, named) in [
        (&["check"][..], "--filename"),
        (&["check", "web"], "expected pod/NAME, or --filename for files"),
        (&["check", "deployment/web"], "expected pod/NAME"),
        (&["check", "pod/Web"], "\"Web\" is not accepted"),
        (&["check", "pod/web", "-f", "x"], "--filename"),
    ] {
        let failure = run(arguments).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage, "{arguments:?}");
        assert!(failure.to_string().contains(named), "{failure}");
    }
}

#[test]
fn colors_are_those_of_the_flag_and_change_no_word() {
    let pod = injected(&json!({}), &[]);
    let plain = check(&pod, &["--color", "never"]);
    let painted = check(&pod, &["--color", "always"]);
    assert!(!plain.text.contains('\x1b'), "{}", plain.text);
    assert_eq!(check(&pod, &[]).text, plain.text, "no terminal");
    assert_eq!(painted.json["own"], plain.json["own"]);
    let head =
        "Pod \"shop/web\": \x1b[32minjected, by revision default; captured by container istio-init\x1b[0m\n";
    assert!(painted.text.starts_with(head), "{}", painted.text);
    assert!(painted.text.contains("\x1b[32m  captured\x1b[0m, 15001"), "{}", painted.text);
    let codes = ["\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[0m"];
    let without = codes.iter().fold(painted.text, |text, code| text.replace(code, ""));
    assert_eq!(without, plain.text);
    let refused = run(&["check", "-f", "x.yaml", "--color", "green"]).unwrap_err();
    assert_eq!(refused.exit, Exit::Usage, "{refused:?}");
}

#[test]
fn apps_with_the_proxy_s_user_or_group_are_reported() {
    let mut pod = injected(&json!({}), &[]);
    let said = "runs as user 1337, the proxy's own: its outbound traffic is not captured";
    assert!(!check(&pod, &[]).text.contains(said));
    let app = |pod: &mut Value, context: Value| {
        let containers = pod["spec"]["containers"].as_array_mut().unwrap();
        let app = containers.iter_mut().find(|container| container["name"] == "web").unwrap();
        app["securityContext"] = context;
    };
    app(&mut pod, json!({"runAsUser": 1337}));
    let checked = check(&pod, &[]);
    assert!(checked.text.contains(&format!("container web {said}")), "{}", checked.text);
    app(&mut pod, json!({"runAsGroup": 1337}));
    let checked = check(&pod, &[]);
    assert!(checked.text.contains("container web runs as group 1337, the proxy's own"), "{}", checked.text);
}
