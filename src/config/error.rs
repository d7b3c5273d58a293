//! Errors and warnings about options, for the user who must change them.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use crate::cli::{Origin, is_misspelt, other_word};
use crate::finding::Problem;
use crate::model::Port;

/// The accepted values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The accepted values.
    pub what: Cow<'static, str>,
    /// The probable intention.
    pub hint: Option<Cow<'static, str>>,
}

impl Expected {
    /// Just what is accepted.
    pub(super) fn new(what: impl Into<Cow<'static, str>>) -> Self {
        Self { what: what.into(), hint: None }
    }

    /// The accepted values, and a hint.
    pub(super) fn hint(self, hint: impl Into<Cow<'static, str>>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Adds a hint if all that is wrong with `given` are its quotes: in a list of arguments no shell removes
    /// them.
    pub(super) fn or_unquoted(self, given: &str) -> Self {
        let inner = ['\'', '"'].iter().find_map(|quote| given.strip_prefix(*quote)?.strip_suffix(*quote));
        match inner {
            Some(inner) => self.hint(format!("the quotes are part of the value: write {inner}")),
            None => self,
        }
    }

    /// Adds a hint if an option's value is almost one of its words, or what another program calls one.
    pub(super) fn or_meant(self, option: &str, given: &str, words: &[&str]) -> Self {
        let small = given.to_ascii_lowercase();
        if let Some(hint) = other_word(&format!("{option}={small}")) {
            return self.hint(hint);
        }
        if self.hint.is_some() || words.contains(&given) {
            return self;
        }
        let is_meant = |word: &&&str| word.eq_ignore_ascii_case(given) || is_misspelt(&small, word);
        match words.iter().find(is_meant) {
            Some(word) => self.hint(format!("did you mean {word}?")),
            None => self,
        }
    }
}

/// Options that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// Options that contradict each other.
    Contradiction {
        /// The options that contradict each other.
        options: Vec<Origin>,
        /// Why they contradict each other.
        reason: &'static str,
    },
    /// A list that is given but holds nothing.
    EmptyList {
        /// The option.
        origin: Origin,
        /// The text.
        given: String,
        /// What it would do, and what to write instead.
        reason: &'static str,
    },
    /// A list that is too long.
    TooMany {
        /// The option.
        origin: Origin,
        /// How many it has.
        given: usize,
        /// How many it may have.
        most: usize,
        /// Why.
        reason: &'static str,
    },
    /// Something this version cannot do.
    Unavailable {
        /// The option.
        origin: Origin,
        /// What is missing and what to do.
        reason: &'static str,
    },
    /// A file that the options need cannot be read.
    Unreadable {
        /// The file.
        file: &'static str,
        /// Why.
        reason: String,
        /// What needs it, and how to do without.
        needed: &'static str,
    },
    /// A value that does not parse.
    Value {
        /// The option.
        origin: Origin,
        /// The value, or the item of a list.
        given: String,
        /// The accepted values.
        expected: Expected,
    },
}

impl ConfigError {
    /// The options that it is about.
    #[must_use]
    pub fn origins(&self) -> &[Origin] {
        match self {
            Self::Contradiction { options, .. } => options,
            Self::EmptyList { origin, .. }
            | Self::TooMany { origin, .. }
            | Self::Unavailable { origin, .. }
            | Self::Value { origin, .. } => std::slice::from_ref(origin),
            Self::Unreadable { .. } => &[],
        }
    }

    /// The sentence for callers that name the options differently than the command line.
    #[must_use]
    pub fn calling(&self, name: &dyn Fn(&Origin) -> String) -> String {
        match self {
            Self::Contradiction { options, reason } => {
                let names: Vec<String> = options.iter().map(name).collect();
                format!("{}: {reason}", names.join(" and "))
            }
            Self::EmptyList { origin, given, reason } => {
                format!("{}: {given:?} is an empty list; {reason}", name(origin))
            }
            Self::TooMany { origin, given, most, reason } => {
                format!("{}: {given} items, at most {most} are possible: {reason}", name(origin))
            }
            Self::Unavailable { origin, reason } => format!("{}: {reason}", name(origin)),
            Self::Unreadable { file, reason, needed } => {
                format!("{file} cannot be read ({reason}); {needed}")
            }
            Self::Value { origin, given, expected: Expected { what, hint } } => {
                let hint = hint.as_ref().map_or_else(String::new, |hint| format!("; {hint}"));
                format!("{}: {given:?} is not accepted, expected {what}{hint}", name(origin))
            }
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.calling(&Origin::to_string))
    }
}

impl std::error::Error for ConfigError {}

/// Options that can be followed but are probably not what was meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// A list of empty items only.
    EmptyList {
        /// The option.
        origin: Origin,
        /// The text.
        given: String,
    },
    /// A range with bits set behind its prefix.
    HostBits {
        /// The option.
        origin: Origin,
        /// The range as written.
        given: String,
        /// The range that counts.
        used: String,
    },
    /// An option without effect.
    NoEffect {
        /// The option.
        origin: Origin,
        /// Why.
        reason: &'static str,
    },
    /// A port that another option uses, too.
    SamePort {
        /// The option.
        origin: Origin,
        /// The port.
        port: Port,
        /// What else uses it.
        other: String,
        /// What happens to traffic.
        effect: &'static str,
    },
    /// A local resolver, whose own queries are captured.
    LocalResolver {
        /// The option that captures them.
        origin: Origin,
        /// The address of the resolver in `/etc/resolv.conf`.
        server: IpAddr,
    },
    /// Half of IPv4 or more is excluded.
    WideExclusion {
        /// The option.
        origin: Origin,
        /// The ranges, in words.
        ranges: String,
    },
    /// Name servers of the caller for another network namespace.
    NameServersOfCaller {
        /// The option that names the network namespace.
        origin: Origin,
    },
}

impl Warning {
    /// The option that it is about.
    #[must_use]
    pub const fn origin(&self) -> &Origin {
        match self {
            Self::EmptyList { origin, .. }
            | Self::HostBits { origin, .. }
            | Self::NoEffect { origin, .. }
            | Self::SamePort { origin, .. }
            | Self::LocalResolver { origin, .. }
            | Self::WideExclusion { origin, .. }
            | Self::NameServersOfCaller { origin } => origin,
        }
    }

    /// The sentence for callers that name the option differently than the command line.
    #[must_use]
    pub fn calling(&self, name: &dyn Fn(&Origin) -> String) -> String {
        let name = name(self.origin());
        match self {
            Self::EmptyList { given, .. } => format!("{name}: {given:?} has no item and is treated as unset"),
            Self::HostBits { given, used, .. } => {
                format!("{name}: {given} has bits set beyond its prefix; {used} is used")
            }
            Self::NoEffect { reason, .. } => format!("{name} has no effect: {reason}"),
            Self::SamePort { port, other, effect, .. } => {
                format!("{name}: {port} is also the port of {other}: {effect}")
            }
            Self::LocalResolver { server, .. } => format!(
                "{name}: /etc/resolv.conf names the local resolver {server} (systemd-resolved or dnsmasq, for instance): if it runs in \
                 the pod, its own queries are captured, too, so that DNS loops; {}",
                Problem::DnsLoop.spec().fix
            ),
            Self::WideExclusion { ranges, .. } => format!("{name}: {ranges}"),
            Self::NameServersOfCaller { .. } => format!(
                "{name}: DNS capture takes the name servers from /etc/resolv.conf of the caller, not of the pod; --pid \
                 takes the pod's, --capture-all-dns needs none"
            ),
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.calling(&Origin::to_string))
    }
}
