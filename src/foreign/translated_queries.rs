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

/// Foreign rules beside which queries over UDP to name servers get no response.
#[derive(Debug, Default)]
pub struct LostQueries {
    /// Rules that are sure to translate a query. One with a test that is not known, such as that of an owner,
    /// is none of them.
    pub sure: Vec<Finding>,
    /// Rules whose destination is not known, and those that exclude servers, of which the pod may use no
    /// other.
    pub possible: Vec<Finding>,
}

/// The rules that translate queries to captured name servers, beside the desired rules.
#[must_use]
pub fn that_translate_queries(examined: &[Examined<'_>]) -> LostQueries {
    let mut lost = LostQueries::default();
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
                let excludes_some = server.is_none() && names_server(base);
                let (is_sure, Place { words, about }) = match outcomes
                    .find(|outcome| !matches!(outcome, Outcome::Continues))
                {
                    Some(Outcome::Translated(place)) => (!excludes_some, place),
                    Some(Outcome::Unknown(place) | Outcome::MayBeTranslated(Some(place))) => (false, place),
                    Some(
                        Outcome::MayBeTranslated(None)
                        | Outcome::Ends
                        | Outcome::Returns
                        | Outcome::Continues,
                    )
                    | None => continue,
                };
                let server = match server {
                    Some(server) => server.to_string(),
                    None if excludes_some => "servers that no rule excludes".to_owned(),
                    None => "any server".to_owned(),
                };
                let (get, list) =
                    if is_sure { ("would", &mut lost.sure) } else { ("may", &mut lost.possible) };
                let sentence = format!(
                    "DNS queries over UDP to {server} {get} get no response while DNS is captured (--redirect-dns): a foreign rule \
                     sends them elsewhere{words}"
                );
                let finding = Finding::new(Problem::ForeignRule, sentence);
                list.push(finding.about(about).family(family.family));
            }
        }
    }
    lost
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

/// All rules of a base chain and of those that it leads to.
fn all_rules<'a>(base: &'a BaseChain<'a>) -> impl Iterator<Item = &'a LiveRule> {
    let named = base.all_named().flat_map(|(_, rules)| rules);
    base.rules.iter().chain(named).map(|entry| &entry.rule)
}

/// Whether a rule names servers, so that it is not for all of them.
fn names_server(base: &BaseChain<'_>) -> bool {
    all_rules(base).any(|rule| rule.tests().iter().any(|test| test.field == Field::Destination))
}

/// The servers whose queries rules of a base chain name, and any other one (`None`).
fn named_servers(family: &Examined<'_>, base: &BaseChain<'_>) -> Vec<Option<IpAddr>> {
    let mut found = vec![None];
    for rule in all_rules(base) {
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
    /// A rule translates it, to where is not known.
    Unknown(Place),
    /// A rule translates it that it may match, such as that of one of several endpoints. Otherwise it
    /// continues. With the rule, if not even its destination is known.
    MayBeTranslated(Option<Place>),
    /// The query leaves the base chain as it is, or that is not known.
    Ends,
    /// The query leaves the chain.
    Returns,
    Continues,
}

/// A query of the proxy over UDP.
struct Query<'a> {
    /// `None`: one that no rule names.
    server: Option<IpAddr>,
    family: &'a Examined<'a>,
    base: &'a BaseChain<'a>,
    /// Whether responses from port 53 of any other host have its zone.
    has_zone_by_port: bool,
}

impl Query<'_> {
    fn walk(&self, chain: &str, rules: &[Entry], depth: usize) -> Outcome {
        let mut may_be: Option<Option<Place>> = None;
        for (_, entry) in self.family.foreign(self.base, rules) {
            match self.meets(chain, &entry.rule, depth) {
                Outcome::Continues => {}
                Outcome::MayBeTranslated(place) => may_be = Some(may_be.flatten().or(place)),
                Outcome::Returns if may_be.is_some() => break,
                outcome @ (Outcome::Translated(_)
                | Outcome::Unknown(_)
                | Outcome::Ends
                | Outcome::Returns) => return outcome,
            }
        }
        may_be.map_or(Outcome::Continues, Outcome::MayBeTranslated)
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
                    Outcome::MayBeTranslated(None) if *is_goto => Outcome::Ends,
                    Outcome::Translated(_) if holds.is_none() => Outcome::MayBeTranslated(None),
                    Outcome::Unknown(place) if holds.is_none() => Outcome::MayBeTranslated(Some(place)),
                    outcome @ (Outcome::Translated(_)
                    | Outcome::Unknown(_)
                    | Outcome::MayBeTranslated(_)
                    | Outcome::Ends) => outcome,
                }
            }
            Effect::Translates(translation) if self.is_kept_by(*translation) == Some(true) => {
                decides(Outcome::Ends)
            }
            Effect::Translates(translation) => self.translated(chain, rule, *translation),
            Effect::Known(Target::Redirect(_)) => {
                self.translated(chain, rule, Translation { address: To::Own, port: To::Same })
            }
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

    /// What becomes of it by a rule after whose translation responses are lost, or may be.
    fn translated(&self, chain: &str, rule: &LiveRule, translation: Translation) -> Outcome {
        let place = || self.base.place(self.family.family, chain, rule);
        let is_known = translation.address != To::Unknown && translation.port != To::Unknown;
        match self.holds(rule) {
            Some(false) => Outcome::Continues,
            Some(true) if self.is_kept_by(translation).is_none() => Outcome::Unknown(place()),
            Some(true) => Outcome::Translated(place()),
            None => Outcome::MayBeTranslated((!is_known).then(place)),
        }
    }

    /// Whether responses still come from the server and its port; `None`: that is not known.
    fn is_kept_by(&self, Translation { address, port }: Translation) -> Option<bool> {
        let by_port = self.has_zone_by_port && !self.is_to_loopback();
        let same_address = match address {
            To::Same => Some(true),
            To::Own => Some(false),
            To::This(address) => Some(Some(address) == self.server || (by_port && !address.is_loopback())),
            To::Unknown => by_port.then_some(true),
        };
        let same_port = match port {
            To::Same | To::This(53) => Some(true),
            To::Own | To::This(_) => Some(false),
            To::Unknown => None,
        };
        match (same_address, same_port) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            (None, _) | (_, None) => None,
        }
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
            Field::Destination => match self.server {
                Some(server) => address_number(server),
                None => return Some(test.is_negated),
            },
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
