//! Typed values into netlink attributes.

use std::collections::BTreeMap;

use super::expression::{Expression, Register, Verdict};
use super::number::{
    self, LIST_ELEM, bitwise, cmp, counter, ct, data, immediate, lookup, meta, payload, range, redir, socket,
    tproxy,
};
use super::{Family, Hook, KeyType, Rule, Set, Table, comment};
use crate::Message;
use crate::nftables::number::Kind;

/// How the sets of a table are referred to in the transaction that makes them: an anonymous one has no name
/// yet.
#[derive(Debug, Default)]
pub(super) struct SetIds<'a>(BTreeMap<&'a str, u32>);

/// The name that asks the kernel to choose one.
const ANONYMOUS: &str = "__set%d";

impl<'a> SetIds<'a> {
    pub(super) fn insert(&mut self, set: &'a Set, id: u32) {
        if set.anonymous {
            self.0.insert(&set.name, id);
        }
    }

    fn push(&self, message: &mut Message, set: &str, name: u16, id: u16) {
        match self.0.get(set) {
            Some(number) => {
                message.push_text(name, ANONYMOUS);
                message.push_be32(id, *number);
            }
            None => message.push_text(name, set),
        }
    }
}

/// A message about something in a table.
pub(super) fn message(kind: Kind, family: Family, flags: libc::c_int) -> Message {
    Message::new(kind.number(), u16::try_from(flags).unwrap_or(0), &[family.number(), 0, 0, 0])
}

pub(super) fn table(table: &Table) -> Message {
    let mut message = message(Kind::NewTable, table.name.family, libc::NLM_F_CREATE);
    message.push_text(number::table::NAME, &table.name.name);
    if let Some(comment) = &table.comment {
        message.push(number::table::USERDATA, &comment.encode());
    }
    message
}

pub(super) fn chain(table: &Table, chain: &super::Chain) -> Message {
    use number::chain::{HOOK, HOOK_NUMBER, HOOK_PRIORITY, NAME, POLICY, TABLE, TYPE};
    let mut message = message(Kind::NewChain, table.name.family, libc::NLM_F_CREATE);
    message.push_text(TABLE, &table.name.name);
    message.push_text(NAME, &chain.name);
    if let Some(base) = &chain.base {
        message.nested(HOOK, |hook| {
            hook.push_be32(HOOK_NUMBER, Hook::number(base.hook));
            hook.push(HOOK_PRIORITY, &base.priority.to_be_bytes());
        });
        message.push(POLICY, &verdict_code(&base.policy).to_be_bytes());
        message.push_text(TYPE, base.kind.name());
    }
    message
}

pub(super) fn set(table: &Table, set: &Set, id: u32) -> Message {
    use number::set::{
        ANONYMOUS as ANONYMOUS_FLAG, CONSTANT, DESCRIPTION, DESCRIPTION_SIZE, FLAGS, ID, INTERVAL,
        KEY_LENGTH, KEY_TYPE, NAME, TABLE, USERDATA,
    };
    let interval = matches!(set.elements, super::Elements::Ranges(_));
    let flags =
        if set.anonymous { ANONYMOUS_FLAG | CONSTANT } else { 0 } | if interval { INTERVAL } else { 0 };
    let mut message = message(Kind::NewSet, table.name.family, libc::NLM_F_CREATE);
    message.push_text(TABLE, &table.name.name);
    message.push_text(NAME, if set.anonymous { ANONYMOUS } else { &set.name });
    message.push_be32(FLAGS, flags);
    message.push_be32(KEY_TYPE, KeyType::number(set.key));
    message.push_be32(KEY_LENGTH, set.key.length());
    message.push_be32(ID, id);
    if set.anonymous {
        // The kernel picks the fastest kind of set for this size.
        let size = u32::try_from(set.elements.encoded().len()).unwrap_or(u32::MAX);
        message.nested(DESCRIPTION, |description| description.push_be32(DESCRIPTION_SIZE, size));
    }
    message.push(USERDATA, &comment::byte_order(set.key.is_host_order()));
    message
}

/// The elements of a set, in as many messages as are needed, each of about `limit` bytes at most: the list is
/// one attribute of at most 65,535 bytes. Both ends of a range are in the same message.
pub(super) fn elements(table: &Table, set: &Set, ids: &SetIds<'_>, limit: usize) -> Vec<Message> {
    use number::element::{FLAGS, INTERVAL_END, KEY};
    use number::elements::{ELEMENTS, SET, SET_ID, TABLE};
    const BYTES: usize = 60_000;
    /// Headers of an element: list entry, key, value, and flags.
    const OVERHEAD: usize = 20;
    let elements = set.elements.encoded();
    let each = usize::try_from(set.key.length()).unwrap_or(BYTES).saturating_add(OVERHEAD + 3);
    let in_message = |chunk: &[(Vec<u8>, bool)]| {
        let mut message = message(Kind::NewElements, table.name.family, libc::NLM_F_CREATE);
        message.push_text(TABLE, &table.name.name);
        ids.push(&mut message, &set.name, SET, SET_ID);
        message.nested(ELEMENTS, |list| {
            for (value, ends) in chunk {
                list.nested(LIST_ELEM, |element| {
                    if *ends {
                        element.push_be32(FLAGS, INTERVAL_END);
                    }
                    element.nested(KEY, |key| key.push(data::VALUE, value));
                });
            }
        });
        message
    };
    let count = BYTES.min(limit) / each;
    elements.chunks((count & !1).max(2)).map(in_message).collect()
}

pub(super) fn rule(table: &Table, chain: &str, rule: &Rule, ids: &SetIds<'_>) -> Message {
    use number::rule::{CHAIN, EXPRESSIONS, TABLE, USERDATA};
    let flags = libc::NLM_F_CREATE | libc::NLM_F_APPEND;
    let mut message = message(Kind::NewRule, table.name.family, flags);
    message.push_text(TABLE, &table.name.name);
    message.push_text(CHAIN, chain);
    message.nested(EXPRESSIONS, |list| {
        rule.expressions.iter().for_each(|expression| expression.write(list, ids));
    });
    if let Some(comment) = &rule.comment {
        message.push(USERDATA, &comment.encode());
    }
    message
}

impl Expression {
    /// The name of the expression in the kernel.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Meta { .. } | Self::SetMeta { .. } => "meta",
            Self::Payload { .. } => "payload",
            Self::Bitwise { .. } => "bitwise",
            Self::Compare { .. } => "cmp",
            Self::Range { .. } => "range",
            Self::Lookup { .. } => "lookup",
            Self::Ct { .. } | Self::SetCt { .. } => "ct",
            Self::Counter { .. } => "counter",
            Self::Immediate { .. } | Self::Verdict(_) => "immediate",
            Self::Redirect { .. } => "redir",
            Self::Tproxy { .. } => "tproxy",
            Self::Socket { .. } => "socket",
            Self::Foreign { name, .. } => name,
        }
    }

    fn write(&self, list: &mut Message, ids: &SetIds<'_>) {
        list.nested(LIST_ELEM, |element| {
            element.push_text(number::expression::NAME, self.name());
            // Expressions without attributes have no data at all.
            if !matches!(self, Self::Foreign { name: _, data } if data.is_empty()) {
                element.nested(number::expression::DATA, |content| self.write_data(content, ids));
            }
        });
    }

    fn write_data(&self, to: &mut Message, ids: &SetIds<'_>) {
        match self {
            Self::Meta { key, register } => pair(to, (meta::DREG, *register), (meta::KEY, key.number())),
            Self::SetMeta { key, register } => pair(to, (meta::SREG, *register), (meta::KEY, key.number())),
            Self::Ct { key, register } => pair(to, (ct::DREG, *register), (ct::KEY, key.number())),
            Self::SetCt { key, register } => pair(to, (ct::SREG, *register), (ct::KEY, key.number())),
            Self::Socket { key, register } => {
                pair(to, (socket::DREG, *register), (socket::KEY, key.number()));
            }
            Self::Payload { base, offset, length, register } => {
                pair(to, (payload::DREG, *register), (payload::BASE, base.number()));
                to.push_be32(payload::OFFSET, *offset);
                to.push_be32(payload::LENGTH, *length);
            }
            Self::Bitwise { source, destination, mask, xor } => {
                to.push_be32(bitwise::SREG, source.0);
                to.push_be32(bitwise::DREG, destination.0);
                to.push_be32(bitwise::LENGTH, u32::try_from(mask.len()).unwrap_or(u32::MAX));
                value(to, bitwise::MASK, mask);
                value(to, bitwise::XOR, xor);
            }
            Self::Compare { register, operator, value: constant } => {
                pair(to, (cmp::SREG, *register), (cmp::OPERATOR, operator.number()));
                value(to, cmp::DATA, constant);
            }
            Self::Range { register, inverted, from, to: last } => {
                pair(to, (range::SREG, *register), (range::OPERATOR, u32::from(*inverted)));
                value(to, range::FROM, from);
                value(to, range::TO, last);
            }
            Self::Lookup { set, register, inverted } => {
                to.push_be32(lookup::SREG, register.0);
                ids.push(to, set, lookup::SET, lookup::SET_ID);
                to.push_be32(lookup::FLAGS, if *inverted { lookup::INVERTED } else { 0 });
            }
            Self::Counter { packets, bytes } => {
                to.push(counter::BYTES, &bytes.to_be_bytes());
                to.push(counter::PACKETS, &packets.to_be_bytes());
            }
            Self::Immediate { register, value: constant } => {
                to.push_be32(immediate::DREG, register.0);
                value(to, immediate::DATA, constant);
            }
            Self::Verdict(verdict) => {
                to.push_be32(immediate::DREG, 0);
                to.nested(immediate::DATA, |content| content.nested(data::VERDICT, |to| decide(to, verdict)));
            }
            Self::Redirect { port: None } => {}
            Self::Redirect { port: Some(register) } => {
                pair(to, (redir::PROTO_MIN, *register), (redir::PROTO_MAX, register.0));
                to.push_be32(redir::FLAGS, redir::PROTO_SPECIFIED);
            }
            Self::Tproxy { family, port } => {
                pair(to, (tproxy::PORT, *port), (tproxy::FAMILY, network_protocol(*family)));
            }
            Self::Foreign { name: _, data } => to.push_raw(data),
        }
    }
}

/// `NFPROTO_IPV4` or `NFPROTO_IPV6`; 0 for both.
const fn network_protocol(family: Family) -> u32 {
    match family {
        Family::Inet => 0,
        Family::Ip => 2,
        Family::Ip6 => 10,
    }
}

fn pair(to: &mut Message, (kind, register): (u16, Register), (second, number): (u16, u32)) {
    to.push_be32(kind, register.0);
    to.push_be32(second, number);
}

/// A constant.
fn value(to: &mut Message, kind: u16, constant: &[u8]) {
    to.nested(kind, |content| content.push(data::VALUE, constant));
}

fn decide(to: &mut Message, verdict: &Verdict) {
    to.push(data::VERDICT_CODE, &verdict_code(verdict).to_be_bytes());
    if let Verdict::Jump(chain) | Verdict::Goto(chain) = verdict {
        to.push_text(data::VERDICT_CHAIN, chain);
    }
}

/// The kernel's number of a verdict.
pub(super) const fn verdict_code(verdict: &Verdict) -> i32 {
    match verdict {
        Verdict::Drop => 0,
        Verdict::Accept => 1,
        Verdict::Jump(_) => -3,
        Verdict::Goto(_) => -4,
        Verdict::Return => -5,
        Verdict::Continue => -1,
    }
}
