//! Inbound capture.

use super::{loopback, when};
use crate::config::{CaptureConfig, InboundPorts, Mode};
use crate::model::{Chain, CtState, Hook, Mark, Port, Protocol, Ruleset, Table, Target, Transport, Why};

/// Packets in conntrack state INVALID are not translated by nat: they would reach the app or the peer with
/// addresses that neither knows, and be answered by a reset.
pub(super) fn drop_invalid(config: &CaptureConfig, rules: &mut Ruleset) {
    if !config.traffic.drop_invalid {
        return;
    }
    let invalid = when().state(CtState::Invalid).then(Target::Jump(Chain::Drop), Why::InvalidPacket);
    rules.hook_tail(Table::Mangle, Hook::Prerouting, invalid);
    rules.append(Table::Mangle, Chain::Drop, when().then(Target::Drop, Why::DropInvalid));
}

/// The redirect chains are in nat in every mode: outbound rules jump to both of them.
pub(super) fn redirects(config: &CaptureConfig, rules: &mut Ruleset) {
    let tunnel = when().protocol(Protocol::to(Transport::Tcp, config.traffic.ports.tunnel));
    rules.append(Table::Nat, Chain::Inbound, tunnel.then(Target::Return, Why::TunnelPort));
    let outbound = Target::Redirect(config.traffic.ports.outbound);
    rules.append(
        Table::Nat,
        Chain::Redirect,
        when().protocol(Protocol::TCP).then(outbound, Why::ToOutboundPort),
    );
    let inbound = Target::Redirect(config.traffic.ports.inbound);
    rules.append(
        Table::Nat,
        Chain::InRedirect,
        when().protocol(Protocol::TCP).then(inbound, Why::ToInboundPort),
    );
}

/// Captures the inbound ports, in the table that the mode needs.
pub(super) fn capture(config: &CaptureConfig, rules: &mut Ruleset) {
    if config.traffic.inbound == InboundPorts::None {
        return;
    }
    let table = match config.traffic.mode {
        Mode::Redirect => Table::Nat,
        Mode::Tproxy(tproxy) => {
            transparent_chains(config, tproxy.mark, rules);
            Table::Mangle
        }
    };
    let jump = when().protocol(Protocol::TCP).then(Target::Jump(Chain::Inbound), Why::InboundTraffic);
    rules.hook_tail(table, Hook::Prerouting, jump);
    match &config.traffic.inbound {
        InboundPorts::None => {}
        InboundPorts::All { except } => {
            for port in except {
                let excluded = when().protocol(Protocol::to(Transport::Tcp, *port));
                rules.append(table, Chain::Inbound, excluded.then(Target::Return, Why::ExcludedInboundPort));
            }
            take(config.traffic.mode, table, None, rules);
        }
        InboundPorts::Only(ports) => {
            for port in ports {
                take(config.traffic.mode, table, Some(*port), rules);
            }
        }
    }
}

/// Hands one port, or all of them, to the proxy.
fn take(mode: Mode, table: Table, port: Option<Port>, rules: &mut Ruleset) {
    let (protocol, why) = match port {
        Some(port) => (Protocol::to(Transport::Tcp, port), Why::IncludedInboundPort),
        None => (Protocol::TCP, Why::EveryInboundPort),
    };
    let chain = match mode {
        Mode::Redirect => Chain::InRedirect,
        Mode::Tproxy(_) => {
            // Before the TPROXY target, which is for connections that no socket accepted yet.
            let known = when().protocol(protocol.clone()).state(CtState::RelatedOrEstablished);
            let divert = known.then(Target::Jump(Chain::Divert), Why::KnownInboundConnection);
            rules.append(table, Chain::Inbound, divert);
            Chain::Tproxy
        }
    };
    rules.append(table, Chain::Inbound, when().protocol(protocol).then(Target::Jump(chain), why));
}

fn transparent_chains(config: &CaptureConfig, mark: Mark, rules: &mut Ruleset) {
    rules.append(Table::Mangle, Chain::Divert, when().then(Target::SetMark(mark), Why::DivertMark));
    rules.append(Table::Mangle, Chain::Divert, when().then(Target::Accept, Why::DivertAccept));
    // Loopback destinations are the app's own business; there is no address to preserve either.
    let matcher = when().not_to(loopback(config)).protocol(Protocol::TCP);
    let target = Target::Tproxy { port: config.traffic.ports.inbound, mark };
    rules.append(Table::Mangle, Chain::Tproxy, matcher.then(target, Why::TransparentProxy));
}
