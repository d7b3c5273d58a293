//! What has happened to the rules of a pod since they were last as they should be, for the pod's events and
//! its condition.

use std::fmt::Write as _;
use std::time::SystemTime;

use istio_iptables::commands::guard::Event;
use istio_iptables::logging::timestamp;

use super::super::pods::PodNotice;
use crate::state::State;

/// From the first difference on.
#[derive(Clone, Debug)]
pub(super) struct Incident {
    since: SystemTime,
    /// Whether the kernel has announced the change; otherwise an audit has found it, and this is the time of
    /// the one before.
    is_announced: bool,
    /// The last difference, and who made it.
    drift: String,
    /// Why it is not repaired yet.
    obstacle: Option<String>,
    /// Whether new connections are dropped meanwhile.
    is_locked: bool,
    /// When the rules were as they should be again, and whether this process has written them.
    end: Option<(SystemTime, bool)>,
    /// Whether something is in it that no notice has.
    is_new: bool,
}

impl Incident {
    /// Records what a guard reports. `noticed` is when the kernel announced the change, `same` when the rules
    /// were last known to be as they should be.
    pub(super) fn record(
        this: &mut Option<Self>,
        event: &Event,
        noticed: Option<SystemTime>,
        same: SystemTime,
    ) {
        match event {
            Event::Drift { .. } => {
                let new = || Self {
                    since: noticed.unwrap_or(same),
                    is_announced: noticed.is_some(),
                    drift: String::new(),
                    obstacle: None,
                    is_locked: false,
                    end: None,
                    is_new: true,
                };
                let incident = this.get_or_insert_with(new);
                let words = event.words();
                words.strip_prefix("drift: ").unwrap_or(&words).clone_into(&mut incident.drift);
                (incident.is_new, incident.end) = (true, None);
            }
            Event::Repaired { .. } | Event::Restored => {
                if let Some(incident) = this {
                    let is_repaired = matches!(event, Event::Repaired { .. });
                    (incident.end, incident.is_new) = (Some((SystemTime::now(), is_repaired)), true);
                }
            }
            Event::Waiting { .. } | Event::Failed { .. } => {
                if let Some(incident) = this {
                    (incident.obstacle, incident.is_new) = (Some(event.words()), true);
                }
            }
            Event::Locked => {
                if let Some(incident) = this {
                    (incident.is_locked, incident.is_new) = (true, true);
                }
            }
            Event::Unlocked => {
                if let Some(incident) = this {
                    incident.is_locked = false;
                }
            }
            Event::Found { .. } | Event::Gone { .. } | Event::Guarding { .. } => {}
        }
    }

    /// Whether the rules are as they should be again.
    pub(super) const fn is_over(&self) -> bool {
        self.end.is_some()
    }

    /// The notice of a difference that is still there, if it has not been given.
    pub(super) fn standing(&mut self, state: &State, repairs: bool) -> Option<PodNotice> {
        if !std::mem::take(&mut self.is_new) || self.is_over() {
            return None;
        }
        let mut message = format!("{}: {}", self.from(), self.drift);
        match &self.obstacle {
            Some(obstacle) => message.push_str(&format!("; not repaired: {obstacle}")),
            None if repairs => message.push_str("; not repaired yet"),
            None => message.push_str("; not repaired: --guard=report"),
        }
        if self.is_locked {
            message.push_str("; new connections of the app are dropped meanwhile");
        }
        Some(PodNotice {
            pod: state.pod.clone(),
            uid: state.uid.clone(),
            is_captured: false,
            reason: "CaptureRulesChanged",
            message,
            at: self.since,
        })
    }

    /// The notice of its end, with the connections that began meanwhile, in words.
    pub(super) fn ended(&self, state: &State, escaped: Option<&str>) -> Option<PodNotice> {
        let (until, is_repaired) = self.end?;
        let (reason, how) = match is_repaired {
            true => ("CaptureRulesRepaired", "repaired"),
            false => ("CaptureRulesRestored", "undone by another program"),
        };
        let mut message = format!("{} until {}: {}; {how}", self.from(), timestamp(until), self.drift);
        if let Some(escaped) = escaped {
            let _ = write!(message, "; {escaped}");
        }
        Some(PodNotice {
            pod: state.pod.clone(),
            uid: state.uid.clone(),
            is_captured: true,
            reason,
            message,
            at: until,
        })
    }

    fn from(&self) -> String {
        let sometime = if self.is_announced { "" } else { " or later" };
        format!("rules changed at {}{sometime}", timestamp(self.since))
    }
}
