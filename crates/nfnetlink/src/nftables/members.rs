//! What sets and verdict maps hold, with time limits or without: for programs that follow packets.

use std::io;

use super::decode::verdict;
use super::encode::message;
use super::number::{Kind, LIST_ELEM, NFGENMSG, data, element, elements, set};
use super::{Client, Elements, Set, TableName, Verdict, interval};
use crate::{Attributes, Reply};

/// Some values of equal length, and the verdict that a map has for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The first one.
    pub first: Vec<u8>,
    /// The last one.
    pub last: Vec<u8>,
    /// `None` in a set.
    pub verdict: Option<Verdict>,
}

/// The members of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The name of the set.
    pub name: String,
    /// In the order of their values.
    pub list: Vec<Member>,
    /// The verdict of a map for all others.
    pub otherwise: Option<Verdict>,
    is_interval: bool,
    is_map: bool,
    /// Whether it has a member that is not understood.
    is_partial: bool,
}

/// The flag of a map, and what its values are.
const MAP: u32 = 8;
/// The flag of a set that rules add to and delete from as packets pass: what it holds now says nothing about
/// later.
const FILLED_BY_RULES: u32 = 0x20;
const DATA_TYPE: u16 = 6;
const VERDICTS: u32 = 0xffff_ff00;
/// An element's verdict, and the end of its range where fields are joined.
const DATA: u16 = 2;
const KEY_END: u16 = 10;
/// The element for all other values.
const CATCH_ALL: u32 = 2;

impl Set {
    /// The members of the set; `None` if they are not understood.
    #[must_use]
    pub fn members(&self) -> Option<Members> {
        let member = |first: &Vec<u8>, last: &Vec<u8>| Member {
            first: first.clone(),
            last: last.clone(),
            verdict: None,
        };
        let list = match &self.elements {
            Elements::Values(values) => values.iter().map(|value| member(value, value)).collect(),
            Elements::Ranges(ranges) => ranges.iter().map(|(first, last)| member(first, last)).collect(),
            Elements::Foreign(_) => return None,
        };
        Some(Members { name: self.name.clone(), list, ..Members::default() })
    }
}

impl Client {
    /// The members of the sets and verdict maps of a table; without those that hold anything else, and those
    /// that rules fill.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn members(&mut self, table: &TableName) -> io::Result<Vec<Members>> {
        let request = message(Kind::GetSet, table.family, 0).with_text(set::TABLE, &table.name);
        let family = table.family.number();
        let mut sets = self.socket.dump(&request, |sets: &mut Vec<Members>, reply: &Reply<'_>| {
            if reply.kind == Kind::NewSet.number() && reply.byte(0) == family {
                sets.extend(described(reply, table));
            }
        })?;
        for members in &mut sets {
            let request = message(Kind::GetElements, table.family, 0)
                .with_text(elements::TABLE, &table.name)
                .with_text(elements::SET, &members.name);
            let found = self
                .socket
                .dump(&request, |found: &mut Found, reply: &Reply<'_>| found.read(reply, members.is_map))?;
            found.finish(members);
        }
        sets.retain(|members| !members.is_partial);
        Ok(sets)
    }
}

fn described(reply: &Reply<'_>, table: &TableName) -> Option<Members> {
    let attributes = reply.attributes(NFGENMSG);
    let number = |kind: u16| attributes.of(kind).and_then(|number| number.be32());
    let flags = number(set::FLAGS).unwrap_or(0);
    let is_map = flags & MAP != 0;
    let is_known = !is_map || number(DATA_TYPE) == Some(VERDICTS);
    if !is_known || flags & FILLED_BY_RULES != 0 || attributes.of(set::TABLE)?.text() != table.name {
        return None;
    }
    Some(Members {
        name: attributes.of(set::NAME)?.text(),
        is_interval: flags & set::INTERVAL != 0,
        is_map,
        ..Members::default()
    })
}

/// Elements as they come.
#[derive(Debug, Default)]
struct Found {
    /// Value, whether a range ends before it, verdict.
    values: Vec<interval::Bound>,
    /// Of a set of several fields that has ranges.
    ranges: Vec<Member>,
    otherwise: Option<Verdict>,
    is_partial: bool,
}

impl Found {
    fn read(&mut self, reply: &Reply<'_>, is_map: bool) {
        let Some(list) = reply.attributes(NFGENMSG).of(elements::ELEMENTS) else { return };
        for attribute in list.nested().filter(|attribute| attribute.kind == LIST_ELEM) {
            let understood = self.element(attribute.nested(), is_map);
            self.is_partial |= understood.is_none();
        }
    }

    fn element(&mut self, attributes: Attributes<'_>, is_map: bool) -> Option<()> {
        let flags = attributes.of(element::FLAGS).and_then(|flags| flags.be32()).unwrap_or(0);
        let ends = flags & element::INTERVAL_END != 0;
        let verdict = match attributes.of(DATA) {
            Some(data) => Some(verdict(data.nested().of(data::VERDICT)?.nested())?),
            // In a map each has one, but for those that end a range.
            None => (!is_map || ends).then_some(None)?,
        };
        let verdict = verdict.filter(|_| is_map);
        if flags & CATCH_ALL != 0 {
            self.otherwise = verdict;
            return is_map.then_some(());
        }
        let value = |key: u16| Some(attributes.of(key)?.nested().of(data::VALUE)?.payload.to_vec());
        let first = value(element::KEY)?;
        match attributes.of(KEY_END) {
            Some(_) => self.ranges.push(Member { first, last: value(KEY_END)?, verdict }),
            None => self.values.push((first, ends, verdict)),
        }
        Some(())
    }

    fn finish(self, members: &mut Members) {
        let is_mixed = !self.ranges.is_empty() && !self.values.is_empty();
        members.is_partial = self.is_partial || is_mixed;
        members.otherwise = self.otherwise;
        members.list = if !self.ranges.is_empty() {
            self.ranges
        } else if members.is_interval {
            interval::members_of(self.values)
        } else {
            let single =
                |(value, _, verdict): interval::Bound| Member { first: value.clone(), last: value, verdict };
            // The kernel lists them in the order of its hash table.
            let mut values = self.values;
            interval::sort(&mut values);
            values.into_iter().map(single).collect()
        };
    }
}
