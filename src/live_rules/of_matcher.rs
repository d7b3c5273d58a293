//! The tests of a rule of the model, as those of any other rule.

use super::{ESTABLISHED, Field, FieldMatch, INVALID, RELATED, Range, address_number, interface_numbers};
use crate::model::{CtState, Match, Matcher, Owner, Port, Ports, Protocol, Transport};

impl From<&Matcher> for Vec<FieldMatch> {
    fn from(matcher: &Matcher) -> Self {
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
        let mut tests = Self::new();
        for (field, option, test) in [(Field::Source, "-s", source), (Field::Destination, "-d", destination)]
        {
            tests.extend(test.map(|test| {
                let range = test.value();
                let ends = (address_number(range.network()), address_number(range.broadcast()));
                of(field, vec![ends], &test, format!("{option} {range}"))
            }));
        }
        let interfaces =
            [(Field::InInterface, "-i", in_interface), (Field::OutInterface, "-o", out_interface)];
        for (field, option, name) in interfaces {
            tests.extend(
                name.iter().map(|name| is(field, vec![interface_numbers(name)], format!("{option} {name}"))),
            );
        }
        tests.extend(protocol.iter().flat_map(of_protocol));
        tests.extend(ct_state.map(|state| {
            let (states, words) = match state {
                CtState::Invalid => (vec![one(INVALID)], "INVALID"),
                CtState::RelatedOrEstablished => {
                    (vec![one(RELATED), one(ESTABLISHED)], "RELATED,ESTABLISHED")
                }
            };
            is(Field::State, states, format!("--ctstate {words}"))
        }));
        tests.extend(mark.map(|test| {
            let mark = test.value();
            bits(of(Field::Mark, vec![one(mark.0.into())], &test, format!("--mark {mark}")))
        }));
        tests.extend(
            connmark
                .map(|mark| bits(is(Field::Connmark, vec![one(mark.0.into())], format!("--mark {mark}")))),
        );
        tests.extend(owners.iter().map(|test| {
            let (field, option, id) = match *test.value() {
                Owner::Uid(uid) => (Field::Uid, "--uid-owner", uid),
                Owner::Gid(gid) => (Field::Gid, "--gid-owner", gid),
            };
            of(field, vec![one(id.into())], test, format!("{option} {id}"))
        }));
        tests
    }
}

fn of_protocol(protocol: &Protocol) -> Vec<FieldMatch> {
    let Protocol { transport, source, destination, syn } = protocol;
    let number = match transport {
        Transport::Tcp => 6,
        Transport::Udp => 17,
    };
    let port = |port: &Port| one(port.number().into());
    let mut tests = vec![is(Field::Protocol, vec![one(number)], format!("-p {}", transport.name()))];
    tests.extend(
        source.iter().map(|found| is(Field::SourcePort, vec![port(found)], format!("--sport {found}"))),
    );
    tests.extend(destination.iter().map(|test| {
        let (option, ports) = match test.value() {
            Ports::One(port) => ("--dport", std::slice::from_ref(port)),
            Ports::Any(ports) => ("--dports", ports.as_slice()),
        };
        let listed: Vec<String> = ports.iter().map(Port::to_string).collect();
        let words = format!("{option} {}", listed.join(","));
        of(Field::DestinationPort, ports.iter().map(port).collect(), test, words)
    }));
    // FIN, SYN, RST and ACK are compared with SYN.
    tests.extend(syn.iter().map(|test| FieldMatch {
        mask: 0x17,
        ..of(Field::TcpFlags, vec![one(2)], test, "--syn".to_owned())
    }));
    tests
}

const fn one(number: u128) -> Range {
    (number, number)
}

/// The test of a mark, which has 32 bits.
fn bits(test: FieldMatch) -> FieldMatch {
    FieldMatch { mask: u32::MAX.into(), ..test }
}

fn is(field: Field, values: Vec<Range>, words: String) -> FieldMatch {
    FieldMatch { field, values, mask: u128::MAX, is_negated: false, words }
}

fn of<T>(field: Field, values: Vec<Range>, test: &Match<T>, words: String) -> FieldMatch {
    match test {
        Match::Is(_) => is(field, values, words),
        Match::Not(_) => FieldMatch { is_negated: true, ..is(field, values, format!("! {words}")) },
    }
}
