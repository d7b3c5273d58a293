//! What a rendering has read of structs.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::UNIX_EPOCH;

use gotemplate::{Field, Functions, Kind, Limits, Options, Reads, Schema, Template, Type, Value};
use serde_json::json;

static PORT: Schema = Schema {
    name: "v1.ContainerPort",
    proto: false,
    fields: &[Field::new("Number", "number", Kind::Int32), Field::new("Name", "name", Kind::Str)],
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

static SPEC: Schema = Schema {
    name: "v1.PodSpec",
    proto: false,
    fields: &[
        Field::new("Host", "host", Kind::Str),
        Field::new("Containers", "containers", Kind::List(&Kind::Struct(&CONTAINER))),
    ],
};

fn reads(template: &str) -> Reads {
    let mut functions = Functions::builtin();
    functions.add_sprig();
    functions.add_clock(|| UNIX_EPOCH);
    functions
        .add("ports", &[Type::Structs(CONTAINER.name), Type::Any], None, |_, _| Ok(Value::string("1,2")));
    functions.limit_reads("ports", &["Ports"]);
    let spec = json!({"host": "h", "containers": [{"name": "a", "image": "i", "ports": [{"number": 1}]}]});
    let template = Template::parse("t", template, &functions, Options::default()).unwrap();
    let data = Value::record("Data", vec![("Spec", Value::of_struct(&SPEC, spec.as_object(), None))]);
    template.render(data, Limits::default()).unwrap().reads
}

/// Spec, container and port: the fields that were read, `all` for all.
fn shown(template: &str) -> String {
    let reads = reads(template);
    let of = |schema| match reads.fields(schema) {
        None => "all".to_owned(),
        Some(fields) => fields.iter().map(|field| field.name).collect::<Vec<_>>().join("+"),
    };
    [of(&SPEC), of(&CONTAINER), of(&PORT)].join("/")
}

#[test]
fn what_templates_read_is_known() {
    for (template, expected) in [
        ("text", "//"),
        ("{{ .Spec.Host }}", "Host//"),
        ("{{ if .Spec }}yes{{ end }}{{ $s := .Spec }}", "//"),
        ("{{ if false }}{{ .Spec.Host }}{{ end }}", "//"),
        ("{{ range .Spec.Containers }}x{{ end }}", "Containers//"),
        (
            "{{ range $n, $c := .Spec.Containers }}{{ $c.Name }}{{ range .Ports }}{{ .Name }}{{ end }}{{ end }}",
            "Containers/Name+Ports/Name",
        ),
        ("{{ with .Spec }}{{ (and .Host .Containers) | len }}{{ end }}", "Host+Containers/all/all"),
        ("{{ (or .Spec .Spec).Host }}", "Host//"),
        ("{{ define \"d\" }}{{ .Host }}{{ end }}{{ template \"d\" .Spec }}", "Host//"),
        ("{{ .Spec }}", "all/all/all"),
        ("{{ . }}", "all/all/all"),
        ("{{ (index .Spec.Containers 0).Name }}", "Containers/all/all"),
        ("{{ range .Spec.Containers }}{{ toJson .Ports }}{{ end }}", "Containers/Ports/all"),
        ("{{ (dict \"root\" .).root.Spec.Host }}", "all/all/all"),
        ("{{ ports .Spec.Containers 1 }}", "Containers/Ports/all"),
        ("{{ ports .Spec.Containers .Spec }}", "all/all/all"),
    ] {
        assert_eq!(shown(template), expected, "{template}");
    }
}

static OUTER: Schema = Schema {
    name: "v1.Outer",
    proto: false,
    fields: &[Field::new("Spec", "", Kind::Struct(&SPEC)), Field::new("Kind", "kind", Kind::Str)],
};

/// The keys of what is embedded are in the outer object.
#[test]
fn a_struct_that_embeds_another_is_read_as_a_whole() {
    for template in ["{{ .Outer.Host }}", "{{ .Outer.Spec.Host }}", "{{ .Outer.Kind }}"] {
        let template = Template::parse("t", template, &Functions::builtin(), Options::default()).unwrap();
        let outer = json!({"host": "h", "kind": "k"});
        let data = Value::record("Data", vec![("Outer", Value::of_struct(&OUTER, outer.as_object(), None))]);
        let rendered = template.render(data, Limits::default()).unwrap();
        assert!(rendered.reads.fields(&OUTER).is_none() && rendered.reads.fields(&SPEC).is_none());
    }
}

#[test]
fn what_needs_the_clock_is_volatile() {
    for (template, expected) in [
        ("{{ now }}", true),
        ("{{ date \"2006\" 0 }}", true),
        ("{{ if false }}{{ now }}{{ end }}", false),
        ("{{ .Spec.Host | upper }}", false),
    ] {
        assert_eq!(reads(template).is_volatile(), expected, "{template}");
    }
}

#[test]
fn what_is_added_is_new_once() {
    let mut all = Reads::default();
    for template in ["{{ .Spec.Host }}", "{{ .Spec.Containers }}", "{{ .Spec }}", "{{ now }}"] {
        assert!(all.add(&reads(template)), "{template}");
        assert!(!all.add(&reads(template)), "{template}");
    }
    assert!(!all.add(&reads("{{ .Spec.Containers }}")));
    assert!(all.fields(&SPEC).is_none() && all.is_volatile());
}
