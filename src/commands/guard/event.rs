//! What `guard` reports, as lines of the log or as JSON.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use nfnetlink::nftables::Change;
use serde_json::{Value, json};

use crate::apply::differences::Differences;
use crate::config::Output;
use crate::finding::Finding;
use crate::kernel::terminal;
use crate::model::Backend;
use crate::reconcile::ChainDifference;
use crate::report::Failure;
use crate::text::{count, one_line};

/// Most programs that are named at a time.
const MOST: usize = 8;

/// Who changed rules, as far as that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Culprits {
    programs: BTreeSet<(String, u32)>,
    /// Whether notices are lost, so that others may have changed rules, too.
    pub is_incomplete: bool,
}

impl Culprits {
    pub(in crate::commands) fn add(&mut self, changes: Vec<Change>) {
        let programs = changes.into_iter().map(|change| (change.program, change.pid));
        self.programs.extend(programs);
    }

    pub(super) fn extend(&mut self, more: Self) {
        self.programs.extend(more.programs);
        self.is_incomplete |= more.is_incomplete;
    }

    /// The names of the programs, each once.
    pub fn programs(&self) -> impl Iterator<Item = &str> {
        let mut last = None;
        let names = self.programs.iter().map(|(program, _)| program.as_str());
        names.filter(move |name| last.replace(*name) != Some(*name))
    }

    /// The names, after what they did.
    #[must_use]
    pub fn words(&self) -> String {
        let shown = self.programs.iter().take(MOST);
        let mut words: Vec<_> =
            shown.map(|(program, pid)| format!("{} (pid {pid})", one_line(program))).collect();
        if let more @ 1.. = self.programs.len().saturating_sub(MOST) {
            words.push(format!("{more} more"));
        }
        if self.is_incomplete {
            words.push("others whose notices are lost".to_owned());
        }
        if words.is_empty() { String::new() } else { format!(", changed by {}", words.join(", ")) }
    }

    fn json(&self) -> Value {
        let program = |(program, pid): &(String, u32)| json!({ "program": program, "pid": pid });
        self.programs.iter().map(program).collect()
    }
}

/// What differs, as a label of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Rules.
    Rules,
    /// Routes, policy rules, addresses, or a table that is dormant.
    Network,
}

impl Reason {
    pub(super) const fn of(found: &Differences) -> Self {
        if found.chains.is_empty() && found.forms.is_empty() { Self::Network } else { Self::Rules }
    }

    /// The label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rules => "rules",
            Self::Network => "network",
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// From now on changes are noticed.
    Guarding {
        /// What is guarded.
        rules: String,
        /// What holds the rules.
        backend: Backend,
        /// The longest time between two comparisons.
        audit: Duration,
        /// Whether the kernel announces changes.
        is_noticed: bool,
    },
    /// The live rules are not those that are guarded.
    Drift {
        /// What differs, a chain or setting each.
        differences: Vec<String>,
        /// What kind of state differs.
        reason: Reason,
        /// Who changed rules.
        by: Culprits,
    },
    /// The live rules are those that are guarded again: this program has repaired them.
    Repaired {
        /// The time since it was examined.
        took: Duration,
        /// What was written.
        what: String,
        /// Who changed rules.
        by: Culprits,
        /// How many packets the rules of others had met that the repair has removed, as far as these count.
        removed: u64,
    },
    /// The live rules are those that are guarded again, and this program has done nothing.
    Restored,
    /// Another program changes them again and again: the next repair is later.
    Waiting {
        /// The pause before the next repair.
        pause: Duration,
        /// The name by which the kernel announces the repairs.
        guard: &'static str,
        /// Who changed rules.
        by: Culprits,
    },
    /// Until the rules are live again, what they would capture is dropped.
    Locked,
    /// Nothing is dropped any more.
    Unlocked,
    /// The rules cannot be compared or repaired.
    Failed {
        /// Why.
        cause: String,
    },
    /// Something decides over captured traffic that no repair removes.
    Found {
        /// What decides.
        finding: Box<Finding>,
        /// Who changed rules.
        by: Culprits,
    },
    /// What was reported as [`Self::Found`] is gone.
    Gone {
        /// What decided.
        finding: Box<Finding>,
    },
}

impl Event {
    /// How much it matters.
    #[must_use]
    pub const fn level(&self) -> log::Level {
        match self {
            Self::Drift { .. } | Self::Found { .. } | Self::Locked | Self::Waiting { .. } => log::Level::Warn,
            Self::Failed { .. } => log::Level::Error,
            Self::Gone { .. }
            | Self::Guarding { .. }
            | Self::Repaired { .. }
            | Self::Restored
            | Self::Unlocked => log::Level::Info,
        }
    }

    /// What happened, as a line of the log.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Guarding { rules, backend, audit, is_noticed } => format!(
                "guard: {rules} ({backend}); an audit at least every {} s{}",
                audit.as_secs(),
                if *is_noticed { "" } else { ", which alone finds changes: this kernel announces none" }
            ),
            Self::Drift { differences, by, reason: _ } => {
                format!("drift: {}{}", differences.join("; "), by.words())
            }
            Self::Repaired { took, what, by: _, removed } => {
                let took = Duration::from_micros(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
                format!("repaired: {what} ({}){}", humantime::format_duration(took), counted(*removed))
            }
            Self::Restored => "the live rules are the guarded ones again, without a repair".to_owned(),
            Self::Waiting { pause, guard, by } => format!(
                "the rules change again after each repair by {} (pid {}){}: the next repair is in {}",
                guard,
                std::process::id(),
                by.words(),
                humantime::format_duration(*pause)
            ),
            Self::Locked => {
                "lockdown: new connections that the rules would capture are dropped until they are live again"
                    .to_owned()
            }
            Self::Unlocked => "lockdown ends: new connections are not dropped any more".to_owned(),
            Self::Failed { cause } => format!("the rules cannot be guarded now: {cause}"),
            Self::Found { finding, by } => {
                format!("{}: {finding}{}; fix: {}", finding.problem.spec().id, by.words(), finding.fix())
            }
            Self::Gone { finding } => format!("gone: {}: {}", finding.problem.spec().id, finding.cause),
        }
    }

    fn json(&self) -> Value {
        let mut event = match self {
            Self::Guarding { rules, backend, audit, is_noticed } => json!({
                "event": "guarding",
                "rules": rules,
                "backend": backend.to_string(),
                "audit_seconds": audit.as_secs(),
                "changes_are_announced": is_noticed,
            }),
            Self::Drift { differences, by, reason: _ } => {
                json!({ "event": "drift", "differences": differences, "by": by.json() })
            }
            Self::Repaired { took, what, by, removed } => {
                json!({ "event": "repaired", "what": what, "microseconds": u64::try_from(took.as_micros()).unwrap_or(u64::MAX), "by": by.json(), "packets_of_removed_rules": removed })
            }
            Self::Restored => json!({ "event": "restored" }),
            Self::Waiting { pause, guard: _, by } => {
                json!({ "event": "waiting", "seconds": pause.as_secs(), "by": by.json() })
            }
            Self::Locked => json!({ "event": "lockdown" }),
            Self::Unlocked => json!({ "event": "lockdown-ended" }),
            Self::Failed { cause } => json!({ "event": "failed", "cause": cause }),
            Self::Found { finding, by } => {
                json!({ "event": "problem", "id": finding.problem.spec().id, "cause": finding.cause, "fix": finding.fix(), "by": by.json() })
            }
            Self::Gone { finding } => {
                json!({ "event": "problem-gone", "id": finding.problem.spec().id, "cause": finding.cause })
            }
        };
        if let Some(event) = event.as_object_mut() {
            event.insert(
                "time".to_owned(),
                json!(humantime::format_rfc3339_millis(SystemTime::now()).to_string()),
            );
        }
        event
    }

    /// Reports it: as a line of the log, or on standard output.
    ///
    /// # Errors
    /// Standard output cannot be written to.
    pub(super) fn report(&self, output: Output) -> Result<(), Failure> {
        match output {
            Output::Text => {
                log::log!(self.level(), "{}", one_line(&self.words()));
                Ok(())
            }
            Output::Json => terminal::show(&format!("{}\n", self.json()), false)
                .map_err(|error| Failure::no_output(&error)),
        }
    }
}

/// What removed rules had counted, behind another sentence; nothing if they have counted nothing.
#[must_use]
pub fn counted(packets: u64) -> String {
    if packets == 0 {
        String::new()
    } else {
        format!("; the rules that it removes had met {packets} packets")
    }
}

/// What differs, a chain or setting each.
pub(super) fn in_words(found: &Differences) -> Vec<String> {
    let chains = found.chains.iter().map(|(holder, ChainDifference { family, table, chain, rules })| {
        let missing = rules.iter().filter(|rule| rule.is_missing).count();
        let parts = [(missing, "missing"), (rules.len() - missing, "unexpected")];
        let parts = parts.into_iter().filter(|(number, _)| *number > 0);
        let parts: Vec<_> = parts.map(|(number, what)| format!("{} {what}", count(number, "rule"))).collect();
        format!("{} {chain} ({family}, {holder}): {}", table.name(), parts.join(", "))
    });
    chains.chain(found.others.iter().cloned()).chain(found.forms.iter().cloned()).collect()
}
