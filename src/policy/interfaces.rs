//! Excluded interfaces, and virtual interfaces with KubeVirt guests behind them.

use super::when;
use crate::config::{CaptureConfig, Mode};
use crate::model::{Hook, Ruleset, Table, Target, Why};

/// Traffic of an excluded interface is never captured, in either direction. TPROXY captures in mangle, so the
/// pair is needed there too.
pub(super) fn exclude(config: &CaptureConfig, rules: &mut Ruleset) {
    let tables: &[Table] = match config.traffic.mode {
        Mode::Redirect => &[Table::Nat],
        Mode::Tproxy(_) => &[Table::Nat, Table::Mangle],
    };
    for interface in &config.traffic.excluded_interfaces {
        for table in tables {
            let inbound = when().via_in(interface.clone());
            rules.hook_tail(*table, Hook::Prerouting, inbound.then(Target::Return, Why::ExcludedInterfaceIn));
            let outbound = when().via_out(interface.clone());
            rules.hook_tail(*table, Hook::Output, outbound.then(Target::Return, Why::ExcludedInterfaceOut));
        }
    }
}

/// Traffic from a KubeVirt guest is not inbound traffic of the pod. This rule decides only what the included
/// ranges leave.
pub(super) fn exclude_virtual_interfaces_from_inbound(config: &CaptureConfig, rules: &mut Ruleset) {
    let local =
        config.traffic.virtual_interfaces.iter().map(|interface| {
            when().via_in(interface.clone()).then(Target::Return, Why::VirtualInterfaceLocal)
        });
    rules.hook_heads(Table::Nat, Hook::Prerouting, local.collect());
}
