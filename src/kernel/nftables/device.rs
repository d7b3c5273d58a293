//! Base chains at network devices (`ingress`, `egress`): packets meet them before all others, or behind them.

use std::fmt;
use std::io;

use super::{
    Kind, NFGENMSG, NFTA_CHAIN_NAME, NFTA_CHAIN_POLICY, NFTA_CHAIN_TABLE, NFTA_RULE_CHAIN, NFTA_RULE_TABLE,
    Nftables, POLICY_DROP, message, text,
};
use crate::model::DeviceHook;

const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;
const NFTA_HOOK_DEV: u16 = 3;
const NFTA_HOOK_DEVS: u16 = 4;
const NFPROTO_INET: u8 = 1;
const NFPROTO_NETDEV: u8 = 5;
/// `NF_INET_INGRESS`, in the family `inet`.
const INET_INGRESS: u32 = 5;
/// `NF_NETDEV_INGRESS` and `NF_NETDEV_EGRESS`.
const NETDEV_HOOKS: [&str; 2] = ["ingress", "egress"];

/// A base chain at a device that drops or has rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceChain {
    family: u8,
    table: String,
    chain: String,
    hook: &'static str,
    devices: Vec<String>,
    priority: u32,
    drops: bool,
}

impl fmt::Display for DeviceChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { family, table, chain, hook, devices, priority, drops: _ } = self;
        let family = if *family == NFPROTO_NETDEV { "netdev" } else { "inet" };
        let (order, which) =
            if *hook == "egress" { ("behind", "leave the pod") } else { ("before", "arrive") };
        write!(
            f,
            "a foreign base chain may decide {order} ours: {family} {table} {chain} ({hook} of {}, priority {}): its rules are \
             not read: packets that it drops or changes when they {which} are not as these rules say",
            devices.join(", "),
            priority.cast_signed()
        )
    }
}

impl DeviceChain {
    /// The chain at each of its devices, without the consequence.
    pub fn hooks(&self) -> impl Iterator<Item = DeviceHook> {
        let Self { table, chain, hook, devices, .. } = self;
        devices.iter().map(move |interface| DeviceHook {
            interface: interface.clone(),
            what: format!("the base chain {table} {chain} of nftables"),
            leaves: *hook == "egress",
        })
    }
}

impl Nftables {
    /// The base chains at devices that decide something.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn device_chains(&mut self) -> io::Result<Vec<DeviceChain>> {
        let mut chains =
            self.socket.dump(&message(Kind::GetChain, 0), |list: &mut Vec<DeviceChain>, reply| {
                if reply.kind != Kind::NewChain.number() {
                    return;
                }
                let family = reply.byte(0);
                let attributes = reply.attributes(NFGENMSG);
                let Some(base) = attributes.of(NFTA_CHAIN_HOOK).map(|hook| hook.nested()) else { return };
                let number = |kind| base.of(kind).and_then(|attribute| attribute.be32());
                let hook = match (family, number(NFTA_HOOK_HOOKNUM)) {
                    (NFPROTO_INET, Some(INET_INGRESS)) => Some("ingress"),
                    (NFPROTO_NETDEV, Some(number)) => {
                        usize::try_from(number).ok().and_then(|number| NETDEV_HOOKS.get(number)).copied()
                    }
                    _ => None,
                };
                let names = text(reply, NFTA_CHAIN_TABLE).zip(text(reply, NFTA_CHAIN_NAME));
                let (Some(hook), Some((table, chain))) = (hook, names) else { return };
                let listed = base.of(NFTA_HOOK_DEVS).into_iter().flat_map(|devices| devices.nested());
                let mut devices: Vec<String> = listed.map(|device| device.text()).collect();
                if devices.is_empty() {
                    devices.extend(base.of(NFTA_HOOK_DEV).map(|device| device.text()));
                }
                let policy = attributes.of(NFTA_CHAIN_POLICY).and_then(|policy| policy.be32());
                let (priority, drops) =
                    (number(NFTA_HOOK_PRIORITY).unwrap_or_default(), policy == Some(POLICY_DROP));
                list.push(DeviceChain { family, table, chain, hook, devices, priority, drops });
            })?;
        let mut error = None;
        chains.retain(|chain| {
            chain.drops
                || self.has_rules(chain).unwrap_or_else(|failed| {
                    error = Some(failed);
                    true
                })
        });
        error.map_or(Ok(chains), Err)
    }

    fn has_rules(&mut self, chain: &DeviceChain) -> io::Result<bool> {
        let of_table = message(Kind::GetRule, chain.family).with_text(NFTA_RULE_TABLE, &chain.table);
        self.socket.dump(&of_table, |found: &mut bool, reply| {
            *found |= reply.kind == Kind::NewRule.number()
                && text(reply, NFTA_RULE_CHAIN).as_deref() == Some(chain.chain.as_str());
        })
    }
}
