//! `istio-cni audit`: judges all pods of the node once that are captured or are to be. No agent needs to run.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use istio_iptables::config::Output;
use istio_iptables::exit::Exit;
use istio_iptables::kernel::netns::{self, NamespaceId};
use istio_iptables::kernel::process::SystemHost;
use istio_iptables::text::{count, one_line, path_shown};
use serde_json::{Value, json};

use super::error::InstallError;
use super::guard::namespaces;
use super::judge::{self, Judge, Judged, Late, PodState};
use super::options::Audit;
use super::sandboxes::{self, Sandbox};
use crate::state::{FileStamp, State, StateDir};

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
        let bad = [PodState::Drift, PodState::Uncaptured, PodState::Unreadable];
        let is_known = bad.iter().all(|state| self.number(*state) == 0);
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
pub(super) fn audit(options: &Audit, host: &SystemHost) -> Result<(String, Exit), InstallError> {
    let dir = StateDir::new(&options.dirs.run);
    let is_there = dir.is_there().map_err(|error| InstallError::io("read", dir.path_of_dir(), &error))?;
    let files = if is_there { states(&dir)? } else { Vec::new() };
    let sandboxes = late(options, &dir);
    let table = if files.is_empty() && sandboxes.is_none() {
        Table(Vec::new())
    } else {
        judge_all(files, sandboxes.as_ref(), options, host)?
    };
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

/// The sandboxes without a state file, and our entry, by which they are judged.
fn late(options: &Audit, dir: &StateDir) -> Option<(Value, Vec<Sandbox>)> {
    let read = || {
        let entry = judge::entry(&options.dirs)?;
        Ok::<_, InstallError>((entry, sandboxes::read(&options.results_dir, &dir.containers())?))
    };
    let found = read();
    if let Err(problem) = &found {
        log::warn!("pods without a state file are not judged: {problem}");
    }
    found.ok()
}

fn judge_all(
    files: Vec<File>,
    late: Option<&(Value, Vec<Sandbox>)>,
    options: &Audit,
    host: &SystemHost,
) -> Result<Table, InstallError> {
    let namespaces = namespaces(&options.netns_dir)?;
    let own = NamespaceId::of_thread().map_err(|error| InstallError::new(error.to_string()))?;
    if let Err(error) = netns::own_mounts_without_nss() {
        log::warn!("cannot isolate tools from the name service (nsswitch.conf): {error}");
    }
    let mut rows: Vec<Row> = files.into_iter().map(|file| of_file(&file, host, &namespaces)).collect();
    if let Some((entry, sandboxes)) = late {
        let judge = Judge { host, entry, netns_dir: &options.netns_dir, own };
        rows.extend(sandboxes.iter().filter_map(|sandbox| of_sandbox(&judge, sandbox)));
    }
    rows.sort_by(|one, other| one.pod.cmp(&other.pod));
    Ok(Table(rows))
}

/// A pod that the plugin has captured.
fn of_file((name, stamp, state): &File, host: &SystemHost, namespaces: &BTreeMap<u64, PathBuf>) -> Row {
    let file = name.to_string_lossy().into_owned();
    match state {
        Err(problem) => Row {
            pod: "?".to_owned(),
            backend: "?".to_owned(),
            state: PodState::Unreadable,
            reason: format!("state file {file}: {problem}"),
            container: file,
        },
        Ok(state) => {
            let of_add = || state.backend().map_or_else(|| "?".to_owned(), |(_, value)| value.text);
            let Judged { state: found, reason, backend } = judge::captured(host, (state, *stamp), namespaces);
            let (pod, container) = (one_line(&state.pod).into_owned(), state.container.clone());
            Row { pod, container, backend: backend.unwrap_or_else(of_add), state: found, reason }
        }
    }
}

/// A pod that ADD would capture, and has not captured.
fn of_sandbox(judge: &Judge<'_>, sandbox: &Sandbox) -> Option<Row> {
    let Late::Wanted(Judged { state, reason, backend }, _) = judge.late(sandbox) else { return None };
    let pod = one_line(&sandbox.pod.to_string()).into_owned();
    let none = if state == PodState::Uncaptured { "none" } else { "?" };
    let backend = backend.unwrap_or_else(|| none.to_owned());
    Some(Row { pod, container: sandbox.id.container.clone(), backend, state, reason })
}
