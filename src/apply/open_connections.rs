//! The open TCP connections that a run must keep alive.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::connections::local_sockets::{LocalSockets, local_addresses};
use crate::connections::transition::saved_marks;
use crate::connections::{self, Connections, Exemption, Policy, Translated};
use crate::kernel::conntrack::{self, Change, Conntrack, ConntrackError, Entry, Filter, TcpState};
use crate::kernel::sock_diag::{self, InetSocket, State};
use crate::model::{Family, Mark, PASSTHROUGH_V6, PerFamily, Table};
use crate::ordered::Ordered as _;
use crate::parse::Observed;
use crate::plan::{CurrentState, DesiredState};
use crate::reconcile::marks_in_use;

/// When connections are counted that a clean-up resets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counting {
    /// At once: a dry run reports them as they are.
    Now,
    /// Not before none can begin any more. Until then the number decides nothing.
    OnceCertain,
}

/// Looks at sockets if a family is captured for the first time, and at conntrack entries if one loses its
/// rules.
pub(super) fn inspect(
    desired: &DesiredState,
    current: &CurrentState,
    policy: Policy,
    counting: Counting,
) -> Connections {
    // A sandbox has no match that could exempt open connections, and keeps the path of those that began under
    // rules.
    if current.is_sandbox {
        return Connections::default();
    }
    let wants = |family: &Family| desired.rules.get(family).is_some_and(|rules| !rules.tables.is_empty());
    let (gets, loses): (Vec<_>, Vec<_>) = Family::ALL.into_iter().partition(wants);
    let ours =
        |family: &Family| current.native.concerns(*family) || live(current, *family).any(Observed::has_ours);
    let loses: BTreeSet<Family> = loses.into_iter().filter(ours).into_set();
    let (translated, may_begin) = match policy {
        // Where connections are kept, those that have some already need no second look.
        Policy::Keep => {
            let translated = translated(&loses, current);
            let none = translated.iter().filter(|(_, translated)| !translated.any());
            let may_begin = may_begin(none.map(|(family, _)| *family).into_set(), current);
            (translated, may_begin)
        }
        Policy::Reset => {
            let may_begin = may_begin(loses.clone(), current);
            let is_certain = |family: &Family| counting == Counting::Now || !may_begin.contains(family);
            let (certain, later): (BTreeSet<_>, BTreeSet<_>) = loses.into_iter().partition(is_certain);
            let mut translated = translated(&certain, current);
            translated.extend(later.into_iter().map(|family| (family, Translated::Unknown)));
            (translated, may_begin)
        }
    };
    Connections {
        untracked: untracked(&gets, current),
        may_begin,
        translated,
        from_passthrough: from_passthrough(desired, current),
        marked: marked(desired, current),
        intercepted: intercepted(desired, current),
    }
}

/// Sockets for connections between other hosts that live TPROXY rules hand to the proxy, and the desired ones
/// do not: without the rules their packets go on to the host that they are for, which knows no such
/// connection.
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

/// Open connections of the proxy, under the address of another host, with a mark of live rules that the
/// desired state does not save any more, in each family that has some. While rules change, others can get the
/// mark, which is cleared again.
fn marked(desired: &DesiredState, current: &CurrentState) -> PerFamily<usize> {
    let mut counts = PerFamily::new();
    let leaving = |family: Family| {
        let mut marks = marks(current, family);
        for mark in desired.rules.get(&family).into_iter().flat_map(saved_marks) {
            marks.remove(&mark);
        }
        marks.into_iter().map(move |mark| (family, mark)).collect::<Vec<_>>()
    };
    let leaving: BTreeSet<(Family, Mark)> = Family::ALL.into_iter().flat_map(leaving).into_set();
    let mut marked = Vec::new();
    for mark in leaving.iter().map(|(_, mark)| *mark).into_set() {
        let Ok(entries) = entries(Filter::MarkedTcp(mark.0)) else { return counts };
        let is_leaving = |entry: &Entry| is_open(entry) && leaving.contains(&(entry.family, mark));
        marked.extend(entries.into_iter().filter(is_leaving));
    }
    if marked.is_empty() {
        return counts;
    }
    let local = local_addresses().unwrap_or_default();
    let mut sockets = LocalSockets::list().ok();
    for entry in marked.iter().filter(|entry| !local.contains(&entry.original.source.ip())) {
        let began_here = sockets.as_mut().is_none_or(|sockets| sockets.began(entry).unwrap_or(true));
        if began_here {
            *counts.or_default(entry.family) += 1;
        }
    }
    counts
}

/// The entries that a filter admits. An empty table needs no request, which could load a module.
fn entries(filter: Filter) -> Result<Vec<Entry>, ConntrackError> {
    if conntrack::count_in_proc() == Some(0) {
        return Ok(Vec::new());
    }
    Ok(Conntrack::open()?.dump(filter)?)
}

/// Our live rules of a family, in either variant.
fn live(current: &CurrentState, family: Family) -> impl Iterator<Item = &Observed> {
    current.rules.iter().filter(move |((_, of), _)| *of == family).map(|(_, observed)| observed)
}

fn untracked(families: &[Family], current: &CurrentState) -> BTreeSet<Family> {
    let native = &current.native;
    let interrupted = |family: &Family| current.exemption(*family) == Exemption::Capture;
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

/// Of these families, those whose live rules capture: with a socket, of the proxy for instance, a connection
/// can begin at any time.
fn may_begin(mut families: BTreeSet<Family>, current: &CurrentState) -> BTreeSet<Family> {
    families.retain(|family| {
        current.native.captures(*family) || live(current, *family).any(connections::captures)
    });
    if !families.is_empty()
        && let Ok(in_use) = sock_diag::families_in_use()
    {
        families.retain(|family| in_use.contains(family));
    }
    families
}

/// The ports to which rules of ours redirect, or did with earlier options.
fn ports(current: &CurrentState, family: Family) -> BTreeSet<u16> {
    let ports = live(current, family).flat_map(connections::redirect_ports);
    let earlier = current.record().map(|record| record.earlier_ports).unwrap_or_default();
    ports.chain(current.native.redirect_ports()).chain(earlier).into_set()
}

/// How many connections live rules of ours have translated in each of these families.
fn translated(families: &BTreeSet<Family>, current: &CurrentState) -> PerFamily<Translated> {
    if families.is_empty() {
        return PerFamily::new();
    }
    let entries = match entries(Filter::TranslatedTcp) {
        Ok(entries) => entries,
        Err(error) => {
            let names: Vec<_> = families.iter().map(Family::to_string).collect();
            log::warn!("proxied {} connections cannot be counted: {error}", names.join(" and "));
            return families.iter().map(|family| (*family, Translated::Unknown)).collect();
        }
    };
    let local = if entries.is_empty() { BTreeSet::new() } else { local_addresses().unwrap_or_default() };
    let count = |family: &Family| {
        let ports = ports(current, *family);
        let redirected = |entry: &&Entry| {
            entry.family == *family && is_open(entry) && is_redirected(entry, &ports, &local)
        };
        (*family, Translated::Count(entries.iter().filter(redirected).count()))
    };
    families.iter().map(count).collect()
}

/// Connections that have ended need no translation.
const fn is_open(entry: &Entry) -> bool {
    !matches!(entry.tcp_state, Some(TcpState::TimeWait | TcpState::Close))
}

/// The ports to which rules of ours redirect, or did with earlier options, in each family.
pub(super) fn redirect_ports(current: &CurrentState) -> PerFamily<BTreeSet<u16>> {
    Family::ALL.into_iter().map(|family| (family, ports(current, family))).collect()
}

/// Deletes the entries of the connections that a clean-up cut off, and of those that had ended, known by the
/// port to which they were redirected: foreign rules may redirect others. Connection tracking may stop with
/// the rules, and would not see how they end: an entry would stay, for days if its connection was open, and
/// translate the next connection on the same ports once there are rules again.
pub(super) fn delete_translated(cut_off: &Connections, ports: &PerFamily<BTreeSet<u16>>) {
    let families: BTreeSet<Family> = cut_off.translated.iter().map(|(family, _)| *family).into_set();
    // A request could load a module.
    if families.is_empty() || conntrack::count_in_proc() == Some(0) {
        return;
    }
    let is_ours = |entry: &Entry| {
        let ports = ports.get(&entry.family).filter(|_| families.contains(&entry.family));
        ports.is_some_and(|ports| ports.contains(&entry.reply.source.port()))
    };
    let delete = || -> Result<usize, ConntrackError> {
        let change = |entry: &Entry| is_ours(entry).then_some(Change::Delete);
        Ok(Conntrack::open()?.change_if(Filter::TranslatedTcp, change)?)
    };
    match delete() {
        Ok(count) => log::debug!("{count} deleted: conntrack entries of redirected connections"),
        Err(error) => log::warn!("conntrack entries of redirected connections stay: {error}"),
    }
}

/// Whether a connection was sent to a port of this namespace, as REDIRECT does: to a port of ours, to an
/// address of its own, or to another port of the address that it was for. Where a run has ended capture
/// already, or there was no room for a record, no port is known.
fn is_redirected(entry: &Entry, ports: &BTreeSet<u16>, local: &BTreeSet<IpAddr>) -> bool {
    let server = entry.reply.source;
    entry.status.destination_translated()
        && (ports.contains(&server.port())
            || server.ip().is_loopback()
            || local.contains(&server.ip())
            || server.ip() == entry.original.destination.ip())
}
