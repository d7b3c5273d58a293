//! Istio's functions, and origins of printed text.

use gotemplate::{EnumType, Field, Functions, Kind, Limits, Options, Rendered, Schema, Template, Value};
use serde_json::{Value as Json, json};
use std::time::{Duration, UNIX_EPOCH};

static PORT: Schema = Schema {
    name: "v1.ContainerPort",
    proto: false,
    fields: &[
        Field::new("Name", "name", Kind::Str),
        Field::new("HostPort", "hostPort", Kind::Int32),
        Field::new("ContainerPort", "containerPort", Kind::Int32).always(),
        Field::new("Protocol", "protocol", Kind::Str),
    ],
};

static CONTAINER: Schema = Schema {
    name: "v1.Container",
    proto: false,
    fields: &[
        Field::new("Name", "name", Kind::Str),
        Field::new("Image", "image", Kind::Str),
        Field::new("Ports", "ports", Kind::List(&Kind::Struct(&PORT))),
    ],
};

static META: Schema = Schema {
    name: "v1.ObjectMeta",
    proto: false,
    fields: &[
        Field::new("Name", "name", Kind::Str).from("metadata"),
        Field::new("Labels", "labels", Kind::Map(&Kind::Str)).from("label"),
        Field::new("Annotations", "annotations", Kind::Map(&Kind::Str)).from("annotation"),
    ],
};

static MODE: EnumType = EnumType { name: "v1alpha1.Mode", values: &[("REDIRECT", 0), ("TPROXY", 1)] };

static TRACING: Schema = Schema {
    name: "v1alpha1.Tracing",
    proto: true,
    fields: &[Field::new("Sampling", "sampling", Kind::Float)],
};

static PROXY: Schema = Schema {
    name: "meshconfig.ProxyConfig",
    proto: true,
    fields: &[
        Field::new("ConfigPath", "configPath", Kind::Str),
        Field::new("DrainDuration", "drainDuration", Kind::Duration),
        Field::new("TerminationDrainDuration", "terminationDrainDuration", Kind::Duration),
        Field::new("DiscoveryAddress", "discoveryAddress", Kind::Str),
        Field::new("StatusPort", "statusPort", Kind::Int32),
        Field::new("Concurrency", "concurrency", Kind::Wrapper(&Kind::Int32)),
        Field::new("Tracing", "tracing", Kind::Ptr(&Kind::Struct(&TRACING))),
        Field::new("InterceptionMode", "interceptionMode", Kind::Enum(&MODE)),
        Field::new("Hold", "hold", Kind::Wrapper(&Kind::Bool)),
        Field::new("Missing", "missing", Kind::Ptr(&Kind::Struct(&TRACING))),
    ],
};

static MESH: Schema = Schema { name: "meshconfig.MeshConfig", proto: true, fields: &[] };

fn fixture() -> Json {
    json!({
        "meta": {
            "name": "web\nx: y",
            "labels": {"app": "web", "app.kubernetes.io/version": "v1"},
            "annotations": {"port": "15020", "evil": "a\"\nb: c", "json": "{\"k\":{\"b\":1,\"a\":\"<x>\"}}", "bad": "["}
        },
        "containers": [
            {"name": "app", "image": "r:5000/a:1.0", "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 53, "protocol": "UDP"}]},
            {"name": "istio-proxy", "ports": [{"containerPort": 90}]}
        ],
        "proxy": {
            "configPath": "./etc/istio/proxy", "drainDuration": "45s", "terminationDrainDuration": "7.5s",
            "discoveryAddress": "other:15012", "statusPort": 15020, "concurrency": 0, "tracing": {},
            "interceptionMode": "TPROXY", "hold": false
        },
        "mesh": {"extensionProviders": [{"name": "otel", "opentelemetry": {"serviceAttributeEnrichment": "OTEL_SEMANTIC_CONVENTIONS"}}]},
        "values": {
            "n": 15020, "big": 1_000_000, "yes": "yes", "list": [1, "a", null, true], "s": "x", "empty": "", "zero": 0,
            "resources": {"limits": {"cpu": null}, "requests": {"cpu": "100m", "memory": "128Mi", "gpu": null}},
            "nested": {"b": [{"y": 1, "x": [1, 2]}, []], "a": {"t": true, "e": {}}, "q": "a: b", "m": "one\ntwo\n"}
        }
    })
}

static CONTAINERS: Kind = Kind::List(&Kind::Struct(&CONTAINER));

fn data(fixture: &Json) -> Value<'_> {
    Value::record(
        "data",
        vec![
            ("ObjectMeta", Value::of_struct(&META, fixture["meta"].as_object(), None)),
            ("Containers", Value::typed(fixture.get("containers"), &CONTAINERS, None)),
            ("ProxyConfig", Value::of_struct(&PROXY, fixture["proxy"].as_object(), None)),
            ("MeshConfig", Value::of_struct(&MESH, fixture["mesh"].as_object(), None)),
            ("Values", Value::any(&fixture["values"])),
            ("Nil", Value::str_map(None, None)),
        ],
    )
}

fn functions() -> Functions {
    sidecar_injector::inject::functions(|name| (name == "KNOWN").then(|| "value".to_owned()))
}

fn render(text: &str) -> Result<String, String> {
    let fixture = fixture();
    let template = Template::parse("t", text, &functions(), Options::default()).map_err(|e| e.to_string())?;
    template.render(data(&fixture), Limits::default()).map(|r| r.text).map_err(|e| e.to_string())
}

#[track_caller]
fn check(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(render(text).as_deref(), Ok(*expected), "{text}");
    }
}

#[test]
fn annotations_and_defaults() {
    check(&[
        ("{{ annotation .ObjectMeta `port` 1 }}", "15020"),
        ("{{ annotation .ObjectMeta `none` .Values.n }}", "15020"),
        ("{{ annotation .ObjectMeta `none` .Values.missing }}", "<nil>"),
        ("{{ annotation .ObjectMeta `none` .ProxyConfig.InterceptionMode }}", "TPROXY"),
        ("{{ isset .ObjectMeta.Annotations `port` }} {{ isset .Nil `x` }}", "true false"),
        ("{{ valueOrDefault .Values.zero 1 }} {{ valueOrDefault .Values.empty 1 }}", "0 1"),
        ("{{ valueOrDefault .Values.missing `d` }}", "d"),
        ("{{ env `KNOWN` `d` }} {{ env `UNKNOWN` `d` }}", "value d"),
        ("{{ toLower `ABC` }} {{ directory `/a/b/c` }}{{ directory `c` }}|", "abc /a/b/|"),
        ("{{ contains `/` `a/b` }} {{ contains `a/b` `/` }}", "true false"),
        ("{{ kubevirtInterfaces `a` }}{{ excludeInterfaces `b` }}", "ab"),
    ]);
    let error = render("{{ isset .Values `n` }}").unwrap_err();
    assert!(error.ends_with("expected map[string]string; got map[string]interface {}"), "{error}");
}

#[test]
fn ports() {
    check(&[
        ("{{ excludeInboundPort 15020 `1, 2` }}", "1,2,15020"),
        ("{{ excludeInboundPort 0 `1, 2` }}", "1, 2"),
        ("{{ excludeInboundPort `` `1, 2` }}", "1, 2"),
        ("{{ excludeInboundPort `15020` ` 15020,3` }}", "15020,3,15020"),
        ("{{ excludeInboundPort .Values.n `3,15020` }}", "3,15020"),
        ("{{ excludeInboundPort 15020 `` }}", "15020"),
        ("{{ includeInboundPorts .Containers }} {{ applicationPorts .Containers }}", "80,90 80"),
    ]);
}

#[test]
fn text_and_yaml() {
    check(&[
        ("{{ \"a\\nb\\n\" | indent 2 }}|", "a\n  b\n  |"),
        ("{{ \"a\\nb\" | nindent 2 }}", "\n  a\n  b"),
        ("{{ toYaml .Values.big }}", "1000000\n"),
        ("{{ toYaml .Values.yes }}", "\"yes\"\n"),
        ("{{ toYaml .Values.list }}", "- 1\n- a\n- null\n- true\n"),
        (
            "{{ toYaml .Values.nested }}",
            "a:\n  e: {}\n  t: true\nb:\n- x:\n  - 1\n  - 2\n  \"y\": 1\n- []\nm: |\n  one\n  two\nq: \"a: b\"\n",
        ),
        ("{{ toYaml (omitNil .Values.resources) }}", "requests:\n  cpu: 100m\n  memory: 128Mi\n"),
        ("{{ toYaml .Values.missing }}", "null\n"),
        ("{{ omitNil .Values.missing }}", "<no value>"),
        ("{{ appendMultusNetwork `` `n` }}", "n"),
        ("{{ appendMultusNetwork `a, b` `n` }}|{{ appendMultusNetwork `a, n` `n` }}", "a, b, n|a, n"),
        ("{{ appendMultusNetwork `[{\"name\":\"a\"}]` `n` }}", "[{\"name\":\"a\"}, {\"name\": \"n\"}]"),
        ("{{ appendMultusNetwork `[{\"name\":\"n\"}]` `n` }}", "[{\"name\":\"n\"}]"),
        ("{{ appendMultusNetwork `[x]` `n` }}", "[x]"),
    ]);
}

#[test]
fn json_functions() {
    check(&[
        ("{{ toJSON .Nil }}", "{}"),
        ("{{ toJSON (strdict `b` `<` `a`) }}", "{\"a\":\"\",\"b\":\"\\u003c\"}"),
        ("{{ (strdict `a` `b` `c`).c }}|", "|"),
        ("{{ toJsonMap (strdict `a` `1`) (strdict `a` `2` `b` `3`) }}", "{\"a\":\"2\",\"b\":\"3\"}"),
        ("{{ mergeMaps (strdict `a` `1`) (omit (strdict `b` `2` `c` `3`) `c`) }}", "map[a:1 b:2]"),
        (
            "{{ structToJSON (index (index .Containers 0).Ports 0) }}",
            "{\"name\":\"http\",\"containerPort\":80}",
        ),
        ("{{ structToJSON nil }}", "{}"),
        ("{{ fromJSON `bad` }}", "{}"),
        (
            "{{ range $k, $v := fromJSON (index .ObjectMeta.Annotations `json`) }}{{ $k }} {{ toYaml $v }}{{ end }}",
            "k a: <x>\nb: 1\n",
        ),
        (
            "{{ protoToJSON .ProxyConfig }}",
            "{\"terminationDrainDuration\":\"7.500s\",\"discoveryAddress\":\"other:15012\",\"concurrency\":0,\"tracing\":{},\"interceptionMode\":\"TPROXY\",\"hold\":false}",
        ),
        ("{{ protoToJSON .ProxyConfig.Missing }}", "{}"),
    ]);
    let error = render("{{ range fromJSON (index .ObjectMeta.Annotations `bad`) }}{{ end }}").unwrap_err();
    assert!(error.ends_with("range can't iterate over {}"), "{error}");
}

#[test]
fn messages() {
    check(&[
        ("{{ .ProxyConfig.InterceptionMode }} {{ .ProxyConfig.InterceptionMode.String }}", "TPROXY TPROXY"),
        ("{{ .ProxyConfig.Hold.GetValue }} {{ if .ProxyConfig.Hold }}set{{ end }}", "false set"),
        ("{{ .ProxyConfig.GetMissing.GetSampling }} {{ .ProxyConfig.Missing }}", "0 <nil>"),
        ("{{ if .ProxyConfig.GetTracing }}empty tracing is there{{ end }}", "empty tracing is there"),
        (
            "{{ formatDuration .ProxyConfig.TerminationDrainDuration }} {{ .ProxyConfig.DrainDuration }}",
            "7.5s seconds:45",
        ),
    ]);
    let error = render("{{ .ProxyConfig.Missing.Sampling }}").unwrap_err();
    assert!(error.ends_with("nil pointer evaluating *v1alpha1.Tracing.Sampling"), "{error}");
}

#[test]
fn resource_attributes() {
    let call =
        "{{ otelResourceAttributes .MeshConfig .ObjectMeta.Annotations .ObjectMeta.Labels `` .Containers }}";
    check(&[(
        call,
        "service.namespace=default,service.version=v1,service.instance.id=default.$(POD_NAME).app",
    )]);
    check(&[(
        "{{ otelResourceAttributes .MeshConfig .Nil .Nil `ns` .Containers }}",
        "service.namespace=ns,service.version=1.0,service.instance.id=ns.$(POD_NAME).app",
    )]);
    check(&[("{{ otelResourceAttributes .ProxyConfig .Nil .Nil `ns` .Containers }}|", "|")]);
}

/// The tainted parts of the output: kind, key and text.
fn tainted(text: &str) -> Vec<(String, String, String)> {
    let fixture = fixture();
    let template = Template::parse("t", text, &functions(), Options::default()).unwrap();
    let Rendered { text, spans, .. } = template.render(data(&fixture), Limits::default()).unwrap();
    let part = |s: &gotemplate::Span<'_>| text[s.start..s.end].to_owned();
    spans.iter().map(|s| (s.origin.kind.to_owned(), s.origin.key.to_owned(), part(s))).collect()
}

#[track_caller]
fn taints(text: &str, expected: &[(&str, &str, &str)]) {
    let found = tainted(text);
    let found: Vec<_> = found.iter().map(|(a, b, c)| (a.as_str(), b.as_str(), c.as_str())).collect();
    assert_eq!(found, expected, "{text}");
}

#[test]
fn printed_text_keeps_its_origin() {
    let evil = ("annotation", "evil", "a\"\nb: c");
    taints("x {{ .ObjectMeta.Annotations.evil }} y", &[evil]);
    taints(
        "{{ index .ObjectMeta.Annotations `evil` }}{{ .ObjectMeta.Name }}",
        &[evil, ("metadata", "name", "web\nx: y")],
    );
    taints("{{ quote .ObjectMeta.Annotations.evil }}", &[("annotation", "evil", "a\\\"\\nb: c")]);
    taints("{{ annotation .ObjectMeta `evil` `` | default `x` }}", &[evil]);
    taints("{{ printf \"--%s=%5s\" `a` .ObjectMeta.Labels.app }}", &[("label", "app", "web")]);
    taints(
        "{{ $x := .ObjectMeta.Labels.app }}{{ with $x }}{{ print 1 . }}{{ end }}",
        &[("label", "app", "web")],
    );
    taints("{{ list `a` .ObjectMeta.Labels.app | join `,` | upper }}", &[("label", "app", "A,WEB")]);
    taints("{{ .ObjectMeta.Annotations.evil | trunc 1 }}", &[("annotation", "evil", "a")]);
}

#[test]
fn collections_keep_the_origins_of_their_text() {
    taints(
        "{{ range $k, $v := .ObjectMeta.Labels }}{{ if eq $v `web` }}{{ $k }}={{ $v }}{{ end }}{{ end }}",
        &[("label", "app", "app"), ("label", "app", "web")],
    );
    taints(
        "{{ range fromJSON .ObjectMeta.Annotations.json }}{{ .a }}{{ end }}",
        &[("annotation", "json", "<x>")],
    );
    taints("{{ excludeInboundPort .ObjectMeta.Annotations.port `1` }}", &[("annotation", "port", "15020")]);
    taints(
        "{{ define `d` }}{{ . }}{{ end }}{{ template `d` .ObjectMeta.Labels.app }}",
        &[("label", "app", "web")],
    );
    taints("{{ .ObjectMeta.Labels.app | b64enc | b64dec | replace `e` `E` }}", &[]);
    taints("{{ .ObjectMeta.Labels.app | replace `e` `E` }}", &[("label", "app", "wEb")]);
    taints("{{ splitList `e` .ObjectMeta.Labels.app | last }}", &[("label", "app", "b")]);
    taints(
        "{{ print .ObjectMeta.Labels }}",
        &[
            ("label", "app", "app"),
            ("label", "app", "web"),
            ("label", "app.kubernetes.io/version", "app.kubernetes.io/version"),
            ("label", "app.kubernetes.io/version", "v1"),
        ],
    );
}

#[test]
fn encoding_clears_the_origin() {
    taints("{{ toYaml .ObjectMeta.Annotations }}{{ toJSON .ObjectMeta.Labels }}", &[]);
    taints("{{ toJsonMap .ObjectMeta.Annotations | nindent 4 }}", &[]);
    taints(
        "{{ structToJSON .ObjectMeta }}{{ .ObjectMeta.Name | toJson }}{{ sha256sum .ObjectMeta.Name }}",
        &[],
    );
    taints("{{ if eq .ObjectMeta.Labels.app `web` }}plain{{ end }}{{ len .ObjectMeta.Name }}", &[]);
}

#[test]
fn square_delimiters() {
    let options = Options { delimiters: gotemplate::Delimiters::SQUARE };
    let template =
        Template::parse("t", "a: [[ 1 ]] {{ x }} [[- /* c */ -]] b", &functions(), options).unwrap();
    assert_eq!(template.render(Value::Nil, Limits::default()).unwrap().text, "a: 1 {{ x }}b");
}

#[test]
fn sprig_names_are_all_known() {
    let functions = functions();
    let names = include_str!("../../crates/gotemplate/tests/data/sprig-names.txt");
    let missing: Vec<&str> = names.lines().filter(|name| functions.find(name).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?}");
    for name in ["uuidv4", "genCA `a` 1", "getHostByName `x`", "randAlpha 5", "expandenv `$A`", "bcrypt `x`"]
    {
        let error = render(&format!("{{{{ {name} }}}}")).unwrap_err();
        assert!(error.contains("not available: it needs"), "{error}");
    }
}

#[test]
fn dates_are_those_of_the_clock() {
    let mut functions = functions();
    functions.add_clock(|| UNIX_EPOCH + Duration::new(1_764_072_000, 125_000_000));
    for (text, expected) in [
        ("{{ now }}", "2025-11-25 12:00:00.125 +0000 UTC"),
        (
            "{{ now | date `2006-01-02T15:04:05Z07:00` }} {{ htmlDate `x` }}",
            "2025-11-25T12:00:00Z 2025-11-25",
        ),
        (
            "{{ now | dateModify `-36h` | htmlDate }} {{ now.Year }} {{ now.Weekday }}",
            "2025-11-24 2025 Tuesday",
        ),
        (
            "{{ ago (toDate `2006-01-02` `2025-11-25`) }} {{ ago `x` }} {{ ago (now | dateModify `1h`) }}",
            "12h0m0s 0s -1h0m0s",
        ),
        ("{{ durationRound (toDate `2006-01-02` `2025-11-20`) }} {{ now | unixEpoch }}", "5d 1764072000"),
        (
            "{{ toJson now }} {{ toDate `2006-01-02` .ObjectMeta.Name }}",
            "\"2025-11-25T12:00:00.125Z\" 0001-01-01 00:00:00 +0000 UTC",
        ),
    ] {
        let fixture = fixture();
        let template = Template::parse("t", text, &functions, Options::default()).unwrap();
        assert_eq!(template.render(data(&fixture), Limits::default()).unwrap().text, expected, "{text}");
    }
    let error = render("{{ dateInZone `15:04` now `Europe/Berlin` }}").unwrap_err();
    assert!(error.ends_with("time zone \"Europe/Berlin\" is not available: expected UTC"), "{error}");
    let year: i32 = render("{{ now.Year }}").unwrap().parse().unwrap();
    assert!(year >= 2026, "{year}");
    // Text of the user that a layout lets through is still the user's.
    taints("{{ date .ObjectMeta.Labels.app 0 }}", &[("label", "app", "web")]);
}

/// What Go's `Value`, `MilliValue`, `Sign` and `AsApproximateFloat64` return.
#[test]
fn quantities_have_their_methods() {
    static LIMITS: Kind = Kind::Map(&Kind::Named("resource.Quantity", &Kind::Str));
    static LIMIT: Kind = Kind::Ptr(&Kind::Named("resource.Quantity", &Kind::Str));
    let text = "{{ range .L }}{{ .Value }} {{ .MilliValue }} {{ .Sign }} {{ .AsApproximateFloat64 }} {{ .IsZero }}{{ end }}\
                {{ .P.Value }}|{{ .P }}|{{ .L.Cpu.Value }}|{{ .L.Memory.IsZero }}";
    let functions = functions();
    let template = Template::parse("t", text, &functions, Options::default()).unwrap();
    for (given, expected) in [
        ("0", "0 0 0 0 true"),
        ("100m", "1 100 1 0.1 false"),
        ("1.5", "2 1500 1 1.5 false"),
        ("-100m", "-1 -100 -1 -0.1 false"),
        ("128Mi", "134217728 134217728000 1 1.34217728e+08 false"),
        ("1.5Ki", "1536 1536000 1 1536 false"),
        ("1e3", "1000 1000000 1 1000 false"),
        ("0.5n", "1 1 1 1e-09 false"),
        ("1u", "1 1 1 1e-06 false"),
        ("1.1Mi", "1153434 1153433600 1 1.1534336e+06 false"),
        ("-1.5", "-2 -1500 -1 -1.5 false"),
    ] {
        let json = json!({"cpu": given});
        let value = Value::record(
            "data",
            vec![
                ("L", Value::typed(Some(&json), &LIMITS, None)),
                ("P", Value::typed(json.get("cpu"), &LIMIT, None)),
            ],
        );
        let number = expected.split(' ').next().unwrap();
        let expected = format!("{expected}{number}|{given}|{number}|true");
        assert_eq!(template.render(value, Limits::default()).unwrap().text, expected, "{given}");
    }
}

#[test]
fn errors_say_where() {
    let text = "line one\n  {{ if true }}\n  é {{ .Values.s.x }}{{ end }}";
    let fixture = fixture();
    let template = Template::parse("sidecar", text, &functions(), Options::default()).unwrap();
    let error = template.render(data(&fixture), Limits::default()).unwrap_err();
    assert_eq!((error.template.as_str(), error.line, error.column), ("sidecar", 3, 8));
    assert_eq!(
        error.to_string(),
        "template sidecar line 3 column 8: at {{ .Values.s.x }}: can't evaluate field x in type string"
    );
    let error = Template::parse("t", "a\n{{ nosuch 1 }}", &functions(), Options::default()).unwrap_err();
    assert_eq!(error.to_string(), "template t line 2 column 4: function \"nosuch\" not defined");
}
