//! Whether the live rules of a captured pod are those of ADD: the one comparison of CHECK and of the agent's
//! guard.

use istio_iptables::apply::differences::Differences;
use istio_iptables::cli::{Key, OptionValue};
use istio_iptables::commands::check;
use istio_iptables::config::Resolved;
use istio_iptables::finding::Finding;
use istio_iptables::kernel::process::SystemHost;
use istio_iptables::plan::DesiredState;
use istio_iptables::reconcile::RuleDifference;
use istio_iptables::report::Failure;

use crate::capture::CaptureOptions;
use crate::state::State;

/// What the live rules are compared with.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The options, in whatever backend the rules are: pods keep theirs when the option of the node changes.
    pub resolved: Resolved,
    /// The options in the backend that ADD used, if that is known.
    pub of_add: Option<Resolved>,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Compared {
    /// What differs.
    pub differences: Differences,
    /// What the options ask for.
    pub desired: DesiredState,
    /// Whether ADD wrote exactly this: every difference is a change by another program.
    pub is_of_add: bool,
    /// Whether the effect on all packets is the same although rules differ. `Err`: the comparison, or
    /// nothing.
    pub packets: Result<(), String>,
}

impl Compared {
    /// What differs for packets: rules of another version that have the same effect are no drift.
    #[must_use]
    pub fn drift(mut self) -> Differences {
        if self.packets.is_ok() {
            self.differences.chains.clear();
            self.differences.forms.clear();
        }
        self.differences
    }
}

impl Expected {
    /// What the options ask for at this interface.
    ///
    /// # Errors
    /// What is wrong with the first value that is.
    pub fn new(
        options: &CaptureOptions,
        interface: &str,
        of_add: Option<(Key, OptionValue)>,
    ) -> Result<Self, String> {
        let resolve = |backend: Option<&(Key, OptionValue)>| {
            let mut resolved = options.resolve(backend)?;
            resolved.run.pod_interface = Some(interface.to_owned());
            Ok::<_, String>(resolved)
        };
        Ok(Self { resolved: resolve(None)?, of_add: of_add.and_then(|backend| resolve(Some(&backend)).ok()) })
    }

    /// What keeps captured connections from the proxy, although the rules are right: `lo`, a policy rule or a
    /// route of this thread's network namespace.
    ///
    /// # Errors
    /// The state of the namespace cannot be read.
    pub fn unreachable(&self, machine: &SystemHost) -> Result<Option<Finding>, Failure> {
        Ok(check::unreachable(machine, self.resolved.clone())?.into_iter().next())
    }

    /// Compares with the live rules of this thread's network namespace; `state` is that of ADD.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn compare(&self, machine: &SystemHost, state: Option<&State>) -> Result<Compared, Failure> {
        let (mut differences, desired) = check::check(machine, self.resolved.clone())?;
        // Where nothing holds rules any more, they are missing where ADD wrote them.
        if !differences.is_none_of_rules()
            && let Some(Ok((of_add, _))) = self.of_add.clone().map(|resolved| check::check(machine, resolved))
        {
            differences = of_add;
        }
        // Another version may have written others.
        let is_of_add = state.is_some_and(|state| state.has_rules(desired.digest()));
        let packets = if is_of_add || differences.is_none_of_rules() || !differences.is_of_rules_only() {
            Err(String::new())
        } else {
            check::check_packets(machine, self.resolved.clone(), differences.backend)?
        };
        Ok(Compared { differences, desired, is_of_add, packets })
    }
}

/// The first difference, for one line.
#[must_use]
pub fn first_difference(differences: &Differences) -> Option<String> {
    let rule = differences.chains.iter().find_map(|(backend, chain)| {
        let RuleDifference { is_missing, place, rule } = chain.rules.first()?;
        let what = if *is_missing { "missing" } else { "unexpected" };
        Some(format!("{} {} ({backend}), rule {place} is {what}: {rule}", chain.table.name(), chain.chain))
    });
    let mut others = differences.others.iter().chain(&differences.forms);
    rule.or_else(|| others.next().cloned())
}
