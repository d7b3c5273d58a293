//! Flags, environment and config file, as text with the origin of each value.

mod command;
mod document;
mod environment;
mod error;
mod help;
mod options;
mod packet;
mod raw;
mod spec;
#[cfg(test)]
mod tests;
mod typed;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

pub use command::command;
pub use environment::{known_variables, misspelt_variables};
pub use error::UsageError;
pub use options::Key;
pub use packet::PacketKey;
pub use raw::{OptionValue, Origin, RawOptions, SubCommand};
pub use spec::{Heading, Kind, OptionSpec, Variables};
pub use typed::is_misspelt;
pub(crate) use typed::{ASK_ABOUT_A_POD, other_word};

/// The result of parsing the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Print this and end well.
    Print(String),
    /// A run with these options.
    Run(RawOptions),
}

/// A command line, environment or config file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Everything that is wrong; at least one.
    pub errors: Vec<UsageError>,
    /// The options that could be read: they decide how errors are written, and their own errors belong in the
    /// same report.
    pub raw: RawOptions,
}

/// Reads the command line, the environment and the config file that one of them names.
///
/// `args` begins with the program's own name. A literal `istio-iptables` behind it is dropped: Istio's pod
/// template writes it. `stdin` is read for `--config -` only, `read_file` for any other config file.
///
/// # Errors
///
/// Everything that cannot be read, at once.
pub fn parse(
    args: impl IntoIterator<Item = OsString>,
    env: impl IntoIterator<Item = (OsString, OsString)>,
    stdin: &mut dyn io::Read,
    read_file: &dyn Fn(&Path) -> io::Result<String>,
) -> Result<Outcome, Failure> {
    let mut arguments: Vec<OsString> = args.into_iter().collect();
    if arguments.get(1).map(OsString::as_os_str) == Some(OsStr::new("istio-iptables")) {
        arguments.remove(1);
    }
    typed::normalize(&mut arguments);
    let mut raw = RawOptions::default();
    let mut errors = Vec::from_iter(command::one_dash(&arguments));
    match command::matches(&arguments) {
        Ok(matches) => command::read(&matches, &mut raw, &mut errors),
        Err(error) if !error.use_stderr() => return Ok(Outcome::Print(error.to_string())),
        Err(error) => {
            let error = command::explain(&error, &arguments);
            // Which word is the destination is then unknown.
            let is_unclear = matches!(error, UsageError::ExtraWord { .. })
                && arguments.iter().any(|word| word == SubCommand::Explain.name());
            errors.push(error);
            // The rest is read all the same, for the log flags and for more errors to report.
            let lenient = command().ignore_errors(true);
            if !is_unclear && let Ok(matches) = lenient.try_get_matches_from(&arguments) {
                command::read(&matches, &mut raw, &mut errors);
            }
            command::read_log_flags(&arguments, &mut raw);
        }
    }
    environment::read(env, &mut raw, &mut errors);
    read_document(&mut raw, &mut errors, stdin, read_file);
    if errors.is_empty() { Ok(Outcome::Run(raw)) } else { Err(Failure { errors, raw }) }
}

/// Reads options from the text of a config file alone; `source` is its name in errors.
///
/// # Errors
///
/// Everything that cannot be read, at once.
pub fn parse_document(source: &str, text: &str) -> Result<RawOptions, Vec<UsageError>> {
    let (mut raw, mut errors) = (RawOptions::default(), Vec::new());
    document::read(source, text, &mut raw, &mut errors);
    if errors.is_empty() { Ok(raw) } else { Err(errors) }
}

fn read_document(
    raw: &mut RawOptions,
    errors: &mut Vec<UsageError>,
    stdin: &mut dyn io::Read,
    read_file: &dyn Fn(&Path) -> io::Result<String>,
) {
    let Some(path) = raw.given(Key::Config).map(|given| given.text.clone()) else {
        return;
    };
    let (source, content) = match path.as_str() {
        "" => return,
        "-" => ("standard input".to_owned(), io::read_to_string(stdin)),
        path => (path.to_owned(), read_file(Path::new(path))),
    };
    match content {
        Ok(text) => document::read(&source, &text, raw, errors),
        Err(error) => {
            errors.push(UsageError::Document { source, problem: format!("cannot be read: {error}") })
        }
    }
}
