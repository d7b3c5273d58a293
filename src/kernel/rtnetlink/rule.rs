//! Policy rules by mark.

use std::io;

use super::{Added, ROUTE_PROTOCOL, RULE_PRIORITY, Rtnetlink, af, flags};
use crate::kernel::netlink::{Message, Reply};
use crate::model::Family;

/// Length of `struct fib_rule_hdr`.
pub(super) const HEADER: usize = 12;
pub(super) const FRA_PRIORITY: u16 = 6;
pub(super) const FRA_FWMARK: u16 = 10;
pub(super) const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
pub(super) const FRA_TABLE: u16 = 15;
pub(super) const FRA_FWMASK: u16 = 16;
pub(super) const FRA_PAD: u16 = 18;
pub(super) const FRA_PROTOCOL: u16 = 21;
/// The action of a rule that names a table.
pub(super) const FR_ACT_TO_TBL: u8 = 1;
/// The rule is for what does not match.
pub(super) const FIB_RULE_INVERT: u32 = 2;

/// A policy rule that looks at the mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkRule {
    /// Lower ones are looked at first.
    pub priority: u32,
    /// The mark.
    pub mark: u32,
    /// The bits of the mark that are compared.
    pub mask: u32,
    /// The table that it names; 0 for a rule that names none.
    pub table: u32,
    /// Who added it; `None` on kernels before 4.17.
    pub protocol: Option<u8>,
    /// Whether mark and table is all there is to it.
    pub plain: bool,
}

impl MarkRule {
    /// Our rule for this mark and table.
    #[must_use]
    pub const fn ours(mark: u32, table: u32) -> Self {
        Self {
            priority: RULE_PRIORITY,
            mark,
            mask: u32::MAX,
            table,
            protocol: Some(ROUTE_PROTOCOL),
            plain: true,
        }
    }

    /// Whether it carries our protocol number.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.protocol == Some(ROUTE_PROTOCOL)
    }
}

impl Rtnetlink {
    /// The policy rules of a family that look at the mark, in the kernel's order; none if the kernel has no
    /// policy rules in this family.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn mark_rules(&mut self, family: Family) -> io::Result<Vec<MarkRule>> {
        let mut header = [0; HEADER];
        header[0] = af(family);
        let message = Message::new(libc::RTM_GETRULE, 0, &header);
        let rules = self.socket.dump(&message, |list: &mut Vec<MarkRule>, reply| {
            // Without rules of this family the kernel lists those of all others.
            if reply.kind == libc::RTM_NEWRULE && reply.byte(0) == af(family) {
                list.extend(read_rule(reply));
            }
        });
        match rules {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)) => {
                Ok(Vec::new())
            }
            other => other,
        }
    }

    /// Adds our rule for this mark and table, unless it is there.
    ///
    /// # Errors
    /// The kernel refuses: `EAFNOSUPPORT` without policy rules in this family.
    pub fn add_mark_rule(&mut self, family: Family, mark: u32, table: u32) -> io::Result<Added> {
        let rule = MarkRule::ours(mark, table);
        // Kernels before 4.17 do not keep the protocol, and NLM_F_EXCL compares it there with nothing.
        let same = |seen: &MarkRule| *seen == rule || (seen.protocol.is_none() && *seen == rule.untagged());
        if self.mark_rules(family)?.iter().any(same) {
            return Ok(Added::AlreadyThere);
        }
        self.add(&message(libc::RTM_NEWRULE, libc::NLM_F_CREATE | libc::NLM_F_EXCL, family, &rule))
    }

    /// Deletes one rule like this, of several identical ones just one; false if there is none. Meant for
    /// plain rules from [`Self::mark_rules`]: what else a rule compares the kernel does not look at here.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn delete_mark_rule(&mut self, family: Family, rule: &MarkRule) -> io::Result<bool> {
        self.delete(&message(libc::RTM_DELRULE, 0, family, rule), &[libc::ENOENT, libc::EAFNOSUPPORT])
    }
}

impl MarkRule {
    fn untagged(&self) -> Self {
        Self { protocol: None, ..self.clone() }
    }
}

fn message(kind: u16, more: libc::c_int, family: Family, rule: &MarkRule) -> Message {
    // The table in the header has 8 bits; the attribute wins where there is one.
    let mut header = [0; HEADER];
    header[0] = af(family);
    header[7] = FR_ACT_TO_TBL;
    let message = Message::new(kind, flags(more), &header)
        .with(FRA_PRIORITY, &rule.priority.to_ne_bytes())
        .with(FRA_FWMARK, &rule.mark.to_ne_bytes())
        .with(FRA_FWMASK, &rule.mask.to_ne_bytes())
        .with(FRA_TABLE, &rule.table.to_ne_bytes());
    match rule.protocol {
        Some(protocol) => message.with(FRA_PROTOCOL, &[protocol]),
        None => message,
    }
}

/// The rule in a message; `None` if it does not look at the mark.
pub(super) fn read_rule(reply: &Reply<'_>) -> Option<MarkRule> {
    let [destination, source, tos, action] = [1, 2, 3, 7].map(|offset| reply.byte(offset));
    let mut rule = MarkRule {
        priority: 0,
        mark: 0,
        mask: u32::MAX,
        table: u32::from(reply.byte(4)),
        protocol: None,
        plain: [destination, source, tos] == [0; 3]
            && action == FR_ACT_TO_TBL
            && reply.word(8) & FIB_RULE_INVERT == 0,
    };
    let mut by_mark = false;
    for attribute in reply.attributes(HEADER) {
        match attribute.kind {
            FRA_PRIORITY => rule.priority = attribute.u32()?,
            FRA_FWMARK => {
                by_mark = true;
                rule.mark = attribute.u32()?;
            }
            FRA_FWMASK => rule.mask = attribute.u32()?,
            FRA_TABLE => rule.table = attribute.u32()?,
            FRA_PROTOCOL => rule.protocol = attribute.byte(),
            FRA_PAD => {}
            // All ones mean "no such condition"; the kernel lists that one always.
            FRA_SUPPRESS_PREFIXLEN if attribute.u32() == Some(u32::MAX) => {}
            _ => rule.plain = false,
        }
    }
    by_mark.then_some(rule)
}
