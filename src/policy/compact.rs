//! Rules for single ports as rules for several, for a kernel that takes only so many.

use std::borrow::Cow;

use crate::model::{
    FamilyRules, Match, Matcher, Port, Ports, Protocol, Rule, Statement, Target, Transport, Why,
};

/// So many ports has one rule at most.
const MOST: usize = 15;

/// What rules have alike that can be exchanged: their order makes no difference.
type Kind = (Target, Why);

/// The rules, where those for single ports that follow each other and do the same are joined.
#[must_use]
pub fn compact(mut rules: FamilyRules) -> FamilyRules {
    for chain in rules.tables.values_mut().flat_map(|table| table.chains.values_mut()) {
        let (mut compacted, mut pending) = (Vec::new(), Pending::default());
        for rule in std::mem::take(chain) {
            match port_of(&rule) {
                Some(port) => pending.add((rule.statement.target, rule.why), port, &mut compacted),
                None => {
                    pending.finish(&mut compacted);
                    compacted.push(rule);
                }
            }
        }
        pending.finish(&mut compacted);
        *chain = compacted;
    }
    rules
}

/// The opposite of [`compact`].
#[must_use]
pub(super) fn expand(rules: &FamilyRules) -> Cow<'_, FamilyRules> {
    let all = || rules.tables.values().flat_map(|table| table.chains.values()).flatten();
    if !all().any(|rule| ports_of(rule).is_some()) {
        return Cow::Borrowed(rules);
    }
    let mut rules = rules.clone();
    for chain in rules.tables.values_mut().flat_map(|table| table.chains.values_mut()) {
        *chain = std::mem::take(chain).into_iter().flat_map(single).collect();
    }
    Cow::Owned(rules)
}

/// The ports of a rule for several.
fn ports_of(rule: &Rule) -> Option<&[Port]> {
    match rule.statement.matcher.protocol.as_ref()?.destination.as_ref()? {
        Match::Is(Ports::Any(ports)) => Some(ports),
        Match::Is(Ports::One(_)) | Match::Not(_) => None,
    }
}

fn single(rule: Rule) -> Vec<Rule> {
    let Some(ports) = ports_of(&rule) else { return vec![rule] };
    let one = |port: &Port| {
        let mut rule = rule.clone();
        if let Some(protocol) = &mut rule.statement.matcher.protocol {
            protocol.destination = Some(Match::Is(Ports::One(*port)));
        }
        rule
    };
    ports.iter().map(one).collect()
}

/// Ports whose rules are not written yet.
#[derive(Default)]
struct Pending {
    kind: Option<Kind>,
    ports: Vec<(Transport, Port)>,
}

impl Pending {
    fn add(&mut self, kind: Kind, port: (Transport, Port), to: &mut Vec<Rule>) {
        if self.kind != Some(kind) {
            self.finish(to);
            self.kind = Some(kind);
        }
        self.ports.push(port);
    }

    fn finish(&mut self, to: &mut Vec<Rule>) {
        let ports = std::mem::take(&mut self.ports);
        let Some((target, why)) = self.kind.take() else { return };
        for transport in [Transport::Tcp, Transport::Udp] {
            let of = ports.iter().filter(|(of, _)| *of == transport);
            let ports: Vec<Port> = of.map(|(_, port)| *port).collect();
            to.extend(ports.chunks(MOST).map(|ports| {
                let ports = match ports {
                    [port] => Ports::One(*port),
                    ports => Ports::Any(ports.to_vec()),
                };
                let protocol = Protocol { destination: Some(Match::Is(ports)), ..Protocol::all(transport) };
                let matcher = Matcher { protocol: Some(protocol), ..Matcher::default() };
                Rule { statement: Statement { matcher, target }, only: None, why }
            }));
        }
    }
}

/// The port of a rule that tests nothing else.
fn port_of(rule: &Rule) -> Option<(Transport, Port)> {
    let matcher = &rule.statement.matcher;
    let protocol = matcher.protocol.as_ref()?;
    let Some(Match::Is(Ports::One(port))) = protocol.destination else { return None };
    let alone = Matcher { protocol: Some(Protocol::to(protocol.transport, port)), ..Matcher::default() };
    (rule.only.is_none() && *matcher == alone).then_some((protocol.transport, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Chain, Family, Table};
    use crate::render;

    fn rule(transport: Transport, port: u16, target: Target, why: Why) -> Rule {
        let matcher = Matcher {
            protocol: Some(Protocol::to(transport, Port::new(port).unwrap())),
            ..Matcher::default()
        };
        Rule { statement: Statement { matcher, target }, only: None, why }
    }

    fn rules(chain: Vec<Rule>) -> FamilyRules {
        let mut rules = FamilyRules::none(Family::V4);
        rules.tables.entry(Table::Nat).or_default().chains.insert(Chain::Output, chain);
        rules
    }

    fn lines(rules: &FamilyRules) -> Vec<String> {
        let text = render::fresh(rules);
        text.lines().filter_map(|line| line.strip_prefix("-A ISTIO_OUTPUT ")).map(str::to_owned).collect()
    }

    #[test]
    fn ports_of_rules_that_do_the_same_get_into_one() {
        let (excluded, included) = (Why::ExcludedOutboundPort, Why::IncludedOutboundPort);
        let mut chain = Vec::new();
        for port in 1..=16 {
            chain.push(rule(Transport::Tcp, port, Target::Return, excluded));
            chain.push(rule(Transport::Udp, port, Target::Return, excluded));
        }
        // Exchanged with the next one, it would capture port 20.
        chain.push(rule(Transport::Tcp, 20, Target::Jump(Chain::Redirect), included));
        chain.push(rule(Transport::Tcp, 20, Target::Return, excluded));
        let all = rules(chain.clone());
        let compacted = compact(all.clone());
        let list: Vec<String> = (1..=15).map(|port: u16| port.to_string()).collect();
        let list = list.join(",");
        assert_eq!(
            lines(&compacted),
            [
                format!("-p tcp -m multiport --dports {list} -j RETURN"),
                "-p tcp --dport 16 -j RETURN".to_owned(),
                format!("-p udp -m multiport --dports {list} -j RETURN"),
                "-p udp --dport 16 -j RETURN".to_owned(),
                "-p tcp --dport 20 -j ISTIO_REDIRECT".to_owned(),
                "-p tcp --dport 20 -j RETURN".to_owned(),
            ]
        );
        let (mut expanded, mut before) = (lines(&expand(&compacted)), lines(&all));
        expanded.sort();
        before.sort();
        assert_eq!(expanded, before);
    }
}
