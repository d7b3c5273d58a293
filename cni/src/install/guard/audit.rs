//! `istio-cni audit`: compares the live rules of all captured pods of the node once. No agent needs to run.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;

use istio_iptables::commands::guard::Rules as _;
use istio_iptables::config::Output;
use istio_iptables::exit::Exit;
use istio_iptables::kernel::netns;
use istio_iptables::kernel::process::SystemHost;
use istio_iptables::text::{count, one_line, path_shown};
use serde_json::{Value, json};

use super::namespaces;
use super::pod::{PodRules, expected, open};
use crate::compare::first_difference;
use crate::install::error::InstallError;
use crate::install::options::Audit;
use crate::state::{FileStamp, State, StateDir};

/// How the rules of a pod are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PodState {
    /// As the plugin wrote them, or with the same effect.
    Same,
    /// Different, or a foreign rule, `lo` or a route keeps captured connections from the proxy.
    Drift,
    /// The network namespace is gone: the pod has ended without DEL.
    Vanished,
    /// The rules cannot be compared.
    Unreadable,
}

impl PodState {
    const ALL: [Self; 4] = [Self::Same, Self::Drift, Self::Vanished, Self::Unreadable];

    const fn name(self) -> &'static str {
        match self {
            Self::Same => "ok",
            Self::Drift => "drift",
            Self::Vanished => "vanished",
            Self::Unreadable => "unreadable",
        }
    }
}

/// One pod.
struct Row {
    pod: String,
    container: String,
    backend: String,
    state: PodState,
    /// The first difference, or why nothing is known; empty if the rules are as they should be.
    reason: String,
}

impl Row {
    fn json(&self) -> Value {
        let Self { pod, container, backend, state, reason } = self;
        json!({
            "pod": pod, "container": container, "backend": backend, "state": state.name(),
            "reason": Some(reason).filter(|reason| !reason.is_empty()),
        })
    }
}

/// All pods.
struct Table(Vec<Row>);

impl Table {
    fn number(&self, state: PodState) -> usize {
        self.0.iter().filter(|row| row.state == state).count()
    }

    fn json(&self) -> Value {
        let numbers: serde_json::Map<_, _> =
            PodState::ALL.iter().map(|state| (state.name().to_owned(), json!(self.number(*state)))).collect();
        json!({ "pods": self.0.iter().map(Row::json).collect::<Vec<_>>(), "count": numbers })
    }

    /// A pod whose rules cannot be read may have others.
    fn exit(&self) -> Exit {
        let is_known = self.number(PodState::Drift) + self.number(PodState::Unreadable) == 0;
        if is_known { Exit::Done } else { Exit::Different }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: fn(&Row) -> &str, head: &str| {
            self.0.iter().map(|row| column(row).chars().count()).max().unwrap_or_default().max(head.len())
        };
        let (pod, backend) = (width(|row| &row.pod, "POD"), width(|row| &row.backend, "BACKEND"));
        writeln!(f, "{:pod$}  {:backend$}  {:10}  REASON", "POD", "BACKEND", "STATE")?;
        for row in &self.0 {
            let line = format!(
                "{:pod$}  {:backend$}  {:10}  {}",
                row.pod,
                row.backend,
                row.state.name(),
                one_line(&row.reason)
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        let numbers = PodState::ALL.iter().map(|state| format!("{} {}", self.number(*state), state.name()));
        writeln!(f, "{}: {}", count(self.0.len(), "pod"), numbers.collect::<Vec<_>>().join(", "))
    }
}

/// Compares. Returns the report, and how the program ends.
///
/// # Errors
/// The state files or the directory of namespaces cannot be read.
pub(in crate::install) fn audit(options: &Audit, host: &SystemHost) -> Result<(String, Exit), InstallError> {
    let dir = Rc::new(StateDir::new(&options.run_dir));
    let is_there = dir.is_there().map_err(|error| InstallError::io("read", dir.path_of_dir(), &error))?;
    let files = if is_there { states(&dir)? } else { Vec::new() };
    let table = if files.is_empty() { Table(Vec::new()) } else { compare_all(files, &dir, options, host)? };
    let text = match options.output {
        Output::Json => format!("{}\n", table.json()),
        Output::Text if table.0.is_empty() => format!(
            "no captured pod is known: no state file in {}; the plugin writes one for each pod that it captures\n",
            path_shown(dir.path_of_dir())
        ),
        Output::Text => table.to_string(),
    };
    Ok((text, table.exit()))
}

/// A state file, and what is in it; `Err`: why it cannot be used.
type File = (OsString, FileStamp, Result<State, String>);

/// Of several files about one namespace, such as those of a pod with several interfaces, the last one counts.
fn states(dir: &StateDir) -> Result<Vec<File>, InstallError> {
    let mut last: BTreeMap<u64, File> = BTreeMap::new();
    let mut unusable = Vec::new();
    let files = dir.files().map_err(|error| InstallError::io("read", dir.path_of_dir(), &error))?;
    for (name, stamp) in files {
        match dir.read_named(&name) {
            Err(problem) => unusable.push((name, stamp, Err(problem))),
            Ok(state)
                if last.get(&state.netns).is_some_and(|(_, other, _)| other.written > stamp.written) => {}
            Ok(state) => drop(last.insert(state.netns, (name, stamp, Ok(state)))),
        }
    }
    Ok(last.into_values().chain(unusable).collect())
}

fn compare_all(
    files: Vec<File>,
    dir: &Rc<StateDir>,
    options: &Audit,
    host: &SystemHost,
) -> Result<Table, InstallError> {
    let namespaces = namespaces(&options.netns_dir)?;
    if let Err(error) = netns::own_mounts_without_nss() {
        log::warn!("cannot isolate tools from the name service (nsswitch.conf): {error}");
    }
    let host = Rc::new(host.clone());
    let mut rows = Vec::new();
    for (name, stamp, state) in files {
        let file = name.to_string_lossy().into_owned();
        let state = match state {
            Ok(state) => state,
            Err(problem) => {
                let reason = format!("state file {file}: {problem}");
                let (pod, backend) = ("?".to_owned(), "?".to_owned());
                rows.push(Row { pod, container: file, backend, state: PodState::Unreadable, reason });
                continue;
            }
        };
        let (pod, container) = (one_line(&state.pod).into_owned(), state.container.clone());
        let of_add = state.backend().map_or_else(|| "?".to_owned(), |(_, value)| value.text);
        let rules = (Rc::clone(&host), Rc::clone(dir), (name, stamp), state);
        let (found, reason, backend) = compare(rules, &namespaces);
        rows.push(Row { pod, container, backend: backend.unwrap_or(of_add), state: found, reason });
    }
    rows.sort_by(|one, other| one.pod.cmp(&other.pod));
    Ok(Table(rows))
}

/// Compares one pod. Returns what holds its rules, too, if that is known.
fn compare(
    (host, dir, (name, stamp), state): (Rc<SystemHost>, Rc<StateDir>, (OsString, FileStamp), State),
    namespaces: &BTreeMap<u64, PathBuf>,
) -> (PodState, String, Option<String>) {
    let unreadable = |reason: String| (PodState::Unreadable, reason, None);
    let Some(path) = namespaces.get(&state.netns) else {
        return (PodState::Vanished, "its network namespace is gone".to_owned(), None);
    };
    let Some(namespace) = open(path, &state, stamp) else {
        let reason = "its network namespace is gone, another one has its number";
        return (PodState::Vanished, reason.to_owned(), None);
    };
    let expected = match expected(&state) {
        Ok(expected) => Rc::new(expected),
        Err(problem) => return unreadable(problem),
    };
    if let Err(error) = namespace.enter() {
        return unreadable(error.to_string());
    }
    let files = (name, stamp);
    let mut rules = PodRules::new(Rc::clone(&host), dir, files, (state, Rc::clone(&expected)), path.clone());
    let compared = rules.compared().and_then(|found| {
        let deciding = || found.notices.deciding.first().map(ToString::to_string);
        let of_rules = first_difference(&found).or_else(deciding);
        let unreachable = if of_rules.is_none() { expected.unreachable(&host)? } else { None };
        Ok((of_rules.or(unreachable.map(|finding| finding.to_string())), found.backend.to_string()))
    });
    match compared {
        Err(failure) => unreadable(failure.to_string()),
        Ok((Some(reason), backend)) => (PodState::Drift, reason, Some(backend)),
        Ok((None, backend)) => (PodState::Same, String::new(), Some(backend)),
    }
}
