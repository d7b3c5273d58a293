//! Usage errors: arguments, variables and documents that cannot be read as options.

use std::fmt;

use super::options::Key;
use super::raw::{Origin, SubCommand};
use super::typed::other_word;
use crate::text::one_line;

/// A command line, an environment or a config file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageError {
    /// The config file is not one JSON object, or holds something that does not belong there.
    Document {
        /// The file, or "standard input".
        source: String,
        /// The problem.
        problem: String,
    },
    /// A word that is neither a sub-command nor the value of an option.
    ExtraWord {
        /// The word.
        word: String,
        /// A similar name.
        hint: Option<String>,
    },
    /// Options that have no effect with the sub-command.
    Misplaced {
        /// The options.
        options: Vec<Key>,
        /// The sub-command.
        command: SubCommand,
    },
    /// A flag that needs a value is the last word, or has an empty one.
    MissingValue {
        /// The flag.
        flag: String,
        /// The placeholder of its value.
        takes: String,
    },
    /// Not valid UTF-8.
    NotUtf8 {
        /// What has the value.
        origin: Origin,
        /// The value, as far as it can be shown.
        shown: String,
    },
    /// A long flag written with one dash, which would be read as a short flag and its value.
    OneDash {
        /// As written.
        written: String,
        /// The option that has this name.
        meant: Key,
    },
    /// Any other error of the command line parser, with its message.
    Other(String),
    /// There is no such flag.
    UnknownFlag {
        /// As written.
        flag: String,
        /// One that looks like it, or what it is here.
        hint: Option<String>,
        /// The sub-commands that have it.
        commands: Vec<String>,
    },
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Document { source, problem } => {
                write!(f, "config file {}: {}", one_line(source), one_line(problem))
            }
            Self::ExtraWord { word, hint } => {
                write!(f, "unexpected argument {word:?}: neither a sub-command nor the value of an option")?;
                let names = SubCommand::ALL.map(SubCommand::name).join(", ");
                suffix(f, &hint.clone().unwrap_or_else(|| format!("sub-commands are {names}")))
            }
            Self::Misplaced { options, command } => {
                let names: Vec<_> = options.iter().map(ToString::to_string).collect();
                let (names, name) = (names.join(", "), command.name());
                write!(f, "{names}: no effect with {name}; leave it out")?;
                if let [Key::DryRun] = options.as_slice()
                    && let Some(hint) = other_word(Key::DryRun.spec().name)
                {
                    return suffix(f, hint);
                }
                suffix(f, &format!("`istio-iptables {name} --help` lists what it accepts"))
            }
            Self::MissingValue { flag, takes } => write!(f, "{flag} needs a value: {takes}"),
            Self::NotUtf8 { origin, shown } => {
                write!(f, "{origin}: {shown:?} is not valid UTF-8")
            }
            Self::OneDash { written, meant } => write!(
                f,
                "{written:?} would be read as one-letter options; did you mean --{}, with two dashes?",
                meant.spec().name
            ),
            Self::Other(text) => f.write_str(text),
            Self::UnknownFlag { flag, hint: None, commands } if !commands.is_empty() => {
                write!(f, "unknown option {flag:?} here; it belongs to {}", commands.join(", "))
            }
            Self::UnknownFlag { flag, hint, .. } => {
                write!(f, "unknown option {flag:?}")?;
                suffix(f, hint.as_deref().unwrap_or("`istio-iptables --help` lists the options"))
            }
        }
    }
}

fn suffix(f: &mut fmt::Formatter<'_>, hint: &str) -> fmt::Result {
    write!(f, "; {hint}")
}

impl std::error::Error for UsageError {}
