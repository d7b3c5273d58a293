//! Netlink attributes into typed values. What is not understood in full stays as it was read.

use super::expression::{Base, CtKey, Expression, MetaKey, Operator, Register, SocketKey, Verdict};
use super::number::{
    self, Kind, LIST_ELEM, NFGENMSG, bitwise, cmp, counter, ct, data, immediate, lookup, meta, payload,
    range, redir, socket, tproxy,
};
use super::{ChainKind, Comment, Elements, Family, Hook, KeyType, Rule, Set, Table, TableName, interval};
use crate::{Attributes, Reply};

/// An object of nf_tables, from a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// A table, without what is in it.
    Table(Table),
    /// A chain, without its rules.
    Chain(TableName, super::Chain),
    /// A set, without its elements.
    Set(TableName, Set),
    /// Elements of a set.
    Elements(TableName, RawElements),
    /// A rule.
    Rule {
        /// The table of the rule.
        table: TableName,
        /// The name of its chain.
        chain: String,
        /// The rule.
        rule: Rule,
    },
}

impl Object {
    /// The object in a message; `None` for other messages, and for objects in families that are not
    /// supported.
    #[must_use]
    pub fn read(reply: &Reply<'_>) -> Option<Self> {
        let family = Family::of(reply.byte(0))?;
        let attributes = reply.attributes(NFGENMSG);
        // The table's name is the first attribute of all of them.
        let table = TableName { family, name: attributes.of(number::table::NAME)?.text() };
        let is = |kind: Kind| reply.kind == kind.number();
        if is(Kind::NewTable) {
            let comment = attributes.of(number::table::USERDATA);
            let comment = comment.and_then(|data| Comment::decode(data.payload));
            Some(Self::Table(Table { comment, ..Table::new(table) }))
        } else if is(Kind::NewChain) {
            Some(Self::Chain(table, chain(reply)?))
        } else if is(Kind::NewSet) {
            Some(Self::Set(table, set(reply)?))
        } else if is(Kind::NewElements) {
            Some(Self::Elements(table, RawElements::read(reply)))
        } else if is(Kind::NewRule) {
            let (chain, rule) = rule(reply)?;
            Some(Self::Rule { table, chain, rule })
        } else {
            None
        }
    }
}

/// A chain, without its rules.
fn chain(reply: &Reply<'_>) -> Option<super::Chain> {
    use number::chain::{HOOK, HOOK_NUMBER, HOOK_PRIORITY, NAME, POLICY, TYPE};
    let attributes = reply.attributes(NFGENMSG);
    let base = attributes.of(HOOK).and_then(|hook| {
        let code = attributes.of(POLICY).and_then(|policy| policy.be32()).unwrap_or(1);
        Some(super::Base {
            kind: ChainKind::of(&attributes.of(TYPE)?.text()),
            hook: Hook::of(hook.nested().of(HOOK_NUMBER)?.be32()?),
            priority: hook.nested().of(HOOK_PRIORITY)?.be32()?.cast_signed(),
            policy: if code == 0 { Verdict::Drop } else { Verdict::Accept },
        })
    });
    Some(super::Chain { name: attributes.of(NAME)?.text(), base, rules: Vec::new() })
}

/// A set, without its elements.
fn set(reply: &Reply<'_>) -> Option<Set> {
    use number::set::{ANONYMOUS, CONSTANT, FLAGS, INTERVAL, KEY_LENGTH, KEY_TYPE, NAME};
    let attributes = reply.attributes(NFGENMSG);
    let number = |kind: u16| attributes.of(kind).and_then(|number| number.be32());
    let flags = number(FLAGS).unwrap_or(0);
    let elements = match flags & !(ANONYMOUS | CONSTANT) {
        0 => Elements::Values(Vec::new()),
        INTERVAL => Elements::Ranges(Vec::new()),
        _ => Elements::Foreign(Vec::new()),
    };
    Some(Set {
        name: attributes.of(NAME)?.text(),
        key: KeyType::of(number(KEY_TYPE).unwrap_or(0), number(KEY_LENGTH)?),
        anonymous: flags & ANONYMOUS != 0,
        elements,
    })
}

/// Elements of a set, as they come: in several messages, and sorted in some order of the kernel's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawElements {
    values: Vec<(Vec<u8>, bool)>,
    raw: Vec<Vec<u8>>,
    foreign: bool,
}

impl RawElements {
    /// Adds the elements of another message.
    pub fn extend(&mut self, other: Self) {
        self.values.extend(other.values);
        self.raw.extend(other.raw);
        self.foreign |= other.foreign;
    }

    fn read(reply: &Reply<'_>) -> Self {
        use number::element::{FLAGS, INTERVAL_END, KEY, USERDATA};
        let mut elements = Self::default();
        let list = reply.attributes(NFGENMSG).of(number::elements::ELEMENTS);
        let Some(list) = list else { return elements };
        for element in list.nested().filter(|attribute| attribute.kind == LIST_ELEM) {
            let attributes = element.nested();
            let key = attributes.of(KEY).and_then(|key| key.nested().of(data::VALUE));
            let flags = attributes.of(FLAGS).and_then(|flags| flags.be32()).unwrap_or(0);
            let plain = { attributes }.all(|attribute| matches!(attribute.kind, KEY | FLAGS | USERDATA));
            elements.foreign |= !plain || flags & !INTERVAL_END != 0 || key.is_none();
            elements.values.extend(key.map(|key| (key.payload.to_vec(), flags & INTERVAL_END != 0)));
            elements.raw.push(element.payload.to_vec());
        }
        elements
    }

    /// The elements of the messages, as those of a set of this kind.
    #[must_use]
    pub fn finish(self, kind: &Elements) -> Elements {
        match kind {
            Elements::Values(_) if !self.foreign => {
                Elements::Values(self.values.into_iter().map(|(value, _)| value).collect())
            }
            Elements::Ranges(_) if !self.foreign => Elements::Ranges(interval::ranges_of(self.values)),
            Elements::Values(_) | Elements::Ranges(_) | Elements::Foreign(_) => Elements::Foreign(self.raw),
        }
    }
}

/// A rule, and the name of its chain.
fn rule(reply: &Reply<'_>) -> Option<(String, Rule)> {
    use number::rule::{CHAIN, EXPRESSIONS, HANDLE, USERDATA};
    let attributes = reply.attributes(NFGENMSG);
    let list = attributes.of(EXPRESSIONS).map(|list| list.nested());
    let list = list.into_iter().flatten().filter(|attribute| attribute.kind == LIST_ELEM);
    let rule = Rule {
        expressions: list.map(|element| Expression::read(element.nested())).collect(),
        comment: attributes.of(USERDATA).and_then(|data| Comment::decode(data.payload)),
        handle: attributes.of(HANDLE).and_then(|handle| handle.be64()),
    };
    Some((attributes.of(CHAIN)?.text(), rule))
}

/// The attributes of an expression, all of which have to be understood.
#[derive(Clone, Copy)]
struct Fields<'a>(Attributes<'a>);

impl Fields<'_> {
    /// Whether there are no others than these.
    fn only(self, kinds: &[u16]) -> Option<Self> {
        { self.0 }.all(|attribute| kinds.contains(&attribute.kind)).then_some(self)
    }

    fn has(self, kind: u16) -> bool {
        self.0.of(kind).is_some()
    }

    fn number(self, kind: u16) -> Option<u32> {
        self.0.of(kind)?.be32()
    }

    fn register(self, kind: u16) -> Option<Register> {
        self.number(kind).map(Register)
    }

    /// A number that is `expected` where it is absent, and nothing else where it is not.
    fn is_default(self, kind: u16, expected: u32) -> Option<()> {
        self.0.of(kind).is_none_or(|number| number.be32() == Some(expected)).then_some(())
    }

    fn value(self, kind: u16) -> Option<Vec<u8>> {
        Some(self.0.of(kind)?.nested().of(data::VALUE)?.payload.to_vec())
    }
}

impl Expression {
    /// Reads an expression: its name and its attributes.
    fn read(element: Attributes<'_>) -> Self {
        let name = element.of(number::expression::NAME).map(|name| name.text()).unwrap_or_default();
        let content = element.of(number::expression::DATA);
        let fields = Fields(content.map_or(Attributes::new(&[]), |content| content.nested()));
        Self::known(&name, fields).unwrap_or_else(|| {
            let data = content.map(|content| content.payload.to_vec()).unwrap_or_default();
            Self::Foreign { name, data }
        })
    }

    fn known(name: &str, fields: Fields<'_>) -> Option<Self> {
        match name {
            "meta" => read_meta(fields),
            "ct" => read_ct(fields),
            "payload" => read_payload(fields),
            "bitwise" => read_bitwise(fields),
            "cmp" => read_compare(fields),
            "range" => read_range(fields),
            "lookup" => read_lookup(fields),
            "counter" => read_counter(fields),
            "immediate" => read_immediate(fields),
            "redir" => read_redirect(fields),
            "tproxy" => read_tproxy(fields),
            "socket" => read_socket(fields),
            _ => None,
        }
    }
}

fn read_meta(fields: Fields<'_>) -> Option<Expression> {
    let key = MetaKey::of(fields.number(meta::KEY)?)?;
    if fields.has(meta::SREG) {
        let register = fields.only(&[meta::KEY, meta::SREG])?.register(meta::SREG)?;
        return Some(Expression::SetMeta { key, register });
    }
    let register = fields.only(&[meta::KEY, meta::DREG])?.register(meta::DREG)?;
    Some(Expression::Meta { key, register })
}

fn read_ct(fields: Fields<'_>) -> Option<Expression> {
    let key = CtKey::of(fields.number(ct::KEY)?)?;
    if fields.has(ct::SREG) {
        let register = fields.only(&[ct::KEY, ct::SREG])?.register(ct::SREG)?;
        return Some(Expression::SetCt { key, register });
    }
    let register = fields.only(&[ct::KEY, ct::DREG])?.register(ct::DREG)?;
    Some(Expression::Ct { key, register })
}

fn read_payload(fields: Fields<'_>) -> Option<Expression> {
    let fields = fields.only(&[payload::DREG, payload::BASE, payload::OFFSET, payload::LENGTH])?;
    Some(Expression::Payload {
        base: Base::of(fields.number(payload::BASE)?)?,
        offset: fields.number(payload::OFFSET)?,
        length: fields.number(payload::LENGTH)?,
        register: fields.register(payload::DREG)?,
    })
}

fn read_bitwise(fields: Fields<'_>) -> Option<Expression> {
    let fields = fields.only(&[
        bitwise::SREG,
        bitwise::DREG,
        bitwise::LENGTH,
        bitwise::MASK,
        bitwise::XOR,
        bitwise::OPERATION,
    ])?;
    fields.is_default(bitwise::OPERATION, 0)?;
    let (mask, xor) = (fields.value(bitwise::MASK)?, fields.value(bitwise::XOR)?);
    let length = usize::try_from(fields.number(bitwise::LENGTH)?).ok()?;
    (mask.len() == length && xor.len() == length).then_some(())?;
    Some(Expression::Bitwise {
        source: fields.register(bitwise::SREG)?,
        destination: fields.register(bitwise::DREG)?,
        mask,
        xor,
    })
}

fn read_compare(fields: Fields<'_>) -> Option<Expression> {
    let fields = fields.only(&[cmp::SREG, cmp::OPERATOR, cmp::DATA])?;
    Some(Expression::Compare {
        register: fields.register(cmp::SREG)?,
        operator: Operator::of(fields.number(cmp::OPERATOR)?)?,
        value: fields.value(cmp::DATA)?,
    })
}

fn read_range(fields: Fields<'_>) -> Option<Expression> {
    let fields = fields.only(&[range::SREG, range::OPERATOR, range::FROM, range::TO])?;
    let inverted = match fields.number(range::OPERATOR)? {
        0 => false,
        1 => true,
        _ => return None,
    };
    Some(Expression::Range {
        register: fields.register(range::SREG)?,
        inverted,
        from: fields.value(range::FROM)?,
        to: fields.value(range::TO)?,
    })
}

fn read_lookup(fields: Fields<'_>) -> Option<Expression> {
    let fields = fields.only(&[lookup::SET, lookup::SREG, lookup::SET_ID, lookup::FLAGS])?;
    let inverted = match fields.number(lookup::FLAGS).unwrap_or(0) {
        0 => false,
        lookup::INVERTED => true,
        _ => return None,
    };
    let set = fields.0.of(lookup::SET)?.text();
    Some(Expression::Lookup { set, register: fields.register(lookup::SREG)?, inverted })
}

fn read_counter(fields: Fields<'_>) -> Option<Expression> {
    let fields = fields.only(&[counter::BYTES, counter::PACKETS, counter::PADDING])?;
    let number = |kind: u16| fields.0.of(kind)?.be64();
    Some(Expression::Counter { packets: number(counter::PACKETS)?, bytes: number(counter::BYTES)? })
}

fn read_immediate(fields: Fields<'_>) -> Option<Expression> {
    let fields = fields.only(&[immediate::DREG, immediate::DATA])?;
    let register = fields.register(immediate::DREG)?;
    if register != Register(0) {
        return Some(Expression::Immediate { register, value: fields.value(immediate::DATA)? });
    }
    let data = fields.0.of(immediate::DATA)?.nested();
    verdict(data.of(data::VERDICT)?.nested()).map(Expression::Verdict)
}

pub(super) fn verdict(attributes: Attributes<'_>) -> Option<Verdict> {
    let fields = Fields(attributes).only(&[data::VERDICT_CODE, data::VERDICT_CHAIN])?;
    let chain = attributes.of(data::VERDICT_CHAIN).map(|chain| chain.text());
    Some(match (fields.number(data::VERDICT_CODE)?, chain) {
        (0, None) => Verdict::Drop,
        (1, None) => Verdict::Accept,
        (0xffff_fffd, Some(chain)) => Verdict::Jump(chain),
        (0xffff_fffc, Some(chain)) => Verdict::Goto(chain),
        (0xffff_fffb, None) => Verdict::Return,
        (0xffff_ffff, None) => Verdict::Continue,
        _ => return None,
    })
}

fn read_redirect(fields: Fields<'_>) -> Option<Expression> {
    let fields = fields.only(&[redir::PROTO_MIN, redir::PROTO_MAX, redir::FLAGS])?;
    let port = fields.register(redir::PROTO_MIN);
    let (last, flags) = (fields.register(redir::PROTO_MAX), fields.number(redir::FLAGS).unwrap_or(0));
    let known = match port {
        None => last.is_none() && flags == 0,
        Some(_) => (last.is_none() || last == port) && flags == redir::PROTO_SPECIFIED,
    };
    known.then_some(Expression::Redirect { port })
}

fn read_tproxy(fields: Fields<'_>) -> Option<Expression> {
    let fields = fields.only(&[tproxy::FAMILY, tproxy::ADDRESS, tproxy::PORT])?;
    fields.is_default(tproxy::ADDRESS, 0)?;
    let family = match fields.number(tproxy::FAMILY)? {
        0 => Family::Inet,
        2 => Family::Ip,
        10 => Family::Ip6,
        _ => return None,
    };
    Some(Expression::Tproxy { family, port: fields.register(tproxy::PORT)? })
}

fn read_socket(fields: Fields<'_>) -> Option<Expression> {
    let fields = fields.only(&[socket::KEY, socket::DREG])?;
    let key = SocketKey::of(fields.number(socket::KEY)?)?;
    Some(Expression::Socket { key, register: fields.register(socket::DREG)? })
}

#[cfg(test)]
mod tests;
