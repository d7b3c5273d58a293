//! Log lines, for people or for machines.

use std::io::Write as _;

use env_logger::fmt::Formatter;
use log::{Level, Record};
use serde_json::{Map, Value};

use crate::config::{LogFormat, LogOptions};

/// Sends log lines to standard error from now on. Called once.
pub fn init(options: LogOptions) {
    let mut builder = env_logger::Builder::new();
    builder.filter_level(options.level).target(env_logger::Target::Stderr);
    match options.format {
        LogFormat::Json => builder.format(json),
        LogFormat::Text => builder.format(text),
    };
    // A second call leaves the first logger in place, which is as good.
    let _ = builder.try_init();
}

const fn word(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug | Level::Trace => "debug",
    }
}

fn now() -> String {
    humantime::format_rfc3339_micros(std::time::SystemTime::now()).to_string()
}

fn text(out: &mut Formatter, record: &Record<'_>) -> std::io::Result<()> {
    writeln!(out, "{}\t{}\t{}", now(), word(record.level()), record.args())
}

/// One object per line, with the keys that Istio uses. Further lines of a message are an array: no string has a line
/// break in it.
fn json(out: &mut Formatter, record: &Record<'_>) -> std::io::Result<()> {
    let message = record.args().to_string();
    let mut lines = message.lines();
    let mut object = Map::new();
    object.insert("level".to_owned(), word(record.level()).into());
    object.insert("time".to_owned(), now().into());
    object.insert("msg".to_owned(), lines.next().unwrap_or_default().into());
    let rest: Vec<Value> = lines.map(Value::from).collect();
    if !rest.is_empty() {
        object.insert("lines".to_owned(), rest.into());
    }
    writeln!(out, "{}", Value::Object(object))
}
