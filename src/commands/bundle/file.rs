//! The file of `bundle`: facts of a machine, from which questions about its live rules are answered
//! elsewhere.

use serde_json::{Map, Value, json};

use crate::cli::{Key, OptionValue, Origin};
use crate::config::BundleContext;
use crate::exit::Exit;
use crate::facts::Files;
use crate::kernel::recording::{Fact, Facts};
use crate::report::Failure;
use crate::text::one_line;

/// The version of the format. Other versions are refused.
const FORMAT: u64 = 2;

/// What a bundle has.
#[derive(Debug)]
pub struct Bundle {
    /// The options in force when it was made.
    pub options: Vec<(Key, OptionValue)>,
    /// What the options refer to in files.
    pub files: Files,
    /// What was read from the kernel, from `/proc` and by the tools.
    pub facts: Facts,
}

/// The text of a bundle; `report` is what `explain --live` prints.
#[must_use]
pub fn write(context: &BundleContext, facts: &Facts, report: &str) -> String {
    let option = |(key, given): &(Key, OptionValue)| {
        let from = match &given.origin {
            Origin::Document(_) => "config".to_owned(),
            Origin::Flag(_) | Origin::Packet(_) => "flag".to_owned(),
            Origin::Variable(name) => ["variable ", name].concat(),
        };
        (key.spec().name.to_owned(), json!({ "from": from, "value": given.text }))
    };
    let Files { passwd, group, resolv_conf } = &context.files;
    let resolv_conf =
        resolv_conf.as_ref().map_or_else(|reason| json!({ "error": reason }), |text| lines(text));
    let parts = [
        ("bundle", FORMAT.into()),
        ("program", concat!("istio-iptables ", env!("CARGO_PKG_VERSION")).into()),
        ("options", Value::Object(context.options.iter().map(option).collect())),
        ("passwd", lines(passwd)),
        ("group", lines(group)),
        ("resolv.conf", resolv_conf),
        ("report", lines(report)),
    ];
    let mut text = String::from("{");
    for (name, value) in parts {
        text.extend(["\n", &Value::from(name).to_string(), ": ", &value.to_string(), ","]);
    }
    text.push_str("\n\"facts\": {");
    let mut comma = "";
    for (name, fact) in facts {
        let value = match fact {
            Fact::Errno(errno) => json!({ "errno": errno }),
            Fact::Error(error) => json!({ "error": error }),
            Fact::Text(text) => lines(text),
        };
        text.extend([comma, "\n", &Value::from(name.as_str()).to_string(), ": ", &value.to_string()]);
        comma = ",";
    }
    text.push_str("\n}\n}\n");
    text
}

/// A text; one of several lines as an array of them.
fn lines(text: &str) -> Value {
    if text.contains('\n') { text.split('\n').map(Value::from).collect() } else { text.into() }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(lines) => {
            let lines: Option<Vec<&str>> = lines.iter().map(Value::as_str).collect();
            lines.map(|lines| lines.join("\n"))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// Reads a bundle; `source` names it in errors.
///
/// # Errors
/// It is none, or one of another version.
pub fn read(source: &str, content: std::io::Result<String>) -> Result<Bundle, Failure> {
    let parsed = content.map_err(|error| format!("cannot be read: {error}")).and_then(|text| {
        let value: Value =
            serde_json::from_str(&text).map_err(|error| format!("no complete JSON: {error}"))?;
        bundle(&value)
    });
    parsed.map_err(|problem| {
        let what = format!("{}: {}", one_line(source), one_line(&problem));
        Failure::new(Exit::Usage, what)
            .hint("write the file on that machine with `istio-iptables bundle > FILE` of this version")
    })
}

/// Whether a file of JSON is a bundle, of any version.
#[must_use]
pub fn is_bundle(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|value| value.get("bundle").is_some())
}

fn bundle(value: &Value) -> Result<Bundle, String> {
    match value.get("bundle").and_then(Value::as_u64) {
        Some(FORMAT) => {}
        Some(other) => {
            let program = value.get("program").and_then(Value::as_str).unwrap_or("another version");
            return Err(format!(
                "written by {program} in format {other}; this version reads format {FORMAT}"
            ));
        }
        None => {
            return Err("not a bundle: the key `bundle` with the number of its format is missing".to_owned());
        }
    }
    let object = |name: &str| -> Result<&Map<String, Value>, String> {
        value.get(name).and_then(Value::as_object).ok_or_else(|| wrong(name))
    };
    let file = |name: &str| value.get(name).and_then(text).ok_or_else(|| wrong(name));
    let options =
        object("options")?.iter().map(|(name, given)| option(name, given).ok_or_else(|| wrong(name)));
    let facts = object("facts")?.iter().map(|(name, value)| {
        let number =
            |name| value.get(name).and_then(Value::as_i64).and_then(|errno| i32::try_from(errno).ok());
        let error = || value.get("error").and_then(text).map(Fact::Error);
        let fact = text(value).map(Fact::Text).or_else(|| number("errno").map(Fact::Errno)).or_else(error);
        Ok((name.clone(), fact.ok_or_else(|| wrong(name))?))
    });
    let reason = value.get("resolv.conf").and_then(|file| file.get("error")).and_then(text);
    let resolv_conf = reason.map_or_else(|| file("resolv.conf").map(Ok), |reason| Ok(Err(reason)))?;
    Ok(Bundle {
        options: options.collect::<Result<_, String>>()?,
        files: Files { passwd: file("passwd")?, group: file("group")?, resolv_conf },
        facts: facts.collect::<Result<_, String>>()?,
    })
}

fn wrong(name: &str) -> String {
    format!("`{}` is missing or has another form", one_line(name))
}

fn option(name: &str, given: &Value) -> Option<(Key, OptionValue)> {
    let key = Key::by_name(name)?;
    let from = given.get("from")?.as_str()?;
    let origin = match from.strip_prefix("variable ") {
        Some(name) => Origin::Variable(name.to_owned()),
        None if from == "config" => Origin::Document(key),
        None => Origin::Flag(key),
    };
    Some((key, OptionValue { text: given.get("value").and_then(text)?, origin }))
}

/// The bundle lacks what a question needs.
#[must_use]
pub fn lacks(source: &str, fact: &str) -> Failure {
    let what = format!("{}: {} is not in it", one_line(source), one_line(fact));
    Failure::new(Exit::Usage, what).hint("write it again with this version on that machine")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    fn context() -> BundleContext {
        let given = |text: &str, origin| OptionValue { text: text.to_owned(), origin };
        let options = vec![
            (Key::InboundPorts, given("*", Origin::Flag(Key::InboundPorts))),
            (Key::ServiceCidr, given("10.0.0.0/8", Origin::Document(Key::ServiceCidr))),
            (Key::RedirectDns, given("true", Origin::Variable("ISTIO_META_DNS_CAPTURE".to_owned()))),
        ];
        let files = Files {
            passwd: "istio-proxy:x:1338:0:::\n".to_owned(),
            group: String::new(),
            resolv_conf: Err("no such file".to_owned()),
        };
        BundleContext { options, files }
    }

    fn facts() -> Facts {
        let facts = [
            ("file /proc/x", Fact::Errno(libc::ENOENT)),
            ("output of iptables-save", Fact::Text("0\n*nat\n\"\u{1b}\"\nCOMMIT\n".to_owned())),
            ("processes", Fact::Error("not there".to_owned())),
            ("release", Fact::Text("6.1".to_owned())),
        ];
        facts.map(|(name, fact)| (name.to_owned(), fact)).into()
    }

    fn refused(text: &str) -> String {
        read("--bundle pod.json", Ok(text.to_owned())).unwrap_err().what
    }

    #[test]
    fn written_bundle_is_read_back() {
        let text = write(&context(), &facts(), "captured\n");
        let Bundle { options, files, facts: read } = read("pod.json", Ok(text)).unwrap();
        let mut expected = context();
        expected.options.sort_by_key(|(key, _)| key.spec().name);
        assert_eq!((options, files, read), (expected.options, expected.files, facts()));
    }

    #[test]
    fn invalid_bundle_is_one_error() {
        let whole = write(&context(), &facts(), "");
        for (text, expected) in [
            ("", "--bundle pod.json: no complete JSON: EOF while parsing a value at line 1 column 0"),
            ("*nat\nCOMMIT\n", "--bundle pod.json: no complete JSON: expected value at line 1 column 1"),
            (
                "[]",
                "--bundle pod.json: not a bundle: the key `bundle` with the number of its format is missing",
            ),
            ("{\"bundle\": 2}", "--bundle pod.json: `options` is missing or has another form"),
            (
                "{\"bundle\": 3, \"program\": \"istio-iptables 9.1.0\"}",
                "--bundle pod.json: written by istio-iptables 9.1.0 in format 3; this version reads format 2",
            ),
        ] {
            assert_eq!(refused(text), expected);
        }
        for length in 0..whole.len() - 3 {
            let cut = refused(&whole[..length]);
            assert!(cut.starts_with("--bundle pod.json: no complete JSON: EOF"), "{length}: {cut}");
        }
        for (from, to, part) in [
            ("\"errno\":2", "\"errno\":\"2\"", "`file /proc/x` is missing or has another form"),
            ("\"6.1\"", "6.1", "`release` is missing"),
            ("istio-inbound-ports", "istio-outbound-portz", "`istio-outbound-portz` is missing"),
            ("\"group\": \"\"", "\"group\": 7", "`group` is missing"),
        ] {
            assert!(whole.contains(from), "{from}");
            assert!(refused(&whole.replace(from, to)).contains(part), "{to}");
        }
        let error = read("--bundle a\nb", Err(io::Error::other("it is larger than 64 MiB"))).unwrap_err();
        assert_eq!(error.what, "--bundle a\\nb: cannot be read: it is larger than 64 MiB");
        assert_eq!(error.exit, Exit::Usage);
    }
}
