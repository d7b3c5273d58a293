//! Preconditions of a run, checked before its first step; a dry run checks the same ones.

use std::collections::BTreeSet;
use std::fmt;

use super::{needed, sandbox, tool_error};
use crate::config::RunOptions;
use crate::connections::only_keeps_translation;
use crate::exit::Exit;
use crate::finding::{Finding, Subject};
use crate::foreign;
use crate::kernel::idmap::OwnerIds;
use crate::kernel::process::Host;
use crate::kernel::rtnetlink::loopback;
use crate::model::{
    Family, FamilyRules, FibRoute, Hook, HookRules, Match, Owner, Rule, Table, TableRules, Variant,
};
use crate::nft::NativeTable;
use crate::parse::Observed;
use crate::plan::{self, CurrentState, DesiredState, ReplaceNative, Restore, Step};
use crate::reconcile::TableChange;
use crate::report::Failure;
use crate::routing;

/// Checks all preconditions.
///
/// # Errors
/// The first one that does not hold.
pub(super) fn check(
    host: &impl Host,
    run: &RunOptions,
    desired: &DesiredState,
    current: &CurrentState,
    steps: &[Step],
) -> Result<(), Failure> {
    check_state(desired, current)?;
    check_steps(host, run, desired, current, steps)
}

/// Checks the preconditions that do not depend on the steps.
///
/// # Errors
/// The first one that does not hold.
pub(super) fn check_state(desired: &DesiredState, current: &CurrentState) -> Result<(), Failure> {
    require_active_tables(desired, current)?;
    refuse_ambient_mode(desired, current)?;
    require_responses(desired, current)
}

/// Checks the preconditions of these steps.
///
/// # Errors
/// The first one that does not hold.
pub(super) fn check_steps(
    host: &impl Host,
    run: &RunOptions,
    desired: &DesiredState,
    current: &CurrentState,
    steps: &[Step],
) -> Result<(), Failure> {
    refuse_first(steps)?;
    sandbox::check(host, desired, current, steps)?;
    for step in steps {
        match step {
            Step::Network(step) => check_network(*step, current)?,
            Step::Restore(step) => {
                require_tools(host, step, current)?;
                check_owners(step)?;
                check_chains(step, desired, current)?;
            }
            Step::ReplaceNative(ReplaceNative { tables, delete }) => {
                check_mapped(desired)?;
                let written: Vec<&str> = tables.iter().map(NativeTable::name).collect();
                refuse_owned(current.native.owned(written))?;
                refuse_owned(current.native.owned(delete.iter().map(String::as_str)))?;
            }
            Step::DeleteNative(tables) => {
                refuse_owned(current.native.owned(tables.iter().map(String::as_str)))?;
            }
            Step::LimitNative
            | Step::Conntrack(_)
            | Step::AwaitPackets
            | Step::TrackConnections(_)
            | Step::DeleteByHandle(_)
            | Step::Record(_) => {}
        }
    }
    require_delivery(desired, current, run)
}

/// The tools that write the rules, and those that would delete the rules of an earlier run.
fn require_tools(host: &impl Host, step: &Restore, current: &CurrentState) -> Result<(), Failure> {
    let (variant, family) = (step.variant, step.family());
    let is_there = current.rules.get(&(variant, family)).is_some_and(Observed::has_ours);
    let why = if is_there {
        format!("{family} rules of an earlier run are in {variant}, and differ from what is asked for")
    } else {
        "rules are written with them".to_owned()
    };
    needed(host, variant, family, &why).map(drop)
}

/// The kernel refuses a change of such a table with EPERM, as it does without privileges.
fn refuse_owned(table: Option<&str>) -> Result<(), Failure> {
    let Some(table) = table.map(|table| format!("inet {table}")) else { return Ok(()) };
    let hint = format!("end that program, and the table goes with it; `nft list table {table}` names it");
    Err(Failure::new(Exit::Refused, belongs(&table)).hint(hint))
}

/// What only one program may change.
pub(super) fn belongs(table: &impl fmt::Display) -> String {
    format!("the nftables table {table} belongs to a running program (flags owner)")
}

/// What the kernel says no more of than "Invalid argument".
pub(super) const NO_OWNER_MATCH: &str = "the kernel refuses iptables' match of users and groups (xt_owner) to processes outside \
                                         of the user namespace that the network namespace belongs to";

/// Whether this process is outside of that user namespace.
pub(super) fn is_outside() -> bool {
    // Without a process of that user namespace in sight, it is another one, too.
    OwnerIds::read().map_or(true, |ids| ids.is_other_user_namespace())
}

/// iptables-legacy replaces whole tables, with the rules that are there already.
fn check_owners(step: &Restore) -> Result<(), Failure> {
    let mut added = step.change.tables.iter().flat_map(TableChange::added_rules);
    let replaces_owners = step.variant == Variant::Legacy
        && [Table::Nat, Table::Raw].iter().any(|table| step.change.writes(*table));
    let needs_owners = |rule: &Rule| replaces_owners || !rule.statement.matcher.owners.is_empty();
    if !added.any(needs_owners) || !is_outside() {
        return Ok(());
    }
    let what = format!("{} cannot be used from here: {NO_OWNER_MATCH}", step.variant);
    Err(Failure::new(Exit::Refused, what)
        .hint("use --backend nftables, or run in the pod's user namespace (`nsenter --user --net`)"))
}

/// Native nftables takes a uid or gid that no process of the user namespace can have, which iptables refuses:
/// nothing would be exempt.
fn check_mapped(desired: &DesiredState) -> Result<(), Failure> {
    let rules = desired.rules.values().flat_map(|rules| rules.tables.values()).flat_map(TableRules::rules);
    let owners: Vec<Owner> = rules
        .flat_map(|rule| &rule.statement.matcher.owners)
        .map(|(Match::Is(owner) | Match::Not(owner))| *owner)
        .collect();
    let (mut uids, mut gids) = (Vec::new(), Vec::new());
    for owner in owners {
        match owner {
            Owner::Uid(uid) => uids.push(uid),
            Owner::Gid(gid) => gids.push(gid),
        }
    }
    let of_groups = || tool_error::unmapped(tool_error::GROUPS, gids.into_iter());
    let hint = tool_error::unmapped(tool_error::USERS, uids.into_iter()).or_else(of_groups);
    // Outside of the pod's user namespace its ids are others.
    match hint.filter(|_| !is_outside()) {
        None => Ok(()),
        Some(hint) => {
            let what = "the rules name a user or group that no process of this user namespace can have";
            Err(Failure::new(Exit::Refused, what).hint(hint))
        }
    }
}

/// iptables-nft adds rules only to chains of the type, hook and priority that it gives them itself.
fn check_chains(step: &Restore, desired: &DesiredState, current: &CurrentState) -> Result<(), Failure> {
    let rules = desired.rules.get(&step.family());
    let is_used = |(family, table, chain): &&(Family, Table, String)| {
        let rules = rules.and_then(|rules| rules.tables.get(table));
        let is_hook =
            |(hook, rules): (&Hook, &HookRules)| hook.name() == chain && rules.iter().next().is_some();
        let has_rules = rules.is_some_and(|rules| {
            rules.hooks.iter().any(is_hook) || rules.chains.keys().any(|own| own.name() == chain)
        });
        step.variant == Variant::Nft && step.family() == *family && step.change.writes(*table) && has_rules
    };
    let Some((family, table, chain)) = current.unsuitable.iter().find(is_used) else { return Ok(()) };
    let ip = if *family == Family::V4 { "ip" } else { "ip6" };
    let chain = format!("{ip} {} {chain}", table.name());
    let what = format!("iptables-nft cannot add rules to the chain {chain}");
    Err(Failure::new(Exit::Refused, what).hint(tool_error::unsuitable_hint(&chain)))
}

fn check_network(step: routing::Step, current: &CurrentState) -> Result<(), Failure> {
    match step {
        routing::Step::AddRoute(family, table) => {
            let is_up = current.network.links.named("lo").is_some_and(|lo| lo.is_up);
            // The kernel takes no IPv6 route over `lo` while that is down.
            if family == Family::V6 && !is_up {
                return Err(Failure::new(Exit::Refused, "lo is down: the IPv6 route of TPROXY needs it")
                    .hint(
                        "bring it up (`ip link set lo up`), or disable IPv6 capture with --ip-family ipv4",
                    ));
            }
            let fib = current.network.fib.get(&family);
            let mut routes = fib.into_iter().flat_map(|fib| &fib.routes);
            match routes.find(|route| route.table == table && takes_place(family, route)) {
                Some(route) => Err(table_in_use(table, family, route)),
                None => Ok(()),
            }
        }
        // If the setting cannot be read, adding the address fails.
        routing::Step::AddAddress if loopback::refuses_ipv6().unwrap_or(false) => Err(ipv6_is_off()),
        routing::Step::AddAddress
        | routing::Step::AdoptAddress
        | routing::Step::AddRule(..)
        | routing::Step::AdoptRoute(..)
        | routing::Step::RemoveAddress
        | routing::Step::RemoveRule(_)
        | routing::Step::RemoveRoute(..) => Ok(()),
    }
}

/// Whether a route conflicts with `local default dev lo`: a table has one route for each destination and
/// metric.
fn takes_place(family: Family, route: &FibRoute) -> bool {
    const METRIC_OF_IPV6: u32 = 1024;
    let metric = if family == Family::V4 { 0 } else { METRIC_OF_IPV6 };
    route.destination.is_none() && !route.has_other_tests && route.metric == metric
}

fn table_in_use(table: u32, family: Family, route: &FibRoute) -> Failure {
    let what = format!("table {table} has a foreign default route ({family}): `{route}`");
    let hint = "choose a free table with --istio-inbound-tproxy-route-table (-r), or delete the route";
    Failure::new(Exit::Refused, what).hint(hint)
}

/// Makes sure that what is deleted by its place is written before by the same plan: then it gets a handle.
///
/// # Errors
/// It is live already, and has no handle since the rules changed whenever they were read.
pub(super) fn refuse_first(all: &[Step]) -> Result<(), Failure> {
    let mut written = BTreeSet::new();
    for step in all {
        let Step::Restore(restore) = step else { continue };
        if is_by_position(step) && !written.contains(&(restore.variant, restore.family())) {
            return Err(rules_change());
        }
        written.insert((restore.variant, restore.family()));
    }
    Ok(())
}

/// Whether a rule of iptables-nft is deleted by its place.
pub(super) fn is_by_position(step: &Step) -> bool {
    matches!(step, Step::Restore(restore) if restore.by_position() && restore.variant == Variant::Nft)
}

pub(super) fn rules_change() -> Failure {
    let what =
        "another program keeps changing the rules: ours cannot be distinguished from identical foreign ones";
    Failure::new(Exit::Busy, what).hint("find it (`nft monitor`), or run again")
}

/// The kernel takes no `::6` there.
pub(super) fn ipv6_is_off() -> Failure {
    let what = "IPv6 is disabled on lo: the address ::6 cannot be added";
    let hint = "set net.ipv6.conf.lo.disable_ipv6=0, or disable IPv6 capture with --ip-family ipv4";
    Failure::new(Exit::Refused, what).hint(hint)
}

/// On the pod's own interface, captured connections must reach the proxy. Elsewhere it is a warning: the pod
/// may not use it.
///
/// # Errors
/// The kernel drops them, or their replies.
fn require_delivery(desired: &DesiredState, current: &CurrentState, run: &RunOptions) -> Result<(), Failure> {
    let own = undelivered(desired, current, run);
    own.map_or(Ok(()), |own| Err(Failure::new(Exit::Refused, own.to_string())))
}

/// What keeps captured connections on the pod's own interface from the proxy.
pub(super) fn undelivered(
    desired: &DesiredState,
    current: &CurrentState,
    run: &RunOptions,
) -> Option<Finding> {
    let name = run.pod_interface.as_ref()?;
    let network = &current.network;
    let mut dropping = desired.rules.iter().flat_map(|(family, rules)| {
        routing::find_dropping_interfaces(rules, &network.links, network.fib.get(family))
    });
    let on_it = Subject::Interface(name.clone());
    dropping.find(|dropping| dropping.about.contains(&on_it))
}

/// Makes sure that captured DNS gets responses: the app and the proxy would have none.
///
/// # Errors
/// A foreign rule is sure to send queries to a server whose responses are not translated back.
fn require_responses(desired: &DesiredState, current: &CurrentState) -> Result<(), Failure> {
    let Some(lost) = plan::lost_queries(desired, current).into_iter().next() else { return Ok(()) };
    let hint = "name another server in /etc/resolv.conf (the one that the rule sends queries to, if it is outside of the pod), delete \
                the rule, do without --capture-all-dns if that file does not name the server, or without DNS capture \
                (--redirect-dns=false, ISTIO_META_DNS_CAPTURE=false)";
    Err(Failure::new(Exit::Refused, lost.to_string()).hint(hint))
}

/// Makes sure that no table that is to hold our rules is dormant.
///
/// # Errors
/// One is, with the command that switches it on.
pub fn require_active_tables(desired: &DesiredState, current: &CurrentState) -> Result<(), Failure> {
    let dormant = plan::dormant(desired, current);
    if dormant.is_empty() {
        return Ok(());
    }
    let commands: Vec<_> = dormant.iter().map(|table| format!("nft add table {table}")).collect();
    let what = format!("nftables tables are dormant, their rules see no packet: {}", dormant.join(", "));
    Err(Failure::new(Exit::Refused, what).hint(format!("activate them: `{}`", commands.join("; "))))
}

/// Makes sure that Istio's ambient mode does not capture this pod: its chain `ISTIO_OUTPUT` has the name of
/// one of ours, which would replace its rules, and clean-up would delete them. Beside its tables of native
/// nftables only a clean-up does no harm.
///
/// # Errors
/// It does.
pub fn refuse_ambient_mode(desired: &DesiredState, current: &CurrentState) -> Result<(), Failure> {
    let captures = |rules: &FamilyRules| rules.count() > 0 && !only_keeps_translation(rules);
    let what = if let Some(table) = current.rules.values().find_map(foreign::ambient_table) {
        let chain = foreign::AMBIENT_CHAIN;
        format!(
            "Istio's ambient mode captures this pod: {} {chain}: its chain ISTIO_OUTPUT would be replaced",
            table.name()
        )
    } else if let Some(table) = foreign::native_ambient_table(&current.foreign)
        && desired.rules.values().any(captures)
    {
        format!("Istio's ambient mode captures this pod: inet {table}: connections would go to two proxies")
    } else {
        return Ok(());
    };
    let hint = "a pod is in one mode only: set the label istio.io/dataplane-mode=none on it, or run it without a sidecar";
    Err(Failure::new(Exit::Refused, what).hint(hint))
}
