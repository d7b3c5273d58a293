//! How far it is, for readiness, metrics and the log.

use std::collections::BTreeMap;

use tokio::sync::watch;

use super::{Authority, Wanted};
use crate::notice::{Say, info, warn};

/// One thing that is read from the cluster or written to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// Nobody asked for it.
    #[default]
    Off,
    /// It is not there yet; why, when that is known.
    Waiting(Option<String>),
    /// It is as it should be.
    Good,
    /// What was there last is in force; why nothing newer is.
    Stale(String),
}

impl Part {
    pub(super) fn of(there: bool, problem: Option<String>) -> Self {
        match (there, problem) {
            (true, None) => Self::Good,
            (true, Some(problem)) => Self::Stale(problem),
            (false, problem) => Self::Waiting(problem),
        }
    }

    /// What is wrong, if anything is known to be.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        match self {
            Self::Off | Self::Good | Self::Waiting(None) => None,
            Self::Waiting(Some(problem)) | Self::Stale(problem) => Some(problem),
        }
    }
}

/// Everything, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The ConfigMap with the config.
    pub config: Part,
    /// The Secret with the certificate.
    pub certificate: Part,
    /// The webhook configurations, by name.
    pub ca_bundles: BTreeMap<String, Part>,
    /// The kubelets' versions.
    pub nodes: Part,
    /// The namespaces' ranges of users and groups.
    pub namespaces: Part,
    /// How often a caBundle was written.
    pub ca_bundle_writes: u64,
    /// How often a repair of a caBundle was put off because somebody else keeps changing it.
    pub ca_bundle_disputes: u64,
}

impl Status {
    pub(super) fn expecting(wanted: &Wanted) -> Self {
        let part = |asked: bool| if asked { Part::Waiting(None) } else { Part::Off };
        let bundles = wanted.authority.configurations().iter();
        Self {
            config: part(wanted.config.is_some()),
            certificate: part(matches!(wanted.authority, Authority::Shared { .. })),
            ca_bundles: bundles.map(|name| (name.clone(), part(true))).collect(),
            nodes: part(wanted.nodes),
            namespaces: part(wanted.namespaces),
            ..Self::default()
        }
    }

    /// What requests cannot be answered without and is not there yet: what it is, and why. Empty when ready.
    ///
    /// A config, a certificate, and the namespaces where their ranges are asked for: an answer without them would be
    /// wrong. Nodes count as old while they cannot be read, and who calls before its caBundle is patched fails anyway.
    #[must_use]
    pub fn waiting(&self) -> Vec<(&'static str, Option<&str>)> {
        let parts = [
            ("config", &self.config),
            ("certificate", &self.certificate),
            ("nodes", &self.nodes),
            ("namespaces", &self.namespaces),
        ];
        let waits = |part: &Part| matches!(part, Part::Waiting(_));
        parts.into_iter().filter(|(_, part)| waits(part)).map(|(name, part)| (name, part.problem())).collect()
    }
}

/// Where the parts note how far they are; what changes is said once.
#[derive(Clone)]
pub(super) struct Board {
    status: watch::Sender<Status>,
    say: Say,
}

impl Board {
    pub(super) const fn new(status: watch::Sender<Status>, say: Say) -> Self {
        Self { status, say }
    }

    pub(super) fn note(&self, about: &'static str, of: impl Fn(&mut Status) -> &mut Part, part: &Part) {
        let mut old = Part::Off;
        let changed = self.status.send_if_modified(|status| {
            let slot = of(status);
            let changed = slot != part;
            if changed {
                old = std::mem::replace(slot, part.clone());
            }
            changed
        });
        match (part, part.problem()) {
            (_, Some(problem)) if changed && old.problem() != Some(problem) => {
                let kept =
                    if matches!(part, Part::Stale(_)) { " (the last good state stays in force)" } else { "" };
                warn(&self.say, about, format!("{problem}{kept}"));
            }
            (Part::Good, _) if changed && old.problem().is_some() => info(&self.say, about, "is good again"),
            _ => {}
        }
    }

    pub(super) fn count(&self, counter: impl Fn(&mut Status) -> &mut u64) {
        self.status.send_modify(|status| *counter(status) += 1);
    }

    pub(super) fn info(&self, about: &'static str, message: impl Into<String>) {
        info(&self.say, about, message);
    }

    pub(super) fn warn(&self, about: &'static str, message: impl Into<String>) {
        warn(&self.say, about, message);
    }
}
