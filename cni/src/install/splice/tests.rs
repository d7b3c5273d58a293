use proptest::prelude::*;

use super::*;

const ENTRY: &str = r#"{"type":"istio-cni","capabilities":{"io.kubernetes.cri.pod-annotations":true}}"#;

fn parse(text: &str) -> List<'_> {
    List::parse(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn entry_is_inserted_last_in_the_style_of_the_list() {
    for (before, after) in [
        (
            "{\"name\":\"x\",\"plugins\":[{\"type\":\"a\"}]}",
            format!("{{\"name\":\"x\",\"plugins\":[{{\"type\":\"a\"}},{ENTRY}]}}"),
        ),
        (
            "{\r\n \"plugins\": [\r\n\t{\"type\": \"a\"},\r\n\t{\"type\": \"b\"}\r\n ],\r\n \"name\": \"x\"}\r\n",
            format!(
                "{{\r\n \"plugins\": [\r\n\t{{\"type\": \"a\"}},\r\n\t{{\"type\": \"b\"}},\r\n\t{ENTRY}\r\n ],\r\n \"name\": \"x\"}}\r\n"
            ),
        ),
    ] {
        assert_eq!(parse(before).with_entry(ENTRY).as_ref(), Some(&after));
        assert_eq!(parse(&after).with_entry(ENTRY), None);
        assert_eq!(parse(&after).without_entry(false), Ok(Some(before.to_owned())));
    }
}

#[test]
fn another_entry_of_ours_is_replaced_in_its_place() {
    let older = ENTRY.replace("{\"type", "{\"x\":1,\"type");
    let text = format!(r#"{{"name":"x","plugins":[ {{"type":"a"}} , {older} , {{"type":"b"}} ]}}"#);
    let text = text.as_str();
    let replaced = text.replace(&older, ENTRY);
    assert_eq!(parse(text).with_entry(ENTRY), Some(replaced));
    let without = r#"{"name":"x","plugins":[ {"type":"a"} , {"type":"b"} ]}"#;
    assert_eq!(parse(text).without_entry(false), Ok(Some(without.to_owned())));
}

#[test]
fn equal_entry_is_recognized_whatever_its_white_space_and_order() {
    let own = r#"{ "capabilities" : {"io.kubernetes.cri.pod-annotations": true}, "type": "istio\u002dcni" }"#;
    let text = format!("{{\"name\":\"x\",\"plugins\":[{{\"type\":\"a\"}},{own}]}}");
    assert_eq!(parse(&text).with_entry(ENTRY), None);
}

#[test]
fn several_entries_become_one_and_go_together() {
    let ours = ENTRY.replace("true", "false");
    let text =
        format!(r#"{{"name":"x","plugins":[{ours},{ours},{{"type":"a"}},{ours},{{"type":"b"}},{ours}]}}"#);
    let one = parse(&text).with_entry(ENTRY).unwrap();
    assert_eq!(one, format!(r#"{{"name":"x","plugins":[{{"type":"a"}},{{"type":"b"}},{ENTRY}]}}"#));
    let none = parse(&text).without_entry(false).unwrap().unwrap();
    assert_eq!(none, r#"{"name":"x","plugins":[{"type":"a"},{"type":"b"}]}"#);
}

/// The first plugin gets no `prevResult`.
#[test]
fn entry_in_first_place_is_moved_behind_the_last_plugin() {
    let text =
        format!("{{\"name\":\"x\",\"plugins\":[ {ENTRY} , {{\"type\":\"a\"}},\n{{\"type\":\"b\"}} ]}}");
    let moved =
        format!("{{\"name\":\"x\",\"plugins\":[ {{\"type\":\"a\"}},\n{{\"type\":\"b\"}}, {ENTRY} ]}}");
    assert_eq!(parse(&text).with_entry(ENTRY), Some(moved.clone()));
    assert_eq!(parse(&moved).with_entry(ENTRY), None);
}

#[test]
fn only_plugin_is_not_removed() {
    let text = format!(r#"{{"name":"x","plugins":[{ENTRY}]}}"#);
    assert_eq!(
        parse(&text).without_entry(false).unwrap_err().to_string(),
        "plugins: istio-cni is the only one"
    );
}

#[test]
fn entry_with_nothing_of_ours_is_not_ours() {
    for (entry, owner) in [
        (ENTRY, Owner::Ours),
        (
            r#"{"TYPE":"istio\u002dcni","Capabilities":{"io.kubernetes.cri.pod-annotations":true}}"#,
            Owner::Ours,
        ),
        (r#"{"type":"istio-cni","on_unknown":"fail"}"#, Owner::Ours),
        (r#"{"type":"istio-cni"}"#, Owner::Istio { ambient: false }),
        (r#"{"type":"istio-cni","capabilities":{"portMappings":true}}"#, Owner::Istio { ambient: false }),
        (
            r#"{"type":"istio-cni","capabilities":null,"ambient_enabled":false}"#,
            Owner::Istio { ambient: false },
        ),
        (r#"{"type":"istio-cni","ambient_enabled":true}"#, Owner::Istio { ambient: true }),
        (r#"{"type":"istio-cni","Ambient_Enabled":"yes"}"#, Owner::Istio { ambient: true }),
        (r#"{"type":"istio-cni2","capabilities":{"io.kubernetes.cri.pod-annotations":true}}"#, Owner::Other),
    ] {
        assert_eq!(Single::parse(entry).unwrap().owner(), owner, "{entry}");
        let text = format!(r#"{{"name":"x","plugins":[{{"type":"a"}},{entry}]}}"#);
        let list = parse(&text);
        assert_eq!(list.owners().collect::<Vec<_>>(), [Owner::Other, owner], "{entry}");
        assert_eq!(list.without_entry(false).unwrap().is_some(), owner == Owner::Ours, "{entry}");
        assert_eq!(list.without_entry(true).unwrap().is_some(), owner != Owner::Other, "{entry}");
    }
}

#[test]
fn what_libcni_does_not_load_is_invalid() {
    for bad in [
        "",
        "[]",
        "{}",
        r#"{"name":"x","loadOnlyInlinedPlugins":true}"#,
        r#"{"name":1,"plugins":[{"type":"a"}]}"#,
        r#"{"name":"x","plugins":null}"#,
        r#"{"name":"x","plugins":{}}"#,
        r#"{"name":"x","plugins":[]}"#,
        r#"{"name":"x","plugins":[1]}"#,
        r#"{"name":"x","plugins":[{}]}"#,
        r#"{"name":"x","plugins":[{"type":""}]}"#,
        r#"{"name":"x","cniVersion":1,"plugins":[{"type":"a"}]}"#,
        r#"{"name":"x","plugins":[{"type":"a"}]} x"#,
        r#"{"name":"x","plugins":[{"type":"a"}],}"#,
    ] {
        assert!(List::parse(bad).is_err(), "{bad}");
    }
    for bad in ["", "[]", "{}", r#"{"type":1}"#, r#"{"type":""}"#, r#"{"type":"a","name":1}"#] {
        assert!(Single::parse(bad).is_err(), "{bad}");
    }
}

/// Go reads half of a surrogate pair as U+FFFD.
#[test]
fn lone_surrogates_are_read_as_in_go() {
    for text in [
        r#"{"name":"x","\ud800":1,"plugins":[{"type":"a"}]}"#,
        r#"{"name":"x\uDC00","plugins":[{"type":"a"}]}"#,
        r#"{"name":"x","plugins":[{"type":"a","\udc00":1}]}"#,
        r#"{"name":"x","plugins":[{"type":"a\ud800\u0041"}]}"#,
        r#"{"name":"x","plugins":[{"type":"a","ipam":{"type":"b\ud800","\udfff":2},"dns":{"domain":"\ud800\ud83d\ude00"}}]}"#,
    ] {
        let list = parse(text);
        let with = list.with_entry(ENTRY).unwrap();
        assert_eq!(with.replace(&format!(",{ENTRY}"), ""), text);
        assert_eq!(parse(&with).with_entry(ENTRY), None, "{with}");
        assert_eq!(parse(&with).without_entry(false), Ok(Some(text.to_owned())));
        let plugin = text.find(r#"{"type"#).and_then(|start| text.get(start..text.len() - 2)).unwrap();
        assert!(Single::parse(plugin).is_ok(), "{plugin}");
    }
    assert_eq!(
        parse(r#"{"name":"\\ud800\ud83dx\ud83d\ude00","plugins":[{"type":"a"}]}"#).name(),
        "\\ud800\u{fffd}x\u{1f600}"
    );
    assert!(List::parse(r#"{"name":"\ud80","plugins":[{"type":"a"}]}"#).is_err());
    let version = r#"{"cniVersion":"1.0.0","name":"\ud800","plugins":[{"type":"a"}]}"#;
    assert_eq!(require_version(version), Ok(()));
}

#[test]
fn configuration_that_cannot_be_compared_by_value_is_a_source_by_its_bytes() {
    let deep = format!(r#"{{"name":"x","type":"a","d":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    for text in [deep.as_str(), r#"{"name":"x\ud800","type":"a","comment":"\ud800"}"#] {
        let single = Single::parse(text).unwrap();
        let list = single.to_list(ENTRY).unwrap();
        assert!(single.is_source_of(&parse(&list)), "{list}");
        let changed = list.replace(r#""type":"a""#, r#""type":"b""#);
        assert!(!single.is_source_of(&parse(&changed)), "{changed}");
    }
}

/// Fields of a plugin may be nested as deep as libcni accepts.
#[test]
fn deep_fields_are_read() {
    let deep = format!("{}{}", r#"{"a":["#.repeat(100), "]}".repeat(100));
    for field in ["prevResult", "ambient_enabled", "x"] {
        let text = format!(
            r#"{{"name":"x","plugins":[{{"type":"istio-cni","on_unknown":"fail","{field}":{deep}}}]}}"#
        );
        assert!(parse(&text).has_entry(), "{field}");
        let text = format!(r#"{{"name":"x","plugins":[{{"type":"istio-cni","{field}":{deep}}}]}}"#);
        let ambient = field == "ambient_enabled";
        assert_eq!(parse(&text).owners().collect::<Vec<_>>(), [Owner::Istio { ambient }], "{field}");
    }
}

/// Keys of a list and of its plugins are those of a map first.
#[test]
fn last_of_several_equal_keys_counts_as_in_go() {
    let text = r#"{"name":"x","plugins":[{"type":"a"}],"name":"y","plugins":[{"type":"b"}],"Plugins":[{"type":"c"}]}"#;
    let with = parse(text).with_entry(ENTRY).unwrap();
    assert_eq!(with, text.replace(r#"{"type":"b"}"#, &format!(r#"{{"type":"b"}},{ENTRY}"#)));
    assert_eq!(parse(&with).name(), "y");
    assert_eq!(parse(&with).without_entry(false), Ok(Some(text.to_owned())));
    // An entry in an array that is not read is none.
    let shadowed = format!(r#"{{"name":"x","plugins":[{ENTRY}],"\u0070lugins":[{{"type":"b"}}]}}"#);
    assert!(!parse(&shadowed).has_entry());
    let with = parse(&shadowed).with_entry(ENTRY).unwrap();
    assert!(with.ends_with(&format!(r#"[{{"type":"b"}},{ENTRY}]}}"#)), "{with}");
    let owner = |plugin: &str| {
        let text = format!(r#"{{"name":"x","plugins":[{plugin}]}}"#);
        parse(&text).owners().next().unwrap()
    };
    assert_eq!(owner(r#"{"type":"istio-cni","on_unknown":"fail","type":"a"}"#), Owner::Other);
    assert_eq!(owner(r#"{"type":"a","on_unknown":"fail","type":"istio-cni"}"#), Owner::Ours);
    let capabilities = r#""capabilities":{"io.kubernetes.cri.pod-annotations":true}"#;
    let istio = Owner::Istio { ambient: false };
    assert_eq!(owner(&format!(r#"{{"type":"istio-cni",{capabilities},"capabilities":{{}}}}"#)), istio);
    let version = r#"{"cniVersion":"9.9.9","cniVersion":"1.0.0","name":"x","plugins":[{"type":"a"}]}"#;
    assert_eq!(require_version(version), Ok(()));
    for bad in [
        r#"{"name":"x","name":null,"plugins":[{"type":"a"}]}"#,
        r#"{"name":"x","plugins":[{"type":"a"}],"plugins":null}"#,
        r#"{"name":"x","plugins":[{"type":"a"}],"plugins":[]}"#,
        r#"{"name":"x","plugins":[{"type":"a","type":""}]}"#,
        r#"{"name":"x","cniVersion":"1.0.0","cniVersion":1,"plugins":[{"type":"a"}]}"#,
    ] {
        assert!(List::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn keys_of_a_list_have_the_types_of_libcni() {
    let list = |field: &str| format!(r#"{{"name":"x",{field},"plugins":[{{"type":"a"}}]}}"#);
    for key in ["disableCheck", "disableGC", "loadOnlyInlinedPlugins"] {
        for value in ["true", "false", "\"true\"", "\"False\"", "\"TRUE\""] {
            parse(&list(&format!("\"{key}\":{value}")));
        }
        for value in ["1", "0", "null", "\"yes\"", "\"\"", "[]", "{}", "\" true\""] {
            let invalid = List::parse(&list(&format!("\"{key}\":{value}"))).unwrap_err().to_string();
            assert_eq!(invalid, format!("{key}: {value} is not accepted, expected true or false"));
        }
    }
    for value in [r#"[]"#, r#"["1.0.0","1.1"]"#, r#"["9.9.9"]"#] {
        parse(&list(&format!("\"cniVersions\":{value}")));
    }
    for value in
        [r#""1.0.0""#, "null", "{}", "1", "[1]", "[null]", r#"[""]"#, r#"["1.0.0","x"]"#, r#"["1.0.0.0"]"#]
    {
        let invalid = List::parse(&list(&format!("\"cniVersions\":{value}"))).unwrap_err().to_string();
        assert_eq!(invalid, format!("cniVersions: {value} is not accepted, expected a list of versions"));
    }
}

/// A plugin's fields are found whatever their case, in the order of the keys.
#[test]
fn last_of_several_keys_of_other_case_counts_as_in_go() {
    let owner = |plugin: &str| {
        let text = format!(r#"{{"name":"x","plugins":[{plugin}]}}"#);
        List::parse(&text).map(|list| list.owners().next().unwrap())
    };
    // Libcni sorts keys: `TYPE`, `Type`, `type`.
    let ours = r#""on_unknown":"fail""#;
    for (plugin, wanted) in [
        (format!(r#"{{"Type":"istio-cni","TYPE":"a",{ours}}}"#), Owner::Ours),
        (format!(r#"{{"type":"istio-cni","Type":"a",{ours}}}"#), Owner::Ours),
        (format!(r#"{{"Type":"istio-cni","type":null,{ours}}}"#), Owner::Ours),
        (format!(r#"{{"TYPE":"istio-cni","Type":"a",{ours}}}"#), Owner::Other),
    ] {
        assert_eq!(owner(&plugin), Ok(wanted), "{plugin}");
    }
    // Go compares letters after simple case folding.
    assert!(owner(&format!(r#"{{"type":"istio-cni","capabilitie\u017f":1,{ours}}}"#)).is_err());
    for bad in [r#"{"type":null}"#, r#"{"type":"a","TYPE":1}"#, r#"{"type":"a","Type":[]}"#] {
        assert!(owner(bad).is_err(), "{bad}");
    }
    // Those of a single configuration come in its own order.
    let single =
        Single::parse(r#"{"type":"a","name":"x","Name":"y","name":null,"cniVersion":null}"#).unwrap();
    let list = single.to_list(ENTRY).unwrap();
    assert_eq!(parse(&list).name(), "y");
    assert!(Single::parse(r#"{"type":"a","type":null}"#).is_err(), "a list of it has no type");
}

/// The runtime skips a list with a plugin that it cannot read, or uses none at all: an entry in it has no
/// effect.
#[test]
fn fields_of_other_types_make_a_list_invalid_as_in_go() {
    for field in [
        r#""capabilities":["portMappings"]"#,
        r#""capabilities":{"portMappings":"true"}"#,
        r#""ipam":"host-local""#,
        r#""ipam":{"type":1}"#,
        r#""dns":["10.0.0.10"]"#,
        r#""dns":{"nameservers":"10.0.0.10"}"#,
        r#""dns":{"search":[1]}"#,
        r#""dns":{"domain":true}"#,
        r#""name":1"#,
        r#""CNIVersion":1"#,
        r#""prevResult":[]"#,
    ] {
        let plugin = format!(r#"{{"type":"a",{field}}}"#);
        assert!(Single::parse(&plugin).is_err(), "{field}");
        let list = format!(r#"{{"name":"x","plugins":[{{"type":"b"}},{plugin}]}}"#);
        assert!(List::parse(&list).unwrap_err().to_string().starts_with("plugins[1]: "), "{field}");
    }
    for field in [
        r#""capabilities":null"#,
        r#""capabilities":{"portMappings":null,"a":false}"#,
        r#""ipam":{}"#,
        r#""ipam":{"type":null,"ranges":[[{}]]}"#,
        r#""dns":{"nameservers":null,"Search":["a",null]}"#,
        r#""runtimeConfig":7"#,
    ] {
        let plugin = format!(r#"{{"type":"a",{field}}}"#);
        assert!(Single::parse(&plugin).is_ok(), "{field}");
    }
}

#[test]
fn single_configuration_becomes_a_list_with_its_own_text() {
    let text =
        "{\n  \"cniVersion\": \"0.3.1\", \"name\": \"n\\u0065t\",\n  \"type\": \"bridge\", \"x\": 1.50 }\n";
    let single = Single::parse(text).unwrap();
    let list = single.to_list(ENTRY).unwrap();
    assert!(list.contains(text.trim()) && list.contains("\"cniVersion\": \"0.3.1\""), "{list}");
    let parsed = parse(&list);
    assert_eq!((parsed.name(), parsed.plugins.len(), parsed.has_entry()), ("net", 2, true));
    assert_eq!(parsed.with_entry(ENTRY), None);
    assert!(single.is_source_of(&parsed));
    let other = Single::parse(r#"{"name": "net", "type": "ptp"}"#).unwrap();
    assert!(!other.is_source_of(&parsed));
    let nameless = Single::parse(r#"{"type":"a"}"#).unwrap();
    assert_eq!(nameless.to_list(ENTRY), Err(Invalid::new("missing name")));
}

/// JSON text: a value with white space of any kind around its parts.
fn space() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec![" ", "\n", "\r\n", "\t"]), 0..4)
        .prop_map(|parts| parts.concat())
}

fn string_text() -> impl Strategy<Value = String> {
    let escaped =
        prop::sample::select(vec!["\\n", "\\u00e4", "\\\"", "\\\\", "\\ud83d\\ude00", "]", "}", ",", "[{"]);
    let plain = "[a-zA-Zäß漢🦀 /:-]{0,6}";
    prop::collection::vec(prop_oneof![escaped.prop_map(str::to_owned), plain], 0..4)
        .prop_map(|parts| format!("\"{}\"", parts.concat()))
}

fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        string_text(),
        prop::sample::select(vec!["null", "true", "0", "-1.50", "1e3", "12345678901234567890123"])
            .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let element = (space(), inner.clone(), space()).prop_map(|(a, v, b)| format!("{a}{v}{b}"));
        let member = (space(), string_text(), space(), inner, space())
            .prop_map(|(a, k, b, v, c)| format!("{a}{k}{b}:{c}{v}"));
        prop_oneof![
            prop::collection::vec(element, 0..4).prop_map(|all| format!("[{}]", all.join(","))),
            prop::collection::vec(member, 0..4).prop_map(|all| format!("{{{}}}", all.join(","))),
        ]
    })
}

fn plugin() -> impl Strategy<Value = String> {
    (space(), value(), space(), "[a-z]{1,8}", space(), any::<bool>()).prop_map(|(a, v, b, kind, c, first)| {
        let (kind, other) = (format!("\"type\"{b}:{c}\"{kind}\""), format!("\"zz\":{v}"));
        if first { format!("{{{a}{kind},{other}{c}}}") } else { format!("{{{other}{a},{kind}{b}}}") }
    })
}

fn list() -> impl Strategy<Value = String> {
    let plugins = prop::collection::vec((space(), plugin(), space()), 1..5)
        .prop_map(|all| all.into_iter().map(|(a, p, b)| format!("{a}{p}{b}")).collect::<Vec<_>>().join(","));
    (space(), plugins, space(), string_text(), value(), any::<bool>()).prop_map(
        |(a, plugins, b, name, v, first)| {
            let plugins = format!("\"plugins\"{b}:{a}[{plugins}]");
            let rest = format!("\"name\":{a}{name},{b}\"extra\"{a}:{v}");
            if first {
                format!("{a}{{{plugins},{rest}{b}}}{a}")
            } else {
                format!("{{{b}{rest}{a},{plugins}}}{b}")
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn insertion_keeps_all_other_bytes_and_removal_is_its_inverse(text in list()) {
        let parsed = parse(&text);
        let count = parsed.plugins.len();
        let with = parsed.with_entry(ENTRY).expect("no entry yet");
        // One run of bytes is new, behind the last plugin; what is before and behind it is as it was.
        let at = parsed.plugins.last().unwrap().span.end;
        let (before, behind) = text.split_at(at);
        let inserted = with.strip_prefix(before).unwrap().strip_suffix(behind).unwrap();
        prop_assert!(inserted.starts_with(',') && inserted.ends_with(ENTRY), "{}", inserted);
        prop_assert_eq!(inserted.len(), with.len() - text.len());
        let again = parse(&with);
        prop_assert_eq!(again.plugins.len(), count + 1);
        prop_assert_eq!(again.plugins.last().unwrap().owner, Owner::Ours);
        prop_assert_eq!(again.with_entry(ENTRY), None);
        prop_assert_eq!(again.name(), parsed.name());
        prop_assert_eq!(again.others(), parsed.others());
        prop_assert_eq!(again.without_entry(false), Ok(Some(text.clone())));
        prop_assert_eq!(parsed.without_entry(false), Ok(None));
    }

    #[test]
    fn entries_anywhere_are_replaced_and_removed(
        text in list(), places in prop::collection::vec((0_usize..6, any::<bool>()), 1..4)
    ) {
        let others = parse(&text).others();
        let older = ENTRY.replace("{\"type", "{\"old\":[],\"type");
        let is_foreign = |owner: &Owner| matches!(owner, Owner::Istio { .. });
        let mut with = text.clone();
        for (place, ours) in places {
            let parsed = parse(&with);
            let at = parsed.plugins.get(place).map_or(parsed.plugins[0].span.start, |plugin| plugin.span.start);
            let (before, behind) = with.split_at(at);
            let entry = if ours { older.as_str() } else { r#"{"type":"istio-cni","old":[]}"# };
            with = format!("{before}{entry} , {behind}");
        }
        let one = parse(&with).with_entry(ENTRY).unwrap();
        prop_assert_eq!(parse(&one).owners().filter(|owner| *owner != Owner::Other).count(), 1);
        prop_assert_eq!(parse(&one).with_entry(ENTRY), None);
        prop_assert_eq!(&parse(&one).others(), &others);
        let none = parse(&with).without_entry(true).unwrap().unwrap();
        prop_assert_eq!(parse(&none).without_entry(true), Ok(None));
        prop_assert_eq!(parse(&none).others(), others);
        let foreign = parse(&with).without_entry(false).unwrap().unwrap_or_else(|| with.clone());
        prop_assert!(!parse(&foreign).has_entry());
        prop_assert_eq!(parse(&foreign).others(), parse(&with).others());
        prop_assert_eq!(
            parse(&foreign).owners().filter(is_foreign).count(), parse(&with).owners().filter(is_foreign).count()
        );
    }

    #[test]
    fn arbitrary_text_is_read_without_panic(text in "\\PC{0,64}") {
        let _ = List::parse(&text);
        let _ = Single::parse(&text);
    }
}
