//! Our live rules with their counters, for `show`.

use std::io;

use super::{Access, from_kernel, inspect};
use crate::config::BackendChoice;
use crate::explain::{Listed, Rules};
use crate::kernel::process::Host;
use crate::kernel::{legacy, nftables, observe, recording};
use crate::model::{Backend, Family, NATIVE_TABLES, PerFamily, Variant};
use crate::parse::{self, Counters, Counts};
use crate::plan::CurrentState;
use crate::report::Failure;

/// A live rule of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// What holds it.
    pub backend: Backend,
    /// The family of the rule.
    pub family: Family,
    /// The rule.
    pub rule: Listed,
    /// What it has counted; `None` if its counter cannot be read.
    pub counts: Option<Counts>,
}

impl Shown {
    /// Whether both are the same rule.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        (self.backend, self.family, &self.rule) == (other.backend, other.family, &other.rule)
    }
}

/// The rules with their counters.
///
/// # Errors
/// The live state cannot be read.
pub fn rules(host: &impl Host, choice: BackendChoice) -> Result<Vec<Shown>, Failure> {
    let current = inspect(host, choice, Access::Question)?.current;
    let mut shown = Vec::new();
    if !current.native.is_empty() {
        let counts =
            native().map_err(|error| from_kernel(format!("cannot read counters: {error}"), &error))?;
        for family in Family::ALL {
            shown.extend(of(Backend::Native, family, &Rules::native(&current.native, family), &counts));
        }
    }
    for ((variant, family), observed) in &current.rules {
        let rules = Rules::live(observed);
        if !rules.listed().is_empty() {
            let counts = iptables(*variant, *family)?;
            shown.extend(of((*variant).into(), *family, &rules, &counts));
        }
    }
    Ok(shown)
}

/// The counters of all rules in the tables that hold ours, as far as they can be read.
pub fn counters(current: &CurrentState) -> PerFamily<Counters> {
    let mut counters = PerFamily::new();
    for family in Family::ALL {
        let of = if current.native.is_empty() {
            let variant = current.variant_of(family);
            let has_ours = |variant: &Variant| {
                let observed = current.rules.get(&(*variant, family));
                observed.is_some_and(|observed| !Rules::live(observed).listed().is_empty())
            };
            variant.filter(has_ours).and_then(|variant| iptables(variant, family).ok())
        } else {
            native().ok()
        };
        if let Some(of) = of {
            counters.insert(family, of);
        }
    }
    counters
}

fn of(backend: Backend, family: Family, rules: &Rules, counters: &Counters) -> Vec<Shown> {
    let counts = |rule: &Listed| {
        let chain = counters.get(&(rule.table, rule.chain.clone()))?;
        chain.get(rule.number).copied()
    };
    let with_counts = |rule: Listed| Shown { backend, family, counts: counts(&rule), rule };
    rules.listed().into_iter().map(with_counts).collect()
}

fn iptables(variant: Variant, family: Family) -> Result<Counters, Failure> {
    let counters = match variant {
        Variant::Nft => {
            observe::tables_of_iptables(family).map(|(_, tables)| parse::kernel_counters(&tables))
        }
        // A sandbox counts nothing.
        Variant::Legacy if !legacy::has_revisions() => Ok(Counters::new()),
        Variant::Legacy => of_legacy(family),
    };
    counters.map_err(|error| from_kernel(format!("cannot read counters: {error}"), &error))
}

/// None where the tables cannot be listed, or in bundles of earlier versions.
fn of_legacy(family: Family) -> io::Result<Counters> {
    let fact = format!("{family} counters of iptables-legacy");
    let mut read = || parse::legacy_counts(family, &legacy::raw_tables(family)?);
    match recording::optional(|| recording::text(&fact, &mut read)) {
        Ok(text) => Ok(parse::counters(&text)),
        Err(error) if recording::is_replayed() || error.kind() == io::ErrorKind::PermissionDenied => {
            Ok(Counters::new())
        }
        Err(error) => Err(error),
    }
}

fn native() -> io::Result<Counters> {
    Ok(parse::native_counters(&nftables::read(
        &mut nftables::Client::open()?,
        &NATIVE_TABLES.map(str::to_owned),
    )?))
}
