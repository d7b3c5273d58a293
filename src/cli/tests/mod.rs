//! Command line, environment and config file arrive, in their order of precedence.

mod commands;
mod config_file;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStringExt;

use super::*;

struct Input<'a> {
    args: Vec<&'a str>,
    env: Vec<(&'a str, &'a str)>,
    stdin: &'a str,
    files: BTreeMap<&'a str, &'a str>,
}

/// A command line after the program's name.
fn line<'a>(args: &[&'a str]) -> Input<'a> {
    Input { args: args.to_vec(), env: Vec::new(), stdin: "", files: BTreeMap::new() }
}

impl<'a> Input<'a> {
    fn env(mut self, name: &'a str, value: &'a str) -> Self {
        self.env.push((name, value));
        self
    }

    /// The document `--config` on standard input.
    fn document(mut self, text: &'a str) -> Self {
        self.args.splice(0..0, ["--config", "-"]);
        self.stdin = text;
        self
    }

    fn parse(&self) -> Result<Outcome, Failure> {
        let args = std::iter::once("istio-iptables").chain(self.args.iter().copied());
        let read_file = |path: &Path| {
            let text = path.to_str().and_then(|path| self.files.get(path));
            text.map(|text| (*text).to_owned()).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        };
        parse(
            args.map(OsString::from),
            self.env.iter().map(|(name, value)| (name.into(), value.into())),
            &mut self.stdin.as_bytes(),
            &read_file,
        )
    }

    fn raw(&self) -> RawOptions {
        match self.parse() {
            Ok(Outcome::Run(raw)) => raw,
            other => panic!("{:?} gave {other:?}", self.args),
        }
    }

    fn given(&self, key: Key) -> Option<(String, Origin)> {
        let raw = self.raw();
        raw.given(key).map(|given| (given.text.clone(), given.origin.clone()))
    }

    fn text(&self, key: Key) -> Option<String> {
        self.given(key).map(|(text, _)| text)
    }

    fn errors(&self) -> Vec<String> {
        match self.parse() {
            Err(failure) => failure.errors.iter().map(UsageError::to_string).collect(),
            Ok(outcome) => panic!("{:?} gave {outcome:?}", self.args),
        }
    }

    fn printed(&self) -> String {
        match self.parse() {
            Ok(Outcome::Print(text)) => text,
            other => panic!("{:?} gave {other:?}", self.args),
        }
    }
}

/// A value that is not the default, for any option.
fn sample(key: Key) -> &'static str {
    match key.spec().kind {
        Kind::Boolean => "true",
        Kind::List => "1,2",
        Kind::Number => "77",
        Kind::Text => "some",
    }
}

/// Every option but the one that would be opened as a file.
fn ordinary() -> impl Iterator<Item = Key> {
    Key::ALL.iter().copied().filter(|key| *key != Key::Config)
}

#[test]
fn every_flag_short_flag_and_alias_arrives() {
    for key in ordinary().filter(|key| key.spec().has_flag()) {
        let spec = key.spec();
        let value = sample(key);
        let expected = Some((value.to_owned(), Origin::Flag(key)));
        let names = std::iter::once(spec.name).chain(spec.alias);
        let mut forms: Vec<Vec<String>> = names.map(|name| vec![format!("--{name}={value}")]).collect();
        forms.extend(spec.short.map(|short| vec![format!("-{short}={value}")]));
        if spec.kind == Kind::Boolean {
            forms.push(vec![format!("--{}", spec.name)]);
            forms.extend(spec.short.map(|short| vec![format!("-{short}")]));
        } else {
            forms.push(vec![format!("--{}", spec.name), value.to_owned()]);
            if let Some(short) = spec.short {
                forms.push(vec![format!("-{short}"), value.to_owned()]);
                forms.push(vec![format!("-{short}{value}")]);
            }
        }
        for form in forms {
            let args: Vec<&str> = form.iter().map(String::as_str).collect();
            assert_eq!(line(&args).given(key), expected, "{form:?}");
        }
    }
}

#[test]
fn every_variable_arrives_and_the_first_of_two_wins() {
    for key in ordinary() {
        let names = key.spec().variable_names();
        for name in &names {
            let expected = Some((sample(key).to_owned(), Origin::Variable(name.clone())));
            assert_eq!(line(&[]).env(name, sample(key)).given(key), expected, "{name}");
        }
        if let [first, second] = &names[..] {
            let both = line(&[]).env(second, "0").env(first, "1");
            assert_eq!(both.given(key), Some(("1".to_owned(), Origin::Variable(first.clone()))));
            let empty = line(&[]).env(second, "0").env(first, "");
            assert_eq!(empty.given(key), Some(("0".to_owned(), Origin::Variable(second.clone()))));
        }
    }
}

#[test]
fn flag_before_variable_before_config_file() {
    for key in ordinary() {
        let spec = key.spec();
        let document = format!("{{\"{}\": \"3\"}}", spec.name);
        let flag = format!("--{}=1", spec.name);
        let names = spec.variable_names();
        let mut input = line(&[]).document(&document);
        assert_eq!(input.text(key).as_deref(), Some("3"), "{key}");
        if let Some(name) = names.first() {
            input = input.env(name, "2");
            assert_eq!(input.text(key).as_deref(), Some("2"), "{key}");
        }
        if spec.has_flag() {
            input.args.push(&flag);
            assert_eq!(input.text(key).as_deref(), Some("1"), "{key}");
        }
        assert_eq!(line(&[]).given(key), None, "{key}");
    }
}

#[test]
fn unprefixed_variables_are_ignored() {
    for name in [
        "CONFIG",
        "BACKEND",
        "VERIFY",
        "IP_FAMILY",
        "RULES_FILE",
        "LOG_FORMAT",
        "ENVOY_PORT",
        "INBOUND_INTERCEPTION_MODE",
        "INBOUND_TPROXY_MARK",
        "LOG_AS_JSON",
    ] {
        assert_eq!(line(&[]).env(name, "x").raw(), RawOptions::default(), "{name}");
    }
}

#[test]
fn values_as_go_s_flag_parser_takes_them() {
    let text = |args: &[&str], key| line(args).text(key);
    assert_eq!(text(&["-b*"], Key::InboundPorts).as_deref(), Some("*"));
    assert_eq!(text(&["-b", ""], Key::InboundPorts).as_deref(), Some(""));
    assert_eq!(text(&["-p", "-1"], Key::EnvoyPort).as_deref(), Some("-1"));
    assert_eq!(text(&["-b", "-n"], Key::InboundPorts).as_deref(), Some("-n"));
    assert_eq!(text(&["-b", "--dry-run"], Key::InboundPorts).as_deref(), Some("--dry-run"));
    assert_eq!(text(&["-n=false"], Key::DryRun).as_deref(), Some("false"));
    assert_eq!(text(&["--dry-run=F"], Key::DryRun).as_deref(), Some("F"));
    let cluster = line(&["-nb80"]);
    assert_eq!(cluster.text(Key::InboundPorts).as_deref(), Some("80"));
    assert_eq!(cluster.text(Key::DryRun).as_deref(), Some("true"));
}

#[test]
fn of_a_repeated_flag_the_last_wins() {
    assert_eq!(line(&["-b", "80", "-b=90"]).text(Key::InboundPorts).as_deref(), Some("90"));
    assert_eq!(line(&["-n", "--dry-run=false"]).text(Key::DryRun).as_deref(), Some("false"));
    let kube = line(&["-k", "a", "--reroute-virtual-interfaces", "b"]);
    assert_eq!(kube.text(Key::KubeVirtInterfaces).as_deref(), Some("b"));
}

#[test]
fn pod_template_options_are_accepted() {
    let raw = line(&[
        "istio-iptables",
        "-p",
        "15001",
        "-z",
        "15006",
        "-u",
        "1337",
        "-m",
        "REDIRECT",
        "-i",
        "*",
        "-x",
        "",
        "-b",
        "*",
        "-d",
        "15090,15021,15020",
        "--log_output_level=default:info",
        "--log_as_json",
        "--vklog=9",
        "--log_caller",
        "all",
    ])
    .raw();
    assert_eq!(raw.command, SubCommand::Apply);
    assert_eq!(raw.given(Key::LocalExcludePorts).unwrap().text, "15090,15021,15020");
    assert_eq!(raw.given(Key::LogAsJson).unwrap().text, "true");
    assert_eq!(raw.iter().count(), 10);
}

#[test]
fn failure_keeps_the_log_options() {
    let Err(failure) = line(&["--log_as_json", "--wrong", "-p", "1", "word"]).parse() else {
        panic!("accepted");
    };
    assert!(failure.raw.given(Key::LogAsJson).is_some());
}

#[test]
fn values_that_are_not_utf_8_are_refused_by_name() {
    let bad = || OsString::from_vec(vec![b'8', 0xff]);
    let parse = |args: Vec<OsString>, env| parse(args, env, &mut io::empty(), &|_| Ok(String::new()));
    let flag = parse(vec!["x".into(), "-b".into(), bad()], vec![]).unwrap_err();
    assert_eq!(flag.errors[0].to_string(), "--istio-inbound-ports (-b): \"8\u{fffd}\" is not valid UTF-8");
    let variable =
        parse(vec!["x".into()], vec![("PROXY_UID".into(), bad()), ("PATH".into(), bad())]).unwrap_err();
    assert_eq!(variable.errors.len(), 1);
    assert_eq!(variable.errors[0].to_string(), "variable PROXY_UID: \"8\u{fffd}\" is not valid UTF-8");
}

#[test]
fn an_empty_variable_counts_as_unset_but_for_three() {
    for key in ordinary() {
        for name in key.spec().variable_names() {
            let kept = matches!(
                name.as_str(),
                "ISTIO_OUTBOUND_OWNER_GROUPS" | "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR" | "ENVOY_USER"
            );
            assert_eq!(line(&[]).env(&name, "").given(key).is_some(), kept, "{name}");
        }
    }
}
