//! What has happened to the rules of a pod since they were last as they should be, for the pod's events and
//! its condition.

use std::fmt::Write as _;
use std::time::SystemTime;

use istio_iptables::commands::guard::{Event, counted};
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
    /// How many packets the rules of others had met that repairs have removed, as far as these count.
    removed: u64,
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
                    removed: 0,
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
                    if let Event::Repaired { removed, .. } = event {
                        incident.removed = incident.removed.saturating_add(*removed);
                    }
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
        message.push_str(&counted(self.removed));
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use istio_iptables::commands::guard::{Culprits, Reason};

    use super::*;
    use crate::environment::AttachmentId;

    fn state() -> State {
        let id = AttachmentId::new("c", "eth0").expect("an id");
        State::new("net".to_owned(), &id, "a/b".to_owned(), String::new(), 7)
    }

    fn drift() -> Event {
        let differences = vec!["a rule is missing".to_owned()];
        Event::Drift { differences, reason: Reason::Rules, by: Culprits::default() }
    }

    fn repaired(removed: u64) -> Event {
        let took = Duration::from_millis(1);
        Event::Repaired { took, what: "inet a".to_owned(), by: Culprits::default(), removed }
    }

    #[test]
    fn an_event_has_from_and_until_and_what_the_removed_rules_had_met() {
        let noticed = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        let mut incident = None;
        for event in [drift(), repaired(2), drift(), repaired(3)] {
            Incident::record(&mut incident, &event, Some(noticed), noticed);
        }
        let mut incident = incident.expect("an incident");
        assert!(incident.standing(&state(), true).is_none(), "it is over");
        let notice = incident.ended(&state(), Some("1 connection outside the mesh")).expect("a notice");
        let (begin, until) = (timestamp(noticed), timestamp(notice.at));
        assert_eq!(
            notice.message,
            format!(
                "rules changed at {begin} until {until}: a rule is missing; repaired; the rules that it removes had met 5 \
                 packets; 1 connection outside the mesh"
            )
        );
        assert!(notice.is_captured && notice.at > noticed);
    }

    #[test]
    fn an_event_of_a_fight_has_what_the_log_has() {
        let mut incident = None;
        let waiting =
            Event::Waiting { pause: Duration::from_secs(2), guard: "guard", by: Culprits::default() };
        for event in [drift(), waiting.clone()] {
            Incident::record(&mut incident, &event, None, SystemTime::UNIX_EPOCH);
        }
        let notice = incident.expect("an incident").standing(&state(), true).expect("a notice");
        assert!(
            notice.message.ends_with(&format!("; not repaired: {}", waiting.words())),
            "{}",
            notice.message
        );
        assert!(notice.message.starts_with("rules changed at 1970-01-01T00:00:00"), "{}", notice.message);
        assert!(notice.message.contains(" or later: "), "no notice said when");
    }
}
