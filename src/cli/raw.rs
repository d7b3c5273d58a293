//! Options as text, with their origin.

use std::collections::BTreeMap;
use std::fmt;

use super::options::Key;
use super::packet::PacketKey;
use super::spec::Heading;

/// The sub-command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubCommand {
    /// Make the rules (also without a sub-command).
    #[default]
    Apply,
    /// Write the facts of this machine into a file.
    Bundle,
    /// Compare the live state with the options.
    Check,
    /// Remove what an earlier run added.
    Cleanup,
    /// Compare two rule sets.
    Diff,
    /// Report what happens to a packet.
    Explain,
    /// Notice changes of the live rules, and repair them.
    Guard,
    /// Report new connections.
    Observe,
    /// Print the live rules of ours with their counters.
    Show,
}

impl SubCommand {
    /// The sub-commands, in the order of `--help`.
    pub const ALL: [Self; 9] = [
        Self::Apply,
        Self::Bundle,
        Self::Check,
        Self::Cleanup,
        Self::Diff,
        Self::Explain,
        Self::Guard,
        Self::Observe,
        Self::Show,
    ];

    /// The word on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Bundle => "bundle",
            Self::Check => "check",
            Self::Cleanup => "cleanup",
            Self::Diff => "diff",
            Self::Explain => "explain",
            Self::Guard => "guard",
            Self::Observe => "observe",
            Self::Show => "show",
        }
    }

    /// The options that it has besides those of a run.
    #[must_use]
    pub const fn own_options(self) -> &'static [PacketKey] {
        match self {
            Self::Explain => &PacketKey::OF_EXPLAIN,
            Self::Guard => &[PacketKey::Action, PacketKey::Audit, PacketKey::Output],
            Self::Observe => {
                &[PacketKey::Range, PacketKey::Port, PacketKey::For, PacketKey::Count, PacketKey::Output]
            }
            Self::Check | Self::Show => &[PacketKey::Output, PacketKey::Color, PacketKey::Bundle],
            Self::Diff => &[PacketKey::Output, PacketKey::Color],
            Self::Apply | Self::Bundle | Self::Cleanup => &[],
        }
    }

    /// Whether an option has an effect.
    #[must_use]
    pub const fn accepts(self, key: Key) -> bool {
        let is_cleanup = matches!(self, Self::Cleanup);
        let selects_pod = matches!(key, Key::CniMode | Key::Config | Key::NetworkNamespace | Key::Pid);
        let is_for_cleanup = matches!(
            key,
            Key::CleanupOnly
                | Key::DryRun
                | Key::DryRunFilePath
                | Key::KeepConnections
                | Key::RulesFile
                | Key::Verify
        );
        match (self, key.spec().heading) {
            (Self::Apply, _) | (_, Heading::Backend | Heading::Logging) => true,
            (_, Heading::Run) => selects_pod || (is_cleanup && is_for_cleanup),
            (_, Heading::Validation) => false,
            (
                _,
                Heading::Proxy
                | Heading::Inbound
                | Heading::Outbound
                | Heading::Dns
                | Heading::Interfaces
                | Heading::Families,
            ) => !is_cleanup && !matches!(self, Self::Observe | Self::Show),
        }
    }

    /// The values of an option of its own that shells complete; empty if any text may be one.
    #[must_use]
    pub const fn words(self, key: PacketKey) -> &'static [&'static str] {
        match (self, key) {
            (Self::Explain, PacketKey::Output) => &["text", "json", "html", "mermaid"],
            _ => key.words(),
        }
    }

    /// One sentence for `--help`.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Apply => "Write the rules for the options (the default)",
            Self::Bundle => {
                "Print a snapshot of the state of this machine, for explain, check and show with --bundle on another machine; changes nothing"
            }
            Self::Check => {
                "Compare the live rules with the rules for the options; without options, with the rules for options derived from \
                 the live rules; exit 0 if they are equal, 1 if not; changes nothing"
            }
            Self::Cleanup => "Remove what an earlier run added; the same as --cleanup-only",
            Self::Diff => {
                "Prove that two rule sets treat every packet alike, or name a packet that they treat differently; changes nothing"
            }
            Self::Explain => {
                "Explain whether a packet is captured, by which rule and option; changes nothing"
            }
            Self::Guard => {
                "Report at once which program changed the live rules, until interrupted; with --action repair also write them again"
            }
            Self::Observe => {
                "Report new connections as they begin, with the process, whether they are captured, and by which rule and option; \
                 changes nothing"
            }
            Self::Show => "Print the live rules of this program with counters and reasons; changes nothing",
        }
    }

    /// Command lines for `--help`, without the program's name.
    pub(super) const fn examples(self) -> &'static [&'static str] {
        match self {
            Self::Apply => &[
                "apply -p 15001 -z 15006 -u 1337 -m REDIRECT -i '*' -b '*' -d 15020",
                "apply --dry-run -i '*' -b '*'",
            ],
            Self::Bundle => &["bundle > pod.json", "bundle --pid 4711 -i '*' -b '*' > pod.json"],
            Self::Check => {
                &["check --pid 4711", "check -i '*' -b '*'", "check --pid 4711 --output json -i '*' -b '*'"]
            }
            Self::Cleanup => &["cleanup", "cleanup --keep-connections --pid 4711"],
            Self::Diff => &[
                "diff live options -i '*' -b '*'",
                "diff yesterday.json live --pid 4711",
                "diff before.rules after.rules",
            ],
            Self::Explain => &[
                "explain -i '*' -b '*' -d 15020",
                "explain --live --pid 4711 --to 10.0.0.1:443",
                "explain --live --from outside --to 10.1.0.5:8080",
                "explain --bundle pod.json --to 10.0.0.1:443",
                "explain --live --pid 4711 -o html > pod.html",
            ],
            Self::Guard => &["guard --pid 4711", "guard --action repair -i '*' -b '*'"],
            Self::Observe => &["observe --pid 4711", "observe --pid 4711 --uncaptured --for 1m"],
            Self::Show => &["show --pid 4711", "show --watch"],
        }
    }
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The config file.
    Document(Key),
    /// The command line.
    Flag(Key),
    /// An option of `explain`.
    Packet(PacketKey),
    /// The environment variable of this name.
    Variable(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Document(key) => write!(f, "config key {}", key.spec().name),
            Self::Flag(key) => key.fmt(f),
            Self::Packet(key) => key.fmt(f),
            Self::Variable(name) => write!(f, "variable {name}"),
        }
    }
}

/// A value as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionValue {
    /// The text; lists are separated by commas whatever they came from.
    pub text: String,
    /// The source of the text.
    pub origin: Origin,
}

/// The options before anything is read into them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawOptions {
    /// The sub-command.
    pub command: SubCommand,
    /// Whether it is on the command line.
    pub is_named: bool,
    values: BTreeMap<Key, OptionValue>,
    packet: BTreeMap<PacketKey, String>,
    /// `explain --live`.
    pub live: bool,
    /// `show --watch`.
    pub watch: bool,
    /// `observe --uncaptured`.
    pub uncaptured: bool,
    /// `--wide`.
    pub wide: bool,
    /// The rule sets that `diff` compares.
    pub compared: Option<Box<[String; 2]>>,
}

impl RawOptions {
    /// Options whose text does not come from a command line: a pod's annotations, for instance. Of two values
    /// for one option the first counts.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = (Key, OptionValue)>) -> Self {
        let mut raw = Self::default();
        raw.complete(values);
        raw
    }

    /// The given value of `key`, if any. The text may be empty.
    #[must_use]
    pub fn given(&self, key: Key) -> Option<&OptionValue> {
        self.values.get(&key)
    }

    /// Everything that was given, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &OptionValue)> {
        self.values.iter().map(|(key, given)| (*key, given))
    }

    /// The value of an option of `explain`, or its default.
    #[must_use]
    pub fn packet(&self, key: PacketKey) -> &str {
        self.packet.get(&key).map_or(key.default(), |text| text.trim())
    }

    /// Whether an option of `explain` was given.
    #[must_use]
    pub fn has_packet(&self, key: PacketKey) -> bool {
        self.packet.contains_key(&key)
    }

    /// Adds options of lower precedence than those that are there.
    pub fn complete(&mut self, values: impl IntoIterator<Item = (Key, OptionValue)>) {
        for (key, given) in values {
            self.set_if_stronger(key, given);
        }
    }

    /// Takes an option of `explain`, unless it is there already.
    pub(super) fn ask(&mut self, key: PacketKey, text: String) {
        self.packet.entry(key).or_insert(text);
    }

    /// Takes a value unless one of higher precedence is there already, or the option has no effect with the
    /// sub-command: variables and a config file are those of the pod.
    pub(super) fn set_if_stronger(&mut self, key: Key, given: OptionValue) {
        if self.command.accepts(key) {
            self.values.entry(key).or_insert(given);
        }
    }
}
