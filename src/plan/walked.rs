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

/// Most rules and chains that are examined one by one: each takes a walk over all packets.
const MOST: usize = 16;

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
    /// Whether the part is there, and all packets of captured connections fare alike without it; `family`: the only one whose packets
    /// meet it.
    fn is_harmless(&self, family: Option<Family>, part: &ForeignPart) -> bool {
        let of_family = self.rules.iter().filter(|(of, _)| family.is_none_or(|family| family == **of));
        let mut changed =
            of_family.filter_map(|(family, with)| Some((*family, with, with.without(part)?))).peekable();
        let own = |family| -> Vec<IpAddr> {
            let addresses = self.fib.get(&family).map(|fib| &fib.addresses);
            addresses.into_iter().flatten().map(|own| own.address).collect()
        };
        let acquits = |(family, with, without): (Family, &Rules, Rules)| {
            diff::is_harmless(family, with, &without, &own(family))
        };
        changed.peek().is_some() && changed.all(acquits)
    }

    /// The rules without those that change nothing about captured connections, whichever packet comes.
    #[must_use]
    pub fn deciding_rules(walked: &dyn Fn() -> Self, mut found: Vec<DecidesFirst>) -> Vec<DecidesFirst> {
        if found.len() <= MOST && found.iter().any(|first| first.walked_rule().is_some()) {
            let walked = walked();
            found.retain(|first| {
                first.walked_rule().is_none_or(|(family, RuleId { table, chain, words })| {
                    !walked.is_harmless(Some(family), &ForeignPart { table, chain, words: Some(words) })
                })
            });
        }
        found
    }

    /// The base chains without those that change nothing about captured connections.
    #[must_use]
    pub fn deciding_chains(walked: &dyn Fn() -> Self, mut found: Vec<BaseChain>) -> Vec<BaseChain> {
        if found.len() <= MOST && found.iter().any(|base| base.walked_chain().is_some()) {
            let walked = walked();
            found.retain(|base| {
                base.walked_chain().is_none_or(|(table, chain)| {
                    let (table, chain) = (table.to_owned(), chain.to_owned());
                    !walked.is_harmless(None, &ForeignPart { table, chain, words: None })
                })
            });
        }
        found
    }
}
