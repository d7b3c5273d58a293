//! The options of `bundle`, `check`, `diff`, `guard`, `observe` and `show`, and the output format.

use std::net::SocketAddr;
use std::time::Duration;

use crate::cli::{Heading, Key, OptionValue, Origin, PacketKey, RawOptions, SubCommand};
use crate::facts::{self, Files, NameServers};

use ipnetwork::IpNetwork;

use super::error::{ConfigError, Expected};
use super::ranges::range;
use super::values;

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// For programs: one JSON object.
    Json,
    /// For people.
    Text,
}

/// Whether a report has colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Color {
    /// Always.
    Always,
    /// On a terminal.
    Auto,
    /// Never.
    #[default]
    Never,
}

/// What a bundle has besides what is read from the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleContext {
    /// The options in force that reports depend on.
    pub options: Vec<(Key, OptionValue)>,
    /// The lines of files that they refer to.
    pub files: Files,
}

/// What `guard` does when the live rules are not those that it guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardAction {
    /// The guard repairs the rules.
    Repair,
    /// The guard reports the difference.
    Report,
    /// The guard repairs the rules. Until they are live again, what they would capture is dropped.
    Lockdown,
}

impl GuardAction {
    /// Whether it writes rules again.
    #[must_use]
    pub const fn repairs(self) -> bool {
        match self {
            Self::Repair | Self::Lockdown => true,
            Self::Report => false,
        }
    }

    /// The value of the option.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Repair => "repair",
            Self::Report => "report",
            Self::Lockdown => "lockdown",
        }
    }
}

/// The options of `guard`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardOptions {
    /// What follows a difference.
    pub action: GuardAction,
    /// The longest time between two comparisons (`--audit`).
    pub audit: Duration,
    /// How it reports.
    pub output: Output,
}

/// The options of `observe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserveOptions {
    /// Whether only connections are reported that are not captured, without those of the proxy.
    pub uncaptured: bool,
    /// The destinations that are reported; `None` for all.
    pub to: Option<IpNetwork>,
    /// The port that is reported; `None` for all.
    pub port: Option<u16>,
    /// When it ends by itself.
    pub lasts: Option<Duration>,
    /// After how many connections it ends by itself.
    pub count: Option<u64>,
    /// How it reports.
    pub output: Output,
}

/// A question about the live rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// All that reports depend on, to be answered elsewhere.
    Bundle(Box<BundleContext>),
    /// How they differ from those of the options.
    Check(Output),
    /// What they have counted.
    Show {
        /// How the report is written.
        output: Output,
        /// Again and again, with rates.
        watch: bool,
    },
}

/// Two rule sets to be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffQuery {
    /// `options`, `live` or a path, twice.
    pub sides: [String; 2],
    /// How the report is written.
    pub output: Output,
    /// Files of the pod, for options in a file.
    pub files: Files,
}

/// Reads the option about colours, of all sub-commands that have it. Only text has any.
pub(super) fn read_color(raw: &RawOptions, errors: &mut Vec<ConfigError>) -> Color {
    if !raw.command.own_options().contains(&PacketKey::Color) {
        return Color::Never;
    }
    let color = Reader { raw, errors }.value(PacketKey::Color, color).unwrap_or_default();
    if raw.packet(PacketKey::Output) == "text" { color } else { Color::Never }
}

/// Whether lines are never wrapped: text alone is.
pub(super) fn is_wide(raw: &RawOptions) -> bool {
    raw.wide
        || !raw.command.own_options().contains(&PacketKey::Color)
        || raw.packet(PacketKey::Output) != "text"
}

/// Reads the options of `bundle`, `check` and `show`.
pub(super) fn read(raw: &RawOptions, files: &Files, errors: &mut Vec<ConfigError>) -> Option<Question> {
    match raw.command {
        SubCommand::Bundle => Some(Question::Bundle(Box::new(context(raw, files)))),
        SubCommand::Check => Reader { raw, errors }.value(PacketKey::Output, output).map(Question::Check),
        SubCommand::Show => {
            let output = Reader { raw, errors }.value(PacketKey::Output, output)?;
            Some(Question::Show { output, watch: raw.watch })
        }
        SubCommand::Apply
        | SubCommand::Cleanup
        | SubCommand::Diff
        | SubCommand::Explain
        | SubCommand::Guard
        | SubCommand::Observe => None,
    }
}

/// Options that reports depend on, and what they refer to in files: nothing else of these leaves the machine.
fn context(raw: &RawOptions, files: &Files) -> BundleContext {
    let decides = |key: Key| {
        matches!(
            key.spec().heading,
            Heading::Proxy
                | Heading::Inbound
                | Heading::Outbound
                | Heading::Dns
                | Heading::Interfaces
                | Heading::Families
                | Heading::Backend
        )
    };
    let options = raw.iter().filter(|(key, _)| decides(*key)).map(|(key, given)| (key, given.clone()));
    let names = |keys: &[Key]| {
        let texts = keys.iter().map(|key| raw.given(*key).map_or(key.spec().default, |given| &given.text));
        texts.flat_map(|text| text.split(',').map(str::trim)).collect::<Vec<_>>()
    };
    let user = |name: &str| Some(format!("{name}:x:{}:0:::\n", facts::uid_of(&files.passwd, name)?));
    let group = |name: &str| Some(format!("{name}:x:{}:\n", facts::gid_of(&files.group, name)?));
    let servers = |text: &String| {
        let NameServers { v4, v6 } = facts::name_servers(text);
        let v6 = v6.iter().map(|address| format!("nameserver {address}\n"));
        v4.iter().map(|address| format!("nameserver {address}\n")).chain(v6).collect::<String>()
    };
    let groups = [Key::OutboundOwnerGroups, Key::OutboundOwnerGroupsExclude];
    BundleContext {
        options: options.collect(),
        files: Files {
            passwd: names(&[Key::EnvoyUser]).into_iter().filter_map(user).collect(),
            group: names(&groups).into_iter().filter_map(group).collect(),
            resolv_conf: files.resolv_conf.as_ref().map(servers).map_err(Clone::clone),
        },
    }
}

/// Refuses what a recorded machine cannot do.
pub(super) fn conflicts_with_bundle(raw: &RawOptions, errors: &mut Vec<ConfigError>) {
    if raw.packet(PacketKey::Bundle).is_empty() {
        return;
    }
    let mut reader = Reader { raw, errors };
    if raw.watch {
        reader.refuse(PacketKey::Bundle, Expected::new("no --watch: nothing changes in a bundle"));
    }
    for key in [Key::NetworkNamespace, Key::Pid].into_iter().filter(|key| raw.given(*key).is_some()) {
        reader.refuse(
            PacketKey::Bundle,
            Expected::new(format!("no --{}: it is about one network namespace", key.spec().name)),
        );
    }
}

/// Reads the options of `diff`.
pub(super) fn read_diff(raw: &RawOptions, files: &Files, errors: &mut Vec<ConfigError>) -> Option<DiffQuery> {
    let output = Reader { raw, errors }.value(PacketKey::Output, output)?;
    Some(DiffQuery { sides: *raw.compared.clone()?, output, files: files.clone() })
}

/// Reads the options of `guard`.
pub(super) fn read_guard(raw: &RawOptions, errors: &mut Vec<ConfigError>) -> Option<GuardOptions> {
    let mut reader = Reader { raw, errors };
    let action = reader.value(PacketKey::Action, guard_action);
    let audit = reader.value(PacketKey::Audit, audit);
    let output = reader.value(PacketKey::Output, output);
    Some(GuardOptions { action: action?, audit: audit?, output: output? })
}

/// Reads the options of `observe`.
pub(super) fn read_observe(raw: &RawOptions, errors: &mut Vec<ConfigError>) -> Option<ObserveOptions> {
    let mut reader = Reader { raw, errors };
    let to = reader.optional(PacketKey::Range, |text| {
        range(text).map(|range| range.network).map_err(|expected| {
            let has_port = text.parse::<SocketAddr>().is_ok();
            if has_port { expected.hint("--port takes the port") } else { expected }
        })
    });
    let port = reader.optional(PacketKey::Port, |text| {
        values::decimal(text)
            .and_then(|port| u16::try_from(port).ok())
            .ok_or_else(|| Expected::new("a port from 0 to 65535"))
    });
    let lasts = reader.optional(PacketKey::For, values::duration);
    let count = reader.optional(PacketKey::Count, |text| {
        values::decimal(text).filter(|count| *count > 0).ok_or_else(|| Expected::new("a number above zero"))
    });
    let output = reader.value(PacketKey::Output, output);
    Some(ObserveOptions {
        uncaptured: raw.uncaptured,
        to: to?,
        port: port?,
        lasts: lasts?,
        count: count?,
        output: output?,
    })
}

/// Options about questions, read one by one; errors are collected.
pub(super) struct Reader<'a> {
    pub(super) raw: &'a RawOptions,
    pub(super) errors: &'a mut Vec<ConfigError>,
}

impl Reader<'_> {
    pub(super) fn refuse(&mut self, key: PacketKey, expected: Expected) {
        let given = self.raw.packet(key).to_owned();
        let words = self.raw.command.words(key);
        let expected = expected.or_unquoted(&given).or_meant(key.name(), &given, words);
        self.errors.push(ConfigError::Value { origin: Origin::Packet(key), given, expected });
    }

    /// One value; `None` after an error.
    pub(super) fn value<T>(
        &mut self,
        key: PacketKey,
        parse: impl Fn(&str) -> Result<T, Expected>,
    ) -> Option<T> {
        parse(self.raw.packet(key)).map_err(|expected| self.refuse(key, expected)).ok()
    }

    /// One value that may be missing; `None` on the outside after an error.
    #[allow(clippy::option_option, reason = "the two levels differ, as documented above")]
    pub(super) fn optional<T>(
        &mut self,
        key: PacketKey,
        parse: impl Fn(&str) -> Result<T, Expected>,
    ) -> Option<Option<T>> {
        if self.raw.packet(key).is_empty() { Some(None) } else { self.value(key, parse).map(Some) }
    }
}

fn guard_action(text: &str) -> Result<GuardAction, Expected> {
    match text {
        "repair" => Ok(GuardAction::Repair),
        "report" => Ok(GuardAction::Report),
        "lockdown" => Ok(GuardAction::Lockdown),
        _ => Err(Expected::new("report, repair or lockdown")),
    }
}

fn audit(text: &str) -> Result<Duration, Expected> {
    const LONGEST: u64 = 24 * 60 * 60;
    let seconds = text.parse().ok().filter(|seconds| (1..=LONGEST).contains(seconds));
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| Expected::new(format!("a number of seconds from 1 to {LONGEST}")))
}

fn color(text: &str) -> Result<Color, Expected> {
    match text {
        "always" => Ok(Color::Always),
        "auto" => Ok(Color::Auto),
        "never" => Ok(Color::Never),
        _ => Err(Expected::new("auto, always or never")),
    }
}

pub(super) fn output(text: &str) -> Result<Output, Expected> {
    match text {
        "text" => Ok(Output::Text),
        "json" => Ok(Output::Json),
        _ => Err(Expected::new("text or json")),
    }
}
