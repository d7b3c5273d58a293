//! Foreign rules that send the queries of a captured name server elsewhere, which conntrack zones do not
//! survive.
//!
//! The response comes from another address or port than the name server's, so our rules give it no zone, and
//! the kernel looks for its query in the default zone: it is not translated back, and the resolver drops it.

use std::net::IpAddr;

use super::{BaseChain, DEEPEST, Examined, Place, Stage};
use crate::explain::Entry;
use crate::finding::{Finding, Problem};
use crate::live_rules::{
    Effect, Field, FieldMatch, LOCAL, Limit, LiveRule, To, Translation, address_number, address_of,
    name_number,
};
use crate::model::{
    Chain, DNS_PORT, Family, FamilyRules, Match, PerFamily, Ports, Rule, Table as OurTable, Target, Transport,
};
use crate::ordered::Ordered as _;

const UDP: u128 = 17;

/// The name servers whose queries over UDP are sure to get no response beside the desired rules, each with
/// the rule that translates them. A rule with a test that is not known, such as that of an owner, is none of
/// them.
#[must_use]
pub fn that_translate_queries(examined: &[Examined<'_>]) -> Vec<Finding> {
    let mut found = Vec::new();
    for family in examined {
        let captured = captured_servers(family.desired);
        if captured == Servers::None {
            continue;
        }
        let is_met = |base: &&BaseChain<'_>| base.stage == Stage::Output && base.is_nat;
        for base in family.chains().iter().filter(is_met) {
            let servers = match &captured {
                Servers::Listed(servers) => servers.clone(),
                Servers::Every | Servers::None => loopback_servers(family.family, base),
            };
            for server in servers {
                let query = Query { server, family, base };
                if let Outcome::Translated(Place { words, about }) = query.walk(base.chain, base.rules, 0) {
                    let sentence = format!(
                        "DNS queries over UDP to {server} would get no response while DNS is captured (--redirect-dns): a foreign rule \
                         sends them elsewhere{words}"
                    );
                    let finding = Finding::new(Problem::ForeignRule, sentence);
                    found.push(finding.about(about).family(family.family));
                }
            }
        }
    }
    found
}

/// Whether rules capture DNS queries over UDP.
#[must_use]
pub fn captures_queries(desired: &PerFamily<FamilyRules>) -> bool {
    desired.values().any(|rules| captured_servers(rules) != Servers::None)
}

/// The name servers whose queries have a conntrack zone.
#[derive(Debug, PartialEq, Eq)]
enum Servers {
    None,
    Listed(Vec<IpAddr>),
    Every,
}

fn captured_servers(rules: &FamilyRules) -> Servers {
    let raw = rules.tables.get(&OurTable::Raw);
    let mut servers = Vec::new();
    for rule in raw
        .and_then(|table| table.chains.get(&Chain::OutputDns))
        .into_iter()
        .flatten()
        .filter(|rule| is_of_app(rule))
    {
        match &rule.statement.matcher.destination {
            Some(Match::Is(net)) => servers.push(net.ip()),
            Some(Match::Not(_)) => {}
            None => return Servers::Every,
        }
    }
    if servers.is_empty() { Servers::None } else { Servers::Listed(servers) }
}

/// Whether a rule gives queries of the app a zone.
fn is_of_app(rule: &Rule) -> bool {
    let matcher = &rule.statement.matcher;
    let is_query = matcher.protocol.as_ref().is_some_and(|protocol| {
        protocol.transport == Transport::Udp && protocol.destination == Some(Match::Is(Ports::One(DNS_PORT)))
    });
    is_query && matcher.owners.is_empty() && matches!(rule.statement.target, Target::ConntrackZone(_))
}

/// The loopback addresses that rules of a base chain name: what they translate there is a name server in the
/// pod.
fn loopback_servers(family: Family, base: &BaseChain<'_>) -> Vec<IpAddr> {
    let rules = base.rules.iter().chain(base.all_named().flat_map(|(_, rules)| rules));
    let named = rules
        .flat_map(|entry| entry.rule.tests().into_owned())
        .filter(|test| test.field == Field::Destination && !test.is_negated);
    let single = named.flat_map(|test| test.values).filter(|(from, to)| from == to);
    let addresses = single.filter_map(|(address, _)| address_of(family, address));
    addresses.filter(IpAddr::is_loopback).into_set().into_iter().collect()
}

/// What becomes of a query in a chain.
#[derive(Debug)]
enum Outcome {
    Translated(Place),
    /// A rule translates it that it may match, such as that of one of several endpoints. Otherwise it
    /// continues.
    MayBeTranslated,
    /// The query leaves the base chain as it is, or that is not known.
    Ends,
    /// The query leaves the chain.
    Returns,
    Continues,
}

/// A query of the proxy over UDP.
struct Query<'a> {
    server: IpAddr,
    family: &'a Examined<'a>,
    base: &'a BaseChain<'a>,
}

impl Query<'_> {
    fn walk(&self, chain: &str, rules: &[Entry], depth: usize) -> Outcome {
        let mut may_be_translated = false;
        for (_, entry) in self.family.foreign(self.base, rules) {
            match self.meets(chain, &entry.rule, depth) {
                Outcome::Continues => {}
                Outcome::MayBeTranslated => may_be_translated = true,
                Outcome::Returns if may_be_translated => return Outcome::MayBeTranslated,
                outcome @ (Outcome::Translated(_) | Outcome::Ends | Outcome::Returns) => return outcome,
            }
        }
        if may_be_translated { Outcome::MayBeTranslated } else { Outcome::Continues }
    }

    fn meets(&self, chain: &str, rule: &LiveRule, depth: usize) -> Outcome {
        let effect = rule.effect();
        let decides = |outcome| match self.holds(rule) {
            Some(true) => outcome,
            Some(false) => Outcome::Continues,
            None => Outcome::Ends,
        };
        match &*effect {
            Effect::Chain { name, is_goto } => {
                let holds = self.holds(rule);
                let rules = self.base.named(name).filter(|_| holds != Some(false) && depth < DEEPEST);
                let outcome =
                    rules.map_or(Outcome::Continues, |(name, rules)| self.walk(name, rules, depth + 1));
                match outcome {
                    Outcome::Returns | Outcome::Continues if *is_goto && holds == Some(true) => {
                        Outcome::Returns
                    }
                    Outcome::Returns | Outcome::Continues => Outcome::Continues,
                    Outcome::MayBeTranslated if *is_goto => Outcome::Ends,
                    Outcome::Translated(_) if holds.is_none() => Outcome::MayBeTranslated,
                    outcome @ (Outcome::Translated(_) | Outcome::MayBeTranslated | Outcome::Ends) => outcome,
                }
            }
            Effect::Translates(translation) if self.is_kept_by(*translation) => decides(Outcome::Ends),
            Effect::Translates(_) | Effect::Known(Target::Redirect(_)) => match self.holds(rule) {
                Some(true) => Outcome::Translated(self.base.place(self.family.family, chain, rule)),
                Some(false) => Outcome::Continues,
                None => Outcome::MayBeTranslated,
            },
            Effect::Known(Target::Return) => decides(Outcome::Returns),
            Effect::Known(Target::Accept | Target::Drop | Target::Jump(_) | Target::Tproxy { .. })
            | Effect::Rejects
            | Effect::Queues { .. }
            | Effect::RewritesEnds
            | Effect::Takes
            | Effect::ToSocket { .. }
            | Effect::GivesSocket(..) => decides(Outcome::Ends),
            Effect::Known(
                Target::ConntrackZone(_) | Target::RestoreMark | Target::SaveMark | Target::SetMark(_),
            )
            | Effect::TranslatesSource
            | Effect::Marks
            | Effect::ChangesMark(_)
            | Effect::Untracks
            | Effect::SetsZone(_)
            | Effect::Continues => Outcome::Continues,
        }
    }

    /// Whether responses still come from the server and its port, or may.
    fn is_kept_by(&self, Translation { address, port }: Translation) -> bool {
        let same_address = match address {
            To::Same | To::Unknown => true,
            To::Own => false,
            To::This(address) => address == self.server,
        };
        same_address && matches!(port, To::Same | To::Unknown | To::This(53))
    }

    /// Whether a rule matches the query; `None`: that is not known.
    fn holds(&self, rule: &LiveRule) -> Option<bool> {
        let tests = rule.tests();
        let each = || tests.iter().map(|test| self.holds_for(test));
        if each().any(|holds| holds == Some(false)) {
            return Some(false);
        }
        (rule.unread().is_empty() && each().all(|holds| holds == Some(true))).then_some(true)
    }

    fn holds_for(&self, test: &FieldMatch) -> Option<bool> {
        let value = match test.field {
            Field::Protocol => UDP,
            Field::Destination => address_number(self.server),
            Field::DestinationPort => DNS_PORT.number().into(),
            Field::InInterface | Field::ExtensionHeader => 0,
            Field::OutInterface if self.server.is_loopback() => name_number(b"lo"),
            Field::DestinationType(Limit::None) if self.server.is_loopback() => LOCAL,
            Field::Source
            | Field::SourcePort
            | Field::EitherPort
            | Field::OutInterface
            | Field::Uid
            | Field::Gid
            | Field::Socket
            | Field::Mark
            | Field::Connmark
            | Field::State
            | Field::Connection(..)
            | Field::TcpFlags
            | Field::SourceType(_)
            | Field::DestinationType(_)
            | Field::ReversePath(_) => return None,
        };
        Some(test.lists(value) != test.is_negated)
    }
}
