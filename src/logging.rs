//! Log lines as text or JSON.

use std::cell::Cell;
use std::io::{IsTerminal as _, Write};

use env_logger::fmt::Formatter;
use log::kv::{Error, Key, VisitSource};
use log::{Level, LevelFilter, Record};
use serde_json::{Map, Value};

use crate::config::{LogFormat, LogOptions};
use crate::text::{one_line, printable};

/// Sends log lines to standard error from now on. Called once.
pub fn init(options: LogOptions) {
    start(options, env_logger::Target::Stderr, Map::new());
}

/// Sends log lines there instead, each with one write. JSON has these fields in each line that does not set
/// them.
pub fn init_to(options: LogOptions, out: Box<dyn Write + Send>, fields: Map<String, Value>) {
    start(options, env_logger::Target::Pipe(out), fields);
}

fn start(options: LogOptions, target: env_logger::Target, fields: Map<String, Value>) {
    let mut builder = env_logger::Builder::new();
    let is_terminal = matches!(target, env_logger::Target::Stderr) && std::io::stderr().is_terminal();
    builder.target(target);
    // Callers report what other crates log, in their own words; debug level shows both.
    let others = if options.level >= LevelFilter::Debug { options.level } else { LevelFilter::Off };
    builder.filter_level(others);
    for own in ["istio_iptables", "istio_cni", "install_cni", "sidecar_injector"] {
        builder.filter_module(own, options.level);
    }
    builder.format(move |out, record| match options.format {
        _ if is_hidden(record, options) => Ok(()),
        LogFormat::Json => json(out, record, fields.clone()),
        LogFormat::Text if is_terminal && record.level() == Level::Error => {
            writeln!(out, "error: {}", indent_continuation_lines(&record.args().to_string()))
        }
        LogFormat::Text => text(out, record),
    });
    // A second call leaves the first logger in place, which is as good.
    let _ = builder.try_init();
}

thread_local! {
    /// Whether this thread repairs rules.
    static REPAIRS: Cell<bool> = const { Cell::new(false) };
}

/// Repairs rules: of what a run logs, only errors and warnings that concern its steps are left, unless the
/// level is debug. The guard reports outcome and problems itself, in one line each.
pub fn repairing<T>(work: impl FnOnce() -> T) -> T {
    let before = REPAIRS.replace(true);
    let result = work();
    REPAIRS.set(before);
    result
}

/// The level of a finding about the live state: the guard compares the state after a repair, and reports it.
#[must_use]
pub fn level_of_findings() -> Level {
    if REPAIRS.get() { Level::Debug } else { Level::Warn }
}

/// Whether a record is one of a run that repairs rules.
fn is_hidden(record: &Record<'_>, options: LogOptions) -> bool {
    REPAIRS.get() && record.level() == Level::Info && options.level < LevelFilter::Debug
}

const fn word(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug | Level::Trace => "debug",
    }
}

/// A time in UTC, as Kubernetes has it.
#[must_use]
pub fn timestamp(time: std::time::SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}

fn now() -> String {
    humantime::format_rfc3339_micros(std::time::SystemTime::now()).to_string()
}

/// The message, then the keys and values, if any: `key=value`, in quotes where it is not one plain word.
fn text(out: &mut Formatter, record: &Record<'_>) -> std::io::Result<()> {
    write!(
        out,
        "{}\t{}\t{}",
        now(),
        word(record.level()),
        indent_continuation_lines(&record.args().to_string())
    )?;
    for (key, value) in pairs(record) {
        match value.as_str() {
            Some(text) if is_plain(text) => write!(out, "\t{key}={text}")?,
            _ => write!(out, "\t{key}={}", one_line(&value.to_string()))?,
        }
    }
    writeln!(out)
}

/// A message whose further lines cannot be taken for log lines, which begin with a date: a line that begins
/// with a digit is put behind a blank. No line of a rules file does.
fn indent_continuation_lines(message: &str) -> String {
    let mut safe = printable(message).into_owned();
    if safe.contains('\n') {
        for digit in '0'..='9' {
            safe = safe.replace(&format!("\n{digit}"), &format!("\n {digit}"));
        }
    }
    safe
}

fn is_plain(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'=' | b'\\'))
}

/// One object per line, with the keys that Istio uses, and then those of the record. Further lines of a
/// message are an array: no string has a line break in it.
fn json(out: &mut Formatter, record: &Record<'_>, mut object: Map<String, Value>) -> std::io::Result<()> {
    let message = record.args().to_string();
    let mut lines = message.lines();
    object.insert("level".to_owned(), word(record.level()).into());
    object.insert("time".to_owned(), now().into());
    object.insert("msg".to_owned(), lines.next().unwrap_or_default().into());
    let rest: Vec<Value> = lines.map(Value::from).collect();
    if !rest.is_empty() {
        object.insert("lines".to_owned(), rest.into());
    }
    object.extend(pairs(record));
    writeln!(out, "{}", Value::Object(object))
}

/// The keys and values of a record, numbers and truth values as such. As JSON they cannot break out of their
/// line.
fn pairs(record: &Record<'_>) -> Vec<(String, Value)> {
    struct Pairs(Vec<(String, Value)>);
    impl<'kvs> VisitSource<'kvs> for Pairs {
        fn visit_pair(&mut self, key: Key<'kvs>, value: log::kv::Value<'kvs>) -> Result<(), Error> {
            let number = value.to_i64().map(Value::from).or_else(|| value.to_f64().map(Value::from));
            let typed = number.or_else(|| value.to_bool().map(Value::from));
            self.0.push((key.to_string(), typed.unwrap_or_else(|| value.to_string().into())));
            Ok(())
        }
    }
    let mut pairs = Pairs(Vec::new());
    // The visitor does not fail.
    let _ = record.key_values().visit(&mut pairs);
    pairs.0
}
