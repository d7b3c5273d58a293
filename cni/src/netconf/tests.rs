//! Tests of the network configuration.

use super::*;

fn msg<T: std::fmt::Debug>(result: Result<T, CniError>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.code, Code::InvalidConfig, "{error:?}");
    error.msg
}

fn parse(text: &str) -> NetConf<'_> {
    NetConf::parse(text.as_bytes()).unwrap()
}

#[test]
fn invalid_object_is_not_decoded() {
    for (bad, problem) in [
        (&b""[..], "standard input: empty, expected a network configuration in JSON"),
        (b" \n", "standard input: empty"),
        (b"x", "standard input: not a JSON object, expected"),
        (b"[]", "standard input: not a JSON object"),
        (b"null", "standard input: not a JSON object"),
        (b"{", "EOF while parsing an object at line 1"),
        (b"{} {}", "trailing characters at line 1 column 4"),
        (b"\xff", "invalid utf-8"),
        (b"{\"a\":}", "expected value at line 1 column 6"),
        (b"{\"a\":1e999}", "1e999 is not accepted, expected a number of 64-bit floating point"),
    ] {
        let error = NetConf::parse(bad).unwrap_err();
        assert_eq!(error.code, Code::Decoding, "{bad:?}");
        assert!(error.msg.contains(problem), "{bad:?}: {}", error.msg);
    }
}

#[test]
fn previous_result_keeps_its_bytes() {
    let result = "{ \"b\":1.50,\n\t\"a\" : [ 1 ],\"\\u0041\":1e300}";
    let text = format!("{{\"name\":\"x\", \"prevResult\" : {result} ,\"cniVersion\":\"1.0.0\"}}");
    assert_eq!(parse(&text).prev_result(), Ok(Some(result)));
    assert_eq!(parse("{\"prevResult\": null}").prev_result(), Ok(None));
    assert!(
        msg(parse("{\"prevResult\": []}").prev_result())
            .contains("[] is not accepted, expected a JSON object")
    );
}

#[test]
fn versions_are_those_of_the_list() {
    for version in Version::ALL {
        assert_eq!(parse(&format!("{{\"cniVersion\": {:?}}}", version.name())).version(), Ok(version));
    }
    for bad in ["{}", "{\"cniVersion\": \"0.2.0\"}", "{\"cniVersion\": \"1.2.0\"}"] {
        assert_eq!(parse(bad).version().unwrap_err().code, Code::IncompatibleVersion, "{bad}");
    }
}

#[test]
fn defaults_are_safe() {
    let settings = parse("{}").settings().unwrap();
    assert_eq!(settings.on_unknown, OnUnknown::Fail);
    assert_eq!(settings.sources, [SourceKind::Annotations, SourceKind::Agent, SourceKind::Api]);
    assert_eq!((settings.defaults, settings.backend), (Defaults::default(), None));
    assert_eq!(parse("{}").run_dir(), Ok("/var/run/istio-cni".into()));
    assert_eq!(parse("{}").deadline(), Ok(DEADLINE));
}

#[test]
fn refusals_name_key_value_and_what_is_accepted() {
    for (text, part) in [
        (
            r#"{"source": ["annotations", "kubelet"]}"#,
            "key source: \"kubelet\" is not accepted, expected a list of annotations, agent, api",
        ),
        (r#"{"source": []}"#, "key source: an empty list"),
        (
            r#"{"source": "annotations"}"#,
            "key source: \"annotations\" is not accepted, expected a list of annotations, agent, api",
        ),
        (r#"{"on_unknown": "ignore"}"#, "\"ignore\" is not accepted, expected fail or pass"),
        (r#"{"ambient_enabled": true}"#, "ambient mode is not supported"),
        (
            r#"{"capture": {"mtu": 1}}"#,
            "key capture: key \"mtu\" is not accepted, expected dns, dual_stack, uid or gid",
        ),
        (r#"{"capture": []}"#, "key capture: [] is not accepted, expected an object with dns"),
        (r#"{"capture": [true]}"#, "key capture: [true] is not accepted, expected an object with dns"),
        (r#"{"capture": {"dns": 1}}"#, "key capture: dns: 1 is not accepted, expected true or false"),
        (
            r#"{"capture": {"uid": "x"}}"#,
            "key capture: uid: \"x\" is not accepted, expected a number from 0 to 4294967294",
        ),
        (r#"{"capture": {"gid": 4294967295}}"#, "key capture: gid: 4294967295 is not accepted"),
        (
            r#"{"native_nftables": "yes"}"#,
            "key native_nftables: \"yes\" is not accepted, expected true or false",
        ),
        (r#"{"on_unknown": true}"#, "key on_unknown: true is not accepted, expected fail or pass"),
    ] {
        assert!(msg(parse(text).settings()).contains(part), "{text}");
    }
}

#[test]
fn refusals_of_other_types_are_in_plain_words() {
    for (value, shown) in
        [("0", "0"), ("\"5000\"", "\"5000\""), ("1.5", "1.5"), ("-1", "-1"), ("240001", "240001")]
    {
        let text = format!("{{\"deadline_ms\": {value}}}");
        let expected = format!("key deadline_ms: {shown} is not accepted, expected 1 to 240000");
        assert_eq!(msg(parse(&text).deadline()), format!("configuration {expected}"));
    }
    for (value, shown) in [("\"run\"", "\"run\""), ("3", "3")] {
        let problem = msg(parse(&format!("{{\"cni_agent_run_dir\": {value}}}")).run_dir());
        assert!(
            problem.ends_with(&format!("{shown} is not accepted, expected an absolute path")),
            "{problem}"
        );
    }
    let annotations = |value: &str| {
        let text = format!("{{\"runtimeConfig\": {{\"io.kubernetes.cri.pod-annotations\": {value}}}}}");
        msg(parse(&text).pod_annotations())
    };
    let long = format!("[\"{}\"]", "x".repeat(1000));
    for (value, shown) in [("{\"a\": 1}", "{\"a\": 1}"), ("[]", "[]"), (long.as_str(), "xxx…")] {
        let problem = annotations(value);
        assert!(
            problem.contains(&format!("{shown} is not accepted, expected an object of strings")),
            "{problem}"
        );
    }
    let problem = msg(parse("{\"exclude_namespaces\": \"a\"}").excludes(&PodName::default()));
    assert!(problem.ends_with("\"a\" is not accepted, expected a list of names of namespaces"), "{problem}");
    assert!(msg(parse("{\"name\": 5}").name()).contains("5 is not accepted, expected the network's name"));
}

/// Go writes a list without elements as `null`.
#[test]
fn attachments_are_listed_as_go_writes_them() {
    let listed = |value: &str| {
        let text = format!("{{\"cni.dev/valid-attachments\": {value}}}");
        parse(&text)
            .valid_attachments()
            .map(|listed| listed.iter().map(|one| one.container.clone()).collect::<Vec<_>>())
    };
    for none in ["null", "[]"] {
        assert_eq!(listed(none), Ok(vec![]), "{none}");
    }
    let some = r#"[{"containerID": "a", "ifname": "eth0"}, {"containerID": "b", "ifname": "eth0", "x": 1}]"#;
    assert_eq!(listed(some), Ok(vec!["a".to_owned(), "b".to_owned()]));
    let accepted = "expected a list of objects with containerID and ifname";
    // Of a wrong one the state would be removed.
    for bad in [
        "\"x\"",
        "{}",
        "[5]",
        "[null]",
        "[{}]",
        r#"[["a", "eth0"]]"#,
        r#"[{"containerID": 5, "ifname": "eth0"}]"#,
        r#"[{"containerID": null, "ifname": "eth0"}]"#,
        r#"[{"containerID": "a"}]"#,
        r#"[{"containerID": "../a", "ifname": "eth0"}]"#,
        r#"[{"containerID": "b", "ifname": "eth0"}, {"containerId": "a", "ifName": "eth0"}]"#,
    ] {
        assert!(msg(listed(bad)).contains(accepted), "{bad}");
    }
    assert!(msg(parse("{}").valid_attachments()).contains(&format!("missing, {accepted}")));
}

/// Where a captured pod does not need them, too.
#[test]
fn types_of_keys_are_always_checked() {
    for (key, value, accepted) in [
        ("standalone", "\"x\"", "true or false"),
        ("capabilities", "[]", "an object of booleans"),
        ("capabilities", "{\"a\": \"yes\"}", "an object of booleans"),
    ] {
        let text = format!("{{\"{key}\": {value}}}");
        let wanted = format!("configuration key {key}: {value} is not accepted, expected {accepted}");
        assert_eq!(msg(parse(&text).settings()), wanted);
    }
}

#[test]
fn null_capability_means_none() {
    let wants = |value: &str| {
        let text =
            format!("{{\"capabilities\": {{\"a\": null, \"io.kubernetes.cri.pod-annotations\": {value}}}}}");
        parse(&text).wants_annotations()
    };
    assert_eq!(["true", "false", "null"].map(wants), [Ok(true), Ok(false), Ok(false)]);
}

#[test]
fn agent_and_excluded_namespaces_are_recognized() {
    let conf =
        parse(r#"{"pod_namespace": "istio-system", "exclude_namespaces": ["kube-system"], "source": 1}"#);
    let of = |namespace: &str, name: &str| {
        let pod = PodName { namespace: namespace.to_owned(), name: name.to_owned(), uid: String::new() };
        conf.excludes(&pod).unwrap()
    };
    assert_eq!(of("istio-system", "istio-cni-node-abcde"), Some("pod of the node agent"));
    assert_eq!(of("default", "istio-cni-node-abcde"), None);
    assert_eq!(of("istio-system", "productpage-v1-abcde"), None);
    assert_eq!(of("kube-system", "x"), Some("excluded namespace"));
    assert_eq!(of("default", "x"), None);
}

#[test]
fn native_nftables_is_a_backend() {
    let backend = |text: &'static str| parse(text).settings().unwrap().backend.map(|(_, given)| given.text);
    assert_eq!(backend("{}"), None);
    assert_eq!(backend(r#"{"native_nftables": true}"#).as_deref(), Some("nftables"));
    assert_eq!(backend(r#"{"native_nftables": true, "backend": "auto"}"#).as_deref(), Some("auto"));
}

#[test]
fn unknown_keys_are_listed() {
    let conf = parse(r#"{"name": "x", "type": "y", "cni.dev/attachments": [], "sourse": []}"#);
    assert_eq!(conf.unknown_keys().collect::<Vec<_>>(), ["sourse"]);
}
