//! Rules that differ in one value only, as one rule with a list of values: the kernel looks it up in a set,
//! whatever its length.

use std::collections::HashSet;

use ipnetwork::IpNetwork;

use super::combine::FamilyRule;
use crate::model::{
    CtState, Family, Interface, Mark, Match, Matcher, Owner, Port, Ports, Protocol, Statement, Target, Why,
};

/// The dimension of a rule that is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dimension {
    Source,
    Destination,
    InInterface,
    OutInterface,
    DestinationPort,
    Owner,
}

impl Dimension {
    const ALL: [Self; 6] = [
        Self::Destination,
        Self::DestinationPort,
        Self::Owner,
        Self::Source,
        Self::InInterface,
        Self::OutInterface,
    ];
}

/// A value of a dimension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Listed {
    Network(IpNetwork),
    Interface(Interface),
    Port(Port),
    Owner(Owner),
}

/// A rule whose matcher may have a list in place of one value.
#[derive(Clone, Debug)]
pub(super) struct JoinedRule {
    pub(super) only: Option<Family>,
    /// With the first value of the list.
    pub(super) matcher: Matcher,
    /// The dimension and all its values.
    pub(super) list: Option<(Dimension, Vec<Listed>)>,
    pub(super) target: Target,
    pub(super) why: Why,
    /// The destination ports of the rule, unless it is for any or for all but some.
    pub(super) ports: HashSet<Port>,
}

impl JoinedRule {
    fn new(guarded: FamilyRule) -> Self {
        let FamilyRule { only, rule } = guarded;
        let Statement { matcher, target } = rule.statement;
        let ports = port_of(&matcher).into_iter().collect();
        Self { only, matcher, list: None, target, why: rule.why, ports }
    }

    /// Takes another rule into the list, if it differs from this one in a value of the list's dimension only.
    fn absorb(&mut self, other: &Self) -> bool {
        if (self.only, self.target, self.why) != (other.only, other.target, other.why) {
            return false;
        }
        let dimension = match &self.list {
            Some((dimension, _)) => same_but(*dimension, &self.matcher, &other.matcher).then_some(*dimension),
            None => Dimension::ALL
                .into_iter()
                .find(|dimension| same_but(*dimension, &self.matcher, &other.matcher)),
        };
        let Some((dimension, value)) = dimension.and_then(|d| Some((d, value_of(d, &other.matcher)?))) else {
            return false;
        };
        let first = value_of(dimension, &self.matcher);
        let (_, values) = self.list.get_or_insert_with(|| (dimension, first.into_iter().collect()));
        values.push(value);
        self.ports.extend(port_of(&other.matcher));
        true
    }

    /// Whether it makes no difference which of the two is first: both do the same, or no packet matches both.
    fn commutes_with(&self, other: &Self) -> bool {
        let transports = |draft: &Self| draft.matcher.protocol.as_ref().map(|protocol| protocol.transport);
        let differ = transports(self).zip(transports(other)).is_some_and(|(a, b)| a != b);
        let other_families = self.only.zip(other.only).is_some_and(|(a, b)| a != b);
        let other_ports =
            !self.ports.is_empty() && !other.ports.is_empty() && self.ports.is_disjoint(&other.ports);
        self.target == other.target || differ || other_families || other_ports
    }
}

/// Joins what can be joined. No target of ours does more when it is reached twice, so rules with the same
/// target can be in any order.
pub(super) fn join(rules: Vec<FamilyRule>) -> Vec<JoinedRule> {
    let mut drafts: Vec<JoinedRule> = Vec::new();
    'rules: for guarded in rules {
        let rule = JoinedRule::new(guarded);
        for earlier in drafts.iter_mut().rev() {
            if earlier.absorb(&rule) {
                continue 'rules;
            }
            if !earlier.commutes_with(&rule) {
                break;
            }
        }
        drafts.push(rule);
    }
    drafts
}

/// The destination port, if there is just one.
fn port_of(matcher: &Matcher) -> Option<Port> {
    match matcher.protocol.as_ref()?.destination.as_ref()? {
        Match::Is(Ports::One(port)) => Some(*port),
        Match::Is(Ports::Any(_)) | Match::Not(_) => None,
    }
}

/// The value of a dimension, if it is one that can be in a list.
fn value_of(dimension: Dimension, matcher: &Matcher) -> Option<Listed> {
    let network = |test: &Option<Match<IpNetwork>>| match test {
        Some(Match::Is(network)) => Some(Listed::Network(*network)),
        Some(Match::Not(_)) | None => None,
    };
    // A prefix of names is not a value of a set.
    let interface = |name: &Option<Interface>| {
        name.as_ref().filter(|name| !name.as_str().ends_with('+')).cloned().map(Listed::Interface)
    };
    match dimension {
        Dimension::Source => network(&matcher.source),
        Dimension::Destination => network(&matcher.destination),
        Dimension::InInterface => interface(&matcher.in_interface),
        Dimension::OutInterface => interface(&matcher.out_interface),
        Dimension::DestinationPort => port_of(matcher).map(Listed::Port),
        Dimension::Owner => match matcher.owners.as_slice() {
            [Match::Is(owner)] => Some(Listed::Owner(*owner)),
            _ => None,
        },
    }
}

/// Whether two matchers differ in this dimension at most, and have values there that one set can hold.
fn same_but(dimension: Dimension, a: &Matcher, b: &Matcher) -> bool {
    let alike = match (value_of(dimension, a), value_of(dimension, b)) {
        (Some(Listed::Network(a)), Some(Listed::Network(b))) => a.is_ipv4() == b.is_ipv4(),
        (Some(Listed::Owner(a)), Some(Listed::Owner(b))) => {
            matches!(a, Owner::Uid(_)) == matches!(b, Owner::Uid(_))
        }
        (Some(_), Some(_)) => true,
        (None, _) | (_, None) => false,
    };
    alike && Others::of(dimension, a) == Others::of(dimension, b)
}

/// A matcher without one of its dimensions.
#[derive(PartialEq)]
struct Others<'a> {
    source: Option<&'a Match<IpNetwork>>,
    destination: Option<&'a Match<IpNetwork>>,
    in_interface: Option<&'a Interface>,
    out_interface: Option<&'a Interface>,
    protocol: Option<&'a Protocol>,
    transport: Option<crate::model::Transport>,
    ct_state: Option<CtState>,
    mark: Option<Match<Mark>>,
    connmark: Option<Mark>,
    owners: &'a [Match<Owner>],
}

impl<'a> Others<'a> {
    fn of(dimension: Dimension, matcher: &'a Matcher) -> Self {
        let Matcher {
            source,
            destination,
            in_interface,
            out_interface,
            protocol,
            ct_state,
            mark,
            connmark,
            owners,
        } = matcher;
        let kept = |other: Dimension| dimension != other;
        let port_only = protocol.as_ref().is_some_and(|protocol| {
            let Protocol { transport: _, source, destination: _, syn } = protocol;
            source.is_none() && syn.is_none()
        });
        Self {
            source: source.as_ref().filter(|_| kept(Dimension::Source)),
            destination: destination.as_ref().filter(|_| kept(Dimension::Destination)),
            in_interface: in_interface.as_ref().filter(|_| kept(Dimension::InInterface)),
            out_interface: out_interface.as_ref().filter(|_| kept(Dimension::OutInterface)),
            protocol: protocol.as_ref().filter(|_| kept(Dimension::DestinationPort) || !port_only),
            transport: protocol.as_ref().map(|protocol| protocol.transport),
            ct_state: *ct_state,
            mark: *mark,
            connmark: *connmark,
            owners: if kept(Dimension::Owner) { owners } else { &[] },
        }
    }
}
