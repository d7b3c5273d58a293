//! Properties over Istio's own config and cases, where they are at hand: `CONFORMANCE_DATA` names the folder
//! above `istio/`, which holds `inject-config.yaml`, `inject-values.json`, `mesh-config.yaml` and `inject/`.
//!
//! The first test compares with Istio's own results, by the conformance runner that lies beside the data; the
//! others check what must hold whatever the result is.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "tests"
)]

#[path = "../canary.rs"]
mod canary;
mod common;
mod templates;
mod values;

use common::{Case, NASTY, cases, comparable, powers};
use libtest_mimic::{Arguments, Trial};
use serde_json::{Value, json};
use sidecar_injector::annotations::TABLE;
use sidecar_injector::decide::{Policy, Rules, Selector, decide};
use sidecar_injector::inject::Request;
use sidecar_injector::object::{self, Shape};
use sidecar_injector::pod::ids::Ids;
use sidecar_injector::pod::workload::Workload;

/// Every pod of a case with its workload, as the case would inject it.
fn pods(case: &Case, visit: &mut dyn FnMut(&Value, &Workload)) {
    fn each(object: &Value, visit: &mut dyn FnMut(&Value, &Workload)) {
        for item in object::items(object).into_iter().flatten() {
            each(item, visit);
        }
        if let Some(shape) = Shape::of(object) {
            let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
            visit(&shape.pod(object), &Workload::of_object(object, namespace));
        }
    }
    for document in &case.documents {
        each(document, visit);
    }
}

/// `lint` accepts Istio's config, and the webhook denies no pod because of it.
fn istio_s_config_and_what_it_injects_are_valid() {
    let all = cases();
    let case = all.first().unwrap();
    assert_eq!(case.injector.problems(), [""; 0], "{}", case.name);
    pods(case, &mut |pod, workload| {
        let injected = case.injector.inject(Request { pod, workload, context: &case.context }).unwrap();
        assert_eq!(injected.invalid, [], "{}", case.name);
    });
}

/// Runs the runner over a list of cases.
fn runner(cases: &str, more: &[&str]) {
    let data = common::data().unwrap();
    let file = |name: &str| data.join(name).display().to_string();
    let output = std::process::Command::new("python3")
        .arg(file("../../tools/inject_conformance.py"))
        .args(["--quiet", "--bin", env!("CARGO_BIN_EXE_sidecar-injector")])
        .args(["--cases", &file(cases)])
        .args(["--inputs", &file("inject/input"), "--expected", &file("inject/expected")])
        .args(["--config", &file("inject-config.yaml"), "--values", &file("inject-values.json")])
        .args(["--mesh", &file("mesh-config.yaml")])
        .args(more)
        .output()
        .unwrap_or_else(|error| panic!("python3, for the conformance runner: {error}"));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{cases} {more:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
}

fn the_same_as_istio() {
    for cases in ["inject/cases.yaml", "inject/cases-extra.yaml"] {
        // The first injection is compared with the record, too.
        runner(cases, &["--twice"]);
    }
}

fn a_second_injection_changes_no_byte() {
    let mut seen = 0;
    for case in cases() {
        pods(&case, &mut |pod, workload| {
            let request = |pod| Request { pod, workload, context: &case.context };
            let once =
                case.injector.inject(request(pod)).unwrap_or_else(|error| panic!("{}: {error}", case.name));
            let twice = case
                .injector
                .inject(request(&once.pod))
                .unwrap_or_else(|error| panic!("{}: {error}", case.name));
            assert_eq!(twice.pod.to_string(), once.pod.to_string(), "{}", case.name);
            seen += 1;
        });
    }
    assert!(seen > 60, "only {seen} pods: is CONFORMANCE_DATA complete?");
}

fn only_added_parts_are_removed() {
    removed_parts(&|_| (), &comparable);
}

/// With the annotation that Istio's injector does not write.
fn quantities_and_ports_are_as_they_were_written() {
    let note = |case: &mut Case| {
        case.injector.settings.values["sidecarInjectorWebhook"]["uninjectAnnotation"] = json!(true);
    };
    removed_parts(&note, &common::comparable_as_written);
}

fn removed_parts(prepare: &dyn Fn(&mut Case), comparable: &dyn Fn(&Value) -> Value) {
    let mut seen = 0;
    for mut case in cases() {
        prepare(&mut case);
        pods(&case, &mut |pod, workload| {
            let annotation =
                |key: &str| pod.pointer("/metadata/annotations").and_then(|all| all.get(key)?.as_str());
            // This one's template deletes and replaces things of the pod: they are gone for good.
            if annotation("sidecar.istio.io/status").is_some() || case.name == "extra-merge" {
                return;
            }
            let request = |pod| Request { pod, workload, context: &case.context };
            let injected =
                case.injector.inject(request(pod)).unwrap_or_else(|error| panic!("{}: {error}", case.name));
            let out = case.injector.uninject(request(&injected.pod)).unwrap().expect("it was injected");
            assert_eq!(comparable(&out.pod), comparable(pod), "{}: {:?}", case.name, out.left);
            seen += 1;
        });
    }
    assert!(seen > 50, "only {seen} pods: is CONFORMANCE_DATA complete?");
}

fn the_decision_table() {
    let table = common::read("inject-required.yaml");
    let cases = table["cases"].as_array().unwrap();
    for case in cases {
        let selectors = |key: &str| -> Vec<Selector> {
            let list = case.get(key).and_then(Value::as_array);
            list.into_iter().flatten().map(|selector| Selector::parse(selector).unwrap()).collect()
        };
        let rules = Rules {
            policy: Policy::parse(case["policy"].as_str().unwrap()),
            never: selectors("neverInjectSelector"),
            always: selectors("alwaysInjectSelector"),
        };
        let spec = json!({"hostNetwork": case["pod"].get("hostNetwork").cloned().unwrap_or_default()});
        let pod = json!({"metadata": case["pod"], "spec": spec});
        let decision = decide(&pod, case["pod"]["namespace"].as_str().unwrap_or_default(), &rules);
        assert_eq!(Value::Bool(decision.inject()), case["expect"], "{}: {decision}", case["name"]);
    }
    assert!(cases.len() > 15);
}

fn every_namespace_range_is_used() {
    let openshift: Vec<Case> =
        cases().into_iter().filter(|case| case.context.ids != Ids::default()).collect();
    assert_eq!(openshift.len(), 1);
}

fn no_text_changes_what_a_pod_may_do() {
    let case = cases().into_iter().find(|case| case.name == "hello.cni").unwrap();
    let workload = Workload::default();
    let inject = |pod: &Value| {
        let request = Request { pod, workload: &workload, context: &case.context };
        case.injector.inject(request).map(|injected| injected.pod)
    };
    let pod = |kind: &str, key: &str, value: &str| {
        let spec = json!({"containers": [{"name": "app", "image": "i"}]});
        json!({"metadata": {"name": "p", kind: {key: value}}, "spec": spec})
    };
    let (mut refused, mut held) = (0, 0);
    for row in TABLE {
        for kind in ["annotations", "labels"] {
            let plain = inject(&pod(kind, row.key, "plain")).ok();
            for value in NASTY {
                match inject(&pod(kind, row.key, value)) {
                    Err(_) => refused += 1,
                    // Where even plain text is refused, something that is not is of the syntax that is asked
                    // for.
                    Ok(found) => {
                        if let Some(plain) = &plain {
                            assert_eq!(powers(&found), powers(plain), "{kind} {}: {value:?}", row.key);
                        }
                        held += 1;
                    }
                }
            }
        }
    }
    assert!(refused > 100 && held > 100, "refused {refused}, held {held}");
}

/// With the config, the values and the mesh config of an installation of Istio.
fn readme_s_canary_changes_only_the_init_image() {
    let [config, values, mesh] =
        ["inject-config.yaml", "inject-values.json", "mesh-config.yaml"].map(common::read);
    canary::only_the_init_image_differs(&config, Some(&values), Some(&mesh));
}

fn main() {
    let arguments = Arguments::from_args();
    let absent = common::data().is_none();
    let tests: [(&str, fn()); 13] = [
        ("readme_s_canary_changes_only_the_init_image", readme_s_canary_changes_only_the_init_image),
        ("the_same_as_istio", the_same_as_istio),
        ("a_second_injection_changes_no_byte", a_second_injection_changes_no_byte),
        ("only_added_parts_are_removed", only_added_parts_are_removed),
        ("quantities_and_ports_are_as_they_were_written", quantities_and_ports_are_as_they_were_written),
        ("istio_s_config_and_what_it_injects_are_valid", istio_s_config_and_what_it_injects_are_valid),
        ("the_decision_table", the_decision_table),
        ("every_namespace_range_is_used", every_namespace_range_is_used),
        ("no_text_changes_what_a_pod_may_do", no_text_changes_what_a_pod_may_do),
        ("templates::all_eight_templates_parse", templates::all_eight_templates_parse),
        ("templates::the_pod_templates_render_to_yaml", templates::the_pod_templates_render_to_yaml),
        ("templates::a_big_pod_renders_quickly", templates::a_big_pod_renders_quickly),
        (
            "values::the_built_in_templates_do_with_every_value_what_istio_does",
            values::the_built_in_templates_do_with_every_value_what_istio_does,
        ),
    ];
    let trials = tests.into_iter().map(|(name, test)| {
        let run = move || {
            test();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(absent)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}
