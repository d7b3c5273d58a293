//! The config file.

use super::*;

#[test]
fn every_config_key_arrives() {
    for key in ordinary() {
        let spec = key.spec();
        for name in std::iter::once(spec.name).chain(spec.alias) {
            let text = format!("{{\"{name}\": \"{}\"}}", sample(key));
            let expected = Some((sample(key).to_owned(), Origin::Document(key)));
            assert_eq!(line(&[]).document(&text).given(key), expected, "{name}");
        }
    }
}

#[test]
fn config_values_of_each_type() {
    let input = line(&[]).document(
        r#"{"istio-inbound-ports": [80, "443"], "istio-service-cidr": "10.0.0.0/8,fd00::/8", "envoy-port": 16001,
            "dry-run": true, "istio-local-exclude-ports": 15020, "istio-outbound-ports": []}"#,
    );
    assert_eq!(input.text(Key::InboundPorts).as_deref(), Some("80,443"));
    assert_eq!(input.text(Key::ServiceCidr).as_deref(), Some("10.0.0.0/8,fd00::/8"));
    assert_eq!(input.text(Key::EnvoyPort).as_deref(), Some("16001"));
    assert_eq!(input.text(Key::DryRun).as_deref(), Some("true"));
    assert_eq!(input.text(Key::LocalExcludePorts).as_deref(), Some("15020"));
    assert_eq!(input.text(Key::OutboundPorts).as_deref(), Some(""));
}

#[test]
fn a_config_file_is_named_by_a_flag_or_its_variable() {
    let mut input = line(&["--config", "/etc/a.json"]);
    input.files.insert("/etc/a.json", "{\"dry-run\": true}");
    assert_eq!(input.text(Key::DryRun).as_deref(), Some("true"));
    input.args.clear();
    let input = input.env("ISTIO_IPTABLES_CONFIG", "/etc/a.json");
    assert_eq!(input.text(Key::DryRun).as_deref(), Some("true"));
}

#[test]
fn a_config_file_holds_ten_thousand_ranges() {
    let ranges: Vec<String> = (0..10_000).map(|n| format!("\"10.{}.{}.0/24\"", n / 256, n % 256)).collect();
    let text = format!("{{\"istio-service-cidr\": [{}]}}", ranges.join(","));
    let given = line(&[]).document(&text).text(Key::ServiceCidr).unwrap();
    assert_eq!(given.split(',').count(), 10_000);
}

#[test]
fn config_file_errors_name_the_position() {
    for (text, expected) in [
        (" \n", "it is empty; expected one JSON object whose keys are long flag names"),
        ("[]", "invalid type: sequence, expected one JSON object whose keys are long flag names"),
        ("{} x", "trailing characters at line 1 column 4"),
        ("{\"dry-run\": true", "EOF while parsing an object"),
        ("{\"inbound\": 1}", "unknown key \"inbound\""),
        (
            "{\"istio-inbound-port\": 1}",
            "unknown key \"istio-inbound-port\"; did you mean istio-inbound-ports?",
        ),
        ("{\"dry-rum\": 1}", "unknown key \"dry-rum\"; did you mean dry-run?"),
        ("{\"-b\": 1}", "unknown key \"-b\""),
        ("{\"ISTIO_INBOUND_PORTS\": 1}", "unknown key \"ISTIO_INBOUND_PORTS\""),
        ("{\"dry-run\": 1}", "the value of \"dry-run\" is 1; expected true or false"),
        ("{\"envoy-port\": [1]}", "the value of \"envoy-port\" is [1]; expected a number"),
        ("{\"envoy-port\": null}", "the value of \"envoy-port\" is null; expected a number"),
        ("{\"rules-file\": 1}", "the value of \"rules-file\" is 1; expected a string"),
        ("{\"istio-inbound-ports\": {}}", "expected a list, or a string with commas"),
        ("{\"istio-inbound-ports\": [[80]]}", "expected a list of strings and numbers"),
        ("{\"dry-run\": true, \"dry-run\": true}", "the key \"dry-run\" is given twice"),
        ("{\"kube-virt-interfaces\": \"a\", \"reroute-virtual-interfaces\": \"a\"}", "is given twice"),
        ("{\"config\": \"x\"}", "cannot name another one"),
    ] {
        let errors = line(&[]).document(text).errors();
        assert_eq!(errors.len(), 1, "{text}");
        assert!(errors[0].starts_with("config file standard input: "), "{errors:?}");
        assert!(errors[0].contains(expected), "{text}: {errors:?}");
    }
    assert_eq!(
        line(&["--config", "/none"]).errors(),
        ["config file /none: cannot be read: entity not found"]
    );
}

#[test]
fn all_errors_of_a_config_file_come_at_once() {
    let errors = line(&[]).document("{\"a\": 1, \"b\": 2, \"dry-run\": []}").errors();
    assert_eq!(errors.len(), 3);
}
