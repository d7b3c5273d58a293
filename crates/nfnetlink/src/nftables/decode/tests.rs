//! What is written is read back; arbitrary bytes are read without a panic.

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::encode::SetIds;
use super::super::{Chain, encode};
use super::*;
use crate::Message;

fn read(message: &Message, kind: Kind) -> Option<Object> {
    Object::read(&Reply { kind: kind.number(), flags: 0, sequence: 0, port: 0, body: message.body() })
}

fn constant() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 1..16)
}

fn register() -> impl Strategy<Value = Register> {
    (1..5_u32).prop_map(Register)
}

fn loads() -> impl Strategy<Value = Expression> {
    let meta = prop_oneof![Just(MetaKey::Mark), Just(MetaKey::SocketUid), Just(MetaKey::TransportProtocol)];
    let ct = prop_oneof![Just(CtKey::State), Just(CtKey::Mark), Just(CtKey::Zone)];
    let base = prop_oneof![Just(Base::Network), Just(Base::Transport)];
    prop_oneof![
        (meta, register(), any::<bool>()).prop_map(|(key, register, set)| match set {
            true => Expression::SetMeta { key, register },
            false => Expression::Meta { key, register },
        }),
        (ct, register(), any::<bool>()).prop_map(|(key, register, set)| match set {
            true => Expression::SetCt { key, register },
            false => Expression::Ct { key, register },
        }),
        (base, any::<u32>(), any::<u32>(), register()).prop_map(|(base, offset, length, register)| {
            Expression::Payload { base, offset, length, register }
        }),
        register().prop_map(|register| Expression::Socket { key: SocketKey::Transparent, register }),
    ]
}

fn tests() -> impl Strategy<Value = Expression> {
    prop_oneof![
        (register(), constant()).prop_map(|(register, value)| Expression::Compare {
            register,
            operator: Operator::NotEqual,
            value
        }),
        (register(), any::<bool>(), constant(), constant()).prop_map(|(register, inverted, from, to)| {
            Expression::Range { register, inverted, from, to }
        }),
        ("[a-z]{1,12}", register(), any::<bool>()).prop_map(|(set, register, inverted)| Expression::Lookup {
            set,
            register,
            inverted
        }),
        (register(), register(), vec((any::<u8>(), any::<u8>()), 1..16)).prop_map(
            |(source, destination, pairs)| {
                let (mask, xor) = pairs.into_iter().unzip();
                Expression::Bitwise { source, destination, mask, xor }
            }
        ),
    ]
}

fn statements() -> impl Strategy<Value = Expression> {
    let chain = "[a-z-]{1,20}";
    let verdict = prop_oneof![
        Just(Verdict::Accept),
        Just(Verdict::Drop),
        Just(Verdict::Return),
        Just(Verdict::Continue),
        chain.prop_map(Verdict::Jump),
        chain.prop_map(Verdict::Goto),
    ];
    let family = prop_oneof![Just(Family::Inet), Just(Family::Ip), Just(Family::Ip6)];
    prop_oneof![
        (any::<u64>(), any::<u64>()).prop_map(|(packets, bytes)| Expression::Counter { packets, bytes }),
        (register(), constant()).prop_map(|(register, value)| Expression::Immediate { register, value }),
        verdict.prop_map(Expression::Verdict),
        proptest::option::of(register()).prop_map(|port| Expression::Redirect { port }),
        (family, register()).prop_map(|(family, port)| Expression::Tproxy { family, port }),
    ]
}

fn rules() -> impl Strategy<Value = Rule> {
    let expressions = vec(prop_oneof![loads(), tests(), statements()], 0..8);
    let comment = proptest::option::of("[a-zA-Z0-9 :,.'*()-]{1,127}");
    (expressions, comment).prop_map(|(expressions, comment)| Rule {
        expressions,
        comment: comment.and_then(|text| Comment::new(&text)),
        handle: None,
    })
}

proptest! {
    #[test]
    fn a_rule_is_read_as_it_was_written(rule in rules()) {
        let table = Table::new(TableName::new(Family::Inet, "t"));
        let message = encode::rule(&table, "c", &rule, &SetIds::default());
        let expected = Object::Rule { table: table.name, chain: "c".to_owned(), rule };
        prop_assert_eq!(read(&message, Kind::NewRule), Some(expected));
    }

    #[test]
    fn a_damaged_rule_is_read_and_written_alike(rule in rules(), at in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let table = Table::new(TableName::new(Family::Inet, "t"));
        let message = encode::rule(&table, "c", &rule, &SetIds::default());
        let mut body = message.body().to_vec();
        let at = at.index(body.len());
        body[at] ^= 1 << bit;
        let read = |body: &[u8]| {
            Object::read(&Reply { kind: Kind::NewRule.number(), flags: 0, sequence: 0, port: 0, body })
        };
        // Never a panic; and what is written from it is read as the same again.
        if let Some(Object::Rule { table, chain, rule }) = read(&body) {
            let again = encode::rule(&Table::new(table), &chain, &rule, &SetIds::default());
            if let Some(Object::Rule { rule: again, .. }) = read(again.body()) {
                prop_assert_eq!(again.expressions, rule.expressions);
            }
        }
    }

    #[test]
    fn no_bytes_make_reading_panic(kind in prop_oneof![Just(0_u16), Just(3), Just(6), Just(9), Just(12)], body in vec(any::<u8>(), 0..400)) {
        let kind = 0x0a00 | kind;
        let object = Object::read(&Reply { kind, flags: 0, sequence: 0, port: 0, body: &body });
        if let Some(Object::Elements(_, elements)) = object {
            let _ = elements.finish(&Elements::Ranges(Vec::new()));
        }
    }

    #[test]
    fn ranges_are_read_as_they_were_written(bounds in vec((any::<u32>(), any::<u32>()), 1..20)) {
        let bytes = |number: u32| number.to_be_bytes().to_vec();
        let ranges = bounds.iter().map(|(a, b)| (bytes(*a.min(b)), bytes(*a.max(b))));
        let ranges = Elements::Ranges(super::super::merge(ranges.collect()));
        let set = Set { name: "s".to_owned(), key: KeyType::Ipv4Address, anonymous: false, elements: ranges };
        let table = Table::new(TableName::new(Family::Inet, "t"));
        let mut read_back = RawElements::default();
        for message in encode::elements(&table, &set, &SetIds::default(), 2000) {
            let Some(Object::Elements(_, elements)) = read(&message, Kind::NewElements) else { panic!() };
            read_back.extend(elements);
        }
        prop_assert_eq!(read_back.finish(&Elements::Ranges(Vec::new())), set.elements);
    }
}

#[test]
fn a_base_chain_is_read_as_it_was_written() {
    let table = Table::new(TableName::new(Family::Inet, "t"));
    let base = super::super::Base {
        kind: ChainKind::Route,
        hook: Hook::Output,
        priority: -150,
        policy: Verdict::Drop,
    };
    let chain = Chain { name: "output".to_owned(), base: Some(base), rules: Vec::new() };
    let message = encode::chain(&table, &chain);
    assert_eq!(read(&message, Kind::NewChain), Some(Object::Chain(table.name, chain)));
}
