//! Rules with the owner match: the proxy's own traffic (uid and gid 1337 by default) is excluded, and so are
//! groups that are not to be captured.

use super::{loopback, proxy_owners, when};
use crate::config::{CaptureConfig, Dns, OwnerGroups};
use crate::model::{
    Chain, DNS_PORT, Interface, Match, Owner, Ports, Protocol, Ruleset, Table, Target, Transport, Why,
};

/// Three rules per user and per group of the proxy; their order is the point. Only a call of the proxy to the
/// pod's own service (over `lo`, but not to a loopback address) is captured, and as inbound; then the app's
/// loopback traffic leaves; then everything else of the proxy leaves.
pub(super) fn proxy(config: &CaptureConfig, rules: &mut Ruleset) {
    for owner in proxy_owners(config) {
        proxy_to_own_pod(config, owner, rules);
        if !config.traffic.outbound.loopback {
            app_loopback(config, owner, rules);
        }
        let own = when().by(Match::Is(owner)).then(Target::Return, Why::ProxyTraffic);
        rules.append(Table::Nat, Chain::Output, own);
    }
}

fn proxy_to_own_pod(config: &CaptureConfig, owner: Owner, rules: &mut Ruleset) {
    let tunnel = config.traffic.ports.tunnel;
    // With DNS capture a query of the proxy to a server behind `lo` must not go to the inbound port. Istio
    // has this for users only, and so do we.
    let untouched = match (&config.dns, owner) {
        (Dns::Off, _) | (_, Owner::Gid(_)) => Ports::One(tunnel),
        (Dns::All | Dns::Servers { .. }, Owner::Uid(_)) => Ports::Any(vec![DNS_PORT, tunnel]),
    };
    let rule = when()
        .not_to(loopback(config))
        .via_out(Interface::loopback())
        .protocol(Protocol::not_to(Transport::Tcp, untouched))
        .by(Match::Is(owner));
    rules.append(
        Table::Nat,
        Chain::Output,
        rule.then(Target::Jump(Chain::InRedirect), Why::ProxyCallsItself),
    );
}

fn app_loopback(config: &CaptureConfig, owner: Owner, rules: &mut Ruleset) {
    let rule = when().via_out(Interface::loopback()).by(Match::Not(owner));
    let rule = match config.dns {
        Dns::Off => rule,
        // A query to a server behind `lo` goes on to the DNS rules; UDP does not stop here at all.
        Dns::All | Dns::Servers { .. } => {
            rule.protocol(Protocol::not_to(Transport::Tcp, Ports::One(DNS_PORT)))
        }
    };
    rules.append(Table::Nat, Chain::Output, rule.then(Target::Return, Why::AppLoopback));
}

/// Excluded groups, or the only groups whose traffic is captured.
pub(super) fn groups(config: &CaptureConfig, rules: &mut Ruleset) {
    match &config.traffic.outbound.owners {
        OwnerGroups::All { except } => {
            for gid in except {
                let rule =
                    when().by(Match::Is(Owner::Gid(*gid))).then(Target::Return, Why::ExcludedOwnerGroup);
                rules.append(Table::Nat, Chain::Output, rule);
            }
        }
        OwnerGroups::Only(gids) => {
            let other_groups = gids.iter().fold(when(), |rule, gid| rule.by(Match::Not(Owner::Gid(*gid))));
            rules.append(Table::Nat, Chain::Output, other_groups.then(Target::Return, Why::OtherOwnerGroups));
        }
    }
}
