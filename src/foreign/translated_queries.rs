//! Foreign rules that send the queries of a captured name server elsewhere, which conntrack zones do not
//! survive.
//!
//! The response comes from another address or port than the name server's, so our rules give it no zone, and
//! the kernel looks for its query in the default zone: it is not translated back, and the resolver drops it.
//! With all DNS captured, what comes from port 53 of any host has the zone of the proxy's queries. The app's
//! have another one: without a response is what is translated before our rules see it.

use std::net::IpAddr;

use super::{BaseChain, DEEPEST, Examined, Place, Stage};
use crate::explain::Entry;
use crate::finding::{Finding, Problem};
use crate::live_rules::{
    Effect, Field, FieldMatch, LOCAL, Limit, LiveRule, To, Translation, address_number, address_of,
    name_number,
};
use crate::model::{
    Chain, DNS_PORT, FamilyRules, Match, NAT_PRIORITY, PerFamily, Ports, Rule, Table as OurTable, Target,
    Transport,
};

const UDP: u128 = 17;

/// The name servers whose queries over UDP are sure to get no response beside the desired rules, each with
/// the rule that translates them. A rule with a test that is not known, such as that of an owner, is none of
/// them.
#[must_use]
pub fn that_translate_queries(examined: &[Examined<'_>]) -> Vec<Finding> {
    let mut found = Vec::new();
    for family in examined {
        let captured = captured_servers(family.desired);
        let is_met = |base: &&BaseChain<'_>| base.stage == Stage::Output && base.is_nat;
        for base in family.chains().iter().filter(is_met) {
            let servers: Vec<Option<IpAddr>> = match &captured {
                Servers::None => continue,
                Servers::Listed(servers) => servers.iter().copied().map(Some).collect(),
                Servers::Every => named_servers(family, base),
            };
            for server in servers {
                let mut outcomes = parts(base).into_iter().map(|(is_before_ours, rules)| {
                    let has_zone_by_port = captured == Servers::Every && !is_before_ours;
                    Query { server, family, base, has_zone_by_port }.walk(base.chain, rules, 0)
                });
                let outcome = outcomes.find(|outcome| !matches!(outcome, Outcome::Continues));
                if let Some(Outcome::Translated(Place { words, about })) = outcome {
                    let server = server.map_or_else(|| "any server".to_owned(), |server| server.to_string());
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

/// The rules of a chain, and whether packets are known to meet them before our rules of nat.
fn parts<'a>(base: &BaseChain<'a>) -> Vec<(bool, &'a [Entry])> {
    if base.shared.is_none() {
        return vec![(base.priority < NAT_PRIORITY, base.rules)];
    }
    let (before, behind) = base.around_ours();
    vec![(true, before), (false, behind)]
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

/// The servers whose queries rules of a base chain name, and any other one (`None`).
fn named_servers(family: &Examined<'_>, base: &BaseChain<'_>) -> Vec<Option<IpAddr>> {
    let mut found = vec![None];
    for Entry { rule, .. } in base.rules.iter().chain(base.all_named().flat_map(|(_, rules)| rules)) {
        let tests = rule.tests();
        let Some(named) = tests.iter().find(|test| test.field == Field::Destination) else { continue };
        for (first, last) in named.values.iter().filter(|_| !named.is_negated) {
            // One address stands for a network; that of the network itself no host has.
            let address = if first == last { *first } else { first.saturating_add(1) };
            let server = address_of(family.family, address);
            let query = Query { server, family, base, has_zone_by_port: false };
            if query.holds(rule) == Some(true) && !found.contains(&server) {
                found.push(server);
            }
        }
    }
    found
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
    /// `None`: any that no rule names.
    server: Option<IpAddr>,
    family: &'a Examined<'a>,
    base: &'a BaseChain<'a>,
    /// Whether responses from port 53 of any other host have its zone.
    has_zone_by_port: bool,
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
            To::This(address) => {
                Some(address) == self.server
                    || (self.has_zone_by_port && !self.is_to_loopback() && !address.is_loopback())
            }
        };
        same_address && matches!(port, To::Same | To::Unknown | To::This(53))
    }

    fn is_to_loopback(&self) -> bool {
        self.server.is_some_and(|server| server.is_loopback())
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
            Field::Destination => address_number(self.server?),
            Field::DestinationPort => DNS_PORT.number().into(),
            Field::InInterface | Field::ExtensionHeader => 0,
            Field::OutInterface if self.is_to_loopback() => name_number(b"lo"),
            Field::DestinationType(Limit::None) if self.is_to_loopback() => LOCAL,
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
