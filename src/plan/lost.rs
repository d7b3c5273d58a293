//! Connections that are sure to end by a foreign rule, as a run warns of them: the judgement of `check`,
//! about the rules that are going to be there.

use nfnetlink::nftables::{Chain, Verdict};

use super::CurrentState;
use crate::config::{CaptureConfig, Mode};
use crate::explain::{self, LiveState, Pod, Rules, Runtime, TestedFields};
use crate::finding::Finding;
use crate::model::{Family, Fib, InterfaceAddress, Network, PerFamily};
use crate::parse::Observed;
use crate::routing;

/// The captured connections and those of the proxy that end by foreign rules among these which are not
/// `named` yet, nor by their chains. Nothing is walked where no foreign rule ends connections.
pub(super) fn connections(
    config: &CaptureConfig,
    current: &CurrentState,
    rules: PerFamily<Rules>,
    named: &[Finding],
) -> Vec<Finding> {
    if !rules.values().any(Rules::has_foreign_end) {
        return Vec::new();
    }
    let sources = current.network.fib.values().flat_map(|fib| &fib.addresses);
    let addresses: Vec<_> = sources
        .map(|source| InterfaceAddress {
            interface: source.interface.clone(),
            address: source.address,
            prefix: source.prefix,
        })
        .collect();
    let network = Network { ipv6: addresses.iter().any(|own| own.address.is_ipv6()), addresses };
    // The run adds its policy rule and route behind this.
    let planned_fib = |(family, fib): (&Family, &Fib)| match config.traffic.mode {
        Mode::Tproxy(tproxy) => (*family, routing::with_tproxy(fib, tproxy)),
        Mode::Redirect => (*family, fib.clone()),
    };
    let live = LiveState {
        backend: current.backend,
        tested: rules.iter().map(|(family, rules)| (*family, TestedFields::by(rules))).collect(),
        rules,
        routed_mark: match config.traffic.mode {
            Mode::Tproxy(tproxy) => Some(tproxy.mark),
            Mode::Redirect => None,
        },
        fib: current.network.fib.iter().map(planned_fib).collect(),
        links: current.network.links.clone(),
        devices: Vec::new(),
        notices: Vec::new(),
        unevaluated: Vec::new(),
        damaged: PerFamily::new(),
        dormant: Vec::new(),
        foreign: named.to_vec(),
        before: Vec::new(),
        foreign_routes: PerFamily::new(),
        owned: current.owned.clone(),
        tcp_listeners: current.tcp_listeners.clone(),
        runtime: Runtime::default(),
    };
    let pod = Pod { config, given: &[], network: &network, live: Some(live) };
    let mut lost = explain::lost_connections(&pod, named);
    lost.retain(|exact| !named.iter().any(|vague| exact.is_within(vague, current.backend)));
    lost
}

impl CurrentState {
    /// Whether there may be rules of other programs.
    #[must_use]
    pub fn has_foreign_rules(&self) -> bool {
        let drops = |chain: &Chain| chain.base.as_ref().is_some_and(|base| base.policy == Verdict::Drop);
        let decides = |chain: &Chain| !chain.rules.is_empty() || drops(chain);
        self.foreign.iter().flat_map(|table| &table.chains).any(decides)
            || self.rules.values().chain(self.foreign_legacy.values()).any(may_have_foreign)
    }
}

fn may_have_foreign(observed: &Observed) -> bool {
    let tables = observed.tables.values().chain([&observed.filter, &observed.security]);
    tables.into_iter().any(|table| {
        let mut lines = table.hooks.values().flatten();
        lines.any(|line| line.jump.is_none())
            || !table.drops.is_empty()
            || !table.drops_behind.is_empty()
            || table.foreign.values().any(|rules| !rules.is_empty())
    })
}
