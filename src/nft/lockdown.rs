//! Tables that drop new connections in the place of capturing them.
//!
//! They hold the capture rules themselves, behind the live ones: what these still capture has its destination
//! by then, and is not asked about again. So the proxy, loopback and everything that is excluded pass.

use nfnetlink::nftables::{CtKey, Expression, Operator, Register, Rule, Table, Verdict};

use super::{encode, tables};
use crate::model::{self, FamilyRules, Match, PerFamily, Table as ModelTable, Target};

/// What begins the names of the tables.
const PREFIX: &str = "istio-lockdown-";

/// The tables, for rules that would capture.
#[must_use]
pub fn lockdown_tables(rules: &PerFamily<FamilyRules>) -> Vec<Table> {
    let dropping = rules.iter().map(|(family, rules)| (*family, dropping(rules.clone()))).collect();
    tables(&dropping).iter().map(|native| behind(encode(native), native.table)).collect()
}

fn dropping(mut rules: FamilyRules) -> FamilyRules {
    // Zones of connection tracking decide nothing.
    rules.tables.retain(|table, _| *table != ModelTable::Raw);
    for table in rules.tables.values_mut() {
        let of_hooks =
            table.hooks.values_mut().flat_map(|rules| rules.head.iter_mut().chain(&mut rules.tail));
        of_hooks.chain(table.chains.values_mut().flatten()).for_each(drop_instead);
    }
    rules
}

/// Whether a table is one of these.
#[must_use]
pub fn is_lockdown_table(name: &str) -> bool {
    LOCKDOWN_TABLES.contains(&name)
}

/// The names of the tables.
pub const LOCKDOWN_TABLES: [&str; 2] = ["istio-lockdown-mangle", "istio-lockdown-nat"];

fn drop_instead(rule: &mut model::Rule) {
    match rule.statement.target {
        Target::Redirect(_) => rule.statement.target = Target::Drop,
        Target::Tproxy { mark, .. } => {
            rule.statement.target = Target::Drop;
            // What the live rule has taken has its mark.
            rule.statement.matcher.mark.get_or_insert(Match::Not(mark));
        }
        Target::Accept
        | Target::ConntrackZone(_)
        | Target::Drop
        | Target::Jump(_)
        | Target::RestoreMark
        | Target::Return
        | Target::SaveMark
        | Target::SetMark(_) => {}
    }
}

/// The table under its own name, its base chains behind those of the live rules.
fn behind(mut table: Table, of: ModelTable) -> Table {
    table.name.name = format!("{PREFIX}{}", of.name());
    for chain in &mut table.chains {
        let Some(base) = chain.base.as_mut() else { continue };
        base.priority += 1;
        if of == ModelTable::Nat {
            chain.rules.insert(0, follows());
        }
    }
    table
}

/// Accepts packets of open connections: `ct state established,related accept`. Chains of nat see none of
/// these, but meet no packet at all where nothing asks for connection tracking.
fn follows() -> Rule {
    let (register, state) = (Register::ONE, (2_u32 | 4).to_ne_bytes().to_vec());
    let xor = vec![0; state.len()];
    let compared = Expression::Compare { register, operator: Operator::NotEqual, value: xor.clone() };
    let masked = Expression::Bitwise { source: register, destination: register, mask: state, xor };
    Rule::new(vec![Expression::ct(CtKey::State), masked, compared, Expression::Verdict(Verdict::Accept)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_tables() {
        let names = [ModelTable::Mangle, ModelTable::Nat].map(|table| format!("{PREFIX}{}", table.name()));
        assert_eq!(names, LOCKDOWN_TABLES);
    }
}
