//! The configuration from which the fewest live rules differ: after a manual change, `check` reports that
//! one.

use std::cmp::Reverse;

use super::live_inspection::LiveInspection;
use super::sandbox::fitting;
use crate::config::{AsOptions, CaptureConfig, InboundPorts, OwnerGroups, Traffic};
use crate::explain::{BrokenChain, Rules};
use crate::model::{Chain, Families, Family, FamilyRules, Network, PerFamily, ROUTE_PROTOCOL, Table};
use crate::{nft, policy, reconcile};

/// Longest list of which each item is left out as a trial.
const MOST_ITEMS: usize = 32;

/// Parts that rules of one family show alone, by number. False if there is no such part.
fn take_part(number: usize, to: &mut Traffic, from: &Traffic) -> bool {
    match number {
        0 => to.ports.outbound = from.ports.outbound,
        1 => to.ports.inbound = from.ports.inbound,
        2 => to.ports.tunnel = from.ports.tunnel,
        3 => to.proxy = from.proxy.clone(),
        4 => to.inbound = from.inbound.clone(),
        5 => to.drop_invalid = from.drop_invalid,
        6 => to.excluded_interfaces = from.excluded_interfaces.clone(),
        7 => to.outbound.ports = from.outbound.ports.clone(),
        8 => to.outbound.excluded_ports = from.outbound.excluded_ports.clone(),
        9 => to.outbound.owners = from.outbound.owners.clone(),
        _ => return false,
    }
    true
}

/// The number of lists.
const LISTS: usize = 7;

/// Leaves out one item of a list, by number; false if there is none at this place.
fn leave_out(number: usize, traffic: &mut Traffic, at: usize) -> bool {
    fn item<T>(list: &mut Vec<T>, at: usize, least: usize) -> bool {
        let is_there = at < list.len() && (least..MOST_ITEMS).contains(&(list.len() - 1));
        if is_there {
            list.remove(at);
        }
        is_there
    }
    let outbound = &mut traffic.outbound;
    match number {
        0 => match &mut traffic.inbound {
            InboundPorts::All { except } => item(except, at, 0),
            InboundPorts::Only(ports) => item(ports, at, 1),
            InboundPorts::None => false,
        },
        1 => match &mut outbound.owners {
            OwnerGroups::All { except } => item(except, at, 0),
            OwnerGroups::Only(groups) => item(groups, at, 1),
        },
        2 => item(&mut outbound.excluded_ranges, at, 0),
        3 => item(&mut outbound.excluded_ports, at, 0),
        4 => item(&mut outbound.ports, at, 0),
        5 => item(&mut traffic.proxy.uids, at, 1),
        _ => item(&mut traffic.proxy.gids, at, 1),
    }
}

/// How far a configuration is from the live rules: the number of rules that differ. Of two that are as far,
/// the one with more rules, since a rule is deleted more often than added; then the one with fewer options.
type Distance = (usize, Reverse<usize>, usize);

impl LiveInspection {
    /// The configuration that the live rules come from, or are nearest to; what no rule shows is as in
    /// `otherwise`.
    #[must_use]
    pub fn nearest_config(&self, otherwise: &CaptureConfig, network: &Network) -> NearestConfig {
        let config = self.config(otherwise);
        let is_exact = self.has_tables_of(&config) || self.differing(&config).0 == 0;
        let mut config = if is_exact { config } else { self.nearest_to(config, otherwise) };
        // Only `--ip-family ipv6` leaves IPv4 out. A program that replaces the IPv4 tables of iptables, as
        // Shorewall does, deletes the rules of one family.
        let has_v4 = config.traffic.address_of(Family::V4, network).is_some();
        let is_left_out = config.families == Families::V6 && otherwise.families != Families::V6;
        if is_left_out && has_v4 && self.native.is_empty() {
            config.families = Families::Both;
        }
        NearestConfig { config, is_exact }
    }

    fn nearest_to(&self, config: CaptureConfig, otherwise: &CaptureConfig) -> CaptureConfig {
        let mut nearest = Nearest::new(self, config);
        let families = nearest.config.families;
        let of_others = self.rules.keys().map(|family| self.config_by(*family, otherwise));
        for other in of_others.chain([CaptureConfig { families, ..otherwise.clone() }]) {
            let mut part = 0;
            let mut changed = nearest.config.clone();
            while take_part(part, &mut changed.traffic, &other.traffic) {
                nearest.improve(changed);
                changed = nearest.config.clone();
                part += 1;
            }
            nearest.improve(other);
        }
        for list in 0..LISTS {
            let mut at = 0;
            let mut changed = nearest.config.clone();
            while leave_out(list, &mut changed.traffic, at) {
                at += usize::from(!nearest.improve(changed));
                changed = nearest.config.clone();
            }
        }
        nearest.config
    }

    /// Rules in chains of ours that let packets pass and that this configuration, the nearest one, does not
    /// make are of other programs. Those of native nftables are known by their comments. Rules that it makes
    /// and that are not live were deleted or moved by other programs.
    pub fn find_foreign(&mut self, nearest: &NearestConfig) {
        if self.live.routed_mark.is_none() {
            // A policy rule of TPROXY mode, and no rule that gives packets its mark.
            let routes = |family: &&Family| {
                let mut rules = self.live.fib.get(family).into_iter().flat_map(|fib| &fib.rules);
                rules.any(|rule| rule.origin == ROUTE_PROTOCOL && rule.mark.is_some())
            };
            for family in self.rules.keys().filter(routes) {
                let broken = BrokenChain::without_jump(Table::Mangle, Chain::Inbound);
                self.live.damaged.or_default(*family).push(broken);
            }
        }
        if nearest.is_exact {
            return;
        }
        for (family, wanted) in &self.in_form_of_backend(&nearest.config) {
            if let Some(live) = self.rules.get(family) {
                self.live.damaged.or_default(*family).extend(BrokenChain::all_of(live, wanted));
            }
        }
        if !self.native.is_empty() {
            return;
        }
        let rules = policy::ruleset(&nearest.config);
        for (family, live) in self.live.rules.iter_mut() {
            live.disown(&fitting(rules.resolve(*family)));
        }
    }

    /// Whether the live rules are native ones, as a run with this configuration writes them.
    fn has_tables_of(&self, config: &CaptureConfig) -> bool {
        !self.native.is_empty() && self.native.differing(&nft::tables(&rules(config))).is_empty()
    }

    fn distance(&self, config: &CaptureConfig) -> Distance {
        let (differing, count) = self.differing(config);
        (differing, Reverse(count), AsOptions::of(config, config.families).iter().count())
    }

    /// The number of rules that differ, and that of the configuration's rules.
    fn differing(&self, config: &CaptureConfig) -> (usize, usize) {
        let none = |family| FamilyRules::none(family);
        let (mut differing, mut count) = (0, 0);
        for (family, rules) in &self.in_form_of_backend(config) {
            count += rules.count();
            differing += reconcile::distance(self.rules.get(family).unwrap_or(&none(*family)), rules);
        }
        (differing, count)
    }

    /// The rules of a configuration. Native ones are compared in the form in which they are read.
    fn in_form_of_backend(&self, config: &CaptureConfig) -> PerFamily<FamilyRules> {
        let wanted = rules(config);
        if self.native.is_empty() {
            return wanted;
        }
        let tables = nft::tables(&wanted).iter().map(nft::encode).collect();
        let tables = nft::LiveTables::new(tables, Vec::new());
        wanted.keys().map(|family| (*family, Rules::native(&tables, *family).own(*family))).collect()
    }
}

/// A configuration that live rules come from, or are nearest to.
#[derive(Clone, Debug)]
pub struct NearestConfig {
    /// The configuration.
    pub config: CaptureConfig,
    /// Whether it makes just these rules.
    pub is_exact: bool,
}

/// The rules of a configuration, in each of its families.
fn rules(config: &CaptureConfig) -> PerFamily<FamilyRules> {
    let rules = policy::ruleset(config);
    config.families.iter().map(|family| (family, fitting(rules.resolve(family)))).collect()
}

/// The nearest configuration so far.
struct Nearest<'a> {
    own: &'a LiveInspection,
    config: CaptureConfig,
    distance: Distance,
}

impl<'a> Nearest<'a> {
    fn new(own: &'a LiveInspection, config: CaptureConfig) -> Self {
        let distance = own.distance(&config);
        Self { own, config, distance }
    }

    /// Takes the changed configuration if it is nearer.
    fn improve(&mut self, changed: CaptureConfig) -> bool {
        let distance = self.own.distance(&changed);
        let is_nearer = distance < self.distance;
        if is_nearer {
            (self.config, self.distance) = (changed, distance);
        }
        is_nearer
    }
}
