//! The command line, built with clap from the table of options.

use std::cell::{Cell, RefCell};
use std::ffi::{OsStr, OsString};

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};

use super::error::UsageError;
use super::help;
use super::options::{IGNORED, Key};
use super::packet::{INPUT, OBSERVED, PacketKey};
use super::raw::{OptionValue, Origin, RawOptions, SubCommand};
use super::spec::Kind;
use super::typed::{beside, extra, meant, other_word, unquoted};

thread_local! {
    /// Whether this thread has read a command line without a sub-command.
    static HAS_READ: Cell<bool> = const { Cell::new(false) };
    /// For all further ones. Built once: the injector reads one for each pod, and building takes longer than
    /// reading.
    static BUILT: RefCell<Command> = RefCell::new(command_line(&[], Scope::All));
}

/// Takes a command line apart.
pub(super) fn matches(arguments: &[OsString]) -> Result<ArgMatches, clap::Error> {
    let matches = match named(arguments).as_slice() {
        [] if HAS_READ.replace(true) => {
            BUILT.with_borrow_mut(|built| built.try_get_matches_from_mut(arguments))
        }
        named => command_line(named, Scope::Of(arguments)).try_get_matches_from(arguments),
    };
    match matches {
        // Help and hints are about the whole command line.
        Err(error) if error.kind() != ErrorKind::DisplayVersion => command().try_get_matches_from(arguments),
        other => other,
    }
}

/// The sub-commands whose names are among the words, also where they are values.
fn named(arguments: &[OsString]) -> Vec<SubCommand> {
    let words = arguments.get(1..).unwrap_or_default();
    SubCommand::ALL.into_iter().filter(|sub| words.iter().any(|word| word == sub.name())).collect()
}

/// The whole command line, as `--help`, completions and the man page describe it.
#[must_use]
pub fn command() -> Command {
    command_line(&SubCommand::ALL, Scope::Help)
}

/// The options that are built. To build one, which clap also copies into each sub-command, is more work than
/// all else at the start of a process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope<'a> {
    /// The options that one of these words may name.
    Of(&'a [OsString]),
    All,
    /// All, with their texts.
    Help,
}

impl Scope<'_> {
    /// Whether an option with this name may be given.
    fn has(self, name: &str) -> bool {
        let names = |word: &OsString| {
            word.as_encoded_bytes().strip_prefix(b"--").is_some_and(|word| word.starts_with(name.as_bytes()))
        };
        match self {
            Self::Of(words) => words.iter().any(names),
            Self::All | Self::Help => true,
        }
    }

    fn has_option(self, key: Key) -> bool {
        let spec = key.spec();
        // Several options of one letter may be one word.
        let has_letter = |letter: char| match self {
            Self::Of(words) => words.iter().filter_map(|word| word.to_str()).any(|word| {
                word.strip_prefix('-').is_some_and(|word| !word.starts_with('-') && word.contains(letter))
            }),
            Self::All | Self::Help => true,
        };
        spec.has_flag()
            && (self.has(spec.name)
                || spec.alias.is_some_and(|alias| self.has(alias))
                || spec.short.is_some_and(has_letter))
    }
}

/// With these sub-commands.
fn command_line(commands: &[SubCommand], scope: Scope<'_>) -> Command {
    let is_global = !commands.is_empty();
    let is_described = scope == Scope::Help;
    let mut command = Command::new("istio-iptables")
        .bin_name("istio-iptables")
        .version(env!("CARGO_PKG_VERSION"))
        .about(help::ABOUT)
        .max_term_width(110)
        .args_override_self(true)
        .disable_help_subcommand(true);
    if is_described {
        command = command.after_help(help::after());
    }
    for key in Key::ALL.iter().filter(|key| scope.has_option(**key)) {
        let argument = argument(*key).global(is_global);
        command = command.arg(if is_described { argument.help(help::of(key.spec())) } else { argument });
    }
    for name in IGNORED.into_iter().filter(|name| scope.has(name)) {
        let ignored = Arg::new(name).long(name).hide(true).allow_hyphen_values(true);
        command = command.arg(ignored.global(is_global).value_parser(SuggestedValues(&[])));
    }
    commands.iter().fold(command, |command, sub| command.subcommand(sub_command(*sub, scope)))
}

fn sub_command(sub: SubCommand, scope: Scope<'_>) -> Command {
    let mut command = Command::new(sub.name()).about(sub.about());
    if scope == Scope::Help {
        let examples = sub.examples().iter().flat_map(|line| ["\n  istio-iptables ", line]);
        command = command.after_help(std::iter::once("Examples:").chain(examples).collect::<String>());
    }
    for key in sub.own_options().iter().filter(|key| scope.has(key.name())) {
        command = command.arg(packet_argument(*key, sub, scope));
    }
    // Hidden: their values are read as such, and the error names them.
    for key in Key::ALL.iter().filter(|key| scope.has_option(**key) && !sub.accepts(**key)) {
        command = command.arg(argument(*key).global(true).hide(true));
    }
    if sub.own_options().contains(&PacketKey::Color) {
        command = command.arg(
            Arg::new(WIDE)
                .long(WIDE)
                .action(ArgAction::SetTrue)
                .help_heading(PacketKey::Color.heading())
                .help("Do not wrap lines to the width of the terminal"),
        );
    }
    match sub {
        SubCommand::Explain => {
            command
                .arg(Arg::new(LIVE).long(LIVE).action(ArgAction::SetTrue).help_heading(INPUT).help(
                    "Use the rules in the kernel, including foreign ones, instead of those of the options",
                ))
                .arg(
                    Arg::new(TARGET)
                        .value_name(PacketKey::To.value_name())
                        .value_parser(SuggestedValues(&[]))
                        .help("The same as --to"),
                )
        }
        SubCommand::Show => command.arg(
            Arg::new(WATCH)
                .long(WATCH)
                .action(ArgAction::SetTrue)
                .help("Print them again every second, with packets per second, until interrupted"),
        ),
        SubCommand::Observe => command.arg(
            Arg::new(UNCAPTURED)
                .long(UNCAPTURED)
                .action(ArgAction::SetTrue)
                .help_heading(OBSERVED)
                .help("Only connections that are not captured, without those of the proxy"),
        ),
        SubCommand::Diff => {
            COMPARED.iter().fold(command, |command, name| command.arg(rule_set_argument(name)))
        }
        SubCommand::Apply
        | SubCommand::Bundle
        | SubCommand::Check
        | SubCommand::Cleanup
        | SubCommand::Guard => command,
    }
}

/// The flag of `explain` without a value.
const LIVE: &str = "live";
/// The flag of reports without a value.
const WIDE: &str = "wide";
/// The destination of `explain` without `--to`.
const TARGET: &str = "TARGET";
/// The flag of `show` without a value.
const WATCH: &str = "watch";
/// The flag of `observe` without a value.
const UNCAPTURED: &str = "uncaptured";

/// Takes any value, since a wrong one is refused by name later, and lists those that shells complete.
#[derive(Clone)]
struct SuggestedValues(&'static [&'static str]);

impl TypedValueParser for SuggestedValues {
    type Value = OsString;

    fn parse_ref(&self, _: &Command, _: Option<&Arg>, value: &OsStr) -> Result<OsString, clap::Error> {
        Ok(value.to_owned())
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        if self.0.is_empty() {
            None
        } else {
            Some(Box::new(self.0.iter().map(|word| PossibleValue::new(*word))))
        }
    }
}

/// The arguments of `diff`.
const COMPARED: [&str; 2] = ["A", "B"];

fn rule_set_argument(name: &'static str) -> Arg {
    let help = "A rule set: options (those of this command line), live (the rules in the kernel), or a file: a bundle, options \
                as for --config, the output of iptables-save (IPv6 in FILE.v6), or a rules file";
    Arg::new(name)
        .value_name(name)
        .value_parser(SuggestedValues(&["options", "live"]))
        .hide_possible_values(true)
        .value_hint(ValueHint::AnyPath)
        .help(help)
}

fn packet_argument(key: PacketKey, command: SubCommand, scope: Scope<'_>) -> Arg {
    let argument = Arg::new(key.name())
        .allow_hyphen_values(true)
        .long(key.name())
        .value_name(key.value_name())
        .value_parser(SuggestedValues(command.words(key)))
        .hide_possible_values(true)
        .help_heading(key.heading());
    if scope == Scope::Help { argument.help(key.help(command.words(key))) } else { argument }
}

fn argument(key: Key) -> Arg {
    let spec = key.spec();
    let argument = Arg::new(spec.name)
        .long(spec.name)
        .action(ArgAction::Set)
        .value_name(spec.value_name)
        .value_parser(SuggestedValues(spec.words))
        .hide_possible_values(true)
        .help_heading(spec.heading.title());
    let argument = match spec.short {
        Some(short) => argument.short(short),
        None => argument,
    };
    let argument = match spec.alias {
        Some(alias) => argument.visible_alias(alias),
        None => argument,
    };
    match spec.kind {
        Kind::Boolean => argument.num_args(0..=1).require_equals(true).default_missing_value("true"),
        // As in Go: what follows is the value, whatever it begins with. A wrong one is refused by name later.
        Kind::List | Kind::Number | Kind::Text => argument.allow_hyphen_values(true),
    }
}

/// The value of an option, if it is given.
fn given<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a OsString> {
    // Of one that was not built it is not known.
    matches.try_get_one(name).ok()?
}

/// The values of the flags.
pub(super) fn read(matches: &ArgMatches, raw: &mut RawOptions, errors: &mut Vec<UsageError>) {
    raw.is_named = matches.subcommand_name().is_some();
    raw.command = SubCommand::ALL
        .into_iter()
        .find(|sub| matches.subcommand_name() == Some(sub.name()))
        .unwrap_or_default();
    read_packet(matches, raw, errors);
    read_compared(matches, raw, errors);
    let mut misplaced = Vec::new();
    for &key in Key::ALL.iter().filter(|key| key.spec().has_flag()) {
        let Some(value) = given(matches, key.spec().name) else {
            continue;
        };
        if !raw.command.accepts(key) {
            misplaced.push(key);
            continue;
        }
        let origin = Origin::Flag(key);
        match value.to_str() {
            Some(text) => raw.set_if_stronger(key, OptionValue { text: text.to_owned(), origin }),
            None => errors.push(UsageError::NotUtf8 { origin, shown: value.to_string_lossy().into_owned() }),
        }
    }
    if !misplaced.is_empty() {
        errors.push(UsageError::Misplaced { options: misplaced, command: raw.command });
    }
}

fn read_packet(matches: &ArgMatches, raw: &mut RawOptions, errors: &mut Vec<UsageError>) {
    let Some((_, matches)) = matches.subcommand() else { return };
    raw.live = raw.command == SubCommand::Explain && matches.get_flag(LIVE);
    raw.watch = raw.command == SubCommand::Show && matches.get_flag(WATCH);
    raw.uncaptured = raw.command == SubCommand::Observe && matches.get_flag(UNCAPTURED);
    raw.wide = raw.command.own_options().contains(&PacketKey::Color) && matches.get_flag(WIDE);
    if let (SubCommand::Explain, Some(to)) = (raw.command, given(matches, TARGET))
        && !to.is_empty()
    {
        if given(matches, PacketKey::To.name()).is_some() {
            let word = to.to_string_lossy().into_owned();
            let hint = Some("one destination, as ADDRESS:PORT, is enough".to_owned());
            return errors.push(UsageError::ExtraWord { word, hint });
        }
        raw.ask(PacketKey::To, to.to_string_lossy().into_owned());
    }
    for &key in raw.command.own_options() {
        match given(matches, key.name()).map(|value| value.to_str().ok_or(value)) {
            // A variable that is unset in a script: without the option, the question would be another one.
            Some(Ok("")) => errors.push(UsageError::MissingValue {
                flag: Origin::Packet(key).to_string(),
                takes: key.value_name().to_owned(),
            }),
            Some(Ok(text)) => raw.ask(key, text.to_owned()),
            Some(Err(value)) => errors.push(UsageError::NotUtf8 {
                origin: Origin::Packet(key),
                shown: value.to_string_lossy().into_owned(),
            }),
            None => {}
        }
    }
}

fn read_compared(matches: &ArgMatches, raw: &mut RawOptions, errors: &mut Vec<UsageError>) {
    let Some((_, matches)) = matches.subcommand().filter(|_| raw.command == SubCommand::Diff) else { return };
    match COMPARED.map(|name| given(matches, name)) {
        [Some(a), Some(b)] => match [a, b].map(|name| name.to_str().map(str::to_owned)) {
            [Some(a), Some(b)] => raw.compared = Some(Box::new([a, b])),
            _ => errors
                .push(UsageError::Other("the rule sets that are compared are named in UTF-8".to_owned())),
        },
        _ => errors.push(UsageError::Other(
            "diff compares two rule sets: name both, each of them options, live or a file".to_owned(),
        )),
    }
}

/// The values of the log flags, at any position: after a mistake the rest of the line is not read, and they
/// usually come last.
pub(super) fn read_log_flags(arguments: &[OsString], raw: &mut RawOptions) {
    let is_log_flag = |argument: &&OsString| argument.as_encoded_bytes().starts_with(b"--log");
    let program = arguments.iter().take(1);
    let flags = program.chain(arguments.iter().skip(1).filter(is_log_flag));
    if let Ok(matches) = command().ignore_errors(true).try_get_matches_from(flags) {
        let command = raw.command;
        read(&matches, raw, &mut Vec::new());
        raw.command = command;
    }
}

/// A long flag behind one dash: `-redirect-dns` would be routing table "edirect-dns".
pub(super) fn one_dash(arguments: &[OsString]) -> Option<UsageError> {
    arguments.iter().skip(1).filter_map(|argument| argument.to_str()).find_map(|written| {
        let name = written.strip_prefix('-')?;
        let name = name.split_once('=').map_or(name, |(name, _)| name);
        let meant = Key::by_name(name).filter(|key| key.spec().has_flag())?;
        Some(UsageError::OneDash { written: written.to_owned(), meant })
    })
}

/// Maps the parser's error to a usage error.
pub(super) fn explain(error: &clap::Error, arguments: &[OsString]) -> UsageError {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    };
    let did_you_mean = |kind| context(kind).map(|name| format!("did you mean {name}?"));
    let kind = error.kind();
    let word = context(ContextKind::InvalidSubcommand).or_else(|| context(ContextKind::InvalidArg));
    match word {
        Some(flag) if kind == ErrorKind::UnknownArgument && flag.starts_with('-') => {
            let commands = commands_with(&flag);
            // `-json`, of which the parser names the first letter.
            let written =
                arguments.iter().filter_map(|word| word.to_str()).find(|word| word.starts_with(&flag));
            let hint = meant(written.unwrap_or(&flag), &flag);
            let hint =
                hint.or_else(|| did_you_mean(ContextKind::SuggestedArg).filter(|_| commands.is_empty()));
            UsageError::UnknownFlag { flag, hint, commands }
        }
        Some(word) if kind == ErrorKind::UnknownArgument || kind == ErrorKind::InvalidSubcommand => {
            let of_boolean = || {
                boolean_before(&word, arguments).map(|flag| {
                    match other_word(flag).filter(|_| !BOOLEANS.contains(&word.as_str())) {
                        Some(hint) => hint.to_owned(),
                        None => format!("a boolean takes its value behind `=`: {flag}={word}"),
                    }
                })
            };
            let hint = beside(&word, arguments)
                .map(str::to_owned)
                .or_else(of_boolean)
                .or_else(|| {
                    let flag = unquoted(&word, arguments)?;
                    Some(format!("if the value of {flag} is an asterisk, quote it for the shell: {flag} '*'"))
                })
                .or_else(|| extra(&word, arguments))
                .or_else(|| did_you_mean(ContextKind::SuggestedSubcommand));
            UsageError::ExtraWord { word, hint }
        }
        Some(flag) if kind == ErrorKind::InvalidValue => {
            // `--envoy-port <PORT>`
            let (flag, takes) = flag.split_once(' ').unwrap_or((&flag, "<VALUE>"));
            UsageError::MissingValue {
                flag: flag.to_owned(),
                takes: takes.trim_matches(['<', '>']).to_owned(),
            }
        }
        _ => {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            UsageError::Other(line.strip_prefix("error: ").unwrap_or(line).to_owned())
        }
    }
}

/// The sub-commands that have a flag.
fn commands_with(flag: &str) -> Vec<String> {
    let Some(name) = flag.strip_prefix("--") else { return Vec::new() };
    let is_it = |argument: &Arg| argument.get_long() == Some(name);
    let all = command();
    let have = all.get_subcommands().filter(|command| command.get_arguments().any(is_it));
    have.map(|command| command.get_name().to_owned()).collect()
}

/// What people take for values of booleans.
const BOOLEANS: [&str; 4] = ["true", "false", "yes", "no"];

/// The boolean flag right before `word`; `word` was probably meant as its value.
fn boolean_before<'a>(word: &str, arguments: &'a [OsString]) -> Option<&'a str> {
    arguments.iter().zip(arguments.iter().skip(1)).filter(|(_, next)| next.to_str() == Some(word)).find_map(
        |(flag, _)| {
            let flag = flag.to_str()?;
            Key::ALL
                .iter()
                .map(|key| key.spec())
                .filter(|spec| spec.kind == Kind::Boolean)
                .any(|spec| {
                    flag.strip_prefix("--") == Some(spec.name)
                        || spec.short.is_some_and(|short| flag == format!("-{short}"))
                })
                .then_some(flag)
        },
    )
}
