//! Which open TCP connections a run has to care for.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::connections::{self, Connections, Policy, Translated};
use crate::diff::marks_in_use;
use crate::kernel::conntrack::{self, Conntrack, ConntrackError, Entry, Filter, TcpState};
use crate::kernel::rtnetlink::Rtnetlink;
use crate::kernel::sock_diag::{self, InetSocket, State};
use crate::model::{Family, Mark, PASSTHROUGH_V6, PerFamily, Table, Transport};
use crate::ordered::Ordered as _;
use crate::parse::Observed;
use crate::plan::{CurrentState, DesiredState};
use crate::transition::saved_marks;

/// Looks at sockets if a family is captured for the first time, and at conntrack entries if one loses its rules.
pub(super) fn inspect(desired: &DesiredState, current: &CurrentState, policy: Policy) -> Connections {
    let wants = |family: &Family| desired.rules.get(family).is_some_and(|rules| !rules.tables.is_empty());
    let (gets, loses): (Vec<_>, Vec<_>) = Family::ALL.into_iter().partition(wants);
    let translated = translated(&loses, current);
    Connections {
        untracked: untracked(&gets, current),
        may_begin: may_begin(&translated, current, policy),
        translated,
        from_passthrough: from_passthrough(desired, current),
        marked: Family::ALL
            .into_iter()
            .filter_map(|family| Some((family, marked(family, desired, current)?)))
            .collect(),
        intercepted: intercepted(desired, current),
    }
}

/// Sockets for connections between other hosts that live TPROXY rules hand to the proxy, and the desired ones do not: without the
/// rules their packets go on to the host that they are for, which knows no such connection.
fn intercepted(desired: &DesiredState, current: &CurrentState) -> PerFamily<usize> {
    let loses = |family: &Family| {
        let wanted = desired.rules.get(family).is_some_and(|rules| saved_marks(rules).next().is_some());
        !wanted && !marks(current, *family).is_empty()
    };
    let mut counts = PerFamily::new();
    let families: Vec<Family> = Family::ALL.into_iter().filter(loses).collect();
    let Some(local) = (!families.is_empty()).then(local_addresses).flatten() else { return counts };
    let is_local = |address: IpAddr| address.is_loopback() || local.contains(&address);
    let sockets = sock_diag::tcp_sockets(&State::CONNECTED).unwrap_or_default();
    for socket in sockets {
        let [here, there] = [socket.local, socket.remote].map(|end| end.ip().to_canonical());
        let family = if here.is_ipv4() { Family::V4 } else { Family::V6 };
        if families.contains(&family) && !is_local(here) && !is_local(there) {
            *counts.or_default(family) += 1;
        }
    }
    counts
}

/// The addresses of this namespace; `None` if they cannot be listed.
fn local_addresses() -> Option<BTreeSet<IpAddr>> {
    let listed = Rtnetlink::open().and_then(|mut socket| socket.addresses());
    let listed = listed.inspect_err(|error| log::debug!("addresses cannot be listed: {error}")).ok()?;
    Some(listed.into_iter().map(|listed| listed.address).into_set())
}

/// The marks that live rules of ours store in connections or look for.
fn marks(current: &CurrentState, family: Family) -> BTreeSet<Mark> {
    let mangle = live(current, family).filter_map(|observed| observed.tables.get(&Table::Mangle));
    let native = current.native.concerns(family).then(|| current.native.marks());
    mangle.flat_map(marks_in_use).chain(native.into_iter().flatten()).into_set()
}

/// Sockets that use `::6`, if a run would take it away.
fn from_passthrough(desired: &DesiredState, current: &CurrentState) -> usize {
    if desired.network.passthrough || current.network.passthrough.is_none() {
        return 0;
    }
    let uses =
        |socket: &InetSocket| [socket.local, socket.remote].iter().any(|end| end.ip() == PASSTHROUGH_V6);
    let sockets = sock_diag::tcp_sockets(&State::CONNECTED).unwrap_or_default();
    sockets.iter().filter(|socket| uses(socket)).count()
}

/// Open connections with a mark of live rules that the desired state does not save any more; `None` if there are none.
fn marked(family: Family, desired: &DesiredState, current: &CurrentState) -> Option<usize> {
    let mut marks = marks(current, family);
    for mark in desired.rules.get(&family).into_iter().flat_map(saved_marks) {
        marks.remove(&mark);
    }
    if marks.is_empty() || conntrack::count_in_proc() == Some(0) {
        return None;
    }
    let filter = Filter { family, transport: Transport::Tcp, destination_port: None };
    let entries = Conntrack::open().ok()?.dump(&filter).ok()?;
    let count = entries.iter().filter(|entry| is_open(entry) && marks.contains(&Mark(entry.mark))).count();
    (count > 0).then_some(count)
}

/// Our live rules of a family, in either variant.
fn live(current: &CurrentState, family: Family) -> impl Iterator<Item = &Observed> {
    current.rules.iter().filter(move |((_, of), _)| *of == family).map(|(_, observed)| observed)
}

fn untracked(families: &[Family], current: &CurrentState) -> BTreeSet<Family> {
    let native = &current.native;
    let interrupted =
        |family: &Family| native.exempts(*family) || live(current, *family).any(connections::exempts);
    let first =
        |family: &Family| !native.captures(*family) && !live(current, *family).any(connections::captures);
    let mut untracked: BTreeSet<Family> = families.iter().copied().filter(interrupted).into_set();
    let first: Vec<Family> = families.iter().copied().filter(first).collect();
    if first.is_empty() {
        return untracked;
    }
    match sock_diag::families_in_use() {
        Ok(in_use) => untracked.extend(first.iter().filter(|family| in_use.contains(family))),
        Err(error) => log::warn!(
            "the TCP sockets of this namespace cannot be listed: {error}; a connection that is open now may be reset"
        ),
    }
    untracked
}

fn translated(families: &[Family], current: &CurrentState) -> PerFamily<Translated> {
    let ours =
        |family: &Family| current.native.concerns(*family) || live(current, *family).any(Observed::has_ours);
    let families = families.iter().copied().filter(ours);
    families.map(|family| (family, count(family, &ports(current, family)))).collect()
}

/// Families whose live rules capture: with a socket, of the proxy for instance, a connection can begin at any time. One that
/// is kept, or reported as reset, is known already if others are kept with it.
fn may_begin(translated: &PerFamily<Translated>, current: &CurrentState, policy: Policy) -> BTreeSet<Family> {
    let captures = |family: &Family| {
        current.native.captures(*family) || live(current, *family).any(connections::captures)
    };
    let open = |translated: &Translated| match policy {
        Policy::Keep => !translated.any(),
        // How many are reset is certain only when none can begin any more.
        Policy::Reset => true,
    };
    let families = translated.iter().filter(|(_, translated)| open(translated)).map(|(family, _)| *family);
    let mut families: BTreeSet<Family> = families.filter(captures).into_set();
    if !families.is_empty()
        && let Ok(in_use) = sock_diag::families_in_use()
    {
        families.retain(|family| in_use.contains(family));
    }
    families
}

fn ports(current: &CurrentState, family: Family) -> BTreeSet<u16> {
    let ports = live(current, family).flat_map(connections::redirect_ports);
    ports.chain(current.native.redirect_ports()).into_set()
}

fn count(family: Family, ports: &BTreeSet<u16>) -> Translated {
    // An empty table needs no request, which could load a module.
    if conntrack::count_in_proc() == Some(0) {
        return Translated::Count(0);
    }
    let filter = Filter { family, transport: Transport::Tcp, destination_port: None };
    let dump = || -> Result<Vec<Entry>, ConntrackError> { Ok(Conntrack::open()?.dump(&filter)?) };
    match dump() {
        Ok(entries) => {
            let local = local_addresses().unwrap_or_default();
            let redirected = |entry: &&Entry| is_open(entry) && is_redirected(entry, ports, &local);
            Translated::Count(entries.iter().filter(redirected).count())
        }
        Err(error) => {
            log::warn!("proxied {family} connections cannot be counted: {error}");
            Translated::Unknown
        }
    }
}

/// Connections that have ended need no translation.
const fn is_open(entry: &Entry) -> bool {
    !matches!(entry.tcp_state, Some(TcpState::TimeWait | TcpState::Close))
}

/// The ports to which live rules of ours redirect, in each family.
pub(super) fn redirect_ports(current: &CurrentState) -> PerFamily<BTreeSet<u16>> {
    Family::ALL.into_iter().map(|family| (family, ports(current, family))).collect()
}

/// Deletes the entries of the connections that a clean-up cut off, known by the port to which they were redirected: foreign rules
/// may redirect others. Connection tracking may stop with the rules, and would not see how they end: an entry would stay for
/// days, and translate the next connection on the same ports once there are rules again.
pub(super) fn delete_translated(cut_off: &Connections, ports: &PerFamily<BTreeSet<u16>>) {
    let families =
        cut_off.translated.iter().filter(|(_, translated)| translated.any()).map(|(family, _)| family);
    for (family, ports) in families.filter_map(|family| Some((*family, ports.get(family)?))) {
        let filter = Filter { family, transport: Transport::Tcp, destination_port: None };
        let is_ours = |entry: &Entry| {
            entry.status.destination_translated() && ports.contains(&entry.reply.source.port())
        };
        let delete =
            || -> Result<usize, ConntrackError> { Ok(Conntrack::open()?.delete_if(&filter, is_ours)?) };
        match delete() {
            Ok(count) => log::debug!("{count} deleted: conntrack entries of redirected {family} connections"),
            Err(error) => log::warn!("conntrack entries of redirected {family} connections stay: {error}"),
        }
    }
}

/// Whether a connection was sent to a port of this namespace, as REDIRECT does: to a port of ours, to an address of its
/// own, or to another port of the address that it was for. Earlier options may have had other ports, and where a run has
/// ended capture already none is known.
fn is_redirected(entry: &Entry, ports: &BTreeSet<u16>, local: &BTreeSet<IpAddr>) -> bool {
    let server = entry.reply.source;
    entry.status.destination_translated()
        && (ports.contains(&server.port())
            || server.ip().is_loopback()
            || local.contains(&server.ip())
            || server.ip() == entry.original.destination.ip())
}
