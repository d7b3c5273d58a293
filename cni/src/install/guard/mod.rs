//! The guard of all captured pods of the node: notices changes of their rules, reports which program made
//! them, and repairs them.
//!
//! One thread waits for notices of all pods, enters the namespace of a pod whose rules have changed, and
//! leaves it again. Nothing keeps a namespace from ending.

mod afterwards;
pub(super) mod escaped;
pub(super) mod events;
mod incident;
mod notices;
mod passed;
pub(super) mod pod;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use istio_iptables::commands::guard::{Guard, Settings, Used};
use istio_iptables::kernel::capabilities::Capabilities;
use istio_iptables::kernel::netns::{self, Namespace};
use istio_iptables::kernel::node_watch::NodeWatch;
use istio_iptables::kernel::process::SystemHost;

use self::afterwards::{Afterwards, Ended};
use self::escaped::Escaped;
use self::events::StateEvents;
use self::incident::Incident;
use self::notices::{Notices, Pod};
use self::pod::{PodRules, expected, open};
use super::error::InstallError;
use super::files;
use super::metrics::Metrics;
use super::options::GuardOptions;
use super::pods::Pods;
use crate::compare::Expected;
use crate::state::{FileStamp, State, StateDir};

/// The name of the guard's thread: at most 15 bytes.
const THREAD: &str = "istio-cni-guard";
/// The name of the thread that closes sockets.
const CLOSING: &str = "istio-cni-close";
/// The longest time between two comparisons of a pod: changes of iptables-legacy are not announced, and
/// notices can be lost.
const AUDIT: Duration = Duration::from_secs(30);
/// The pause after an error of the guard itself.
const PAUSE: Duration = Duration::from_secs(30);

/// Guards until the process ends; `pods` takes reports about pods.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn start(
    run_dir: &Path,
    options: &GuardOptions,
    host: &SystemHost,
    (metrics, pods): (&Arc<Metrics>, Option<Arc<dyn Pods>>),
) -> Result<(), InstallError> {
    let (run_dir, options, host) = (run_dir.to_owned(), options.clone(), host.clone());
    let metrics = Arc::clone(metrics);
    let guard = move || {
        let mut node = match Node::new(&run_dir, options, host, (metrics, pods)) {
            Ok(node) => node,
            Err(error) => {
                log::error!("the rules of pods are not guarded: {error}");
                return;
            }
        };
        loop {
            if let Err(error) = node.guard() {
                log::error!("the rules of pods cannot be guarded now: {error}");
                thread::sleep(PAUSE);
            }
        }
    };
    let started = thread::Builder::new().name(THREAD.to_owned()).spawn(guard);
    started.map(drop).map_err(|error| InstallError::new(format!("cannot start a thread: {error}")))
}

/// A pod whose namespace is known.
struct Guarded {
    guard: Guard<PodRules>,
    /// The id of its namespace.
    id: Option<i32>,
    /// When its rules were last found as they should be.
    same: SystemTime,
    incident: Option<Incident>,
    escaped: Arc<Mutex<Escaped>>,
}

/// A state file.
struct Known {
    stamp: FileStamp,
    /// The inode of the namespace; 0 if the file cannot be used.
    netns: u64,
    /// `None` if the namespace is not there.
    pod: Option<Guarded>,
}

/// All pods of the node.
struct Node {
    host: Rc<SystemHost>,
    dir: Rc<StateDir>,
    options: GuardOptions,
    metrics: Arc<Metrics>,
    /// What follows repairs, and where events and conditions of pods go.
    afterwards: Afterwards,
    /// Closes the sockets of repairs.
    closing: Sender<Used>,
    events: StateEvents,
    notices: Notices,
    /// By the names of their state files.
    known: BTreeMap<OsString, Known>,
    /// The namespace of this process.
    own: Namespace,
    /// When the state files are to be read again.
    read_again: Instant,
    /// What is wrong with the directory of namespaces, as it is logged.
    problem: Option<String>,
}

impl Node {
    /// Begins to listen: what changes from now on is noticed.
    fn new(
        run_dir: &Path,
        options: GuardOptions,
        host: SystemHost,
        (metrics, reported): (Arc<Metrics>, Option<Arc<dyn Pods>>),
    ) -> io::Result<Self> {
        let own = Namespace::open(Path::new("/proc/thread-self/ns/net")).map_err(io::Error::other)?;
        if let Err(error) = netns::own_mounts_without_nss() {
            log::warn!("cannot isolate tools from the name service (nsswitch.conf): {error}");
        }
        let watch = NodeWatch::open();
        let audit_s = AUDIT.as_secs();
        match &watch {
            Ok(_) => {
                log::info!(action = options.action.name(), audit_s; "guarding the rules of captured pods")
            }
            Err(error) => {
                let missing = missing_capabilities();
                log::warn!(action = options.action.name(), audit_s; "guarding the rules of captured pods by audits alone: \
                           changes are not announced: {error}{missing}")
            }
        }
        metrics.guards(watch.is_ok());
        let resets = options.reset_escaped;
        let afterwards = Afterwards::start(host.clone(), Arc::clone(&metrics), reported, resets)?;
        let notices = Notices::new(watch.ok());
        let (closing, used) = channel::<Used>();
        thread::Builder::new().name(CLOSING.to_owned()).spawn(move || used.into_iter().for_each(drop))?;
        Ok(Self {
            host: Rc::new(host),
            dir: Rc::new(StateDir::new(run_dir)),
            options,
            metrics,
            afterwards,
            closing,
            events: StateEvents::new(),
            notices,
            known: BTreeMap::new(),
            own,
            read_again: Instant::now(),
            problem: None,
        })
    }

    /// Guards until something fails.
    fn guard(&mut self) -> io::Result<()> {
        loop {
            // No repair waits for anything else.
            self.examine_changed()?;
            if self.events.changed() || self.read_again <= Instant::now() {
                self.read_states()?;
            }
            self.examine_due();
            let drifted = self.pods().filter(|pod| pod.guard.has_drift()).count();
            let guarded = self.pods().filter(|pod| pod.guard.rules.is_compared()).count();
            self.metrics.guarded(guarded, drifted, self.unguarded());
            self.own.enter().map_err(io::Error::other)?;
            // What was read while a pod was examined may be about another one.
            if self.notices.are_pending() {
                continue;
            }
            self.close_incidents();
            let due = self.pods().map(|pod| pod.guard.due()).min();
            let until = due.unwrap_or(self.read_again).min(self.read_again);
            self.events.wait(self.notices.watch.as_ref().map(|watch| watch.as_fd()), until)?;
            self.notices.read(&self.metrics)?;
        }
    }

    /// How many captured pods have no network namespace here; of several files about one namespace, one
    /// counts.
    fn unguarded(&self) -> usize {
        let guarded: BTreeSet<u64> =
            self.known.values().filter(|known| known.pod.is_some()).map(|known| known.netns).collect();
        let others = self.known.values().filter(|known| known.pod.is_none());
        others.filter(|known| !guarded.contains(&known.netns)).count()
    }

    fn pods(&self) -> impl Iterator<Item = &Guarded> {
        self.known.values().filter_map(|known| known.pod.as_ref())
    }

    /// Examines each pod whose rules have changed.
    fn examine_changed(&mut self) -> io::Result<()> {
        self.notices.read(&self.metrics)?;
        let (mut changed, are_lost) = self.notices.take_all();
        let mut names = Vec::new();
        for (name, known) in &mut self.known {
            let Some(pod) = &mut known.pod else { continue };
            let changes = pod.id.and_then(|id| changed.remove(&id));
            if are_lost {
                pod.guard.lost();
            }
            if let Some((noticed, changes)) = changes {
                pod.guard.changed(noticed, changes);
                names.push(name.clone());
            } else if are_lost {
                names.push(name.clone());
            }
        }
        names.iter().for_each(|name| self.examine(name));
        Ok(())
    }

    /// Examines the one pod that has waited longest, if it is due.
    fn examine_due(&mut self) {
        let due = self.known.iter().filter_map(|(name, known)| Some((known.pod.as_ref()?.guard.due(), name)));
        let first = due.min().filter(|(due, _)| *due <= Instant::now()).map(|(_, name)| name.clone());
        if let Some(name) = first {
            self.examine(&name);
        }
    }

    fn examine(&mut self, name: &OsString) {
        let Some(known) = self.known.get_mut(name) else { return };
        let Some(pod) = &mut known.pod else { return };
        // The namespace is looked up each time: it may have ended.
        let entered = pod.guard.rules.open().is_some_and(|namespace| namespace.enter().is_ok());
        if !entered {
            known.pod = None;
            return;
        }
        let text = pod.guard.rules.state.pod.clone();
        let mut driver = Pod {
            notices: &mut self.notices,
            metrics: &self.metrics,
            id: pod.id,
            name: &text,
            noticed: pod.guard.noticed(),
            same: pod.same,
            incident: &mut pod.incident,
            closing: &self.closing,
        };
        // Reports of a pod do not fail.
        let _ = pod.guard.wake(&mut driver);
        if !pod.guard.has_drift() && pod.guard.rules.is_compared() {
            pod.same = SystemTime::now();
        }
        let repairs = self.options.action.repairs();
        let standing = pod.incident.as_mut().and_then(|one| one.standing(&pod.guard.rules.state, repairs));
        let rules = &pod.guard.rules;
        if Rc::strong_count(&rules.desired) == 1 {
            let digest = rules.digest;
            self.share(name, digest);
        }
        standing.into_iter().for_each(|notice| self.afterwards.report(notice));
    }

    /// Hands over the incidents that are over: which connections have begun meanwhile is looked at elsewhere.
    fn close_incidents(&mut self) {
        let is_over = |pod: &&mut Guarded| pod.incident.as_ref().is_some_and(Incident::is_over);
        for pod in self.known.values_mut().filter_map(|known| known.pod.as_mut()).filter(is_over) {
            let Some(incident) = pod.incident.take() else { continue };
            let rules = &pod.guard.rules;
            let expected = &rules.expected;
            self.afterwards.ended(Ended {
                incident,
                state: rules.state.clone(),
                namespace: rules.open(),
                options: expected.of_add.as_ref().unwrap_or(&expected.resolved).clone(),
                escaped: Arc::clone(&pod.escaped),
            });
        }
    }

    /// Keeps rules that are the same for several pods once.
    fn share(&mut self, name: &OsString, digest: u64) {
        let others = self.known.iter().filter(|(other, _)| *other != name);
        let mut others = others.filter_map(|(_, known)| Some(&known.pod.as_ref()?.guard.rules));
        let Some(same) = others.find(|other| other.digest == digest).map(|other| Rc::clone(&other.desired))
        else {
            return;
        };
        if let Some(pod) = self.known.get_mut(name).and_then(|known| known.pod.as_mut()) {
            pod.guard.rules.desired = same;
        }
    }

    /// Reads state files that are new, and forgets those that are gone.
    fn read_states(&mut self) -> io::Result<()> {
        let files = self.dir.files()?;
        self.read_again = Instant::now() + self.events.watch(self.dir.path_of_dir(), AUDIT);
        self.events.watch_removals(&self.options.netns_dir);
        self.forget_ended();
        self.known
            .retain(|name, known| files.iter().any(|(file, stamp)| file == name && *stamp == known.stamp));
        let is_new =
            |(name, _): &(OsString, FileStamp)| self.known.get(name).is_none_or(|known| known.pod.is_none());
        let new: Vec<_> = files.into_iter().filter(is_new).collect();
        let namespaces = if new.is_empty() { BTreeMap::new() } else { self.namespaces() };
        for (name, stamp) in new {
            self.known.entry(name.clone()).or_insert_with(|| Known { stamp, netns: 0, pod: None });
            if let Err(problem) = self.add(&name, stamp, &namespaces) {
                log::debug!(file:? = name; "not guarded: {problem}");
            }
        }
        self.drop_older();
        Ok(())
    }

    /// Forgets pods whose namespaces have ended without DEL.
    fn forget_ended(&mut self) {
        for known in self.known.values_mut() {
            if known.pod.as_ref().is_some_and(|pod| !pod.guard.rules.netns.exists()) {
                known.pod = None;
            }
        }
    }

    /// The namespaces of the node; what is wrong with their directory is logged once.
    fn namespaces(&mut self) -> BTreeMap<u64, PathBuf> {
        let (found, problem) = match namespaces(&self.options.netns_dir) {
            Ok(found) => (found, None),
            Err(error) => (BTreeMap::new(), Some(error.to_string())),
        };
        if self.problem != problem {
            if let Some(problem) = &problem {
                self.metrics.guard_failed();
                log::error!(
                    "captured pods are not guarded: {problem}; give the runtime's directory, mounted with HostToContainer in a pod"
                );
            }
            self.problem = problem;
        }
        found
    }

    /// Guards a pod, if its namespace is among these.
    fn add(
        &mut self,
        name: &OsString,
        stamp: FileStamp,
        namespaces: &BTreeMap<u64, PathBuf>,
    ) -> Result<(), String> {
        let state = self.dir.read_named(name)?;
        let path = namespaces.get(&state.netns).ok_or("no such network namespace")?;
        let namespace = open(path, &state, stamp).ok_or("another network namespace has its number")?;
        let of_own = Namespace::id(&self.own).map_err(|error| error.to_string())?;
        if namespace.id().is_ok_and(|id| id == of_own) {
            return Err("the network namespace of this process".to_owned());
        }
        let expected = self.expected(&state)?;
        // First: what changes while rules are compared is noticed.
        let id = self.notices.watch.as_mut().map(|watch| watch.add(&namespace)).transpose();
        let id = id.unwrap_or_else(|error| {
            log::warn!(pod = state.pod; "changes of rules are not announced: {error}");
            None
        });
        let netns = state.netns;
        let (host, dir) = (Rc::clone(&self.host), Rc::clone(&self.dir));
        let rules = PodRules::new(host, dir, (name.clone(), stamp), (state, expected), path.clone());
        let settings =
            Settings { name: THREAD, action: self.options.action, audit: AUDIT, patience: Duration::ZERO };
        let pod = Guarded {
            guard: Guard::new(rules, settings),
            id,
            same: stamp.written,
            incident: None,
            escaped: Arc::default(),
        };
        self.known.insert(name.clone(), Known { stamp, netns, pod: Some(pod) });
        Ok(())
    }

    /// What a state file asks for, which most pods of a node have in common.
    fn expected(&self, state: &State) -> Result<Rc<Expected>, String> {
        let same = self.pods().map(|pod| &pod.guard.rules).find(|rules| {
            let other = &rules.state;
            other.options == state.options
                && other.interface == state.interface
                && other.backend().map(|(_, value)| value.text)
                    == state.backend().map(|(_, value)| value.text)
        });
        match same {
            Some(rules) => Ok(Rc::clone(&rules.expected)),
            None => expected(state).map(Rc::new),
        }
    }

    /// Of several files about one namespace, such as those of a pod with several interfaces, the last one
    /// counts.
    fn drop_older(&mut self) {
        let mut last: BTreeMap<u64, SystemTime> = BTreeMap::new();
        for known in self.known.values().filter(|known| known.pod.is_some()) {
            let written = last.entry(known.netns).or_insert(known.stamp.written);
            *written = known.stamp.written.max(*written);
        }
        for known in self.known.values_mut().filter(|known| known.pod.is_some()) {
            if last.get(&known.netns).is_some_and(|written| *written > known.stamp.written) {
                known.pod = None;
            }
        }
    }
}

/// Which of the capabilities that the guard needs are missing, behind another sentence.
fn missing_capabilities() -> String {
    let Ok(Capabilities { net_admin, net_broadcast, sys_admin, .. }) = Capabilities::current() else {
        return String::new();
    };
    let all = [("NET_ADMIN", net_admin), ("NET_BROADCAST", net_broadcast), ("SYS_ADMIN", sys_admin)];
    let missing: Vec<_> = all.into_iter().filter(|(_, has)| !has).map(|(name, _)| name).collect();
    if missing.is_empty() { String::new() } else { format!("; missing capability {}", missing.join(", ")) }
}

/// The namespaces in a directory, by inode.
pub(super) fn namespaces(dir: &Path) -> Result<BTreeMap<u64, PathBuf>, InstallError> {
    let names = files::names(dir).map_err(|error| InstallError::new(format!("--netns-dir: {error}")))?;
    let paths = names.into_iter().map(|name| dir.join(name));
    let opened = paths.filter_map(|path| Some((Namespace::open(&path).ok()?.id().ok()?.inode, path)));
    Ok(opened.collect())
}
