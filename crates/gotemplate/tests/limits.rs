//! No template, however strange, panics, hangs or exhausts memory or the stack.

#![allow(clippy::unwrap_used, reason = "tests")]

use gotemplate::{Functions, Limits, Options, Template, Value};
use proptest::prelude::*;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

static FUNCTIONS: LazyLock<Functions> = LazyLock::new(|| {
    let mut functions = Functions::builtin();
    functions.add_sprig();
    functions
});

/// Parses and renders on a thread with a small stack, as a server's threads have.
fn run(text: &str) -> Result<String, String> {
    let text = text.to_owned();
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
        let data = serde_json::json!({
            "s": "héllo ☃", "n": 5, "f": 1.5, "l": ["a", null, 1, ["b"]], "m": {"a": 1, "b": {"c": "d"}}, "t": true, "nil": null
        });
        let template = Template::parse("t", &text, &FUNCTIONS, Options::default()).map_err(|e| e.to_string())?;
        let limits = Limits { output: 1 << 20, memory: 16 << 20, steps: 200_000, ..Limits::default() };
        template.render(Value::any(&data), limits).map(|r| r.text).map_err(|e| e.to_string())
    });
    thread.unwrap().join().unwrap()
}

#[track_caller]
fn refused(text: &str, reason: &str) {
    let start = Instant::now();
    let error = run(text).unwrap_err();
    assert!(error.contains(reason), "{error}");
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn recursion_is_bounded() {
    refused("{{ define \"a\" }}{{ template \"a\" . }}{{ end }}{{ template \"a\" . }}", "depth");
    refused(
        "{{ define \"a\" }}{{ if true }}{{ with 1 }}{{ range list 1 }}{{ template \"a\" (print (print (len (list)))) }}{{ end }}{{ end }}{{ end }}{{ end }}{{ template \"a\" . }}",
        "depth",
    );
    refused(&format!("{{{{ (1{}", ")".repeat(100_000)), "right paren");
    refused(&format!("{{{{ {}1{} }}}}", "(".repeat(100_000), ")".repeat(100_000)), "nested more than");
    refused(&"{{ if true }}".repeat(100_000), "nested more than");
    refused(&"{{ if true }}{{ else if true }}".repeat(50_000), "nested more than");
    refused(&format!("{{{{ if 1 }}}}{}{{{{ end }}}}", "{{ else if 1 }}".repeat(100_000)), "nested more than");
    refused(&"{{ block \"a\" . }}".repeat(100_000), "nested more than");
}

#[test]
fn loops_are_bounded() {
    refused("{{ range 1000000000 }}{{ end }}", "steps");
    refused("{{ range until 10000000 }}{{ end }}", "memory");
    refused("{{ range 1000000 }}xxxxxxxxxxxxxxxxxxxxxxxxxxxxx{{ end }}", "longer than");
    refused("{{ range 1000 }}{{ range 1000 }}{{ range 1000 }}{{ end }}{{ end }}{{ end }}", "steps");
}

/// Work on big values counts, although their results are small.
#[test]
fn work_is_bounded() {
    let big = "{{ $x := repeat 4000000 \"x\" }}{{ $l := until 30000 }}{{ range 100000 }}";
    refused(&format!("{big}{{{{ $y := sha256sum $x }}}}{{{{ end }}}}"), "steps");
    refused(&format!("{big}{{{{ $y := last $l }}}}{{{{ end }}}}"), "steps");
    refused(&format!("{big}{{{{ $y := contains \"y\" $x }}}}{{{{ end }}}}"), "steps");
    refused(&format!("{big}{{{{ range $l }}}}{{{{ break }}}}{{{{ end }}}}{{{{ end }}}}"), "steps");
    refused(&format!("{big}{{{{ $y := regexMatch \"(x{{100}}){{50}}y\" $x }}}}{{{{ end }}}}"), "steps");
}

#[test]
fn memory_is_bounded() {
    refused("{{ repeat 1000000000 \"x\" }}", "memory");
    refused("{{ $x := \"x\" }}{{ range 100 }}{{ $x = print $x $x }}{{ end }}", "error calling print");
    refused("{{ $x := list 1 }}{{ range 100 }}{{ $x = concat $x $x }}{{ end }}", "memory");
    refused("{{ $x := list 1 }}{{ range 90 }}{{ $x = list $x $x }}{{ end }}{{ $x }}", "longer than");
    refused("{{ $x := list 1 }}{{ range 90 }}{{ $x = list $x $x }}{{ end }}{{ toJson $x }}", "memory");
    refused(
        "{{ $x := list 1 }}{{ $y := list 1 }}{{ range 90 }}{{ $x = list $x $x }}{{ $y = list $y $y }}{{ end }}{{ deepEqual $x $y }}",
        "memory",
    );
    refused(
        "{{ $x := list 1 }}{{ range 5000 }}{{ $x = list $x }}{{ end }}{{ toJson $x }}",
        "nested more than",
    );
    refused("{{ printf \"%999999d%999999d\" 1 1 }}", "longer than");
    refused("{{ nindent 1000000000 \"a\" }}", "memory");
    refused("{{ seq 1000000000 }}", "memory");
    refused("{{ untilStep 0 9223372036854775807 1 }}", "memory");
    refused("{{ replace \"\" (repeat 10000 \"y\") (repeat 10000 \"x\") }}", "memory");
    refused("{{ wrapWith 1 (repeat 10000 \"y\") (repeat 10000 \"x\") }}", "memory");
    refused("{{ regexReplaceAll \"\" (repeat 10000 \"x\") (repeat 10000 \"y\") }}", "memory");
    refused("{{ join (repeat 10000 \"y\") (until 10000) }}", "longer than");
    refused("{{ $d := dict }}{{ set $d \"d\" $d }}", "cannot contain itself");
    refused("{{ $d := dict }}{{ set $d \"d\" (list (dict \"x\" $d)) }}", "cannot contain itself");
    refused("{{ $d := dict }}{{ $e := dict \"d\" $d }}{{ merge $d $e }}", "cannot contain itself");
    refused("{{ set . \"a\" 1 }}", "shared input");
}

/// Deep values are dropped without recursion, and printed no deeper than they may nest.
#[test]
fn deep_values_are_harmless() {
    let printed = run("{{ $x := list 1 }}{{ range 50000 }}{{ $x = list $x }}{{ end }}{{ len $x }}").unwrap();
    assert_eq!(printed, "1");
    let top = "{{ $a := dict }}{{ $b := $a }}{{ range 20000 }}{{ $c := dict }}{{ $_ := set $b \"x\" $c }}{{ $b = $c }}{{ end }}{{ len $a }}";
    assert_eq!(run(top).unwrap(), "1");
    refused("{{ $x := list 1 }}{{ range 5000 }}{{ $x = list $x }}{{ end }}{{ $x }}", "nested more than");
    assert!(run("{{ fromJson (repeat 10000 \"[\") }}").is_ok());
}

/// Pieces that are likely to interact.
const PIECES: &[&str] = &[
    "{{",
    "}}",
    "{{-",
    "-}}",
    " ",
    "\n",
    "(",
    ")",
    "|",
    ".",
    "$",
    "$x",
    ":=",
    "=",
    ",",
    ".s",
    ".m.b.c",
    ".l",
    ".nil",
    ".missing",
    "-",
    "/*",
    "*/",
    "if",
    "else",
    "end",
    "range",
    "with",
    "define",
    "template",
    "block",
    "break",
    "continue",
    "nil",
    "true",
    "\"a\"",
    "`b`",
    "'c'",
    "1",
    "-1",
    "1.5",
    "0x1F",
    "9999999999",
    "\"%d\"",
    "\"%[2]*.[1]*f\"",
    "printf",
    "print",
    "len",
    "index",
    "slice",
    "eq",
    "lt",
    "and",
    "or",
    "not",
    "quote",
    "trunc",
    "substr",
    "join",
    "list",
    "dict",
    "set",
    "merge",
    "splitn",
    "until",
    "repeat",
    "indent",
    "nindent",
    "toJson",
    "toJson",
    "fromJson",
    "default",
    "regexSplit",
    "regexReplaceAll",
    "semver",
    "semverCompare",
    "urlParse",
    "urlJoin",
    "chunk",
    "round",
    "abbrevboth",
    "wrap",
    "snakecase",
    "camelcase",
    "b32dec",
    "b64dec",
    "durationRound",
    "html",
    "{{ end }}",
    "{{ if .s }}",
    "{{ range .l }}",
    "{{ range $k, $v := .m }}",
    "{{ $x := .s }}",
    "{{ else }}",
    "é",
    "☃",
    "\0",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn any_text(text in ".{0,200}") {
        let _ = run(&text);
    }

    #[test]
    fn any_pieces(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..60)) {
        let _ = run(&pieces.concat());
    }

    /// Every function with arguments of every sort.
    #[test]
    fn any_call(function in 0..300_usize, args in prop::collection::vec(prop::sample::select(&[
        ".s", ".n", ".f", ".l", ".m", ".t", ".nil", "\"\"", "\"a,b\"", "\"☃é☃\"", "\"%5.3v %[9]d %q\"", "0", "1", "-1", "3", "9223372036854775807",
        "-9223372036854775808", "1.5", "-0.5", "1e300", "nil", "true", "(list)", "(list 1 \"é\" nil)", "(dict)", "(dict \"a\" (list))", "(strdict \"a\" \"b\")",
        "\"(\"", "\"[a-z]*\"", "\"1.2.3\"", "(int 2)", "(int64 2)", "(until 3)", "\"-1h5m\"", "\"ME======\"",
    ][..]), 0..5)) {
        let names = FUNCTIONS.names();
        let name = names.get(function % names.len()).unwrap();
        let _ = run(&format!("{{{{ {name} {} }}}}", args.join(" ")));
    }
}
