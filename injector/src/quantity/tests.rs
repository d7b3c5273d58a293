use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn other_texts_are_refused_by_name() {
    for given in
        ["", " ", "m", "1K", "1ki", "1e", "1ee3", "1.2.3", "1 Gi", "0x10", "1e3Mi", "--1", "one", "1m1", "٣"]
    {
        let error = canonical(given).expect_err(given);
        assert!(error.to_string().starts_with(&format!("{given:?} is not a quantity")), "{error}");
    }
}

#[test]
fn pod_is_walked_by_its_types() {
    let mut pod = json!({"spec": {
        "containers": [{
            "name": "app",
            "resources": {"limits": {"cpu": "2000m", "memory": "1024Mi"}, "requests": {"cpu": 0.5}},
            "env": [
                {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": 1}}},
                {"name": "TEXT", "value": "1024Mi"},
            ],
        }],
        "overhead": {"cpu": "0.250"},
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1048576Ki"}}],
        "newField": {"limits": {"cpu": "2000m"}},
    }});
    canonical_quantities(&mut pod).expect("quantities");
    let container = &pod["spec"]["containers"][0];
    assert_eq!(
        container["resources"],
        json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "500m"}})
    );
    assert_eq!(container["env"][0]["valueFrom"]["resourceFieldRef"]["divisor"], json!("1"));
    assert_eq!(container["env"][1]["value"], json!("1024Mi"));
    assert_eq!(pod["spec"]["overhead"]["cpu"], json!("250m"));
    assert_eq!(pod["spec"]["volumes"][0]["emptyDir"]["sizeLimit"], json!("1Gi"));
    assert_eq!(pod["spec"]["newField"]["limits"]["cpu"], json!("2000m"));
}

#[test]
fn bad_quantity_names_its_place() {
    let mut pod = json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "lots"}}}]}});
    let error = canonical_quantities(&mut pod).expect_err("lots");
    assert_eq!(error.path, "spec.containers[0].resources.limits.cpu");
    assert_eq!(error.given, "lots");
}

proptest! {
    #[test]
    fn canonical_is_a_fixed_point(text in "[+-]?[0-9]{0,12}(\\.[0-9]{0,12})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e-?[0-9]{1,2})?") {
        if let Ok(once) = canonical(&text) {
            prop_assert_eq!(canonical(&once), Ok(once));
        }
    }

    #[test]
    fn any_text_is_answered(text in ".{0,40}") {
        let _ = canonical(&text);
    }
}

/// `tests/oracle/quantities.json` was recorded with `kubectl set resources --local`.
#[test]
fn recorded_results_of_kubernetes() {
    let recorded: Vec<(String, String)> =
        serde_json::from_str(include_str!("../../tests/oracle/quantities.json")).expect("the recording");
    assert!(recorded.len() > 100, "{}", recorded.len());
    // Where `kubectl` takes no such value.
    let more = [("-0", "0"), ("-1.5Gi", "-1536Mi"), ("1000E", "1000E"), (" 1Gi ", "1Gi")];
    let recorded = recorded.into_iter().chain(more.map(|(given, form)| (given.to_owned(), form.to_owned())));
    let wrong: Vec<_> = recorded.filter(|(given, form)| canonical(given).as_ref() != Ok(form)).collect();
    assert_eq!(wrong, []);
}
