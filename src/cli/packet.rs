//! The options of sub-commands that are none of a run: the packet of `explain`, the output format, the
//! actions of `guard`, the filters of `observe`.

use std::fmt;

/// The heading of options that name what is examined.
pub(super) const INPUT: &str = "Input";
/// The heading of options that name what `observe` reports.
pub(super) const OBSERVED: &str = "Connections";

const EXPECT: &str = "Exit with 1 unless this is the answer: captured or not-captured (with --to), or no-problem (with --live)";

/// An option of a sub-command, most of them of `explain`. None has a variable or a config key: these are
/// command-line options only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PacketKey {
    /// The sender.
    From,
    /// The destination.
    To,
    /// TCP or UDP.
    Proto,
    /// The source.
    Src,
    /// The interface that the packet arrives on.
    In,
    /// The interface that it leaves by.
    Out,
    /// The mark of the packet.
    Mark,
    /// The mark of its connection.
    Connmark,
    /// The state of its connection.
    State,
    /// The answer without which the exit code is 1.
    Expect,
    /// How the report is written.
    Output,
    /// Whether text has colours.
    Color,
    /// The recorded machine that it is about.
    Bundle,
    /// What `guard` does about a change.
    Action,
    /// The longest time between two comparisons of `guard`.
    Audit,
    /// The destinations whose connections `observe` reports.
    Range,
    /// The port whose connections it reports.
    Port,
    /// How long it observes.
    For,
    /// How many connections it reports.
    Count,
}

impl PacketKey {
    /// The options of `explain`, in the order of `--help`.
    pub const OF_EXPLAIN: [Self; 13] = [
        Self::From,
        Self::To,
        Self::Proto,
        Self::Src,
        Self::In,
        Self::Out,
        Self::Mark,
        Self::Connmark,
        Self::State,
        Self::Expect,
        Self::Output,
        Self::Color,
        Self::Bundle,
    ];

    /// Name of the flag, placeholder of its value, default, and one sentence for `--help`.
    const fn spec(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::From => (
                "from",
                "SENDER",
                "app",
                "Sender: app, proxy, outside, uid:N, gid:N, uid:N,gid:N, or kernel (a packet without a socket)",
            ),
            Self::To => (
                "to",
                "ADDRESS:PORT",
                "",
                "Destination, such as 10.0.0.1:443 or [2001:db8::1]:443; default: list every kind of traffic",
            ),
            Self::Proto => ("proto", "PROTOCOL", "tcp", "Protocol: tcp or udp"),
            Self::Src => {
                ("src", "ADDRESS[:PORT]", "", "Source; default: the one that the kernel would choose")
            }
            Self::In => ("in", "INTERFACE", "", "Interface on which a packet from outside arrives"),
            Self::Out => ("out", "INTERFACE", "", "Interface by which a packet of the pod leaves"),
            Self::Mark => ("mark", "NUMBER", "0", "Mark of the packet"),
            Self::Connmark => ("connmark", "NUMBER", "0", "Mark of the connection"),
            Self::State => (
                "state",
                "STATE",
                "new",
                "State of the connection: new (the first packet), established or invalid",
            ),
            Self::Expect => ("expect", "ANSWER", "", EXPECT),
            Self::Output => ("output", "FORMAT", "text", "Output format: text or json"),
            Self::Color => (
                "color",
                "WHEN",
                "auto",
                "Colours in text: auto (on a terminal, unless $NO_COLOR is set or $TERM is dumb), always or never",
            ),
            Self::Bundle => (
                "bundle",
                "FILE",
                "",
                "Report on the machine on which `istio-iptables bundle` wrote FILE; `-` reads standard input",
            ),
            Self::Action => (
                "action",
                "ACTION",
                "report",
                "What follows a change of the rules: report it, repair them, or also drop what they would capture until they are live again (lockdown)",
            ),
            Self::Audit => (
                "audit",
                "SECONDS",
                "30",
                "Longest time between two comparisons: finds changes that the kernel does not announce, such as those of iptables-legacy",
            ),
            Self::Range => ("to", "RANGE", "", "Only connections to this range, such as 10.0.0.0/8"),
            Self::Port => ("port", "PORT", "", "Only connections to this port"),
            Self::For => {
                ("for", "DURATION", "", "End after this time, such as 30s; default: when interrupted")
            }
            Self::Count => ("count", "NUMBER", "", "End after this many connections"),
        }
    }

    /// The values that the option accepts for any sub-command; empty if any text may be one.
    pub(super) const fn words(self) -> &'static [&'static str] {
        match self {
            Self::From => &["app", "proxy", "outside", "kernel"],
            Self::Proto => &["tcp", "udp"],
            Self::State => &["new", "established", "invalid"],
            Self::Expect => &["captured", "not-captured", "no-problem"],
            Self::Output => &["text", "json"],
            Self::Color => &["auto", "always", "never"],
            Self::Action => &["report", "repair", "lockdown"],
            Self::Audit
            | Self::To
            | Self::Src
            | Self::In
            | Self::Out
            | Self::Mark
            | Self::Connmark
            | Self::Bundle
            | Self::Range
            | Self::Port
            | Self::For
            | Self::Count => &[],
        }
    }

    /// Name of the flag, without dashes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.spec().0
    }

    /// Placeholder of its value.
    pub(super) const fn value_name(self) -> &'static str {
        self.spec().1
    }

    /// The value that counts if none is given; may be empty.
    #[must_use]
    pub const fn default(self) -> &'static str {
        self.spec().2
    }

    /// The heading of `--help` under which it is.
    pub(super) const fn heading(self) -> &'static str {
        match self {
            Self::Expect | Self::Output | Self::Color => "Output",
            Self::Bundle => INPUT,
            Self::Action | Self::Audit => "Guard",
            Self::Range | Self::Port | Self::For | Self::Count => OBSERVED,
            Self::From
            | Self::To
            | Self::Proto
            | Self::Src
            | Self::In
            | Self::Out
            | Self::Mark
            | Self::Connmark
            | Self::State => "Packet",
        }
    }

    /// The line of `--help` of a sub-command that accepts these values.
    pub(super) fn help(self, words: &[&str]) -> String {
        let (_, _, default, help) = self.spec();
        let more = if words.contains(&"mermaid") {
            "; with --to also mermaid; with --live or --bundle also html: a page about all traffic (the program \
             istio-iptables-report of the packages writes it)"
        } else {
            ""
        };
        if default.is_empty() { help.to_owned() } else { format!("{help}{more} [default: {default}]") }
    }
}

impl fmt::Display for PacketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--{}", self.name())
    }
}
