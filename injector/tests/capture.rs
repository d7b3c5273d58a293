//! Options that the init container refuses are refused before, by `check`, `inject` and the webhook alike.

use crate::builtin::{deployment, inject, injector, with};
use crate::reviews::{admission, response, review, send, sent};
use serde_json::{Value, json};
use sidecar_injector::cli::{self, Environment};
use sidecar_injector::config::{Source, Sources};
use sidecar_injector::inject::{InjectError, Injector, Options, functions};
use sidecar_injector::pod::init_options::InitOptions;

/// The error, or the warnings, for a pod.
type CheckResult = Result<Vec<String>, String>;

fn with_file(text: &str, run: impl FnOnce(&str) -> CheckResult) -> CheckResult {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pod.yaml");
    std::fs::write(&path, text).unwrap();
    run(path.to_str().unwrap())
}

fn command(words: &[&str]) -> Result<cli::Output, cli::Failure> {
    let words = std::iter::once("sidecar-injector").chain(words.iter().copied());
    cli::run(words.map(Into::into), &Environment::default())
}

fn by_check(pod: &Value) -> CheckResult {
    with_file(&pod.to_string(), |file| {
        let output = command(&["check", "-o", "json", "-f", file]).unwrap();
        let answers: Value = serde_json::from_str(&output.text).unwrap();
        assert_eq!(output.refused, answers[0]["error"].is_string());
        match answers[0]["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(texts(&answers[0]["warnings"])),
        }
    })
}

fn by_inject(pod: &Value) -> CheckResult {
    with_file(&pod.to_string(), |file| match command(&["inject", "-f", file]) {
        Ok(output) => Ok(output.notes),
        Err(failure) => Err(failure.problems.join("\n")),
    })
}

fn by_webhook(pod: &Value) -> CheckResult {
    let answer = send(&admission(injector()), &review(pod));
    let response = response(&answer);
    if response["allowed"] == true {
        return Ok(texts(&response["warnings"]));
    }
    assert_eq!(response["status"]["code"], 422, "{response}");
    Err(response["status"]["message"].as_str().unwrap().to_owned())
}

fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.map(|text| text.as_str().unwrap().to_owned()).collect()
}

type EntryPoint = fn(&Value) -> CheckResult;

const ENTRY_POINTS: [(&str, EntryPoint); 3] =
    [("check", by_check), ("inject", by_inject), ("webhook", by_webhook)];

/// What the init binary's own parser reports about the pod that comes out.
fn follows(pod: &Value) {
    let injected = inject(&injector(), pod).unwrap().pod;
    let init = InitOptions::of(&injected).unwrap();
    assert!(init.resolved.is_some(), "{init:?}");
}

#[track_caller]
fn all_refuse(pod: &Value, parts: &[&str]) {
    for (name, check) in ENTRY_POINTS {
        let Err(error) = check(pod) else { panic!("{name}: {pod}") };
        for part in parts {
            assert!(error.contains(part), "{name}: {part:?} is not in {error}");
        }
    }
}

#[track_caller]
fn all_warn(pod: &Value, part: &str) {
    for (name, check) in ENTRY_POINTS {
        let warnings = check(pod).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(warnings.iter().any(|warning| warning.contains(part)), "{name}: {part:?}: {warnings:?}");
    }
}

fn metadata(key: &str, value: &str) -> Value {
    let config = json!({"proxyMetadata": {key: value}}).to_string();
    sent(&with(&deployment(), &json!({"proxy.istio.io/config": config})))
}

#[test]
fn annotations_are_refused_by_all_commands_or_by_none() {
    for (key, value, good) in [
        ("sidecar.istio.io/agentLogLevel", "bogus", "default:debug,ads:info"),
        ("sidecar.istio.io/agentLogLevel", "default:bogus", "warn"),
        ("sidecar.istio.io/agentLogLevel", "a:b:info", "none"),
        ("status.sidecar.istio.io/port", "080", "80"),
        ("status.sidecar.istio.io/port", "+80", "0"),
        ("status.sidecar.istio.io/port", "65536", "65535"),
        ("status.sidecar.istio.io/port", "", "15020"),
        ("readiness.status.sidecar.istio.io/periodSeconds", "010", "10"),
        ("traffic.sidecar.istio.io/excludeInboundPorts", "0", "80,81"),
        ("traffic.sidecar.istio.io/includeInboundPorts", "80-90", "*"),
        ("traffic.sidecar.istio.io/excludeOutboundPorts", "*", "80"),
        ("traffic.sidecar.istio.io/includeOutboundPorts", "080", "80"),
        ("traffic.sidecar.istio.io/includeOutboundIPRanges", "10.0.0.0/33", "10.0.0.0/8"),
        ("traffic.sidecar.istio.io/excludeOutboundIPRanges", "x", "::1/128"),
        ("traffic.sidecar.istio.io/excludeInterfaces", "a/b", "eth1"),
        ("traffic.sidecar.istio.io/kubevirtInterfaces", "a b", "net1"),
        ("istio.io/reroute-virtual-interfaces", "--cleanup-only", "net1,net2"),
        ("sidecar.istio.io/interceptionMode", "tproxy", "TPROXY"),
    ] {
        let with = |value: &str| sent(&with(&deployment(), &json!({ key: value })));
        let given = format!("annotation {key}: {value:?} is not accepted, expected ");
        all_refuse(&with(value), &[&given]);
        for (name, check) in ENTRY_POINTS {
            check(&with(good)).unwrap_or_else(|error| panic!("{name}: {key}={good}: {error}"));
        }
        follows(&with(good));
    }
}

#[test]
fn variables_of_the_init_container_are_refused_by_all_commands_or_by_none() {
    for (key, value, good) in [
        ("ISTIO_META_DNS_CAPTURE", "bogus", "true"),
        ("ISTIO_DUAL_STACK", "maybe", "1"),
        ("INVALID_DROP", "x", "false"),
        ("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "foo", "127.0.0.0/8"),
        ("ISTIO_OUTBOUND_OWNER_GROUPS", "a b", "202"),
        ("ISTIO_IPTABLES_BACKEND", "foo", "iptables-nft"),
        ("ISTIO_IPTABLES_BACKEND", "native", "nftables"),
        ("ISTIO_IPTABLES_BACKEND", "2", "auto"),
        ("FORCE_IPTABLES_BINARY", "x", "nft"),
        ("PROBE_TIMEOUT", "5", "5s"),
        ("RUN_VALIDATION", "yes", "true"),
    ] {
        let named = format!("annotation proxy.istio.io/config: proxyMetadata.{key}: ");
        all_refuse(&metadata(key, value), &[&named]);
        for (name, check) in ENTRY_POINTS {
            check(&metadata(key, good)).unwrap_or_else(|error| panic!("{name}: {key}={good}: {error}"));
        }
        follows(&metadata(key, good));
    }
    let named = "annotation proxy.istio.io/config: proxyMetadata.ISTIO_DUAL_STACK: \"maybe\" is not accepted, expected true";
    all_refuse(&metadata("ISTIO_DUAL_STACK", "maybe"), &[named]);
    all_refuse(
        &metadata("ISTIO_IPTABLES_CONFIG", "-"),
        &["container istio-init: config file standard input"],
    );
}

#[test]
fn options_that_disable_capture_get_a_warning() {
    for key in ["SKIP_RULE_APPLY", "DRY_RUN", "CLEANUP_ONLY"] {
        let named = format!(
            "annotation proxy.istio.io/config: proxyMetadata.{key}: \"true\" disables capture: the init container "
        );
        all_warn(&metadata(key, "true"), &named);
    }
    all_warn(
        &metadata("NETWORK_NAMESPACE", "/proc/1/ns/net"),
        "applies its rules in another network namespace",
    );
    all_warn(&metadata("ISTIO_IPTABLES_CONFIG", "/x"), "\"/x\": the file is in the container");
    all_warn(&metadata("ISTIO_OUTBOUND_OWNER_GROUPS", "java"), "unless its /etc/group has this group");
    let none = inject(&injector(), &metadata("DRY_RUN", "false")).unwrap();
    assert_eq!(none.warnings, [""; 0]);
}

/// Once, by the annotation, or by the value that all pods get.
#[test]
fn half_of_ipv4_excluded_gets_a_warning() {
    let of_ranges =
        |warnings: &[String]| warnings.iter().filter(|warning| warning.contains("of IPv4 are")).count();
    let ranges = json!({"traffic.sidecar.istio.io/excludeOutboundIPRanges": "0.0.0.0/1,10.0.0.0/8"});
    let pod = sent(&with(&deployment(), &ranges));
    let named = "annotation traffic.sidecar.istio.io/excludeOutboundIPRanges: 0.0.0.0/1: 50 % of IPv4 are excluded \
                 from outbound capture";
    all_warn(&pod, named);
    for (name, check) in ENTRY_POINTS {
        let warnings = check(&pod).unwrap();
        assert_eq!(of_ranges(&warnings), 1, "{name}: {warnings:?}");
    }
    let wide = configured("global: {proxy: {excludeIPRanges: 128.0.0.0/1}}", "{}");
    let warnings = inject(&wide, &deployment()).unwrap().warnings;
    let named = "128.0.0.0/1: 50 % of IPv4 are excluded from outbound capture (global.proxy.excludeIPRanges of values)";
    assert!(warnings.iter().any(|warning| warning.ends_with(named)), "{warnings:?}");
    let narrow = json!({"traffic.sidecar.istio.io/excludeOutboundIPRanges": "10.0.0.0/8"});
    let warnings = inject(&wide, &sent(&with(&deployment(), &narrow))).unwrap().warnings;
    assert_eq!(of_ranges(&warnings), 0, "{warnings:?}");
}

#[test]
fn bad_values_are_reported_up_to_a_limit() {
    let error = inject(&injector(), &metadata("ISTIO_OUTBOUND_OWNER_GROUPS", &vec!["a b"; 40_000].join(",")));
    assert_eq!(error.unwrap_err().to_string().lines().count(), 11);
}

#[test]
fn an_unknown_envoy_log_level_gets_a_warning() {
    for (key, bad, good) in [
        ("sidecar.istio.io/logLevel", "verbose", "debug"),
        ("sidecar.istio.io/componentLogLevel", "debug", "misc:error,http:trace"),
    ] {
        let with = |value: &str| sent(&with(&deployment(), &json!({ key: value })));
        all_warn(&with(bad), &format!("annotation {key}: Envoy does not start with {bad:?}"));
        assert_eq!(inject(&injector(), &with(good)).unwrap().warnings, [""; 0]);
    }
}

#[test]
fn a_pod_for_windows_is_warned_of() {
    let mut pod = sent(&deployment());
    pod["spec"]["nodeSelector"] = json!({"kubernetes.io/os": "windows"});
    all_warn(&pod, "sidecar.istio.io/inject: \"false\"");
    pod["spec"]["nodeSelector"] = Value::Null;
    pod["spec"]["os"] = json!({"name": "windows"});
    // Kubernetes rejects it, which is an error of `check` and not the fault of the config.
    let refused = "expected no field of Linux, with spec.os.name windows";
    for (name, check) in ENTRY_POINTS {
        let report = check(&pod);
        assert_eq!(report.is_err(), name == "check", "{name}: {report:?}");
        let text = report.map_or_else(|error| error, |warnings| warnings.join("\n"));
        for part in ["the injected containers are for Linux", refused, "sidecar.istio.io/inject: \"false\""] {
            assert!(
                name == "check" && part.starts_with("the") || text.contains(part),
                "{name}: {part}: {text}"
            );
        }
    }
    pod["spec"]["os"] = json!({"name": "linux"});
    assert_eq!(inject(&injector(), &pod).unwrap().warnings, [""; 0]);
}

#[test]
fn a_user_s_own_init_container_is_the_pod_s_fault() {
    let mut pod = sent(&deployment());
    pod["spec"]["initContainers"] =
        json!([{"name": "istio-init", "image": "auto", "env": [{"name": "ISTIO_DUAL_STACK", "value": "x"}]}]);
    all_refuse(&pod, &["container istio-init: variable ISTIO_DUAL_STACK: \"x\" is not accepted"]);
    pod["spec"]["initContainers"][0]["env"] = json!([{"name": "ISTIO_DUAL_STACK", "value": "true"}]);
    pod["spec"]["initContainers"][0]["args"] = json!(["--of-tomorrow"]);
    all_warn(&pod, "container istio-init: unknown option \"--of-tomorrow\"");
}

fn configured(values: &str, mesh: &str) -> Injector {
    let source = |name: &str, text: &str| Some(Source { name: name.to_owned(), text: text.to_owned() });
    let sources = Sources { values: source("values", values), mesh: source("mesh", mesh), config: None };
    Injector::new(sources.load(&functions(|_| None)).unwrap(), Options::default())
}

#[test]
fn what_the_config_has_wrong_is_not_the_pod_s_fault() {
    let lint = |values: &str, mesh: &str| {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (values, mesh) = (file("values", values), file("mesh", mesh));
        command(&["lint", "--values", &values, "--mesh-config", &mesh]).unwrap()
    };
    for (values, mesh, named) in [
        (
            "{}",
            "defaultConfig: {proxyMetadata: {ISTIO_META_DNS_CAPTURE: bogus}}",
            "mesh config: defaultConfig.proxyMetadata.ISTIO_META_DNS_CAPTURE: \"bogus\"",
        ),
        ("global: {logging: {level: bogus}}", "{}", "container istio-init: --log_output_level: \"bogus\""),
        (
            "global: {proxy: {includeIPRanges: x}}",
            "{}",
            "container istio-init: --istio-service-cidr (-i): \"x\"",
        ),
    ] {
        let error = inject(&configured(values, mesh), &deployment()).unwrap_err();
        assert!(matches!(&error, InjectError::Capture { by_config: true, .. }), "{error:?}");
        assert!(error.to_string().contains(named), "{error}");
        let answer = send(&admission(configured(values, mesh)), &review(&sent(&deployment())));
        assert_eq!(response(&answer)["status"]["code"], 500);
        let notes = lint(values, mesh).notes.join("\n");
        assert!(notes.contains(named), "{notes}");
    }
    // The pod may still mend it for itself, or have a fault of its own besides.
    let mesh = "defaultConfig: {proxyMetadata: {ISTIO_META_DNS_CAPTURE: bogus}}";
    let good = metadata("ISTIO_META_DNS_CAPTURE", "true");
    assert!(inject(&configured("{}", mesh), &good).is_ok());
    let error = inject(&configured("{}", mesh), &metadata("ISTIO_DUAL_STACK", "x")).unwrap_err();
    assert!(
        matches!(&error, InjectError::Capture { problems, by_config: false } if problems.len() == 2),
        "{error:?}"
    );
}

#[test]
fn what_another_version_may_know_is_a_warning() {
    let config =
        builtin_config().replace("- istio-iptables\n", "- istio-iptables\n        - --of-tomorrow\n");
    let source = Source { name: "config".to_owned(), text: config };
    let sources = Sources { config: Some(source), ..Sources::default() };
    let injector = Injector::new(sources.load(&functions(|_| None)).unwrap(), Options::default());
    let injected = inject(&injector, &deployment()).unwrap();
    assert_eq!(injected.warnings.len(), 1, "{:?}", injected.warnings);
    assert!(injected.warnings[0].contains("unknown option \"--of-tomorrow\""), "{:?}", injected.warnings);
}

fn builtin_config() -> String {
    command(&["config", "config"]).unwrap().text
}
