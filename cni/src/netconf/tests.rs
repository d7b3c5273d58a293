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
fn what_is_no_object_is_not_decoded() {
    for bad in [&b""[..], b"x", b"[]", b"{", b"{} {}", b"\xff", b"null", b"{\"a\":}"] {
        assert_eq!(NetConf::parse(bad).unwrap_err().code, Code::Decoding, "{bad:?}");
    }
}

#[test]
fn previous_result_keeps_its_bytes() {
    let result = "{ \"b\":1.50,\n\t\"a\" : [ 1 ],\"\\u0041\":1e400}";
    let text = format!("{{\"name\":\"x\", \"prevResult\" : {result} ,\"cniVersion\":\"1.0.0\"}}");
    assert_eq!(parse(&text).prev_result(), Ok(Some(result)));
    assert_eq!(parse("{\"prevResult\": null}").prev_result(), Ok(None));
    assert!(msg(parse("{\"prevResult\": []}").prev_result()).contains("not a JSON object"));
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
        (r#"{"source": "annotations"}"#, "key source: invalid type"),
        (r#"{"on_unknown": "ignore"}"#, "\"ignore\" is not accepted, expected fail or pass"),
        (r#"{"ambient_enabled": true}"#, "ambient mode is not supported"),
        (
            r#"{"capture": {"mtu": 1}}"#,
            "key capture: \"mtu\" is not accepted, expected an object with dns, dual_stack, uid and gid",
        ),
        (r#"{"capture": []}"#, "key capture: [] is not accepted, expected an object with dns"),
        (r#"{"capture": [true]}"#, "key capture: [true] is not accepted, expected an object with dns"),
        (r#"{"capture": {"dns": 1}}"#, "key capture: dns: 1 is not accepted, expected true or false"),
        (
            r#"{"capture": {"uid": "x"}}"#,
            "key capture: uid: \"x\" is not accepted, expected a number from 0 to 4294967294",
        ),
        (r#"{"capture": {"gid": 4294967295}}"#, "key capture: gid: 4294967295 is not accepted"),
        (r#"{"native_nftables": "yes"}"#, "key native_nftables: invalid type"),
    ] {
        assert!(msg(parse(text).settings()).contains(part), "{text}");
    }
    assert!(msg(parse(r#"{"deadline_ms": 0}"#).deadline()).contains("expected 1 to 240000"));
    assert!(msg(parse(r#"{"cni_agent_run_dir": "run"}"#).run_dir()).contains("absolute path"));
    assert!(
        msg(parse(r#"{"runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"a": 1}}}"#).pod_annotations())
            .contains("invalid type")
    );
    assert!(msg(parse("{}").valid_attachments()).contains("missing"));
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
