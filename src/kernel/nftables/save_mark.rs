//! Rules that store packet marks in connections, limited to packets from `lo`.
//!
//! The rule as it is comes back from the kernel as a list of expressions, and goes back with two more at its
//! head: no expression is interpreted beyond what identifies such a rule.

use std::io;

use super::{Kind, NFGENMSG, NFTA_RULE_CHAIN, NFTA_RULE_TABLE, Nftables, TableName, message, text};
use crate::kernel::netlink::{Attributes, Message, Reply};

const NFTA_RULE_HANDLE: u16 = 3;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_RULE_USERDATA: u16 = 7;
const NFTA_LIST_ELEM: u16 = 1;
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_META_DREG: u16 = 1;
const NFTA_META_KEY: u16 = 2;
const NFT_META_IIFNAME: u32 = 6;
const NFTA_CT_KEY: u16 = 2;
const NFTA_CT_SREG: u16 = 4;
const NFT_CT_MARK: u32 = 3;
const NFTA_CMP_SREG: u16 = 1;
const NFTA_CMP_OP: u16 = 2;
const NFTA_CMP_DATA: u16 = 3;
const NFT_CMP_EQ: u32 = 0;
const NFTA_DATA_VALUE: u16 = 1;
const NFT_REG_1: u32 = 1;
/// The name as the kernel compares it: `IFNAMSIZ` bytes.
const LO: &[u8; 16] = b"lo\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// A rule that stores the mark of packets from every interface.
struct SaveRule {
    chain: String,
    handle: Vec<u8>,
    expressions: Vec<Vec<u8>>,
    comment: Option<Vec<u8>>,
}

impl Nftables {
    /// Limits the rules of a table that store packet marks in connections to packets from `lo`, in one
    /// transaction; those that look at an input interface already stay as they are. Returns how many there
    /// were.
    ///
    /// # Errors
    /// The kernel refuses; then nothing is changed.
    pub fn limit_save_mark(&mut self, table: &TableName) -> io::Result<usize> {
        let request = message(Kind::GetRule, table.family.number()).with_text(NFTA_RULE_TABLE, &table.name);
        let rules = self.socket.dump(&request, |rules: &mut Vec<SaveRule>, reply| {
            if reply.kind == Kind::NewRule.number()
                && text(reply, NFTA_RULE_TABLE).as_deref() == Some(table.name.as_str())
            {
                rules.extend(save_rule(reply));
            }
        });
        let rules = match rules {
            // No such table.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(0),
            other => other?,
        };
        let replacements: Vec<Message> = rules.iter().map(|rule| replacement(table, rule)).collect();
        self.socket.transaction(&replacements)?;
        Ok(rules.len())
    }
}

fn save_rule(reply: &Reply<'_>) -> Option<SaveRule> {
    let attributes = reply.attributes(NFGENMSG);
    let expressions = attributes.of(NFTA_RULE_EXPRESSIONS)?.nested();
    let is = |element: Attributes<'_>, name: &str, key: u16, value: u32| {
        let data = element.of(NFTA_EXPR_DATA).map(|data| data.nested());
        element.of(NFTA_EXPR_NAME).is_some_and(|found| found.text() == name)
            && data.and_then(|data| data.of(key)?.be32()) == Some(value)
    };
    let stores = |element: Attributes<'_>| {
        let data = element.of(NFTA_EXPR_DATA).map(|data| data.nested());
        is(element, "ct", NFTA_CT_KEY, NFT_CT_MARK)
            && data.is_some_and(|data| data.of(NFTA_CT_SREG).is_some())
    };
    let elements = || expressions.filter(|element| element.kind == NFTA_LIST_ELEM);
    let by_interface = elements().any(|e| is(e.nested(), "meta", NFTA_META_KEY, NFT_META_IIFNAME));
    if by_interface || !elements().any(|element| stores(element.nested())) {
        return None;
    }
    Some(SaveRule {
        chain: text(reply, NFTA_RULE_CHAIN)?,
        handle: attributes.of(NFTA_RULE_HANDLE)?.payload.to_vec(),
        expressions: elements().map(|element| element.payload.to_vec()).collect(),
        comment: attributes.of(NFTA_RULE_USERDATA).map(|data| data.payload.to_vec()),
    })
}

/// The message that replaces a rule in its place by one for packets from `lo`.
fn replacement(table: &TableName, rule: &SaveRule) -> Message {
    let flags = u16::try_from(libc::NLM_F_REPLACE).unwrap_or(0);
    let mut message = Message::new(Kind::NewRule.number(), flags, &[table.family.number(), 0, 0, 0])
        .with_text(NFTA_RULE_TABLE, &table.name);
    message.push_text(NFTA_RULE_CHAIN, &rule.chain);
    message.push(NFTA_RULE_HANDLE, &rule.handle);
    message.nested(NFTA_RULE_EXPRESSIONS, |list| {
        expression(list, "meta", |data| {
            data.push_be32(NFTA_META_KEY, NFT_META_IIFNAME);
            data.push_be32(NFTA_META_DREG, NFT_REG_1);
        });
        expression(list, "cmp", |data| {
            data.push_be32(NFTA_CMP_SREG, NFT_REG_1);
            data.push_be32(NFTA_CMP_OP, NFT_CMP_EQ);
            data.nested(NFTA_CMP_DATA, |value| value.push(NFTA_DATA_VALUE, LO));
        });
        rule.expressions.iter().for_each(|element| list.push(NFTA_LIST_ELEM, element));
    });
    if let Some(comment) = &rule.comment {
        message.push(NFTA_RULE_USERDATA, comment);
    }
    message
}

fn expression(list: &mut Message, name: &str, data: impl FnOnce(&mut Message)) {
    list.nested(NFTA_LIST_ELEM, |element| {
        element.push_text(NFTA_EXPR_NAME, name);
        element.nested(NFTA_EXPR_DATA, data);
    });
}
