//! The configuration and the options that are read from rules give these rules again, for any configuration.

use std::collections::HashSet;
use std::hash::Hash;

use istio_iptables::cli::{Key, OptionValue, Origin, RawOptions};
use istio_iptables::config::{
    self, AsOptions, CaptureConfig, Dns, InboundPorts, Mode, OutboundRanges, Traffic,
};
use istio_iptables::explain::Rules;
use istio_iptables::facts::Files;
use istio_iptables::model::{Families, Family, FamilyRules, Network, PerFamily};
use istio_iptables::{nft, policy};
use nfnetlink::nftables::Table;
use proptest::prelude::*;

use super::configs::config;

/// The rules of each family that has some.
fn rules(config: &CaptureConfig) -> PerFamily<FamilyRules> {
    let rules = policy::ruleset(config);
    config.families.iter().map(|family| (family, rules.resolve(family))).collect()
}

/// The rules as text, in order.
fn lines(config: &CaptureConfig) -> Vec<String> {
    let mut lines = Vec::new();
    for (family, rules) in &rules(config) {
        for (table, rules) in &rules.tables {
            let hooks =
                rules.hooks.iter().map(|(hook, rules)| (hook.name(), rules.iter().collect::<Vec<_>>()));
            let chains = rules.chains.iter().map(|(chain, rules)| (chain.name(), rules.iter().collect()));
            for (chain, rules) in hooks.chain(chains) {
                lines.push(format!("{family} {} {chain}", table.name()));
                lines.extend(rules.into_iter().map(|rule| format!("{:?} {}", rule.why, rule.statement)));
            }
        }
    }
    lines
}

/// Native tables as the kernel has them.
fn tables(rules: &PerFamily<FamilyRules>) -> Vec<Table> {
    nft::tables(rules).iter().map(|table| nft::encode(table).normalized()).collect()
}

/// Rules as they are read from native tables.
fn native(rules: &PerFamily<FamilyRules>) -> PerFamily<FamilyRules> {
    let live = nft::LiveTables::new(nft::tables(rules).iter().map(nft::encode).collect(), Vec::new());
    let own = |family| (family, Rules::native(&live, family).own(family));
    Family::ALL.into_iter().map(own).filter(|(_, rules)| rules.count() > 0).collect()
}

/// What options give, on a machine that has no addresses but IPv6.
fn resolved(options: &[(Key, String)], servers: &str) -> CaptureConfig {
    let given =
        |(key, text): &(Key, String)| (*key, OptionValue { text: text.clone(), origin: Origin::Flag(*key) });
    let raw = RawOptions::of(options.iter().map(given));
    let files = Files { passwd: String::new(), group: String::new(), resolv_conf: Ok(servers.to_owned()) };
    let resolved = config::resolve(&raw, &files).unwrap_or_else(|errors| panic!("{options:?}: {errors:?}"));
    resolved.intent.decide(&Network { addresses: Vec::new(), ipv6: true }).0
}

/// Whether options can say it: they refuse reserved numbers and drop what is there twice, and glibc reads
/// three servers.
fn can_be_asked_for(config: &CaptureConfig) -> bool {
    let is_table =
        !matches!(config.traffic.mode, Mode::Tproxy(tproxy) if (253..=255).contains(&tproxy.table));
    let outbound = &config.traffic.outbound;
    let included = if let OutboundRanges::Only(ranges) = &outbound.ranges { ranges.as_slice() } else { &[] };
    let inbound = match &config.traffic.inbound {
        InboundPorts::None => &[],
        InboundPorts::Only(ports) | InboundPorts::All { except: ports } => ports.as_slice(),
    };
    let is_table = is_table
        && [included, &outbound.excluded_ranges].into_iter().all(is_once)
        && [inbound, &outbound.ports, &outbound.excluded_ports].into_iter().all(is_once);
    let (v4, v6) = servers(config);
    let is_read = v4.len() + v6.len() <= 3 && v4.iter().all(|server| !server.is_unspecified());
    let has = |family: Family| config.families.contains(family);
    let is_read = is_read
        && match config.dns {
            Dns::Servers { .. } => has(Family::V4) && !v4.is_empty() || has(Family::V6) && !v6.is_empty(),
            Dns::Off | Dns::All => true,
        };
    is_table
        && is_read
        && v6.iter().all(|server| !server.is_unspecified() && server.to_ipv4_mapped().is_none())
}

/// Whether the two rules for a list of ranges, the set and the one for all addresses, stand in an order for
/// guests and in another for the pod, which no other list gives: the range of all addresses was between
/// others.
fn has_unordered_ranges(traffic: &Traffic) -> bool {
    let OutboundRanges::Only(ranges) = &traffic.outbound.ranges else { return false };
    !traffic.virtual_interfaces.is_empty()
        && ranges.len() > 2
        && ranges.iter().any(|range| range.prefix() == 0)
}

fn is_once<T: Eq + Hash>(items: &[T]) -> bool {
    items.iter().collect::<HashSet<_>>().len() == items.len()
}

fn servers(config: &CaptureConfig) -> (Vec<std::net::Ipv4Addr>, Vec<std::net::Ipv6Addr>) {
    match &config.dns {
        Dns::Servers { v4, v6 } => (v4.clone(), v6.clone()),
        Dns::Off | Dns::All => (Vec::new(), Vec::new()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn rules_of_what_was_read_are_the_same(config in config()) {
        let table = |_| if let Mode::Tproxy(tproxy) = config.traffic.mode { Some(tproxy.table) } else { None };
        let otherwise = resolved(&[], "");
        let wanted = rules(&config);
        let read = policy::config_from(&wanted, Family::V4, table, &otherwise);
        prop_assert_eq!(lines(&read), lines(&config));
        prop_assert_eq!(read.traffic.mode, config.traffic.mode);
        let read = policy::config_from(&native(&wanted), Family::V4, table, &otherwise);
        // Sets have no order: the tables are the same, the lists of options perhaps in another order.
        prop_assume!(!has_unordered_ranges(&config.traffic));
        prop_assert_eq!(tables(&rules(&read)), tables(&wanted));
    }

    #[test]
    fn options_of_what_was_read_give_the_same_rules(config in config()) {
        prop_assume!(can_be_asked_for(&config));
        let table = |_| if let Mode::Tproxy(tproxy) = config.traffic.mode { Some(tproxy.table) } else { None };
        let wanted = rules(&config);
        let read = policy::config_from(&wanted, Family::V4, table, &resolved(&[], ""));
        let options: Vec<(Key, String)> =
            AsOptions::of(&read, Families::Both).iter().map(|(key, text)| (key, text.to_owned())).collect();
        let (v4, v6) = servers(&read);
        let named = v4.iter().map(ToString::to_string).chain(v6.iter().map(ToString::to_string));
        let named: String = named.map(|server| format!("nameserver {server}\n")).collect();
        let asked = resolved(&options, &named);
        prop_assert_eq!(lines(&asked), lines(&config), "{:?}", options);
    }
}
