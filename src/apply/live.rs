//! The rules in the kernel, for `explain --live`.

use std::collections::BTreeMap;

use super::{Access, inspect};
use crate::config::BackendChoice;
use crate::exit::Exit;
use crate::explain::{self, Live};
use crate::foreign;
use crate::kernel::process::Host;
use crate::model::{Family, FamilyRules, Mark, Rule, TableRules, Target, Variant};
use crate::nft;
use crate::parse::Observed;
use crate::plan::{CurrentState, DesiredState};
use crate::report::Failure;

/// The live rules, and those among them that are ours.
#[derive(Debug)]
pub struct Own {
    /// All of them, and what else may decide.
    pub live: Live,
    /// Ours, in each family that has some.
    pub rules: BTreeMap<Family, FamilyRules>,
}

/// Reads the live rules. Native nftables rules are compared with the desired ones instead.
///
/// # Errors
/// The live state cannot be read, or native rules are not those that are desired.
pub fn rules(host: &impl Host, desired: &DesiredState, choice: BackendChoice) -> Result<Own, Failure> {
    let current = inspect(host, choice, Access::ReadOnly)?.current;
    let own = if current.native.is_empty() { of_iptables(&current) } else { of_native(&current, desired)? };
    let routed_mark = own.values().flat_map(|rules| rules.tables.values()).flat_map(TableRules::rules);
    let routed_mark = routed_mark.cloned().find_map(|rule| routed(&rule));
    let rules = Family::ALL.into_iter().map(|family| {
        let live = match observed(&current, family).filter(|_| current.native.is_empty()) {
            Some(observed) => explain::Rules::live(observed),
            None => own.get(&family).map(explain::Rules::from).unwrap_or_default(),
        };
        (family, live)
    });
    let (foreign, notices) = notices(&own, &current);
    Ok(Own { live: Live { rules: rules.collect(), routed_mark, notices, foreign }, rules: own })
}

fn observed(current: &CurrentState, family: Family) -> Option<&Observed> {
    let of = |variant: Variant| current.rules.get(&(variant, family));
    current.backend.variant().and_then(of).or_else(|| Variant::ALL.into_iter().find_map(of))
}

fn of_iptables(current: &CurrentState) -> BTreeMap<Family, FamilyRules> {
    let own = |family| Some((family, explain::own_rules(observed(current, family)?)));
    Family::ALL.into_iter().filter_map(own).filter(|(_, rules)| rules.count() > 0).collect()
}

fn of_native(
    current: &CurrentState,
    desired: &DesiredState,
) -> Result<BTreeMap<Family, FamilyRules>, Failure> {
    let differing = current.native.differing(&nft::tables(&desired.rules));
    if differing.is_empty() {
        return Ok(desired.rules.clone());
    }
    let what =
        format!("native nftables rules are live, and not those of these options: {}", differing.join(", "));
    Err(Failure::new(Exit::Usage, what)
        .hint("`explain --live` does not read them back: give it the options of the run that wrote them"))
}

/// The foreign rules of the walk that decide before ours, and what may decide besides: tables of other programs, of another
/// variant of iptables, and chains that packets meet later.
fn notices(own: &BTreeMap<Family, FamilyRules>, current: &CurrentState) -> (Vec<String>, Vec<String>) {
    let live = foreign::Live { rules: &current.rules, legacy: &current.foreign_legacy };
    let rules = foreign::that_decide_first(own, current.backend, live);
    let (walked, others): (Vec<_>, Vec<_>) = rules.iter().partition(|rule| rule.is_beside_ours());
    let chains = foreign::on_the_way(own, current.backend, &current.foreign);
    let chains = chains.iter().map(ToString::to_string);
    let others = others.into_iter().map(ToString::to_string).chain(chains);
    (walked.into_iter().map(ToString::to_string).collect(), others.collect())
}

/// The mark that policy routing sends to `lo`.
const fn routed(rule: &Rule) -> Option<Mark> {
    if let Target::Tproxy { mark, .. } = rule.statement.target { Some(mark) } else { None }
}
