//! The status of everything that is read from the cluster and written to it, for readiness, metrics and the
//! log.

use std::collections::BTreeMap;

use log::Level;
use tokio::sync::watch;

use super::{CertificateSource, ClusterOptions};
use crate::events::{Event, EventSink};

/// One thing that is read from the cluster or written to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// The part is not used.
    #[default]
    Off,
    /// The part is not available yet; why, where that is known.
    Waiting(Option<String>),
    /// The part is current.
    Good,
    /// The last valid state stays active; why there is no newer one.
    Stale(String),
}

impl Part {
    pub(super) fn of(available: bool, problem: Option<String>) -> Self {
        match (available, problem) {
            (true, None) => Self::Good,
            (true, Some(problem)) => Self::Stale(problem),
            (false, problem) => Self::Waiting(problem),
        }
    }

    /// The problem, if one is known.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        match self {
            Self::Off | Self::Good | Self::Waiting(None) => None,
            Self::Waiting(Some(problem)) | Self::Stale(problem) => Some(problem),
        }
    }
}

/// The status of all parts.
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
    /// The user ranges of namespaces.
    pub namespaces: Part,
    /// ProxyConfig resources.
    pub proxy_configs: Part,
    /// The number of writes of a caBundle.
    pub ca_bundle_writes: u64,
    /// The number of delayed repairs of a caBundle because another writer keeps changing it.
    pub ca_bundle_conflicts: u64,
}

impl Status {
    pub(super) fn expecting(wanted: &ClusterOptions) -> Self {
        let part = |used: bool| if used { Part::Waiting(None) } else { Part::Off };
        let bundles = wanted.certificates.configurations().iter();
        Self {
            config: part(wanted.config.is_some()),
            certificate: part(matches!(wanted.certificates, CertificateSource::SelfSigned { .. })),
            ca_bundles: bundles.map(|name| (name.clone(), part(true))).collect(),
            nodes: part(wanted.nodes),
            namespaces: part(wanted.namespaces),
            proxy_configs: part(wanted.proxy_configs),
            ..Self::default()
        }
    }

    fn parts(&self) -> [(&'static str, &Part); 5] {
        [
            ("config", &self.config),
            ("certificate", &self.certificate),
            ("nodes", &self.nodes),
            ("namespaces", &self.namespaces),
            ("proxyconfigs", &self.proxy_configs),
        ]
    }

    /// What is not available yet and keeps the webhook from being ready, each with the reason. Empty when
    /// ready.
    ///
    /// A caBundle is not among it: an API server whose caBundle is not written yet cannot call in any case.
    #[must_use]
    pub fn waiting(&self) -> Vec<String> {
        let waits = |(name, part): (&str, &Part)| match part {
            Part::Waiting(Some(problem)) => Some(format!("{name}: {problem}")),
            Part::Waiting(None) => Some(format!("{name}: not read yet")),
            Part::Off | Part::Good | Part::Stale(_) => None,
        };
        self.parts().into_iter().filter_map(waits).collect()
    }

    /// Every part that is used, and whether there is a problem with it.
    #[must_use]
    pub fn problems(&self) -> Vec<(&'static str, bool)> {
        let used = self.parts().into_iter().filter(|(_, part)| **part != Part::Off);
        let mut problems: Vec<_> = used.map(|(name, part)| (name, part.problem().is_some())).collect();
        if !self.ca_bundles.is_empty() {
            problems.push(("caBundle", self.ca_bundles.values().any(|part| part.problem().is_some())));
        }
        problems
    }
}

/// Where the parts report their status; changes are logged once.
#[derive(Clone)]
pub(super) struct StatusReporter {
    status: watch::Sender<Status>,
    events: EventSink,
}

impl StatusReporter {
    pub(super) const fn new(status: watch::Sender<Status>, events: EventSink) -> Self {
        Self { status, events }
    }

    /// Logs a change before it is published: what a reader of the status sees is in the log already. Each
    /// part has one task that reports it.
    pub(super) fn report(&self, component: &'static str, of: impl Fn(&mut Status) -> &mut Part, part: &Part) {
        let old = of(&mut self.status.borrow().clone()).clone();
        if old == *part {
            return;
        }
        match (part, part.problem()) {
            (_, Some(problem)) if old.problem() != Some(problem) => {
                let stale = matches!(part, Part::Stale(_));
                let message =
                    if stale { "unavailable, the last valid state stays active" } else { "unavailable" };
                self.warn(component, message, problem);
            }
            (Part::Good, _) if old.problem().is_some() => {
                self.info(component, "available again", "");
            }
            _ => {}
        }
        self.status.send_modify(|status| of(status).clone_from(part));
    }

    pub(super) fn count(&self, counter: impl Fn(&mut Status) -> &mut u64) {
        self.status.send_modify(|status| *counter(status) += 1);
    }

    pub(super) fn info(&self, component: &'static str, message: &'static str, detail: impl Into<String>) {
        (self.events)(Event { level: Level::Info, component, message, detail: detail.into() });
    }

    pub(super) fn warn(&self, component: &'static str, message: &'static str, detail: impl Into<String>) {
        (self.events)(Event { level: Level::Warn, component, message, detail: detail.into() });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn change_is_logged_before_it_is_published() {
        let status = watch::Sender::new(Status::default());
        let (seen, at_event) = (Arc::new(Mutex::new(Vec::new())), status.subscribe());
        let collected = Arc::clone(&seen);
        let events: EventSink = Arc::new(move |event| {
            let published = at_event.borrow().config.clone();
            collected.lock().expect("not poisoned").push((event.message, published));
        });
        let reporter = StatusReporter::new(status, events);
        let stale = Part::Stale("template".to_owned());
        for part in [&Part::Good, &stale, &stale, &Part::Good] {
            reporter.report("config", |status| &mut status.config, part);
        }
        let expected =
            [("unavailable, the last valid state stays active", Part::Good), ("available again", stale)];
        assert_eq!(*seen.lock().expect("not poisoned"), expected);
    }
}
