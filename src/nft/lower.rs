//! Lowers rules with the semantics of iptables to rules of nftables.

use ipnetwork::IpNetwork;

use super::combine::Combined;
use super::lists::{self, Dimension, JoinedRule, Listed};
use super::owners::{self, PositiveRule};
use super::sets::Sets;
use super::types::{Action, ChainName, Field, NativeChain, NativeRule, NativeTable, Operand, Test, Value};
use crate::model::{Family, Interface, Match, Matcher, Owner, Ports, Protocol, Target, Why};

pub(super) fn table(combined: Combined) -> NativeTable {
    let mut sets = Sets::default();
    let mut chains = Vec::new();
    for (name, rules) in combined.chains {
        for (name, rules) in owners::without_negations(name, lists::join(rules)) {
            let rules = rules.into_iter().flat_map(|rule| Lowering { sets: &mut sets, rule: &rule }.rules());
            chains.push(NativeChain { name, rules: rules.collect() });
        }
    }
    NativeTable { table: combined.table, sets: sets.into_list(), chains }
}

struct Lowering<'a> {
    sets: &'a mut Sets,
    rule: &'a PositiveRule,
}

impl Lowering<'_> {
    fn rules(&mut self) -> Vec<NativeRule> {
        let PositiveRule { draft, one_of: _, action } = self.rule;
        let why = draft.why;
        let tests = self.tests();
        let action = action.unwrap_or_else(|| action_of(draft));
        let rule = NativeRule { tests, action, why };
        // iptables drops what no socket takes.
        let drop = matches!(action, Action::Tproxy { .. });
        let drop = drop.then(|| NativeRule { action: Action::Drop, ..rule.clone() });
        std::iter::once(rule).chain(drop).collect()
    }

    fn tests(&mut self) -> Vec<Test> {
        let draft = &self.rule.draft;
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
        } = &draft.matcher;
        let mut tests = Vec::new();
        let interfaces = [
            (Field::InInterface, Dimension::InInterface, in_interface),
            (Field::OutInterface, Dimension::OutInterface, out_interface),
        ];
        for (field, dimension, name) in interfaces {
            let value = |name: &Interface| Match::Is(Value::Interface(name.clone()));
            tests.extend(self.field(field, dimension, name.as_ref().map(value)));
        }
        if source.is_none() && destination.is_none() {
            tests.extend(draft.only.map(Test::Family));
        }
        let of = |network: &IpNetwork| if network.is_ipv4() { Family::V4 } else { Family::V6 };
        if let Some(test) = source {
            let field = Field::Source(of(test.value()));
            tests.extend(self.field(field, Dimension::Source, Some(test.map(Value::Network))));
        }
        if let Some(test) = destination {
            let field = Field::Destination(of(test.value()));
            tests.extend(self.field(field, Dimension::Destination, Some(test.map(Value::Network))));
        }
        tests.extend(protocol.iter().flat_map(|protocol| self.protocol(protocol)).collect::<Vec<_>>());
        tests.extend(ct_state.map(Test::State));
        tests.extend(mark.map(Test::Mark));
        tests.extend(connmark.map(Test::Connmark));
        tests.extend(self.owners(owners));
        tests
    }

    /// The test of a field: the listed values, if this is the dimension of the list.
    fn field(&mut self, field: Field, dimension: Dimension, test: Option<Match<Value>>) -> Option<Test> {
        let operand = match &self.rule.draft.list {
            Some((listed, values)) if *listed == dimension => {
                Match::Is(self.sets.operand(values, self.rule.draft.why)?)
            }
            _ => test?.map(Operand::One),
        };
        Some(Test::Field(field, operand))
    }

    fn protocol(&mut self, protocol: &Protocol) -> Vec<Test> {
        let Protocol { transport, source, destination, syn } = protocol;
        let mut tests = Vec::new();
        if let Some(port) = source {
            let value = Operand::One(Value::Port(*port));
            tests.push(Test::Field(Field::SourcePort(*transport), Match::Is(value)));
        }
        tests.extend(syn.map(Test::Syn));
        if let Some(test) = destination {
            let field = Field::DestinationPort(*transport);
            match test.value() {
                Ports::One(port) => {
                    let value = Value::Port(*port);
                    let value = match test {
                        Match::Is(_) => Match::Is(value),
                        Match::Not(_) => Match::Not(value),
                    };
                    tests.extend(self.field(field, Dimension::DestinationPort, Some(value)));
                }
                Ports::Any(ports) => {
                    let ports: Vec<Listed> = ports.iter().copied().map(Listed::Port).collect();
                    let operand = self.sets.operand(&ports, self.rule.draft.why);
                    tests.extend(operand.map(|operand| {
                        Test::Field(
                            field,
                            match test {
                                Match::Is(_) => Match::Is(operand),
                                Match::Not(_) => Match::Not(operand),
                            },
                        )
                    }));
                }
            }
        }
        if tests.is_empty() {
            tests.push(Test::Protocol(*transport));
        }
        tests
    }

    fn owners(&mut self, owners: &[Match<Owner>]) -> Vec<Test> {
        let why: Why = self.rule.draft.why;
        let listed: Vec<Listed> = match &self.rule.draft.list {
            Some((Dimension::Owner, values)) => values.clone(),
            _ => Vec::new(),
        };
        let leaving: Vec<Listed> = self.rule.one_of.iter().copied().map(Listed::Owner).collect();
        // The matcher has the first value of a list.
        let single = if listed.is_empty() { owners } else { &[] };
        let single = single.iter().map(|owner| vec![Listed::Owner(*owner.value())]);
        let mut tests = Vec::new();
        for values in single.chain([listed, leaving]).filter(|values| !values.is_empty()) {
            let field = match values.first() {
                Some(Listed::Owner(Owner::Gid(_))) => Field::Gid,
                _ => Field::Uid,
            };
            let operand = self.sets.operand(&values, why);
            tests.extend(operand.map(|operand| Test::Field(field, Match::Is(operand))));
        }
        tests
    }
}

fn action_of(draft: &JoinedRule) -> Action {
    match draft.target {
        Target::Accept => Action::Accept,
        Target::ConntrackZone(zone) => Action::Zone(zone),
        Target::Drop => Action::Drop,
        Target::Jump(chain) => Action::Jump(ChainName::Own(chain)),
        Target::Redirect(port) => Action::Redirect(port),
        Target::RestoreMark => Action::RestoreMark,
        Target::Return => Action::Return,
        Target::SaveMark => Action::SaveMark,
        Target::SetMark(mark) => Action::SetMark(mark),
        Target::Tproxy { port, mark } => Action::Tproxy { family: family(draft), port, mark },
    }
}

/// The only family of a rule's packets, if it is known from the rule.
fn family(draft: &JoinedRule) -> Option<Family> {
    let Matcher { source, destination, .. } = &draft.matcher;
    let address = source.as_ref().or(destination.as_ref());
    let of_address = address.map(|test| if test.value().is_ipv4() { Family::V4 } else { Family::V6 });
    draft.only.or(of_address)
}
