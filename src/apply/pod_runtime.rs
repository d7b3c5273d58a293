//! Sockets, processes and connections of the network namespace, for `explain --live`. What cannot be read is
//! reported.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};

use super::bpf_programs;
use crate::config::{CaptureConfig, Dns, ProxyOwner};
use crate::explain::{
    Connection, Listener, Process as Owner, RunningProcess as Process, Runtime, TranslatedServer,
};
use crate::kernel::conntrack::{self, Conntrack, ConntrackError, Entry, Filter};
use crate::kernel::idmap::OwnerIds;
use crate::kernel::processes::{self, Owners};
use crate::kernel::recording;
use crate::kernel::sock_diag::{self, InetSocket, State};
use crate::kernel::socket_destination::destination_of_socket;
use crate::model::{DNS_PORT, Family, FamilyRules, Network, PerFamily, TableRules, Transport};
use crate::ordered::Ordered as _;
use crate::text::one_line;

/// What is found, and what could not be read.
#[must_use]
pub fn runtime(
    own: &PerFamily<FamilyRules>,
    config: &CaptureConfig,
    network: &Network,
) -> (Runtime, Vec<String>) {
    let mut unread = Vec::new();
    let ids = OwnerIds::read().unwrap_or_else(|error| {
        unread.push(format!(
            "uids and gids of sockets and processes may differ from those in the rules: {error}"
        ));
        OwnerIds::default()
    });
    let tcp = sock_diag::tcp_sockets(&[State::Listen]);
    let listeners = tcp.and_then(|tcp| Ok((tcp, sock_diag::udp_listeners()?)));
    let listeners =
        listeners.map_err(|error| unread.push(format!("the sockets cannot be listed: {error}"))).ok();
    let inodes = listeners.as_ref().map(|(tcp, _)| inodes(tcp, own)).unwrap_or_default();
    let found = in_network_namespace(&ids, &mut unread);
    let tcp = || listeners.iter().flat_map(|(tcp, _)| tcp);
    let udp = listeners.iter().flat_map(|(_, udp)| udp);
    let waiting: Vec<u32> = tcp().chain(udp).map(|socket| socket.inode).collect();
    let owners = Owners::of(&found.found, &waiting);
    unread.extend(hidden(tcp(), &owners));
    let (processes, captured_proxy) = exempt(&config.traffic.proxy, (&inodes, &owners), &found, &mut unread);
    let declared_ports = processes::declared_ports(processes.iter().map(|process| process.pid));
    let connections = connections(network, &ids).unwrap_or_else(|error| {
        unread.push(format!("which open connections are captured is not known: {error}"));
        Vec::new()
    });
    // A socket of another user than its process is one that the process had before it changed its user.
    let is_its = |proxy: &Owner, socket: &InetSocket| {
        inodes.contains(&socket.inode) && ids.uid(socket.uid) == proxy.uid
    };
    let captured_proxy = captured_proxy.filter(|proxy| tcp().any(|socket| is_its(proxy, socket)));
    let of_app = |socket: &&InetSocket| {
        let owner = owner(socket, &owners, &found.found, &ids)?;
        let is_of_proxy = captured_proxy == Some(owner) || inodes.contains(&socket.inode);
        let is_exempt = is_of_proxy || config.traffic.proxy.exempts(owner.uid, owner.gid);
        (!is_exempt).then_some((socket.local.port(), owner))
    };
    let app = tcp().filter_map(|socket| of_app(&socket)).min_by_key(|(port, _)| *port).map(|(_, app)| app);
    let listeners = listeners.map(|(tcp, udp)| {
        let of = |transport: Transport| {
            let (ids, owners, processes) = (&ids, &owners, &processes);
            move |socket: InetSocket| {
                let is_its = |process: &Process| owners.has_one(process.pid, &[socket.inode]);
                let is_exempt = processes.iter().any(is_its);
                Listener { is_exempt, ..listener(transport, socket, ids) }
            }
        };
        tcp.into_iter().map(of(Transport::Tcp)).chain(udp.into_iter().map(of(Transport::Udp))).collect()
    });
    let mut programs = bpf_programs::at_sockets(&found.found, &mut unread);
    programs.extend(bpf_programs::of_network_namespace());
    let runtime = Runtime {
        listeners,
        processes,
        captured_proxy,
        app,
        declared_ports,
        connections,
        translated_servers: translated_servers(config),
        programs,
        ..Runtime::default()
    };
    (runtime, unread)
}

/// The note that processes cannot be seen: those of another container, which may be the proxy or run as it.
fn hidden<'a>(sockets: impl Iterator<Item = &'a InetSocket>, owners: &Owners) -> Option<String> {
    let ports = sockets.filter(|socket| owners.is_hidden(socket.inode)).map(|socket| socket.local.port());
    let ports: Vec<String> = ports.into_set().iter().map(u16::to_string).collect();
    let note = || {
        format!(
            "the processes that listen on TCP ports {} are in another PID namespace, where they are not visible: whether one runs with a uid \
             or gid of the proxy is not known; `kubectl debug` with --target=CONTAINER shows those of this container, --pid on the node all",
            ports.join(", ")
        )
    };
    (!ports.is_empty()).then(note)
}

/// The user and the group of a socket's process; without a visible one that of the socket, unless that is
/// root, as which a proxy may run.
fn owner(
    socket: &InetSocket,
    owners: &Owners,
    found: &[processes::Process],
    ids: &OwnerIds,
) -> Option<Owner> {
    let process = found.iter().find(|process| owners.has_one(process.pid, &[socket.inode]));
    let by_socket = || Some(ids.uid(socket.uid)).filter(|uid| *uid != 0).map(|uid| Owner { uid, gid: uid });
    process.map(|process| Owner { uid: process.uid, gid: process.gid }).or_else(by_socket)
}

/// The sockets that wait for TCP connections; `None` if they cannot be listed.
#[must_use]
pub fn tcp_listeners() -> Option<Vec<Listener>> {
    let listed = sock_diag::tcp_sockets(&[State::Listen]);
    let sockets = listed.inspect_err(|error| log::debug!("the sockets cannot be listed: {error}")).ok()?;
    let ids = OwnerIds::read().unwrap_or_default();
    Some(sockets.into_iter().map(|socket| listener(Transport::Tcp, socket, &ids)).collect())
}

fn listener(transport: Transport, socket: InetSocket, ids: &OwnerIds) -> Listener {
    let InetSocket { local, uid, is_transparent, device, is_v6_only, is_mptcp, is_full, .. } = socket;
    // Java binds its sockets of IPv6 to `::ffff:10.1.0.2` where a program asks for an IPv4 address.
    let address = SocketAddr::new(local.ip().to_canonical(), local.port());
    let uid = ids.uid(uid);
    let is_exempt = false;
    Listener { transport, address, uid, is_exempt, is_transparent, device, is_v6_only, is_mptcp, is_full }
}

/// The name servers that no query reaches the rules for. Where the kernel does not say, there is none.
#[must_use]
pub fn translated_servers(config: &CaptureConfig) -> Vec<TranslatedServer> {
    let Dns::Servers { v4, v6 } = &config.dns else { return Vec::new() };
    let v4 = v4.iter().copied().map(IpAddr::V4).filter(|_| config.families.contains(Family::V4));
    let v6 = v6.iter().copied().map(IpAddr::V6).filter(|_| config.families.contains(Family::V6));
    let of = |server: IpAddr| {
        let server = SocketAddr::new(server, DNS_PORT.number());
        let to = destination_of_socket(server).ok()?;
        (to != server).then_some(TranslatedServer { server, to })
    };
    v4.chain(v6).filter_map(of).collect()
}

/// The listeners that rules hand packets to.
fn inodes(listeners: &[InetSocket], own: &PerFamily<FamilyRules>) -> Vec<u32> {
    let rules = own.values().flat_map(|rules| rules.tables.values()).flat_map(TableRules::rules);
    let ports = rules
        .map(|rule| rule.statement.target)
        .filter_map(|target| Some(target.redirect().or(target.tproxy())?.number()))
        .into_set();
    let wanted = listeners.iter().filter(|socket| ports.contains(&socket.local.port()));
    wanted.map(|socket| socket.inode).collect()
}

/// With their ids in the rules.
fn in_network_namespace(ids: &OwnerIds, unread: &mut Vec<String>) -> processes::Processes {
    let mut all = processes::in_network_namespace().unwrap_or_else(|error| {
        unread.push(format!("the processes cannot be listed: {error}"));
        processes::Processes::default()
    });
    for process in all.found.iter_mut().chain(&mut all.unreadable) {
        (process.uid, process.gid) = (ids.uid(process.uid), ids.gid(process.gid));
    }
    all
}

/// The processes that are exempt from capture, and the proxy, if it is none of them nor in a container with
/// one: a master process of root may bind the sockets of its workers.
fn exempt(
    proxy: &ProxyOwner,
    (listeners, owners): (&[u32], &Owners),
    processes::Processes { found, unreadable }: &processes::Processes,
    unread: &mut Vec<String>,
) -> (Vec<Process>, Option<Owner>) {
    let is_exempt = |process: &&processes::Process| proxy.exempts(process.uid, process.gid);
    let may_be_exempt = unreadable.iter().filter(is_exempt);
    unread.extend(may_be_exempt.map(|process| {
        let processes::Process { pid, name, uid, gid, .. } = process;
        format!(
            "process {pid} ({}) runs as uid {uid}, gid {gid}: whether in this network namespace cannot be read without CAP_SYS_PTRACE \
             in its user namespace",
            one_line(name)
        )
    }));
    let exempt: Vec<_> = found.iter().filter(is_exempt).collect();
    // The proxy may run as another user than rules exempt.
    let is_listening = |one: &&processes::Process| owners.has_one(one.pid, listeners);
    let listening = exempt.iter().copied().find(is_listening).or_else(|| found.iter().find(is_listening));
    let captured = listening.filter(|proxy| exempt.iter().all(|one| one.mounts != proxy.mounts));
    let captured = captured.map(|proxy| Owner { uid: proxy.uid, gid: proxy.gid });
    let container = listening.and_then(|process| process.mounts.clone());
    // What is visible shares no container with a proxy that is not.
    let is_hidden = listening.is_none() && listeners.iter().any(|inode| owners.is_hidden(*inode));
    let of = |process: &processes::Process| {
        let processes::Process { pid, name, uid, gid, mounts } = process.clone();
        let is_proxy = container.as_ref().zip(mounts.as_ref()).map(|(container, mounts)| container == mounts);
        let is_proxy = is_proxy.or_else(|| is_hidden.then_some(false));
        Process { pid, name, uid, gid, is_proxy }
    };
    (exempt.into_iter().map(of).collect(), captured)
}

/// The open connections with other hosts whose destination is not translated. Of half-closed ones that is not
/// known: their conntrack entry may have ended before them, and what its process has closed has no user.
fn connections(network: &Network, ids: &OwnerIds) -> io::Result<Vec<Connection>> {
    let line = |Connection { local, remote, uid }: &Connection| format!("{local} {remote} {uid}\n");
    let text = recording::text("connections that are not translated", &mut || {
        let found = untranslated(network).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(found.iter().map(line).collect())
    })?;
    let connection = |line: &str| {
        let mut words = line.split(' ');
        Some(Connection {
            local: words.next()?.parse().ok()?,
            remote: words.next()?.parse().ok()?,
            uid: ids.uid(words.next()?.parse().ok()?),
        })
    };
    Ok(text.lines().filter_map(connection).collect())
}

fn untranslated(network: &Network) -> Result<Vec<Connection>, ConntrackError> {
    let is_own = |socket: &InetSocket| {
        let address = socket.remote.ip();
        address.is_loopback() || network.addresses.iter().any(|own| own.address == address)
    };
    let mut sockets = sock_diag::tcp_sockets(&[State::Established])?;
    sockets.retain(|socket| !is_own(socket));
    // An empty table needs no request, which could load a module.
    if !sockets.is_empty() && conntrack::count_in_proc() != Some(0) {
        let translated = translated()?;
        sockets.retain(|socket| !translated.contains(&(socket.local, socket.remote)));
    }
    let of = |socket: &InetSocket| Connection { local: socket.local, remote: socket.remote, uid: socket.uid };
    Ok(sockets.iter().map(of).collect())
}

/// The ends of the sockets of connections of which another destination was made: those of the client, and
/// those of the server that got them.
fn translated() -> Result<BTreeSet<(SocketAddr, SocketAddr)>, ConntrackError> {
    let entries = Conntrack::open()?.dump(Filter::TranslatedTcp)?;
    let ends = |entry: &Entry| [entry.original, entry.reply].map(|tuple| (tuple.source, tuple.destination));
    Ok(entries.iter().flat_map(ends).into_set())
}
