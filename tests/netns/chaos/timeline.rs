//! Which options were in force when.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::flows::Flow;
use super::options::Options;
use crate::lab::Family;

/// How long after the end of a run what it newly captures may still take the old way.
const GRACE: Duration = Duration::from_millis(50);

/// Options in force; none before the first run and after a cleanup.
pub(super) type InForce = Option<Arc<Options>>;

/// What may be in force, one after the other: more than one while a run is at work and after one that was
/// stopped.
type Possible = Vec<InForce>;

/// The history of one pod.
#[derive(Debug)]
pub(super) struct Timeline(Mutex<Vec<(Instant, Possible)>>);

impl Timeline {
    /// A pod without rules.
    pub(super) fn new() -> Self {
        Self(Mutex::new(vec![(Instant::now(), vec![None])]))
    }

    /// A run begins that leads to `next`.
    pub(super) fn begins(&self, next: &[InForce]) {
        let mut history = self.0.lock().unwrap();
        let mut possible = history.last().unwrap().1.clone();
        possible.extend(next.iter().filter(|next| !possible.contains(next)).cloned().collect::<Vec<_>>());
        history.push((Instant::now(), possible));
    }

    /// A run has ended well: one of `now` is in force, and nothing else.
    pub(super) fn ended(&self, now: &[InForce]) {
        self.0.lock().unwrap().push((Instant::now() + GRACE, now.to_vec()));
    }

    /// What may be in force now.
    pub(super) fn now(&self) -> Vec<InForce> {
        let now = Instant::now();
        self.between(now, now)
    }

    /// What may have been in force between two moments, in the order of time.
    pub(super) fn between(&self, start: Instant, end: Instant) -> Possible {
        let history = self.0.lock().unwrap();
        let first = history.iter().rposition(|(since, _)| *since <= start).unwrap_or(0);
        let later =
            history[first..].iter().enumerate().take_while(|(i, (since, _))| *i == 0 || *since <= end);
        later.flat_map(|(_, (_, possible))| possible.iter().cloned()).collect()
    }
}

/// What a flow may meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    /// The proxy's ports where it may arrive.
    pub(super) ports: Vec<u16>,
    /// Whether it may reach the server itself.
    pub(super) direct: bool,
    /// Whether capture of it may have ended meanwhile.
    pub(super) narrowed: bool,
}

impl Expected {
    /// Under any of these options.
    pub(super) fn of(flow: &Flow, family: Family, possible: &Possible) -> Self {
        let captured: Vec<_> = possible
            .iter()
            .map(|options| options.as_ref().and_then(|options| options.captures(flow, family)))
            .collect();
        let first = captured.iter().position(Option::is_some);
        Self {
            ports: captured.iter().flatten().copied().collect(),
            direct: captured.contains(&None)
                || possible.iter().flatten().any(|options| options.may_miss(flow)),
            narrowed: first.is_some_and(|first| captured[first..].contains(&None)),
        }
    }
}
