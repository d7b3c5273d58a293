//! What a run fails at and is known before its first step. A dry run reports it, too.

use super::{needed, parts, refuse_ambient_mode, require_active_tables, tool_error};
use crate::exit::Exit;
use crate::kernel::process::Host;
use crate::kernel::rtnetlink::loopback;
use crate::model::{Family, FibRoute, Hook, HookRules, Table, Variant};
use crate::plan::{CurrentState, DesiredState, Restore, Step};
use crate::report::Failure;
use crate::routing;

/// Looks for all of them.
///
/// # Errors
/// There is one.
pub(super) fn none(
    host: &impl Host,
    desired: &DesiredState,
    current: &CurrentState,
    steps: &[Step],
) -> Result<(), Failure> {
    require_active_tables(desired, current)?;
    refuse_ambient_mode(desired, current)?;
    none_in_steps(host, desired, current, steps)
}

/// Looks for those that concern the steps.
///
/// # Errors
/// There is one.
pub(super) fn none_in_steps(
    host: &impl Host,
    desired: &DesiredState,
    current: &CurrentState,
    steps: &[Step],
) -> Result<(), Failure> {
    parts::refuse_first(steps)?;
    for step in steps {
        match step {
            Step::Network(step) => none_in_network(*step, current)?,
            Step::Restore(step) => {
                needed(host, step.variant, step.family, "rules are written with them").map(drop)?;
                none_in_tables(step, desired, current)?;
            }
            Step::LimitNative
            | Step::DeleteNative(_)
            | Step::ReplaceNative(_)
            | Step::Conntrack(_)
            | Step::TrackConnections(_)
            | Step::DeleteByHandle(_)
            | Step::Record(_) => {}
        }
    }
    Ok(())
}

/// Rules can be added only to chains that are as iptables-nft makes them.
fn none_in_tables(step: &Restore, desired: &DesiredState, current: &CurrentState) -> Result<(), Failure> {
    let rules = desired.rules.get(&step.family);
    let is_used = |(family, table, chain): &&(Family, Table, String)| {
        let rules = rules.and_then(|rules| rules.tables.get(table));
        let is_hook =
            |(hook, rules): (&Hook, &HookRules)| hook.name() == chain && rules.iter().next().is_some();
        let has_rules = rules.is_some_and(|rules| {
            rules.hooks.iter().any(is_hook) || rules.chains.keys().any(|own| own.name() == chain)
        });
        step.variant == Variant::Nft && step.family == *family && step.tables.contains(table) && has_rules
    };
    let Some((family, table, chain)) = current.unsuitable.iter().find(is_used) else { return Ok(()) };
    let ip = if *family == Family::V4 { "ip" } else { "ip6" };
    let chain = format!("{ip} {} {chain}", table.name());
    let what = format!("iptables-nft cannot add rules to the chain {chain}");
    Err(Failure::new(Exit::Refused, what).hint(tool_error::unsuitable_hint(&chain)))
}

fn none_in_network(step: routing::Step, current: &CurrentState) -> Result<(), Failure> {
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
        // What cannot be read is seen when the address is added.
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

/// Whether a route is in the place of `local default dev lo`: the kernel takes one of each destination and metric.
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

/// The kernel takes no `::6` there.
pub(super) fn ipv6_is_off() -> Failure {
    let what = "IPv6 is switched off on lo: the address ::6 cannot be added";
    let hint = "set net.ipv6.conf.lo.disable_ipv6=0, or disable IPv6 capture with --ip-family ipv4";
    Failure::new(Exit::Refused, what).hint(hint)
}
