//! The packet that `explain` is asked about.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::cli::{Given, Heading, Key, Origin, PacketKey, RawOptions, SubCommand};
use crate::facts::{self, Files, NameServers};
use crate::model::{Interface, Mark, Transport};

use super::error::{ConfigError, Expected};
use super::values;

/// The sender of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A process that runs neither as a user nor as a group of the proxy.
    App,
    /// A process of this group.
    Gid(u32),
    /// The kernel itself: a packet that no socket sends.
    Kernel,
    /// A host outside the pod.
    Outside,
    /// A process of this user and this group.
    Process {
        /// Its user.
        uid: u32,
        /// Its group.
        gid: u32,
    },
    /// The proxy: the first of its users and of its groups.
    Proxy,
    /// A process of this user.
    Uid(u32),
}

/// What conntrack makes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// It belongs to a connection that is there.
    Established,
    /// It fits no connection.
    Invalid,
    /// It is the first packet of a connection.
    New,
}

impl ConnectionState {
    /// The name in `--ctstate`.
    #[must_use]
    pub const fn conntrack_name(self) -> &'static str {
        match self {
            Self::Established => "ESTABLISHED",
            Self::Invalid => "INVALID",
            Self::New => "NEW",
        }
    }
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// For programs: one JSON object.
    Json,
    /// For people.
    Text,
}

/// Whether an answer has colours.
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

/// A packet, as far as it is described.
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
    /// Its mark.
    pub mark: Mark,
    /// The mark of its connection.
    pub connmark: Mark,
    /// The state of its connection.
    pub state: ConnectionState,
    /// How the answer is written.
    pub output: Output,
    /// The diagram in which it is written, in the place of text.
    pub diagram: Option<Diagram>,
    /// Whether it is about the rules in the kernel, not about those of the options.
    pub live: bool,
}

/// A language for diagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Diagram {
    /// That of Graphviz.
    Dot,
    /// That of Mermaid.
    Mermaid,
}

/// What a bundle has besides what is read from the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleContext {
    /// The options in force that answers depend on.
    pub options: Vec<(Key, Given)>,
    /// The lines of files that they refer to.
    pub files: Files,
}

/// A question about the live rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// All that answers depend on, to be answered elsewhere.
    Bundle(Box<BundleContext>),
    /// How they differ from those of the options.
    Check(Output),
    /// What they have counted.
    Show {
        /// How the answer is written.
        output: Output,
        /// Again and again, with rates.
        watch: bool,
    },
}

/// Reads the option about colours, of all sub-commands that have it. Only text has any.
pub(super) fn read_color(raw: &RawOptions, errors: &mut Vec<ConfigError>) -> Color {
    if !raw.command.own_options().contains(&PacketKey::Color) {
        return Color::Never;
    }
    let color = Reader { raw, errors }.value(PacketKey::Color, color).unwrap_or_default();
    if raw.packet(PacketKey::Output) == "text" { color } else { Color::Never }
}

/// Reads the options of `check` and `show`.
pub(super) fn question(raw: &RawOptions, files: &Files, errors: &mut Vec<ConfigError>) -> Option<Question> {
    match raw.command {
        SubCommand::Bundle => Some(Question::Bundle(Box::new(context(raw, files)))),
        SubCommand::Check => Reader { raw, errors }.value(PacketKey::Output, output).map(Question::Check),
        SubCommand::Show => {
            let output = Reader { raw, errors }.value(PacketKey::Output, output)?;
            Some(Question::Show { output, watch: raw.watch })
        }
        SubCommand::Apply
        | SubCommand::Cleanup
        | SubCommand::Completions
        | SubCommand::Diff
        | SubCommand::Explain
        | SubCommand::Man => None,
    }
}

/// Options that answers depend on, and what they refer to in files: nothing else of these leaves the machine.
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

/// Two rule sets to be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffQuery {
    /// `options`, `live` or a path, twice.
    pub sides: [String; 2],
    /// How the answer is written.
    pub output: Output,
    /// Files of the pod, for options in a file.
    pub files: Files,
}

/// Reads the options of `diff`.
pub(super) fn read_diff(raw: &RawOptions, files: &Files, errors: &mut Vec<ConfigError>) -> Option<DiffQuery> {
    let output = Reader { raw, errors }.value(PacketKey::Output, output)?;
    Some(DiffQuery { sides: *raw.compared.clone()?, output, files: files.clone() })
}

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
    let diagram = diagram(raw.packet(PacketKey::Output));
    let output = if diagram.is_some() { Some(Output::Text) } else { reader.value(PacketKey::Output, output) };
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
    if diagram.is_some() && destination.is_none() {
        reader.refuse(
            PacketKey::Output,
            Expected::new("text or json without a packet: add --to for a diagram"),
        );
        return None;
    }
    let sender = sender?;
    let useless = if sender == Sender::Outside { PacketKey::Out } else { PacketKey::In };
    for key in [useless, PacketKey::Src].into_iter().filter(|key| !raw.packet(*key).is_empty()) {
        if key == useless {
            let (from, other) =
                (raw.packet(PacketKey::From), if sender == Sender::Outside { "--in" } else { "--out" });
            let hint = "--in is for --from outside, --out for the other senders";
            reader.refuse(key, Expected::new(format!("{other} for a packet from {from}")).hint(hint));
            return None;
        } else if destination.is_none() {
            reader.refuse(key, Expected::new("--to beside it: the source of one packet"));
            return None;
        }
    }
    Some(PacketQuery {
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
        output: output?,
        diagram,
        live: raw.live || !raw.packet(PacketKey::Bundle).is_empty(),
    })
}

struct Reader<'a> {
    raw: &'a RawOptions,
    errors: &'a mut Vec<ConfigError>,
}

impl Reader<'_> {
    fn refuse(&mut self, key: PacketKey, expected: Expected) {
        let given = self.raw.packet(key).to_owned();
        self.errors.push(ConfigError::Value { origin: Origin::Packet(key), given, expected });
    }

    /// One value; `None` after an error.
    fn value<T>(&mut self, key: PacketKey, parse: impl Fn(&str) -> Result<T, Expected>) -> Option<T> {
        parse(self.raw.packet(key)).map_err(|expected| self.refuse(key, expected)).ok()
    }

    /// One value that may be missing; `None` on the outside after an error.
    #[allow(clippy::option_option, reason = "the two levels differ, as documented above")]
    fn optional<T>(
        &mut self,
        key: PacketKey,
        parse: impl Fn(&str) -> Result<T, Expected>,
    ) -> Option<Option<T>> {
        if self.raw.packet(key).is_empty() { Some(None) } else { self.value(key, parse).map(Some) }
    }
}

fn sender(text: &str) -> Result<Sender, Expected> {
    let number = |id: &str| values::id(id).map_err(|_| senders());
    match text.split_once(':') {
        None => match text {
            "app" => Ok(Sender::App),
            "proxy" => Ok(Sender::Proxy),
            "outside" => Ok(Sender::Outside),
            "kernel" => Ok(Sender::Kernel),
            _ => Err(senders()),
        },
        Some(("uid", ids)) => match ids.split_once(",gid:") {
            Some((uid, gid)) => Ok(Sender::Process { uid: number(uid)?, gid: number(gid)? }),
            None => number(ids).map(Sender::Uid),
        },
        Some(("gid", id)) => number(id).map(Sender::Gid),
        Some(_) => Err(senders()),
    }
}

fn senders() -> Expected {
    Expected::new(
        "app, proxy, outside, kernel, uid:N, gid:N or uid:N,gid:N with numbers from 0 to 4294967294",
    )
}

fn destination(text: &str) -> Result<SocketAddr, Expected> {
    let expected = || Expected::new("ADDRESS:PORT, such as 10.0.0.1:443 or [2001:db8::1]:443");
    match text.parse::<SocketAddr>() {
        Ok(to) if to.port() != 0 => Ok(SocketAddr::new(as_the_kernel_takes(to.ip()), to.port())),
        Ok(_) => Err(expected().hint("no connection goes to port 0")),
        Err(_) if text.parse::<IpAddr>().is_ok() => Err(expected().hint("add the port")),
        Err(_) if text.contains(|c: char| c.is_ascii_alphabetic()) && !text.contains("::") => {
            Err(expected().hint("names are not resolved: give the address"))
        }
        Err(_) => Err(expected()),
    }
}

/// An IPv4 address in IPv6 form is one of IPv4, and the unspecified one is the machine itself.
fn as_the_kernel_takes(address: IpAddr) -> IpAddr {
    let address = address.to_canonical();
    if !address.is_unspecified() {
        return address;
    }
    if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() }
}

fn source(text: &str) -> Result<(IpAddr, Option<u16>), Expected> {
    let with_port = |socket: SocketAddr| (socket.ip(), Some(socket.port()));
    let alone = || text.parse().map(|address| (address, None));
    let expected = "ADDRESS or ADDRESS:PORT, such as 10.0.0.1, 10.0.0.1:40000 or [2001:db8::1]:40000";
    text.parse().map(with_port).or_else(|_| alone()).map_err(|_| Expected::new(expected))
}

fn transport(text: &str) -> Result<Transport, Expected> {
    match text.to_ascii_lowercase().as_str() {
        "tcp" => Ok(Transport::Tcp),
        "udp" => Ok(Transport::Udp),
        _ => Err(Expected::new("tcp or udp").hint("nothing else is ever captured")),
    }
}

fn interface(text: &str) -> Result<String, Expected> {
    let name: Interface = values::interface(text)?;
    match name.as_str() {
        pattern if pattern.ends_with('+') => Err(Expected::new("the name of one interface, without `+`")),
        name => Ok(name.to_owned()),
    }
}

fn mark(text: &str) -> Result<Mark, Expected> {
    values::number(text)
        .map(Mark)
        .ok_or_else(|| Expected::new("a number from 0 to 4294967295, decimal or 0x…"))
}

fn state(text: &str) -> Result<ConnectionState, Expected> {
    match text.to_ascii_lowercase().as_str() {
        "new" => Ok(ConnectionState::New),
        "established" => Ok(ConnectionState::Established),
        "invalid" => Ok(ConnectionState::Invalid),
        _ => Err(Expected::new("new, established or invalid")),
    }
}

fn color(text: &str) -> Result<Color, Expected> {
    match text {
        "always" => Ok(Color::Always),
        "auto" => Ok(Color::Auto),
        "never" => Ok(Color::Never),
        _ => Err(Expected::new("auto, always or never")),
    }
}

fn diagram(text: &str) -> Option<Diagram> {
    match text {
        "dot" => Some(Diagram::Dot),
        "mermaid" => Some(Diagram::Mermaid),
        _ => None,
    }
}

fn output(text: &str) -> Result<Output, Expected> {
    match text {
        "text" => Ok(Output::Text),
        "json" => Ok(Output::Json),
        _ => Err(Expected::new("text or json")),
    }
}
