//! Completion scripts for shells, and a man page, generated from the definition of a command line.
//!
//! ```
//! use clap::{Arg, Command};
//!
//! let greet = Command::new("greet").about("Greets").arg(Arg::new("name").long("name").help("Whom to greet"));
//! let script = cli_docs::text("bash", &greet).expect("one of TEXTS");
//! assert!(script.contains("--name") && script.contains("complete -o default -F _greet greet"));
//! assert_eq!(cli_docs::text("tcsh", &greet), None);
//! ```

mod bash;
mod fish;
mod man;
mod zsh;

use clap::{Arg, ArgAction, Command, ValueHint};

/// The shells, as they are named on a command line.
pub const SHELLS: [&str; 3] = ["bash", "fish", "zsh"];

/// All texts that can be generated.
pub const TEXTS: [&str; 4] = ["bash", "fish", "zsh", "man"];

/// The completion script of a program for a shell, or its man page in roff; `None` for a name that is not one
/// of [`TEXTS`].
///
/// `command` is the definition as it was made: options that are global are listed with the program.
#[must_use]
pub fn text(name: &str, command: &Command) -> Option<String> {
    match name {
        "bash" => Some(bash::script(command)),
        "fish" => Some(fish::script(command)),
        "zsh" => Some(zsh::script(command)),
        "man" => Some(man::page(command)),
        _ => None,
    }
}

/// What follows an option.
pub(crate) enum Value {
    /// Nothing.
    None,
    /// One of these words, behind `=` only.
    Optional(String),
    /// One of these words.
    Words(String),
    /// A file.
    File,
    /// A process of this machine.
    Process,
    /// Any text.
    Any,
}

/// What follows an option, or may be in the place of an argument.
pub(crate) fn value(argument: &Arg) -> Value {
    if !argument.get_action().takes_values() {
        return Value::None;
    }
    let words: Vec<String> =
        argument.get_possible_values().iter().map(|word| word.get_name().to_owned()).collect();
    let is_optional = argument.get_num_args().is_some_and(|count| count.min_values() == 0);
    match value_name(argument).as_str() {
        _ if is_optional => Value::Optional(words.join(" ")),
        _ if !words.is_empty() => Value::Words(words.join(" ")),
        "DIR" | "FILE" | "PATH" => Value::File,
        "PID" => Value::Process,
        _ => Value::Any,
    }
}

/// Whether file names are completed, too.
pub(crate) fn is_path(argument: &Arg) -> bool {
    argument.get_value_hint() == ValueHint::AnyPath
}

/// The placeholder of a value.
pub(crate) fn value_name(argument: &Arg) -> String {
    let name = argument.get_value_names().and_then(|names| names.first());
    name.map_or_else(|| "VALUE".to_owned(), ToString::to_string)
}

/// The options and arguments of a command that `--help` lists, without those that every command has.
pub(crate) fn arguments(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|argument| !argument.is_hide_set())
}

/// The options of the program that a sub-command accepts: the global ones that it does not define itself, and
/// those that it hides.
pub(crate) fn inherited<'a>(program: &'a Command, sub: &'a Command) -> impl Iterator<Item = &'a Arg> {
    let is_defined = move |argument: &&Arg| sub.get_arguments().any(|own| own.get_id() == argument.get_id());
    arguments(program)
        .filter(|argument| argument.is_global_set())
        .filter(move |argument| !is_defined(argument))
}

/// The options every command has, besides the global ones.
pub(crate) fn standard(has_version: bool) -> Vec<Arg> {
    let help = Arg::new("help").short('h').long("help").help("Print help").action(ArgAction::Help);
    let version =
        Arg::new("version").short('V').long("version").help("Print version").action(ArgAction::Version);
    std::iter::once(help).chain(has_version.then_some(version)).collect()
}

/// All spellings of an option, with dashes.
pub(crate) fn names(argument: &Arg) -> Vec<String> {
    let short = argument.get_short().map(|short| format!("-{short}"));
    let aliases = argument.get_visible_aliases().unwrap_or_default();
    let long = argument.get_long().into_iter().chain(aliases).map(|long| format!("--{long}"));
    short.into_iter().chain(long).collect()
}

/// A sub-command by all its names.
pub(crate) fn command_names(command: &Command) -> Vec<&str> {
    std::iter::once(command.get_name()).chain(command.get_visible_aliases()).collect()
}

/// The first sentence of a help text, without default and variables.
pub(crate) fn summary(help: Option<&clap::builder::StyledStr>) -> String {
    let text = help.map(ToString::to_string).unwrap_or_default();
    text.split(" [").next().unwrap_or_default().to_owned()
}

/// The name of a program as part of a shell function's name.
pub(crate) fn function(command: &Command) -> String {
    command.get_name().replace('-', "_")
}
