//! Foreign rules that change marks which TPROXY needs on the way of a packet, whatever they are for.

mod carriers;
mod chains;
mod packet;

use std::collections::{BTreeMap, BTreeSet};

use nfnetlink::nftables::Table;

use super::{DEEPEST, Live};
use crate::model::{Backend, FamilyRules, Fib, Link, Mark, PerFamily};
use crate::parse::{self, MarkChange};
use carriers::{Carrier, Harm, Place, carriers};
use chains::{BaseChain, base_chains};
use packet::{Holds, Pod, holds};

/// What there is besides rules.
#[derive(Clone, Copy, Debug)]
pub struct Network<'a> {
    /// The addresses of the pod.
    pub fib: &'a PerFamily<Fib>,
    /// Its interfaces.
    pub links: &'a [Link],
}

/// A rule that does harm, in words, and what it does.
type Found = BTreeMap<String, BTreeSet<Harm>>;

/// The rules of other programs that change marks of these rules of a family, each with what that means.
pub(super) fn in_family(
    rules: &FamilyRules,
    mark: Mark,
    backend: Backend,
    (live, network): (Live<'_>, Network<'_>),
    tables: &[Table],
) -> Vec<(String, String)> {
    let pod = Pod::of(rules, network.fib.get(&rules.family));
    let carriers = carriers(mark);
    let mut found = Found::new();
    for base in base_chains(rules, backend, live, (tables, network.links)) {
        for carrier in &carriers {
            let mut walk = Walk { base: &base, carrier, pod: &pod, seen: BTreeSet::new(), found: &mut found };
            for part in &base.parts {
                walk.chain(&base.chain, &part.rules, part.place, 0);
            }
        }
    }
    found.into_iter().map(|(rule, harms)| (rule, consequences(&harms, mark))).collect()
}

/// What the harms of one rule mean.
fn consequences(harms: &BTreeSet<Harm>, mark: Mark) -> String {
    let of = |harm: &Harm| match harm {
        Harm::OwnCalls => "connections of a proxy that is root to the pod itself are not captured".to_owned(),
        Harm::ClientAddress => {
            "connections that the proxy makes to the application from the client's address get no answer"
                .to_owned()
        }
        Harm::OtherCalls => "connections of other programs to the pod itself are captured".to_owned(),
        Harm::Clients => format!(
            "captured connections get the mark {mark}, with which the proxy's answers are routed to lo"
        ),
    };
    harms.iter().map(of).collect::<Vec<_>>().join("; ")
}

/// How a chain ends for a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Returns,
    Leaves,
}

/// One packet in one base chain. Each change is looked at by itself: with the marks that the packet has without any.
struct Walk<'a, 'b> {
    base: &'a BaseChain,
    carrier: &'a Carrier,
    pod: &'a Pod,
    seen: BTreeSet<&'a str>,
    found: &'b mut Found,
}

impl<'a> Walk<'a, '_> {
    fn chain(&mut self, chain: &str, rules: &'a [String], place: Place, depth: usize) -> End {
        if !self.carrier.comes_by(place, self.base.kind) {
            return End::Returns;
        }
        for text in rules {
            let Some(matches) = parse::matches::read(text) else { continue };
            let holds = holds(&matches, self.carrier, place, self.pod);
            let target = parse::target_words(text).unwrap_or_default();
            let [option, name, ..] = target.as_slice() else { continue };
            if holds == Holds::No {
                continue;
            }
            if let Some((name, rules)) = self.base.chains.get_key_value(name) {
                let is_new = depth < DEEPEST && self.seen.insert(name);
                let end = if is_new { self.chain(name, rules, place, depth + 1) } else { End::Returns };
                if holds == Holds::Yes && (end == End::Leaves || option == "-g") {
                    return end;
                }
                continue;
            }
            match name.as_str() {
                "RETURN" if holds == Holds::Yes => return End::Returns,
                "ACCEPT" | "DROP" | "REJECT" if holds == Holds::Yes => return End::Leaves,
                _ => self.change(chain, text, &target, place),
            }
        }
        End::Returns
    }

    fn change(&mut self, chain: &str, text: &str, target: &[String], place: Place) {
        let words: Vec<&str> = target.iter().skip(1).map(String::as_str).collect();
        let change = MarkChange::of(&words);
        let is_mark = words.first().is_some_and(|name| ["CONNMARK", "HMARK", "MARK"].contains(name));
        let is_without_connection =
            place.is_before_tracking() && change.is_some_and(MarkChange::needs_connection);
        if !is_mark || is_without_connection {
            return;
        }
        let Carrier { mark, connmark, harm, .. } = *self.carrier;
        let changed = change.map(|change| change.apply(mark, connmark));
        if self.carrier.is_harmed_by(changed) {
            self.found.entry(self.base.shown(chain, text)).or_default().insert(harm);
        }
    }
}
