//! The native form of rules does to every packet what the rules of its family do at the semantics of
//! iptables.

mod iptables;
mod nftables;
mod packet;
mod read_back;

use istio_iptables::model::{Family, Hook, Match, PerFamily, Table};
use istio_iptables::nft::{self, Field, Test};
use istio_iptables::parse;
use istio_iptables::policy;
use proptest::collection::vec;
use proptest::prelude::*;

use super::configs::config;
use iptables::iptables;
use nftables::native;
use packet::Pools;
use read_back::read_back;

proptest! {
    #[test]
    fn native_tables_do_what_the_rules_of_each_family_do(
        config in config(),
        seeds in vec(any::<[u32; 14]>(), 60),
    ) {
        let rules = policy::ruleset(&config);
        let rules: PerFamily<_> = Family::ALL.into_iter().map(|family| (family, rules.resolve(family))).collect();
        let tables = nft::tables(&rules);
        let pools = Pools::of(&rules);
        for packet in seeds.iter().map(|seed| pools.packet(seed)) {
            for (table, hook) in Table::ALL.into_iter().flat_map(|table| Hook::ALL.map(|hook| (table, hook))) {
                let of_family = rules.get(&packet.family).unwrap().tables.get(&table);
                let expected = iptables(of_family, hook, packet.clone());
                let found = native(&tables, table, hook, packet.clone());
                prop_assert_eq!(found, expected, "{:?} {:?} {:?}\n{}", table, hook, packet, nft::text(&tables));
            }
        }
    }

    #[test]
    fn native_tables_that_are_read_back_do_what_the_rules_of_each_family_do(
        config in config(),
        seeds in vec(any::<[u32; 14]>(), 60),
    ) {
        let rules = policy::ruleset(&config);
        let rules: PerFamily<_> = Family::ALL.into_iter().map(|family| (family, rules.resolve(family))).collect();
        let tables: Vec<_> = nft::tables(&rules).iter().map(|table| nft::encode(table).normalized()).collect();
        let read = Family::ALL.map(|family| (family, parse::native(&tables.iter(), family)));
        let read: PerFamily<_> = read.into();
        let lines = read.values().flat_map(|tables| tables.values());
        let lines = lines.flat_map(|rules| rules.hooks.values().chain(rules.chains.values())).flatten();
        for line in lines {
            prop_assert!(line.why.is_some(), "{}", line.live.words());
        }
        let pools = Pools::of(&rules);
        for packet in seeds.iter().map(|seed| pools.packet(seed)) {
            for (table, hook) in Table::ALL.into_iter().flat_map(|table| Hook::ALL.map(|hook| (table, hook))) {
                let expected = iptables(rules.get(&packet.family).unwrap().tables.get(&table), hook, packet.clone());
                let found = read_back(read.get(&packet.family).unwrap().get(&table), hook, packet.clone());
                prop_assert_eq!(found, expected, "{:?} {:?} {:?}\n{:#?}", table, hook, packet, read);
            }
        }
    }

    #[test]
    fn no_native_table_tests_a_negated_owner(config in config()) {
        let rules = policy::ruleset(&config);
        let rules = Family::ALL.into_iter().map(|family| (family, rules.resolve(family))).collect();
        for test in nft::tables(&rules).iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules).flat_map(|rule| &rule.tests) {
            prop_assert!(!matches!(test, Test::Field(Field::Uid | Field::Gid, Match::Not(_))), "{}", test);
        }
    }
}
