//! Istio's native nftables tables: the policy rules, routes and addresses that they refer to.

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv6Addr;

use super::{Kind, NFGENMSG, NFTA_RULE_TABLE, Nftables, TableName, message, text};
use crate::kernel::netlink::{Attribute, Reply};

const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_IMMEDIATE_DATA: u16 = 2;
const NFTA_CMP_DATA: u16 = 3;
const NFTA_DATA_VALUE: u16 = 1;
const NFTA_META_KEY: u16 = 2;
const NFTA_META_SREG: u16 = 3;
/// `NFT_META_MARK`.
const META_MARK: u32 = 3;

/// Marks and addresses that the rules of some tables refer to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// Marks that they put on packets.
    pub marks: BTreeSet<u32>,
    /// IPv6 addresses that they compare with, whole.
    pub addresses: BTreeSet<Ipv6Addr>,
}

impl Nftables {
    /// What the rules of a table refer to; nothing if there is no such table.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn references(&mut self, table: &TableName) -> io::Result<References> {
        let message = message(Kind::GetRule, table.family.number()).with_text(NFTA_RULE_TABLE, &table.name);
        let found = self.socket.dump(&message, |found: &mut References, reply| {
            if reply.kind == Kind::NewRule.number()
                && text(reply, NFTA_RULE_TABLE).as_deref() == Some(table.name.as_str())
            {
                read_rule(found, reply);
            }
        });
        match found {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(References::default()),
            other => other,
        }
    }
}

/// Reads the expressions of a rule in their order: a mark is loaded into a register, then put on the packet.
fn read_rule(found: &mut References, reply: &Reply<'_>) {
    let Some(expressions) = reply.attributes(NFGENMSG).of(NFTA_RULE_EXPRESSIONS) else { return };
    let mut loaded = None;
    // Interface names are compared as 16 bytes too.
    let mut of_packet = false;
    for expression in expressions.nested() {
        let name = expression.nested().of(NFTA_EXPR_NAME).map(|name| name.text());
        let Some(data) = expression.nested().of(NFTA_EXPR_DATA) else { continue };
        match name.as_deref() {
            Some("immediate") => loaded = value(&data, NFTA_IMMEDIATE_DATA).and_then(|value| value.u32()),
            Some("meta") if sets_mark(&data) => found.marks.extend(loaded.take()),
            Some("payload") => of_packet = true,
            Some("meta") => of_packet = false,
            Some("cmp") if of_packet => {
                let bytes = value(&data, NFTA_CMP_DATA).map(|value| value.payload);
                let address = bytes.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
                found.addresses.extend(address.map(Ipv6Addr::from));
            }
            _ => {}
        }
    }
}

/// The bytes of a constant.
fn value<'a>(data: &Attribute<'a>, kind: u16) -> Option<Attribute<'a>> {
    data.nested().of(kind)?.nested().of(NFTA_DATA_VALUE)
}

/// `meta mark set`: an expression of this name that reads a register.
fn sets_mark(data: &Attribute<'_>) -> bool {
    data.nested().of(NFTA_META_SREG).is_some()
        && data.nested().of(NFTA_META_KEY).and_then(|key| key.be32()) == Some(META_MARK)
}

#[cfg(test)]
mod tests {
    use super::super::TableFamily;
    use super::*;
    use netlab::in_new_namespace;
    use netlab::process::run;

    #[test]
    fn marks_and_addresses_of_a_table_are_found() {
        in_new_namespace(|| {
            run(
                "nft",
                &[
                    "add table inet t; add chain inet t c { type filter hook prerouting priority -150; }; add chain inet t d; \
                   add rule inet t d counter meta mark set 1337; add rule inet t d mark 7 counter return; \
                   add rule inet t d meta l4proto tcp tproxy ip to :15006 meta mark set 0x53a counter accept; \
                   add rule inet t c ct mark 5 meta mark set ct mark; add rule inet t c oifname lo ip6 saddr ::6 return; \
                   add rule inet t c ct mark set 9; add table inet u; add chain inet u e; add rule inet u e meta mark set 99",
                ],
            );
            let mut nftables = Nftables::open().unwrap();
            let found = nftables.references(&TableName::new(TableFamily::Inet, "t")).unwrap();
            let expected =
                References { marks: [1337, 1338].into(), addresses: ["::6".parse().unwrap()].into() };
            assert_eq!(found, expected);
            let absent = nftables.references(&TableName::new(TableFamily::Inet, "none")).unwrap();
            assert_eq!(absent, References::default());
        });
    }
}
