//! The state of a pod's rules: the one judgement of `audit`, of the repair of pods that have started without
//! capture, and of their metrics.
//!
//! Threads that judge have mounts of their own, and leave the pods' network namespaces themselves.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use istio_iptables::apply::{self, Access};
use istio_iptables::kernel::netns::{Namespace, NamespaceId};
use istio_iptables::kernel::process::SystemHost;
use istio_iptables::logging::timestamp;
use istio_iptables::report::Failure;
use istio_iptables::text::path_shown;
use serde_json::Value;

use super::entry;
use super::error::InstallError;
use super::guard::pod::{expected, open};
use super::options::Dirs;
use super::sandboxes::{Place, Sandbox};
use crate::compare::{Expected, first_difference};
use crate::plugin::late::LatePod;
use crate::state::{FileStamp, State};

/// How the rules of a pod are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PodState {
    /// As the plugin writes them, or with the same effect.
    Same,
    /// Different, or a foreign rule, `lo` or a route keeps captured connections from the proxy.
    Drift,
    /// There are none: the pod has started without capture, although it is injected for the plugin.
    Uncaptured,
    /// The network namespace is gone: the pod has ended without DEL.
    Vanished,
    /// The rules cannot be compared.
    Unreadable,
}

impl PodState {
    pub(super) const ALL: [Self; 5] =
        [Self::Same, Self::Drift, Self::Uncaptured, Self::Vanished, Self::Unreadable];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Same => "ok",
            Self::Drift => "drift",
            Self::Uncaptured => "uncaptured",
            Self::Vanished => "vanished",
            Self::Unreadable => "unreadable",
        }
    }
}

/// What is known of a pod.
#[derive(Clone, Debug)]
pub(super) struct Judged {
    pub(super) state: PodState,
    /// The first difference, or why nothing is known; empty if the rules are as they should be.
    pub(super) reason: String,
    /// What holds the rules, if that is known.
    pub(super) backend: Option<String>,
}

impl Judged {
    fn new(state: PodState, reason: impl Into<String>) -> Self {
        Self { state, reason: reason.into(), backend: None }
    }
}

/// A pod that has a state file.
pub(super) fn captured(
    host: &SystemHost,
    (state, stamp): (&State, FileStamp),
    namespaces: &BTreeMap<u64, PathBuf>,
) -> Judged {
    let vanished = |reason: &str| Judged::new(PodState::Vanished, reason);
    let Some(path) = namespaces.get(&state.netns) else {
        return vanished("its network namespace is gone");
    };
    let Some(namespace) = open(path, state, stamp) else {
        return vanished("its network namespace is gone, another one has its number");
    };
    let entered = expected(state).and_then(|expected| {
        namespace.enter().map_err(|error| error.to_string())?;
        Ok(expected)
    });
    match entered {
        Ok(expected) => compare(host, &expected, state).0,
        Err(problem) => Judged::new(PodState::Unreadable, problem),
    }
}

/// Compares in this thread's network namespace. Returns the state that ADD would write, too, if the rules
/// have the effect of its own, whatever others do.
fn compare(host: &SystemHost, expected: &Expected, state: &State) -> (Judged, Option<State>) {
    let compare = || {
        let compared = expected.compare(host, Some(state))?;
        let digest = compared.differences.is_same().then(|| compared.desired.digest());
        let found = compared.drift();
        let of_add = found.is_same().then(|| state.clone().with_rules(digest, found.backend));
        let deciding = || found.notices.deciding.first().map(ToString::to_string);
        let of_rules = first_difference(&found).or_else(deciding);
        let unreachable = if of_rules.is_none() { expected.unreachable(host)? } else { None };
        Ok((of_rules.or(unreachable.map(|finding| finding.to_string())), found.backend.to_string(), of_add))
    };
    let (reason, backend, of_add) = match compare() {
        Ok(found) => found,
        Err(failure) => return (unreadable(&failure), None),
    };
    let state = if reason.is_some() { PodState::Drift } else { PodState::Same };
    (Judged { backend: Some(backend), ..Judged::new(state, reason.unwrap_or_default()) }, of_add)
}

fn unreadable(failure: &Failure) -> Judged {
    Judged::new(PodState::Unreadable, failure.to_string())
}

/// Our entry in the network configuration, by which pods without a state file are judged.
///
/// # Errors
/// There is none: no pod is to be captured.
pub(super) fn entry(dirs: &Dirs) -> Result<Value, InstallError> {
    let (path, text) = entry::find(dirs)?;
    serde_json::from_str(&text).map_err(|error| InstallError::new(format!("{}: {error}", path_shown(&path))))
}

/// What judges pods without a state file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judge<'a> {
    pub(super) host: &'a SystemHost,
    /// Our entry of the network configuration.
    pub(super) entry: &'a Value,
    pub(super) netns_dir: &'a Path,
    /// The namespace of this process.
    pub(super) own: NamespaceId,
}

/// A pod without a state file.
pub(super) enum Late {
    /// ADD would not capture it.
    NotWanted,
    /// The sandbox has ended.
    Ended,
    /// ADD would capture it; with what a capture needs, if that is known.
    Wanted(Judged, Option<Box<Target>>),
}

/// What a capture from outside needs.
pub(super) struct Target {
    /// The namespace that is proved to be the pod's.
    pub(super) namespace: Namespace,
    pub(super) pod: LatePod,
    pub(super) expected: Expected,
    /// What is missing for the guard, if the rules are there.
    pub(super) state: Option<State>,
}

impl Judge<'_> {
    /// Judges a pod that has no state file.
    pub(super) fn late(&self, sandbox: &Sandbox) -> Late {
        let place = sandbox.open(self.netns_dir, self.own);
        if matches!(place, Place::Ended) {
            return Late::Ended;
        }
        let unknown = |reason: String| Late::Wanted(Judged::new(PodState::Unreadable, reason), None);
        let names = (sandbox.id.clone(), sandbox.pod.clone());
        let pod = LatePod::new(self.entry, names, &sandbox.network, sandbox.annotations.as_ref());
        let options = match pod.options(self.host) {
            Ok(Some(options)) => options,
            Ok(None) => return Late::NotWanted,
            Err(error) => return unknown(error.msg),
        };
        let (namespace, id) = match place {
            Place::Proven(namespace, id) => (namespace, id),
            Place::Unproven(reason) => return unknown(reason.to_owned()),
            Place::Ended => return Late::Ended,
        };
        let (network, uid) = (sandbox.network.clone(), sandbox.pod.uid.clone());
        let state = State::new(network, &sandbox.id, sandbox.pod.to_string(), uid, id.inode)
            .with_options(options.values());
        let expected = match expected(&state) {
            Ok(expected) => expected,
            Err(problem) => return unknown(problem),
        };
        if let Err(error) = namespace.enter() {
            return unknown(error.to_string());
        }
        let (mut judged, state) = match apply::inspect(
            self.host,
            expected.resolved.run.backend,
            Access::Question,
        ) {
            Err(failure) => return Late::Wanted(unreadable(&failure), None),
            Ok(found) if found.current.is_empty() => {
                let since = timestamp(sandbox.since);
                let reason = format!(
                    "no rules: its sandbox was set up at {since}, without the plugin in the network configuration"
                );
                (Judged::new(PodState::Uncaptured, reason), None)
            }
            Ok(_) => compare(self.host, &expected, &state),
        };
        // With which options it was captured is not known.
        if judged.state == PodState::Drift && state.is_none() {
            judged.reason.push_str(
                "; not guarded: it has no state file, and its rules are not those of its annotations",
            );
        }
        Late::Wanted(judged, Some(Box::new(Target { namespace, pod, expected, state })))
    }
}
