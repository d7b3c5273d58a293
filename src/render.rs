//! Rules into the text that `iptables-restore` reads.
//!
//! The order of the words is that of `iptables-save`. Both variants of iptables and both families get the
//! same text.

use std::fmt::{self, Display, Write as _};

use ipnetwork::IpNetwork;

use crate::model::{
    CtState, FamilyRules, Interface, Match, Matcher, Owner, Port, Ports, Protocol, Statement, Target,
};
use crate::reconcile::{Change, Deletion, HookChange, TableChange};

/// The complete rules file of one family, for a namespace without rules of ours.
#[must_use]
pub fn fresh(rules: &FamilyRules) -> String {
    restore(&Change::fresh(rules))
}

/// The rules file that makes one change, a transaction per table. Built-in chains are not declared, unless
/// the change demands it: that would set their policy, and costs the nft variant some 10 ms.
#[must_use]
pub fn restore(change: &Change) -> String {
    let mut text = String::new();
    for table in &change.tables {
        table_section(&mut text, table);
    }
    text
}

fn table_section(text: &mut String, change: &TableChange) {
    let TableChange {
        table,
        declare,
        append,
        declare_reply_chains,
        deletions,
        hooks,
        remove,
        empty,
        by_handle: _,
        ambiguous: _,
        unlisted: _,
    } = change;
    let mut line = |line: fmt::Arguments<'_>| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{line}");
    };
    line(format_args!("*{}", table.name()));
    if *declare_reply_chains {
        // The tool accepts this policy only; it is the one that the chains have.
        line(format_args!(":INPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]"));
    }
    // Under --noflush this creates the chain, or empties it if it is there.
    for chain in declare.keys().chain(empty) {
        line(format_args!(":{} - [0:0]", chain.name()));
    }
    for Deletion { hook, what, jumps: _ } in deletions {
        line(format_args!("-D {} {what}", hook.name()));
    }
    for (hook, HookChange { rules, behind, foreign: _, leaving }) in hooks {
        let name = hook.name();
        for rule in rules.head.iter().rev() {
            line(format_args!("-I {name} {}", &rule.statement));
        }
        let first = behind.map(|foreign| rules.head.len() + leaving + foreign + 1);
        for (number, rule) in rules.tail.iter().enumerate() {
            match first {
                Some(first) => line(format_args!("-I {name} {} {}", first + number, &rule.statement)),
                None => line(format_args!("-A {name} {}", &rule.statement)),
            }
        }
    }
    let declared = declare.iter().flat_map(|(chain, rules)| rules.iter().map(move |rule| (chain, rule)));
    for (chain, rule) in declared.chain(append.iter().map(|(chain, rule)| (chain, rule))) {
        line(format_args!("-A {} {}", chain.name(), &rule.statement));
    }
    for chain in remove {
        line(format_args!("-F {}", chain.name()));
    }
    for chain in remove {
        line(format_args!("-X {}", chain.name()));
    }
    line(format_args!("COMMIT"));
}

impl Display for Statement {
    /// The words of a rule behind `-A CHAIN`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.matcher.fmt(f)?;
        target_words(f, self.target)
    }
}

impl Display for Matcher {
    /// The words of the tests, each with a blank behind it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            source,
            destination,
            in_interface,
            out_interface,
            protocol,
            ct_state,
            mark,
            connmark,
            owners,
        } = self;
        address(f, "-s", source.as_ref())?;
        address(f, "-d", destination.as_ref())?;
        interface(f, "-i", in_interface.as_ref())?;
        interface(f, "-o", out_interface.as_ref())?;
        if let Some(protocol) = protocol {
            protocol_words(f, protocol)?;
        }
        match ct_state {
            Some(CtState::Invalid) => f.write_str("-m conntrack --ctstate INVALID ")?,
            Some(CtState::RelatedOrEstablished) => {
                f.write_str("-m conntrack --ctstate RELATED,ESTABLISHED ")?
            }
            None => {}
        }
        if let Some(mark) = mark {
            write!(f, "-m mark {}--mark {} ", not(mark), mark.value())?;
        }
        if let Some(mark) = connmark {
            write!(f, "-m connmark --mark {mark} ")?;
        }
        for owner in owners {
            match owner.value() {
                Owner::Uid(uid) => write!(f, "-m owner {}--uid-owner {uid} ", not(owner))?,
                Owner::Gid(gid) => write!(f, "-m owner {}--gid-owner {gid} ", not(owner))?,
            }
        }
        Ok(())
    }
}

const fn not<T>(test: &Match<T>) -> &'static str {
    match test {
        Match::Is(_) => "",
        Match::Not(_) => "! ",
    }
}

fn address(f: &mut fmt::Formatter<'_>, option: &str, test: Option<&Match<IpNetwork>>) -> fmt::Result {
    test.map_or(Ok(()), |test| write!(f, "{}{option} {} ", not(test), test.value()))
}

fn interface(f: &mut fmt::Formatter<'_>, option: &str, name: Option<&Interface>) -> fmt::Result {
    name.map_or(Ok(()), |name| write!(f, "{option} {name} "))
}

fn protocol_words(f: &mut fmt::Formatter<'_>, protocol: &Protocol) -> fmt::Result {
    let Protocol { transport, source, destination, syn } = protocol;
    write!(f, "-p {} ", transport.name())?;
    if let Some(port) = source {
        write!(f, "--sport {port} ")?;
    }
    if let Some(test) = syn {
        write!(f, "{}--syn ", not(test))?;
    }
    let Some(test) = destination else { return Ok(()) };
    match test.value() {
        Ports::One(port) => write!(f, "{}--dport {port} ", not(test)),
        Ports::Any(ports) => {
            let list: Vec<String> = ports.iter().map(Port::to_string).collect();
            write!(f, "-m multiport {}--dports {} ", not(test), list.join(","))
        }
    }
}

fn target_words(f: &mut fmt::Formatter<'_>, target: Target) -> fmt::Result {
    match target {
        Target::Accept => f.write_str("-j ACCEPT"),
        Target::ConntrackZone(zone) => write!(f, "-j CT --zone {zone}"),
        Target::Drop => f.write_str("-j DROP"),
        Target::Jump(chain) => write!(f, "-j {}", chain.name()),
        Target::Redirect(port) => write!(f, "-j REDIRECT --to-ports {port}"),
        Target::RestoreMark => f.write_str("-j CONNMARK --restore-mark"),
        Target::Return => f.write_str("-j RETURN"),
        Target::SaveMark => f.write_str("-j CONNMARK --save-mark"),
        Target::SetMark(mark) => write!(f, "-j MARK --set-mark {mark}"),
        Target::Tproxy { port, mark } => {
            write!(f, "-j TPROXY --tproxy-mark {mark}/0xffffffff --on-port {port}")
        }
    }
}
