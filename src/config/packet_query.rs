//! The packet that `explain` is asked about.

use std::net::{IpAddr, SocketAddr};

use crate::cli::{PacketKey, RawOptions};
use crate::model::{Mark, Transport};

use super::error::{ConfigError, Expected};
use super::packet_values::{
    ConnectionState, Sender, destination, interface, mark, sender, source, state, transport,
};
use super::question::{Output, Reader, output};

/// A packet, as far as the options describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketQuery {
    /// The sender.
    pub sender: Sender,
    /// The destination; `None` asks for all kinds of traffic.
    pub destination: Option<SocketAddr>,
    /// TCP or UDP.
    pub transport: Transport,
    /// Source address.
    pub source: Option<IpAddr>,
    /// Source port.
    pub source_port: Option<u16>,
    /// The interface that it arrives on.
    pub in_interface: Option<String>,
    /// The interface that it leaves by.
    pub out_interface: Option<String>,
    /// The mark of the packet.
    pub mark: Mark,
    /// The mark of its connection.
    pub connmark: Mark,
    /// The state of its connection.
    pub state: ConnectionState,
    /// The answer without which the exit code is 1.
    pub expected: Option<Answer>,
    /// How the report is written.
    pub output: Output,
    /// Whether it is written as a Mermaid diagram, in the place of text.
    pub is_diagram: bool,
    /// Whether it is about the rules in the kernel, not about those of the options.
    pub live: bool,
}

/// What a script expects of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The packet gets to the proxy, for certain and without a problem.
    Captured,
    /// The packet gets to its destination, for certain and without a problem.
    NotCaptured,
    /// Nothing is wrong: with the packet, or with the pod.
    NoProblem,
}

/// What describes one packet besides its destination.
const OF_ONE_PACKET: [PacketKey; 8] = [
    PacketKey::From,
    PacketKey::Proto,
    PacketKey::Src,
    PacketKey::In,
    PacketKey::Out,
    PacketKey::Mark,
    PacketKey::Connmark,
    PacketKey::State,
];

/// Reads the options of `explain`.
pub(super) fn read(raw: &RawOptions, errors: &mut Vec<ConfigError>) -> Option<PacketQuery> {
    let mut reader = Reader { raw, errors };
    let sender = reader.value(PacketKey::From, sender);
    let destination = reader.optional(PacketKey::To, destination);
    let transport = reader.value(PacketKey::Proto, transport);
    let source = reader.optional(PacketKey::Src, source);
    let interfaces = [PacketKey::In, PacketKey::Out].map(|key| reader.optional(key, interface));
    let marks = [PacketKey::Mark, PacketKey::Connmark].map(|key| reader.value(key, mark));
    let state = reader.value(PacketKey::State, state);
    let form = form(&mut reader);
    let expected = expected(&mut reader);
    let ([in_interface, out_interface], [mark, connmark]) = (interfaces, marks);
    let (destination, source) = (destination?, source?);
    if let (Some(to), Some((from, _))) = (destination, source)
        && to.is_ipv4() != from.is_ipv4()
    {
        let expected =
            Expected::new(format!("an address of the same family as the destination, {}", to.ip()));
        reader.refuse(PacketKey::Src, expected);
        return None;
    }
    let ((output, is_diagram), sender) = (form?, sender?);
    let useless = if sender == Sender::Outside { PacketKey::Out } else { PacketKey::In };
    if raw.has_packet(useless) {
        let (from, other) =
            (raw.packet(PacketKey::From), if sender == Sender::Outside { "--in" } else { "--out" });
        let hint = "--in is for --from outside, --out for the other senders";
        reader.refuse(useless, Expected::new(format!("{other} for a packet from {from}")).hint(hint));
        return None;
    }
    let query = PacketQuery {
        sender,
        destination,
        transport: transport?,
        source: source.map(|(address, _)| address),
        source_port: source.and_then(|(_, port)| port),
        in_interface: in_interface?,
        out_interface: out_interface?,
        mark: mark?,
        connmark: connmark?,
        state: state?,
        expected: expected?,
        output,
        is_diagram,
        live: is_live(raw),
    };
    if destination.is_none()
        && let Some(key) = OF_ONE_PACKET.into_iter().find(|key| raw.has_packet(*key))
    {
        let expected = Expected::new("--to as well: it describes one packet");
        reader.refuse(key, expected.hint("without --to, every kind of traffic is listed"));
        return None;
    }
    Some(query)
}

/// How the report is written, and whether as a diagram.
fn form(reader: &mut Reader<'_>) -> Option<(Output, bool)> {
    let raw = reader.raw;
    let is_about_all = raw.packet(PacketKey::To).is_empty();
    match raw.packet(PacketKey::Output) {
        "mermaid" if is_about_all => {
            let expected = Expected::new("text or json without a packet: add --to for a diagram");
            reader.refuse(PacketKey::Output, expected);
            None
        }
        "mermaid" => Some((Output::Text, true)),
        "html" if !is_about_all || !is_live(raw) => {
            let expected = Expected::new("text or json for this question");
            let hint = "html is for explain --live (or --bundle) about all traffic, without --to";
            reader.refuse(PacketKey::Output, expected.hint(hint));
            None
        }
        // The program `istio-iptables-report` writes the page from the values of the same report.
        "html" => Some((Output::Text, false)),
        _ => reader.value(PacketKey::Output, packet_output).map(|output| (output, false)),
    }
}

/// The expected answer, which has to be one to this question; `None` on the outside after an error.
#[allow(clippy::option_option, reason = "the two levels differ, as documented above")]
fn expected(reader: &mut Reader<'_>) -> Option<Option<Answer>> {
    let raw = reader.raw;
    let is_about_all = raw.packet(PacketKey::To).is_empty();
    let (answer, other) = match raw.packet(PacketKey::Expect) {
        "" => return Some(None),
        _ if raw.packet(PacketKey::Output) == "html" => (None, "no page: --output text or json"),
        "captured" if !is_about_all => (Some(Answer::Captured), ""),
        "not-captured" if !is_about_all => (Some(Answer::NotCaptured), ""),
        "captured" | "not-captured" => (None, "no-problem without --to: this is an answer about one packet"),
        "no-problem" if is_live(raw) => (Some(Answer::NoProblem), ""),
        "no-problem" => (None, "--live or --bundle as well: without it, problems are not looked for"),
        _ => (None, "captured, not-captured or no-problem"),
    };
    if answer.is_none() {
        reader.refuse(PacketKey::Expect, Expected::new(other));
    }
    answer.map(Some)
}

fn is_live(raw: &RawOptions) -> bool {
    raw.live || !raw.packet(PacketKey::Bundle).is_empty()
}

fn packet_output(text: &str) -> Result<Output, Expected> {
    output(text).map_err(|_| Expected::new("text or json, with --to also mermaid, with --live also html"))
}
