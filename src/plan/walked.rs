//! The rules that packets meet, ours and those of other programs, in the form in which they are walked; and which foreign rules a
//! walk over all packets acquits.

use std::borrow::Cow;
use std::net::IpAddr;

use super::CurrentState;
use crate::diff;
use crate::explain::{ForeignPart, Rules};
use crate::finding::RuleId;
use crate::foreign::{self, BaseChain, DecidesFirst};
use crate::model::{Backend, Family, FamilyRules, Fib, PerFamily, Variant};

/// Most rules and chains that are examined: each takes walks over all packets.
const MOST: usize = 8;

impl CurrentState {
    /// Adds what packets of a family meet in addition to our rules.
    pub fn add_beside(&self, rules: &mut Rules, family: Family) {
        for variant in Variant::ALL {
            let observed = || self.rules.get(&(variant, family));
            match (variant, self.backend == Backend::Iptables(variant)) {
                (_, true) => observed().into_iter().for_each(|observed| rules.add_iptables(observed, None)),
                (Variant::Legacy, false) => {
                    let observed = observed().or_else(|| self.foreign_legacy.get(&family));
                    observed.into_iter().for_each(|observed| rules.add_iptables(observed, Some(variant)));
                }
                // Read as tables of nftables.
                (Variant::Nft, false) => {}
            }
        }
        let is_read = |table: &_, chain: &_| foreign::is_of_backend(table, chain, self.backend);
        let links = self.network.links.each.as_slice();
        rules.add_base_chains(family, &self.foreign, (&self.foreign_sets, links), is_read);
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
    /// Which of these parts change nothing about captured connections, whichever packet comes: all of them together, or one of them
    /// alone and beside the others. Two that do the same are not each harmless since the other one is there.
    fn harmless(&self, parts: &[Option<Part>]) -> Vec<bool> {
        let known: Vec<&Part> = parts.iter().flatten().collect();
        let all = |part: &&Part| self.is_harmless_among(part, &known);
        let none = vec![false; parts.len()];
        if known.is_empty() || known.len() > MOST {
            return none;
        }
        let together = self.rules.iter().all(|(family, with)| {
            let without = known.iter().filter(|part| part.is_of(*family));
            let without =
                without.fold(with.clone(), |rules, part| rules.without(&part.part).unwrap_or(rules));
            diff::is_harmless(*family, with, &without, &self.own(*family))
        });
        let is_harmless = |part: &Option<Part>| {
            part.as_ref().is_some_and(|part| self.has(part) && (together || all(&part)))
        };
        parts.iter().map(is_harmless).collect()
    }

    /// Whether one part changes nothing, with the others and without them.
    fn is_harmless_among(&self, part: &Part, all: &[&Part]) -> bool {
        let of_family = self.rules.iter().filter(|(family, _)| part.is_of(**family));
        let mut compared = of_family.flat_map(|(family, with)| {
            let others = all.iter().filter(|other| **other != part && other.is_of(*family));
            let alone = others.fold(with.clone(), |rules, other| rules.without(&other.part).unwrap_or(rules));
            [(*family, with.clone()), (*family, alone)]
        });
        compared.all(|(family, with)| {
            let without = with.without(&part.part);
            without.is_none_or(|without| diff::is_harmless(family, &with, &without, &self.own(family)))
        })
    }

    /// Whether a part is among the rules.
    fn has(&self, part: &Part) -> bool {
        let mut of_family = self.rules.iter().filter(|(family, _)| part.is_of(**family));
        of_family.any(|(_, rules)| rules.without(&part.part).is_some())
    }

    /// The addresses of the pod.
    fn own(&self, family: Family) -> Vec<IpAddr> {
        let addresses = self.fib.get(&family).map(|fib| &fib.addresses);
        addresses.into_iter().flatten().map(|own| own.address).collect()
    }

    /// The rules and base chains without those that change nothing about captured connections, whichever packet comes; `walked` makes what is
    /// walked, if anything is to be.
    #[must_use]
    pub fn deciding(
        walked: &dyn Fn() -> Self,
        (rules, chains): (Vec<DecidesFirst>, Vec<BaseChain>),
    ) -> (Vec<DecidesFirst>, Vec<BaseChain>) {
        let of_rule = |first: &DecidesFirst| {
            let (family, RuleId { table, chain, words }) = first.walked_rule()?;
            Some(Part { family: Some(family), part: ForeignPart { table, chain, words: Some(words) } })
        };
        let of_chain = |base: &BaseChain| {
            let (table, chain) = base.walked_chain()?;
            let (table, chain) = (table.to_owned(), chain.to_owned());
            Some(Part { family: None, part: ForeignPart { table, chain, words: None } })
        };
        let parts: Vec<_> = rules.iter().map(of_rule).chain(chains.iter().map(of_chain)).collect();
        if parts.iter().all(Option::is_none) {
            return (rules, chains);
        }
        let mut harmless = walked().harmless(&parts).into_iter();
        let rules = rules.into_iter().filter(|_| harmless.next() != Some(true)).collect();
        let chains = chains.into_iter().filter(|_| harmless.next() != Some(true)).collect();
        (rules, chains)
    }
}

/// A foreign rule or base chain, and the only family whose packets meet it, if that is one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    family: Option<Family>,
    part: ForeignPart,
}

impl Part {
    fn is_of(&self, family: Family) -> bool {
        self.family.is_none_or(|only| only == family)
    }
}
