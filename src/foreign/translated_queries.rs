//! Foreign rules that send the queries of a captured name server elsewhere, which conntrack zones do not
//! survive.
//!
//! The response comes from another address or port than the name server's, so our rules give it no zone, and
//! the kernel looks for its query in the default zone: it is not translated back, and the resolver drops it.
//! With all DNS captured, what comes from port 53 of any host has the zone of the proxy's queries. The app's
//! have another one: without a response is what is translated before our rules see it.

use std::net::{IpAddr, SocketAddr};

use super::{BaseChain, Examined, Place};
use crate::explain::{
    Entry, Match as Matches, Open, Packet, Process, Routing, Step, any_pod, any_server, walk_open,
};
use crate::finding::{Finding, Problem};
use crate::live_rules::{Effect, Field, NO_SOCKET, To, Translation, address_of, name_number};
use crate::model::{
    Chain, DNS_PORT, FamilyRules, Hook, Match, NAT_PRIORITY, Owner, PerFamily, Ports, Rule, Table, Target,
    Transport,
};

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
        let servers = match &captured {
            Servers::None => continue,
            Servers::Listed(servers) => servers.iter().copied().map(Some).collect(),
            Servers::Every => named_servers(family),
        };
        for server in servers {
            let query = Query { server, family, is_every_captured: captured == Servers::Every };
            let Some(Translated { by: place, is_sure, excludes_some }) = query.translated() else { continue };
            let server = match server {
                Some(server) => server.to_string(),
                None if excludes_some => "servers that no rule excludes".to_owned(),
                None => "any server".to_owned(),
            };
            let (get, list) = if is_sure { ("would", &mut lost.sure) } else { ("may", &mut lost.possible) };
            let sentence = format!(
                "DNS queries over UDP to {server} {get} get no response while DNS is captured (--redirect-dns): a foreign rule \
                 sends them elsewhere{place}"
            );
            let finding = Finding::new(Problem::ForeignRule, sentence);
            list.push(place.about(finding).family(family.family));
        }
    }
    lost
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
    let raw = rules.tables.get(&Table::Raw);
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

/// The servers that foreign rules name, and any other one (`None`).
fn named_servers(family: &Examined<'_>) -> Vec<Option<IpAddr>> {
    let mut found = vec![None];
    for (_, entry) in family.rules.foreign() {
        let tests = entry.rule.tests();
        let named = tests.iter().filter(|test| test.field == Field::Destination && !test.is_negated);
        for (first, last) in named.flat_map(|test| &test.values) {
            // One address stands for a network; that of the network itself no host has.
            let address = if first == last { *first } else { first.saturating_add(1) };
            let server = address_of(family.family, address);
            if !found.contains(&server) && found.len() < MOST {
                found.push(server);
            }
        }
    }
    found
}

/// Most name servers that are asked about.
const MOST: usize = 64;

/// The translation of a query after which its response is lost, or may be.
struct Translated {
    by: Place,
    is_sure: bool,
    /// Whether rules of the same base chain name servers: that is not for all of them.
    excludes_some: bool,
}

/// A query of the proxy over UDP.
struct Query<'a> {
    /// `None`: one that no rule names.
    server: Option<IpAddr>,
    family: &'a Examined<'a>,
    is_every_captured: bool,
}

impl Query<'_> {
    /// What sends it elsewhere, so that the response has no zone.
    fn translated(&self) -> Option<Translated> {
        let Self { server, family, .. } = *self;
        let server = server.unwrap_or_else(|| any_server(family.family));
        let own = family.fib.into_iter().flat_map(|fib| &fib.addresses).map(|own| own.address);
        let source = if server.is_loopback() { Some(server) } else { { own }.find(|own| !own.is_loopback()) };
        let source = source.unwrap_or_else(|| any_pod(family.family));
        let to = SocketAddr::new(server, DNS_PORT.number());
        let packet = Packet::over_lo(Some(proxy(family.desired)), Transport::Udp, source, to);
        let routing = Routing { fib: family.fib, ..Routing::default() };
        let is_local = server.is_loopback() || routing.has_own(server);
        let packet =
            Packet { is_local, has_interface: is_local, has_source: is_local, ..packet }.by_route(routing);
        let open = [
            (Field::Source, 0),
            (Field::SourcePort, 0),
            (Field::EitherPort, 0),
            (Field::Uid, NO_SOCKET),
            (Field::Gid, NO_SOCKET),
            (Field::OutInterface, name_number(b"lo")),
        ];
        let open = open.map(|(field, not)| Open { field, except: vec![not] });
        let walk = walk_open(family.rules, &packet, routing, &open);
        let may_match = |step: &&Step<'_>| {
            step.hook == Hook::Output.name() && !matches!(step.matches, Matches::Mismatch(_))
        };
        let met: Vec<Met<'_, '_>> =
            walk.steps.iter().filter(may_match).filter_map(|step| self.met(step, &walk.steps)).collect();
        let decisive = walk.decisive().filter(|_| walk.uncertain.is_empty());
        let certain = decisive.and_then(|step| met.iter().find(|met| std::ptr::eq(met.step.rule, step.rule)));
        let certain = certain.filter(|_| met.iter().all(|met| met.is_kept != Some(true)));
        // A rule that may match, and of which not even the destination is known.
        let found = certain.or_else(|| met.iter().find(|met| met.is_kept.is_none()))?;
        let base = &found.base;
        let excludes_some = self.server.is_none() && names_server(base);
        let is_certain = certain.is_some() && met.iter().all(|met| met.is_kept == Some(false));
        Some(Translated {
            by: base.place(family.family, found.step.chain, &found.step.rule.rule),
            is_sure: is_certain && !excludes_some,
            excludes_some,
        })
    }

    /// A step as a translation by a foreign rule.
    fn met<'w, 'r>(&self, step: &'w Step<'r>, steps: &[Step<'_>]) -> Option<Met<'w, 'r>>
    where
        Self: 'r,
    {
        let base = self.family.base_of(step).filter(|base| self.family.is_foreign(base, step.rule))?;
        let translation = translation(step)?;
        let is_ours = |other: &Step<'_>| {
            (other.hook, other.table) == (step.hook, step.table) && !other.rule.is_foreign()
        };
        let is_behind_ours =
            if base.shared.is_some() { steps.iter().any(is_ours) } else { base.priority >= NAT_PRIORITY };
        Some(Met { step, is_kept: self.is_kept_by(translation, is_behind_ours), base })
    }

    /// Whether responses still come from the server and its port; `None`: that is not known. With all DNS
    /// captured any other host's port 53 is known, where the query meets our rules first.
    fn is_kept_by(&self, Translation { address, port }: Translation, is_behind_ours: bool) -> Option<bool> {
        let is_to_loopback = self.server.is_some_and(|server| server.is_loopback());
        let by_port = self.is_every_captured && is_behind_ours && !is_to_loopback;
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
}

/// A rule that translates a query, or may.
struct Met<'w, 'r> {
    step: &'w Step<'r>,
    base: BaseChain<'r>,
    /// Whether its response is known.
    is_kept: Option<bool>,
}

/// Whether a rule of a base chain, or of one that it may lead to, names servers.
fn names_server(base: &BaseChain<'_>) -> bool {
    let named = base.all_named().flat_map(|(_, rules)| rules);
    let tests_server = |entry: &Entry| entry.rule.tests().iter().any(|test| test.field == Field::Destination);
    base.rules.iter().chain(named).any(tests_server)
}

/// The new destination that a foreign rule gives.
fn translation(step: &Step<'_>) -> Option<Translation> {
    let rule = step.rule.is_foreign().then(|| step.rule.rule.effect())?;
    if let Effect::Translates(translation) = &*rule {
        return Some(*translation);
    }
    let port = if let Effect::Known(Target::Redirect(port)) = &*rule { port.number() } else { return None };
    Some(Translation { address: To::Own, port: To::This(port) })
}

/// The first owner whose queries have the proxy's zone.
fn proxy(rules: &FamilyRules) -> Process {
    let raw = rules.tables.get(&Table::Raw).and_then(|table| table.chains.get(&Chain::OutputDns));
    let owners = raw.into_iter().flatten().flat_map(|rule| &rule.statement.matcher.owners);
    let mut process = Process { uid: 0, gid: 0 };
    for owner in owners {
        match owner {
            Match::Is(Owner::Uid(uid)) => process.uid = *uid,
            Match::Is(Owner::Gid(gid)) => process.gid = *gid,
            Match::Not(_) => {}
        }
    }
    process
}
