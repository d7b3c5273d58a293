//! Repair of pods that have started without capture: their sandboxes were set up before our plugin was in the
//! network configuration, or while it was not.
//!
//! One thread looks for them at the start, when the runtime has set up a pod, and every [`LOOK`]. It needs no
//! container that has failed: pods that run once, and native sidecars, are repaired before their first one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use istio_iptables::kernel::netns::{self, Namespace};
use istio_iptables::kernel::process::SystemHost;
use istio_iptables::logging::timestamp;
use serde_json::Value;

use super::error::InstallError;
use super::files;
use super::guard::escaped::Escaped;
use super::guard::events::StateEvents;
use super::judge::{self, Judge, Late, PodState, Target};
use super::late_add;
use super::metrics::Metrics;
use super::options::{Dirs, RepairAction, RepairOptions};
use super::pods::{PodNotice, Pods};
use super::sandboxes::{self, Sandbox};
use crate::environment::{AttachmentId, PodName};
use crate::plugin::late::LatePod;
use crate::state::{State, StateDir};

/// The longest time between two looks, and before a pod is looked at again.
const LOOK: Duration = Duration::from_secs(30);
/// The time between two looks while our entry is not in the network configuration.
const PAUSE: Duration = Duration::from_secs(2);
/// The name of the thread: at most 15 bytes.
const THREAD: &str = "istio-cni-late";

/// What the thread works with.
pub(super) struct Context {
    pub(super) dirs: Dirs,
    pub(super) options: RepairOptions,
    pub(super) host: SystemHost,
    /// The plugin's program.
    pub(super) plugin: PathBuf,
    pub(super) metrics: Arc<Metrics>,
    /// The pods of the API server, if it is known.
    pub(super) pods: Option<Arc<dyn Pods>>,
    /// Whether events and conditions of pods are written.
    pub(super) events: bool,
    /// Whether connections are reset that began without capture.
    pub(super) resets: bool,
}

/// Repairs until the process ends.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn start(context: Context) -> Result<(), InstallError> {
    let action = context.options.action;
    context.metrics.repairs_pods(action.name());
    let run = move || {
        if let Err(error) = netns::own_mounts_without_nss() {
            log::warn!("cannot isolate tools from the name service (nsswitch.conf): {error}");
        }
        match Namespace::open(Path::new("/proc/thread-self/ns/net")) {
            Ok(own) => Repair::new(context, own).run(),
            Err(error) => log::error!("pods that have started without capture are not repaired: {error}"),
        }
    };
    let started = thread::Builder::new().name(THREAD.to_owned()).spawn(run);
    started.map(drop).map_err(|error| InstallError::new(format!("cannot start a thread: {error}")))
}

/// A pod that has been looked at.
struct Seen {
    pod: PodName,
    /// When it is looked at again; `None`: never.
    again: Option<Instant>,
    is_uncaptured: bool,
    /// Whether its rules could be judged.
    is_judged: bool,
    handled: Handled,
}

/// What has been done about a pod, so that it is done and reported once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Handled {
    #[default]
    No,
    /// What failed is tried again.
    Failed(String),
    /// Why nothing can be done, as it is logged.
    Noted(String),
    Done,
}

struct Repair {
    context: Context,
    own: Namespace,
    states: StateDir,
    events: StateEvents,
    /// Pods without a state file, by container.
    seen: BTreeMap<String, Seen>,
    /// Pods of which the API server alone knows that they are not captured, by uid.
    reported: BTreeMap<String, Handled>,
    /// What keeps pods from being looked at, as it is logged.
    problem: Option<String>,
}

/// Logs once why nothing can be done about a pod.
fn note(pod: &PodName, text: &str, handled: &mut Handled) {
    let noted = Handled::Noted(text.to_owned());
    if *handled != noted {
        log::warn!(pod:% = pod; "{text}");
        *handled = noted;
    }
}

impl Repair {
    fn new(context: Context, own: Namespace) -> Self {
        let states = StateDir::new(&context.dirs.run);
        Self {
            context,
            own,
            states,
            events: StateEvents::new(),
            seen: BTreeMap::new(),
            reported: BTreeMap::new(),
            problem: None,
        }
    }

    fn run(mut self) {
        loop {
            let results = self.context.options.results_dir.clone();
            // What is written while pods are looked at is an event.
            let longest = self.events.watch(&results, LOOK);
            self.events.changed();
            let (wait, problem) = match self.look() {
                Ok(()) => (longest, None),
                Err(error) => (PAUSE, Some(error.to_string())),
            };
            if self.problem != problem {
                if let Some(problem) = &problem {
                    log::info!("pods that have started without capture are not looked for now: {problem}");
                }
                self.problem = problem;
            }
            let again = Instant::now() + wait;
            while let Err(error) = self.events.wait(None, again) {
                log::debug!("poll: {error}");
                thread::sleep(PAUSE);
            }
        }
    }

    /// Looks at each pod that is due.
    fn look(&mut self) -> Result<(), InstallError> {
        let entry = judge::entry(&self.context.dirs)?;
        // What the API server knows counts without results, too.
        let looked = self.look_at_sandboxes(&entry);
        let others = self.handle_reported(&entry);
        let uncaptured = self.seen.values().filter(|seen| seen.is_uncaptured).count();
        self.context.metrics.uncaptured(uncaptured + others);
        looked
    }

    fn look_at_sandboxes(&mut self, entry: &Value) -> Result<(), InstallError> {
        let results = self.context.options.results_dir.clone();
        let names = files::names(&results)?;
        let names: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
        self.forget(&names.iter().filter_map(|name| sandboxes::container(name)).collect());
        let mut known = self.states.containers();
        self.seen.retain(|container, _| !known.contains(container));
        let now = Instant::now();
        let settled = self.seen.iter().filter(|(_, seen)| seen.again.is_none_or(|again| again > now));
        known.extend(settled.map(|(name, _)| name.clone()));
        for sandbox in sandboxes::read(&results, &known)? {
            let seen = self.handle(&sandbox, entry);
            self.seen.insert(sandbox.id.container.clone(), seen);
        }
        Ok(())
    }

    /// Forgets sandboxes that have ended. The runtime may have called DEL before the state was written here,
    /// or does not call ours.
    fn forget(&mut self, present: &BTreeSet<&str>) {
        self.seen.retain(|container, _| present.contains(container.as_str()));
        for (name, _) in self.states.files().unwrap_or_default() {
            // A record that another program has removed ends no sandbox.
            let container = name.to_str().and_then(StateDir::container);
            if container.is_none_or(|container| present.contains(container)) {
                continue;
            }
            let Ok(state) = self.states.read_named(&name) else { continue };
            let Some(netns) = &state.late_netns else { continue };
            let Ok(id) = AttachmentId::new(&state.container, &state.interface) else { continue };
            if !self.context.options.netns_dir.join(netns).exists()
                && let Err(error) = self.states.remove(&id)
            {
                log::debug!("{}", error.msg);
            }
        }
    }

    /// Judges a pod without a state file, and does what is to be done.
    fn handle(&mut self, sandbox: &Sandbox, entry: &Value) -> Seen {
        let mut seen = Seen {
            pod: sandbox.pod.clone(),
            again: None,
            is_uncaptured: false,
            is_judged: true,
            handled: self.seen.remove(&sandbox.id.container).map(|seen| seen.handled).unwrap_or_default(),
        };
        let late = self.own.id().map(|own| {
            let (host, netns_dir) = (&self.context.host, self.context.options.netns_dir.as_path());
            Judge { host, entry, netns_dir, own }.late(sandbox)
        });
        // What follows may connect to the API server.
        self.leave();
        match late {
            Ok(Late::NotWanted) => {}
            Ok(Late::Ended) | Err(_) => seen.again = Some(Instant::now() + LOOK),
            Ok(Late::Wanted(judged, target)) => {
                seen.again = Some(Instant::now() + LOOK);
                seen.is_judged = judged.state != PodState::Unreadable;
                // An attempt that failed, or was killed, may have written rules, and no state.
                let is_tried = self.context.options.action == RepairAction::Repair
                    && (matches!(seen.handled, Handled::Failed(_)) || self.states.is_begun(&sandbox.id));
                let (pod, reason) = (&sandbox.pod, &judged.reason);
                match target.filter(|_| seen.is_judged) {
                    Some(target) if judged.state == PodState::Uncaptured || is_tried => {
                        self.act(sandbox, &target, reason, &mut seen);
                    }
                    Some(target) => match &target.state {
                        Some(state) => self.adopt(sandbox, state, &mut seen.handled),
                        None => note(pod, reason, &mut seen.handled),
                    },
                    None => {
                        let what = "whether the pod is captured as it should be is not known";
                        note(pod, &format!("{what}: {reason}"), &mut seen.handled);
                    }
                }
            }
        }
        seen
    }

    /// Has the guard keep the rules of a pod that is captured and has no state file: it is lost, or Istio's
    /// agent has written the rules.
    fn adopt(&self, sandbox: &Sandbox, state: &State, handled: &mut Handled) {
        // The runtime may not call DEL of a plugin whose ADD it has not called.
        let mut state = state.clone();
        state.late_netns.clone_from(&sandbox.netns);
        match self.states.write(&sandbox.id, &state) {
            Ok(()) => {
                log::info!(pod:% = sandbox.pod; "the pod is captured and had no state file: it is guarded from now on");
            }
            Err(error) => note(&sandbox.pod, &format!("the pod is not guarded: {}", error.msg), handled),
        }
    }

    fn leave(&self) {
        if let Err(error) = self.own.enter() {
            log::error!("the network namespace of the agent cannot be entered again: {error}");
        }
    }

    /// Acts on a pod without capture. One that is being deleted is left.
    fn act(&mut self, sandbox: &Sandbox, target: &Target, reason: &str, seen: &mut Seen) {
        let pod = &sandbox.pod;
        let is_live = self.context.pods.as_ref().and_then(|pods| pods.is_live(pod));
        seen.is_uncaptured = is_live != Some(false);
        if !seen.is_uncaptured || seen.handled == Handled::Done {
            return;
        }
        let since = sandbox.since;
        match self.context.options.action {
            RepairAction::Repair => {
                let (host, plugin) = (&self.context.host, &self.context.plugin);
                let place = (&target.namespace, sandbox.netns.as_deref().unwrap_or_default());
                let result = late_add::add(host, plugin, &self.states, &target.pod, place);
                if result.is_ok() {
                    seen.is_uncaptured = false;
                    self.repaired(sandbox, target);
                }
                self.finish(pod, since, (reason, result), &mut seen.handled);
            }
            RepairAction::Event | RepairAction::Label | RepairAction::Delete => {
                self.report_to_api(pod, since, reason, &mut seen.handled);
            }
        }
    }

    /// Reports a capture from the outside, with the connections that began before it.
    fn repaired(&self, sandbox: &Sandbox, target: &Target) {
        let pod = sandbox.pod.to_string();
        let now = SystemTime::now();
        let escaped = target.namespace.enter().ok().and_then(|()| {
            let options = target.expected.resolved.clone();
            let about = (pod.as_str(), self.context.resets);
            Escaped::default().look(&self.context.host, options, about, &self.context.metrics)
        });
        self.leave();
        let mut message = format!(
            "started without capture at {}, captured at {}",
            timestamp(sandbox.since),
            timestamp(now)
        );
        if let Some(escaped) = escaped {
            message.push_str(&format!("; {escaped}"));
        }
        log::warn!(pod; "repaired: {message}");
        self.notify(&sandbox.pod, (true, "CaptureRulesAdded"), message, now);
    }

    /// Pods of which the API server alone knows that they are not captured: their `istio-validation` says so,
    /// and by the runtime's record of them they cannot be judged. Returns how many there are.
    fn handle_reported(&mut self, entry: &Value) -> usize {
        let Some(pods) = self.context.pods.clone() else { return 0 };
        let mut uncaptured = pods.uncaptured();
        if uncaptured.is_empty() {
            self.reported.clear();
            return 0;
        }
        // Those of a state file are the guard's, whose rules are as they should be after its repair.
        let files = self.states.files().unwrap_or_default();
        let states = files.iter().filter_map(|(name, _)| self.states.read_named(name).ok());
        let mut here: BTreeSet<String> = states.map(|state| state.uid).collect();
        here.extend(self.seen.values().filter(|seen| seen.is_judged).map(|seen| seen.pod.uid.clone()));
        uncaptured.retain(|pod| !here.contains(&pod.uid) && !self.is_excluded(pod, entry));
        self.reported.retain(|uid, _| uncaptured.iter().any(|pod| pod.uid == *uid));
        for pod in &uncaptured {
            let mut handled = self.reported.remove(&pod.uid).unwrap_or_default();
            let reason = "istio-validation has ended with exit code 126";
            let now = SystemTime::now();
            if self.context.options.action == RepairAction::Repair {
                let unknown = "its network namespace is not known: the runtime has no usable result of it";
                self.skip(pod, now, &format!("{reason}; {unknown}"), &mut handled);
            } else if handled != Handled::Done {
                self.report_to_api(pod, now, reason, &mut handled);
            }
            self.reported.insert(pod.uid.clone(), handled);
        }
        uncaptured.len()
    }

    /// Whether ADD would not capture a pod that the API server knows.
    fn is_excluded(&self, pod: &PodName, entry: &Value) -> bool {
        let id = AttachmentId { container: pod.uid.clone(), interface: "eth0".to_owned() };
        let late = LatePod::new(entry, (id, pod.clone()), THREAD, None);
        matches!(late.options(&self.context.host), Ok(None))
    }

    /// Event, label or deletion.
    fn report_to_api(&self, pod: &PodName, since: SystemTime, reason: &str, handled: &mut Handled) {
        let Some(pods) = &self.context.pods else { return };
        let (key, value) = &self.context.options.label;
        let result = match self.context.options.action {
            // An event is all that is asked for.
            RepairAction::Event | RepairAction::Repair => Ok(()),
            RepairAction::Label | RepairAction::Delete if pods.is_live(pod) != Some(true) => return,
            RepairAction::Label => pods.label(pod, (key, value)),
            RepairAction::Delete => pods.delete(pod),
        };
        if result.is_ok() {
            let action = self.context.options.action.name();
            log::warn!(pod:% = pod, action; "pod has started without capture: {reason}");
            self.notify(
                pod,
                (false, "CaptureRulesMissing"),
                format!("started without capture: {reason}"),
                since,
            );
        }
        self.finish(pod, since, (reason, result), handled);
    }

    /// Counts an attempt. A failure is logged and reported once.
    fn finish(
        &self,
        pod: &PodName,
        since: SystemTime,
        (reason, result): (&str, Result<(), String>),
        handled: &mut Handled,
    ) {
        let action = self.context.options.action.name();
        let Err(problem) = result else {
            self.context.metrics.pod_repair(action, "success");
            *handled = Handled::Done;
            return;
        };
        self.context.metrics.pod_repair(action, "fail");
        let failed = Handled::Failed(problem.clone());
        if *handled != failed {
            log::error!(pod:% = pod, action; "pod has started without capture, and cannot be repaired: {problem}");
            let message = format!("started without capture: {reason}; not repaired: {problem}");
            self.notify(pod, (false, "CaptureRulesMissing"), message, since);
            *handled = failed;
        }
    }

    /// A pod that this action cannot repair.
    fn skip(&self, pod: &PodName, since: SystemTime, reason: &str, handled: &mut Handled) {
        if *handled != Handled::Done {
            self.context.metrics.pod_repair(self.context.options.action.name(), "skip");
            log::warn!(pod:% = pod; "pod has started without capture and is not repaired: {reason}; delete the pod");
            let message = format!("started without capture: {reason}; not repaired: delete the pod");
            self.notify(pod, (false, "CaptureRulesMissing"), message, since);
            *handled = Handled::Done;
        }
    }

    fn notify(
        &self,
        pod: &PodName,
        (is_captured, reason): (bool, &'static str),
        message: String,
        at: SystemTime,
    ) {
        let Some(pods) = self.context.pods.as_ref().filter(|_| self.context.events) else { return };
        pods.report(PodNotice {
            pod: pod.to_string(),
            uid: pod.uid.clone(),
            is_captured,
            reason,
            message,
            at,
        });
    }
}
