//! The rules that packets meet, ours and those of other programs, in the form in which they are walked; and
//! which foreign rules a walk over all packets acquits.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;

use nfnetlink::nftables::{Chain as NftChain, Table as NftTable};

use super::CurrentState;
use crate::diff;
use crate::explain::{ForeignRule, Rules, shared_table};
use crate::finding::RuleId;
use crate::foreign::{self, PrecedingRule};
use crate::model::{Backend, Family, FamilyRules, Fib, Hook, PerFamily, Variant};
use crate::ordered::Ordered as _;
use crate::parse::{INPUT, POSTROUTING};
use crate::reconcile::our_rules;

/// Most rules that are examined: each takes walks over all first packets.
const MOST: usize = 4;

impl CurrentState {
    /// Adds what packets of a family meet in addition to our rules.
    pub fn add_beside(&self, rules: &mut Rules, family: Family) {
        for variant in Variant::ALL {
            let observed = || self.rules.get(&(variant, family));
            let is_shared = self.backend == Backend::Iptables(variant);
            let observed = match variant {
                _ if is_shared => observed(),
                Variant::Legacy => observed().or_else(|| self.foreign_legacy.get(&family)),
                // Read as tables of nftables.
                Variant::Nft => None,
            };
            observed.into_iter().for_each(|observed| rules.add_iptables(observed, variant, is_shared));
        }
        let is_read = |table: &NftTable, chain: &NftChain| {
            let is_built_in = [INPUT, POSTROUTING].contains(&chain.name.as_str())
                || Hook::ALL.iter().any(|hook| hook.name() == chain.name);
            self.backend == Backend::Iptables(Variant::Nft) && is_built_in && shared_table(table).is_some()
        };
        let links = self.network.links.each.as_slice();
        for tables in [&self.foreign, &self.lockdown] {
            let sets = &self.foreign_sets;
            rules.add_base_chains(family, tables, (sets, links), is_read, |table| {
                self.leftovers(family, table)
            });
        }
    }

    /// The handles of our rules in the shared chains of a table of iptables-nft, which a move to another
    /// backend deletes.
    fn leftovers(&self, family: Family, table: &NftTable) -> BTreeSet<u64> {
        let observed = self.rules.get(&(Variant::Nft, family));
        let Some((table, observed)) = shared_table(table).zip(observed) else { return BTreeSet::new() };
        let of_ours = |hook| our_rules(observed, table, hook).into_iter().filter_map(|line| line.handle);
        Hook::ALL.into_iter().flat_map(of_ours).into_set()
    }

    /// What foreign rules are judged by: those that packets meet, ours of `own` among them.
    #[must_use]
    pub fn examined<'a>(
        &'a self,
        own: &'a PerFamily<FamilyRules>,
        rules: &'a PerFamily<Rules>,
    ) -> Vec<foreign::Examined<'a>> {
        let network = foreign::Network { fib: &self.network.fib, links: &self.network.links.each };
        foreign::Examined::each(own, rules, self.backend, network)
    }

    /// Our rules as they are going to be, among all that packets meet besides.
    #[must_use]
    pub fn planned(&self, own: &PerFamily<FamilyRules>) -> PerFamily<Rules> {
        let among_others = |(family, rules): (&Family, &Rules)| {
            let mut planned = rules.clone();
            let shared = self.backend.variant().and_then(|variant| self.rules.get(&(variant, *family)));
            if let Some((observed, own)) = shared.zip(own.get(family)) {
                planned.add_shared(own, observed);
            }
            self.add_beside(&mut planned, *family);
            (*family, planned)
        };
        Rules::in_form_of(self.backend, own).iter().map(among_others).collect()
    }
}

/// What packets meet, in the form in which it is walked, and the addresses of the pod.
#[derive(Clone, Debug)]
pub struct Walked<'a> {
    /// The rules.
    pub rules: Cow<'a, PerFamily<Rules>>,
    /// The policy routing, which has the addresses.
    pub fib: &'a PerFamily<Fib>,
}

impl Walked<'_> {
    /// The rules without those of nat that change nothing about captured connections, whichever packet comes;
    /// `walked` makes what is walked, if anything is to be.
    #[must_use]
    pub fn deciding(walked: &dyn Fn() -> Self, mut found: Vec<PrecedingRule>) -> Vec<PrecedingRule> {
        let of = |first: &PrecedingRule| {
            let (family, RuleId { table, chain, words, .. }) = first.nat_rule()?;
            Some((family, ForeignRule { table, chain, words }))
        };
        let examined: Vec<_> = found.iter().filter_map(of).collect();
        if !examined.is_empty() && examined.len() <= MOST {
            let walked = walked();
            let harmless: Vec<_> = examined.iter().filter(|one| walked.is_harmless(one, &examined)).collect();
            found.retain(|first| of(first).is_none_or(|rule| !harmless.contains(&&rule)));
        }
        found
    }

    /// Whether one rule changes nothing, neither with the other ones that are examined nor without them. Two
    /// that do the same are not each harmless since the other one is there.
    fn is_harmless(&self, (family, rule): &(Family, ForeignRule), all: &[(Family, ForeignRule)]) -> bool {
        let Some(with) = self.rules.get(family) else { return false };
        let addresses = self.fib.get(family).map(|fib| &fib.addresses);
        let own: Vec<IpAddr> = addresses.into_iter().flatten().map(|own| own.address).collect();
        let changes_nothing = |with: &Rules| diff::is_harmless(*family, with, rule, &own);
        let others: Vec<_> = all.iter().filter(|(of, other)| of == family && other != rule).collect();
        changes_nothing(with)
            && (others.is_empty() || {
                let alone = others.iter();
                let alone = alone.fold(with.clone(), |rules, (_, other)| {
                    rules.without(other).map_or(rules, |(rules, _)| rules)
                });
                changes_nothing(&alone)
            })
    }
}
