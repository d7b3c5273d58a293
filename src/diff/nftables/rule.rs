//! The words of one rule.

use super::super::field::{
    ESTABLISHED, FROM_OUTSIDE, Field, INSIDE, INVALID, MAX_U32, NEW, TCP, UDP, UNTRACKED,
};
use super::super::iptables::masked;
use super::super::program::{Action, Rule, Test};
use super::super::set::{Range, Set};
use super::listing::{Listed, listed};
use super::values::{address_v4, address_v6, id, interface, number, port, protocol};
use crate::model::{Family, Why};

/// Reads one rule.
pub(super) struct Reader<'a> {
    family: Family,
    words: &'a [String],
    chains: &'a dyn Fn(&str) -> Option<usize>,
    elements: &'a dyn Fn(&str) -> Option<&'a [String]>,
    tests: Vec<Test>,
    actions: Vec<Action>,
    why: Option<Why>,
    is_unknown: bool,
    /// Whether it is for packets of the other family.
    is_of_other_family: bool,
}

impl<'a> Reader<'a> {
    /// The rule; `None` if it is for no packet of the family, or does nothing.
    pub(super) fn read(
        family: Family,
        words: &'a [String],
        chains: &'a dyn Fn(&str) -> Option<usize>,
        elements: &'a dyn Fn(&str) -> Option<&'a [String]>,
    ) -> Option<Rule> {
        let mut reader = Self {
            family,
            words,
            chains,
            elements,
            tests: Vec::new(),
            actions: Vec::new(),
            why: None,
            is_unknown: false,
            is_of_other_family: false,
        };
        while !reader.words.is_empty() && !reader.is_of_other_family {
            // Behind something that is not understood the words may mean something else.
            let is_read = (!reader.is_unknown && reader.test().is_some()) || reader.statement().is_some();
            if !is_read {
                reader.is_unknown = true;
                reader.take();
            }
        }
        let Self { tests, mut actions, why, is_unknown, is_of_other_family, .. } = reader;
        let text = Listed(words).to_string();
        if is_unknown && actions.is_empty() {
            actions.push(Action::Take(text.clone()));
        }
        (!is_of_other_family && !actions.is_empty()).then(|| Rule::new(tests, is_unknown, actions, text, why))
    }

    fn take(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    /// Goes on behind these words, if they come next.
    fn skip(&mut self, words: &[&str]) -> Option<()> {
        let (first, rest) = self.words.split_at_checked(words.len())?;
        first.iter().eq(words).then(|| self.words = rest)
    }

    /// Reads one test; nothing is taken if it is none.
    fn test(&mut self) -> Option<()> {
        let (before, tests) = (self.words, self.tests.len());
        let read = self.test_of_packet();
        if read.is_none() {
            self.words = before;
            self.tests.truncate(tests);
        }
        read
    }

    fn test_of_packet(&mut self) -> Option<()> {
        self.skip(&["meta"]).unwrap_or_default();
        match self.take()? {
            "nfproto" => {
                let is_negated = self.is_negated();
                let is_own = match self.take()? {
                    "ipv4" => self.family == Family::V4,
                    "ipv6" => self.family == Family::V6,
                    _ => return None,
                };
                self.is_of_other_family |= is_own == is_negated;
                Some(())
            }
            "l4proto" => self.values(Field::Protocol, protocol),
            "iifname" | "iif" => self.values(Field::InInterface, interface),
            "oifname" | "oif" => self.values(Field::OutInterface, interface),
            "skuid" => self.owner(Field::Uid),
            "skgid" => self.owner(Field::Gid),
            "mark" => self.masked(Field::Mark),
            "ip" => self.header(Family::V4),
            "ip6" => self.header(Family::V6),
            "tcp" => self.transport(TCP),
            "udp" => self.transport(UDP),
            "ct" => match self.take()? {
                "mark" => self.masked(Field::Connmark),
                "state" => self.states(),
                _ => None,
            },
            "fib" => {
                self.skip(&["daddr", "type"])?;
                let is_negated = self.is_negated();
                (self.take()? == "local").then_some(())?;
                let local = Set::one(FROM_OUTSIDE).or(&Set::one(INSIDE));
                self.tests.push(Test::new(Field::Path, local, is_negated));
                Some(())
            }
            _ => None,
        }
    }

    fn is_negated(&mut self) -> bool {
        let is_negated = self.skip(&["!="]).is_some();
        if !is_negated {
            self.skip(&["=="]).unwrap_or_default();
        }
        is_negated
    }

    /// A value, or several of a set.
    fn values(&mut self, field: Field, read: fn(&str) -> Option<Range>) -> Option<()> {
        let (values, is_negated) = self.operand(read)?;
        self.tests.push(Test::new(field, values, is_negated));
        Some(())
    }

    /// A mark, or some of its bits.
    fn masked(&mut self, field: Field) -> Option<()> {
        if self.skip(&["&"]).is_none() {
            return self.values(field, number);
        }
        let (mask, _) = number(self.take()?)?;
        let ((value, _), is_negated) = match self.take()? {
            "==" => (number(self.take()?)?, false),
            "!=" => (number(self.take()?)?, true),
            _ => return None,
        };
        self.tests.push(Test::new(field, masked(mask, &[(value, value)])?, is_negated));
        Some(())
    }

    fn operand(&mut self, read: fn(&str) -> Option<Range>) -> Option<(Set, bool)> {
        let is_negated = self.is_negated();
        let word = self.take()?;
        let set = |items: &[String]| -> Option<Set> {
            // Behind a value there may be its time limit.
            let value =
                |item: &String| read(item.split_once(" timeout ").map_or(item.as_str(), |(value, _)| value));
            let ranges: Option<Vec<Range>> = items.iter().map(value).collect();
            ranges.map(Set::of)
        };
        let values = if word == "{" {
            let end = self.words.iter().position(|word| word == "}")?;
            let (inside, rest) = self.words.split_at_checked(end)?;
            self.words = rest.get(1..)?;
            set(&listed(inside))?
        } else if let Some(name) = word.strip_prefix('@') {
            set((self.elements)(name)?)?
        } else {
            Set::of(vec![read(word)?])
        };
        // Something that goes on, such as a mask or a concatenation.
        let goes_on = self
            .words
            .first()
            .is_some_and(|word| [".", "&", "|", "^", "and", "or", "/"].contains(&word.as_str()));
        (!goes_on).then_some((values, is_negated))
    }

    /// A packet without a socket fails, negated or not.
    fn owner(&mut self, field: Field) -> Option<()> {
        let (values, is_negated) = self.operand(id)?;
        let real = Set::range(0, MAX_U32);
        let values = if is_negated { values.complement().and(&real) } else { values };
        self.tests.push(Test::new(field, values, false));
        Some(())
    }

    fn header(&mut self, family: Family) -> Option<()> {
        let address = match family {
            Family::V4 => address_v4,
            Family::V6 => address_v6,
        };
        match self.take()? {
            "saddr" => self.values(Field::Source, address)?,
            "daddr" => self.values(Field::Destination, address)?,
            "protocol" | "nexthdr" => self.values(Field::Protocol, protocol)?,
            _ => return None,
        }
        self.is_of_other_family |= family != self.family;
        Some(())
    }

    fn transport(&mut self, protocol: u128) -> Option<()> {
        let implied = Test::new(Field::Protocol, Set::one(protocol), false);
        if !self.tests.contains(&implied) {
            self.tests.push(implied);
        }
        match self.take()? {
            "sport" => self.values(Field::SourcePort, port),
            "dport" => self.values(Field::DestinationPort, port),
            "flags" if protocol == TCP => {
                let short = |reader: &mut Self| {
                    let is_negated = reader.is_negated();
                    reader.skip(&["syn", "/", "fin", ",", "syn", ",", "rst", ",", "ack"])?;
                    Some(is_negated)
                };
                let is_negated = short(self)?;
                self.tests.push(Test::new(Field::Syn, Set::one(1), is_negated));
                Some(())
            }
            _ => None,
        }
    }

    /// A list without braces, in which any counts; with braces too.
    fn states(&mut self) -> Option<()> {
        let is_negated = self.is_negated();
        let in_braces = self.skip(&["{"]).is_some();
        let mut names = vec![self.take()?];
        while self.skip(&[","]).is_some() {
            names.push(self.take()?);
        }
        if in_braces {
            self.skip(&["}"])?;
        }
        let has = |name: &str| names.contains(&name);
        let state = |name: &&str| match *name {
            "new" => Some((NEW, NEW)),
            "established" | "related" => Some((ESTABLISHED, ESTABLISHED)),
            "invalid" => Some((INVALID, INVALID)),
            "untracked" => Some((UNTRACKED, UNTRACKED)),
            _ => None,
        };
        if has("related") && !has("established") {
            return None;
        }
        let states: Option<Vec<Range>> = names.iter().map(state).collect();
        self.tests.push(Test::new(Field::State, Set::of(states?), is_negated));
        Some(())
    }

    /// Reads one statement; nothing is taken if it is none.
    fn statement(&mut self) -> Option<()> {
        let before = self.words;
        let read = self.statement_of_rule();
        if read.is_none() {
            self.words = before;
        }
        read
    }

    fn statement_of_rule(&mut self) -> Option<()> {
        let action = match self.take()? {
            "counter" => {
                if self.skip(&["packets"]).is_some() {
                    self.take()?;
                    self.skip(&["bytes"])?;
                    self.take()?;
                }
                return Some(());
            }
            "comment" => {
                let slug = self.take()?.trim_start_matches('"').split_once(": ").map(|(slug, _)| slug);
                self.why = slug.and_then(|slug| Why::ALL.iter().copied().find(|why| why.slug() == slug));
                return Some(());
            }
            "continue" => return Some(()),
            "accept" => Action::Accept,
            "drop" => Action::Drop,
            "return" => Action::Return,
            "jump" => Action::Jump(self.chain()?),
            "goto" => Action::Goto(self.chain()?),
            "notrack" => Action::Untrack,
            "redirect" => {
                self.skip(&["to"])?;
                let port = self.take()?.strip_prefix(':')?.parse().ok()?;
                Action::Redirect(port)
            }
            "tproxy" => {
                let _ = self.skip(&["ip"]).or_else(|| self.skip(&["ip6"]));
                self.skip(&["to"])?;
                Action::Tproxy(self.take()?.strip_prefix(':')?.parse().ok()?)
            }
            "meta" => {
                self.skip(&["mark", "set"])?;
                self.mark(Field::Mark, Field::Connmark, &[&["ct", "mark"]])?
            }
            "mark" => {
                self.skip(&["set"])?;
                self.mark(Field::Mark, Field::Connmark, &[&["ct", "mark"]])?
            }
            "ct" if self.skip(&["zone", "set"]).is_some() => Action::Zone(self.take()?.parse().ok()?),
            "ct" => {
                self.skip(&["mark", "set"])?;
                self.mark(Field::Connmark, Field::Mark, &[&["meta", "mark"], &["mark"]])?
            }
            "dnat" | "snat" | "masquerade" | "reject" | "queue" | "synproxy" | "fwd" | "dup" => {
                let words = Listed(self.words).to_string();
                self.words = &[];
                Action::Take(words)
            }
            _ => return None,
        };
        self.actions.push(action);
        Some(())
    }

    fn chain(&mut self) -> Option<usize> {
        (self.chains)(self.take()?)
    }

    /// The new value of a mark: a number, or the other mark, which has these words.
    fn mark(&mut self, of: Field, other: Field, words: &[&[&str]]) -> Option<Action> {
        if words.iter().any(|words| self.skip(words).is_some()) {
            return Some(Action::Copy(of, other));
        }
        let value = number(self.take()?)?.0;
        Some(Action::Set(of, value))
    }
}
