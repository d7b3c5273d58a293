//! Marks: what TPROXY mode needs besides the capture itself.

use super::{loopback, passthrough, proxy_owners, when};
use crate::config::{CaptureConfig, Mode};
use crate::model::{
    Chain, Hook, Interface, Match, PROXY_LOOPBACK_MARK, Protocol, Ruleset, Table, Target, Why,
};

/// Exempts packets that the proxy has already, what it hands to the app, and
/// loopback traffic that is not a call of the proxy to the pod's own service.
pub(super) fn skip_proxied_packets(config: &CaptureConfig, rules: &mut Ruleset) {
    let Mode::Tproxy(tproxy) = config.traffic.mode else { return };
    let tcp = || when().protocol(Protocol::TCP);
    let marked = tcp().mark(Match::Is(tproxy.mark)).then(Target::Return, Why::AlreadyMarked);
    rules.append(Table::Mangle, Chain::Inbound, marked);
    let handed = tcp().source(passthrough()).via_in(Interface::loopback());
    rules.append(Table::Mangle, Chain::Inbound, handed.then(Target::Return, Why::PassthroughSource));
    let other = tcp().via_in(Interface::loopback()).mark(Match::Not(PROXY_LOOPBACK_MARK));
    rules.append(Table::Mangle, Chain::Inbound, other.then(Target::Return, Why::OtherLoopback));
}

/// The connection remembers the mark of its packets, so that replies, which carry none, find back to the
/// proxy.
pub(super) fn carry_marks(config: &CaptureConfig, rules: &mut Ruleset) {
    let Mode::Tproxy(tproxy) = config.traffic.mode else { return };
    let tcp = || when().protocol(Protocol::TCP);
    let save = tcp().mark(Match::Is(tproxy.mark)).then(Target::SaveMark, Why::SaveMark);
    rules.hook_tail(Table::Mangle, Hook::Prerouting, save);
    let marked = tcp().via_out(Interface::loopback()).mark(Match::Is(tproxy.mark));
    rules.hook_tail(Table::Mangle, Hook::Output, marked.then(Target::Return, Why::MarkedLoopback));
    for owner in proxy_owners(config) {
        let own = tcp().not_to(loopback(config)).via_out(Interface::loopback()).by(Match::Is(owner));
        let rule = own.then(Target::SetMark(PROXY_LOOPBACK_MARK), Why::ProxyLoopbackMark);
        rules.hook_tail(Table::Mangle, Hook::Output, rule);
    }
    let restore = tcp().connmark(tproxy.mark).then(Target::RestoreMark, Why::RestoreMark);
    rules.hook_tail(Table::Mangle, Hook::Output, restore);
}
