//! The rules in the kernel, for `explain --live`.

use super::{Access, inspect};
use crate::config::BackendChoice;
use crate::explain::{self, Live, Runtime};
use crate::foreign;
use crate::kernel::process::Host;
use crate::model::{Family, FamilyRules, Mark, PerFamily, Rule, TableRules, Target, Variant};
use crate::parse::Observed;
use crate::plan::CurrentState;
use crate::report::Failure;

/// The live rules, and those among them that are ours.
#[derive(Debug)]
pub struct Own {
    /// All of them, and what else may decide.
    pub live: Live,
    /// Ours, in each family that has some.
    pub rules: PerFamily<FamilyRules>,
}

/// Reads the live rules, of iptables or of native nftables.
///
/// # Errors
/// The live state cannot be read.
pub fn rules(host: &impl Host, choice: BackendChoice) -> Result<Own, Failure> {
    let current = inspect(host, choice, Access::ReadOnly)?.current;
    let of = |family: Family| {
        let rules = match observed(&current, family) {
            Some(observed) if current.native.is_empty() => explain::Rules::live(observed),
            None if current.native.is_empty() => explain::Rules::default(),
            _ => explain::Rules::native(&current.native, family),
        };
        (family, rules)
    };
    let rules: PerFamily<_> = Family::ALL.into_iter().map(of).collect();
    let own = rules.iter().map(|(family, rules)| (*family, rules.own(*family)));
    let own: PerFamily<_> = own.filter(|(_, rules)| rules.count() > 0).collect();
    let routed_mark = own.values().flat_map(|rules| rules.tables.values()).flat_map(TableRules::rules);
    let routed_mark = routed_mark.cloned().find_map(|rule| routed(&rule));
    let (foreign, mut notices) = notices(&own, &current);
    let dormant = current.native.dormant().iter();
    notices
        .extend(dormant.map(|name| {
            format!("the nftables table inet {name} is switched off: no packet meets its rules")
        }));
    Ok(Own { live: Live { rules, routed_mark, notices, foreign, runtime: Runtime::default() }, rules: own })
}

fn observed(current: &CurrentState, family: Family) -> Option<&Observed> {
    let of = |variant: Variant| current.rules.get(&(variant, family));
    current.backend.variant().and_then(of).or_else(|| Variant::ALL.into_iter().find_map(of))
}

/// The foreign rules of the walk that decide before ours, and what may decide besides: tables of other programs, of another
/// variant of iptables, and chains that packets meet later.
fn notices(own: &PerFamily<FamilyRules>, current: &CurrentState) -> (Vec<String>, Vec<String>) {
    let live = foreign::Live { rules: &current.rules, legacy: &current.foreign_legacy };
    let rules = foreign::that_decide_first(own, current.backend, live);
    let (walked, others): (Vec<_>, Vec<_>) = rules.iter().partition(|rule| rule.is_beside_ours());
    let chains = foreign::on_the_way(own, current.backend, &current.foreign);
    let chains = chains.iter().map(ToString::to_string);
    let changing = foreign::that_change_packets(own, current.backend, &current.foreign);
    let others = others.into_iter().map(ToString::to_string).chain(chains).chain(changing);
    (walked.into_iter().map(ToString::to_string).collect(), others.collect())
}

/// The mark that policy routing sends to `lo`.
const fn routed(rule: &Rule) -> Option<Mark> {
    if let Target::Tproxy { mark, .. } = rule.statement.target { Some(mark) } else { None }
}
