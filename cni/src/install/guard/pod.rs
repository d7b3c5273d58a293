//! The rules of one captured pod, from its state file.

use std::ffi::OsString;
use std::path::PathBuf;
use std::rc::Rc;

use istio_iptables::apply::{self, Guarded, differences::Differences};
use istio_iptables::commands::guard::{Rules, activate_tables};
use istio_iptables::config::{BackendChoice, RunOptions};
use istio_iptables::exit::Exit;
use istio_iptables::kernel::netns::Namespace;
use istio_iptables::kernel::process::SystemHost;
use istio_iptables::model::{Backend, Variant};
use istio_iptables::plan::DesiredState;
use istio_iptables::report::Failure;

use super::passed;
use crate::capture::CaptureOptions;
use crate::compare::Expected;
use crate::state::{FileStamp, State, StateDir};

/// One pod. What is the same for many pods is kept once.
#[derive(Debug)]
pub(super) struct PodRules {
    host: Rc<SystemHost>,
    dir: Rc<StateDir>,
    /// The state file.
    file: OsString,
    stamp: FileStamp,
    pub(super) state: State,
    pub(super) expected: Rc<Expected>,
    pub(super) desired: Rc<Guarded>,
    /// The digest of the desired state.
    pub(super) digest: u64,
    /// What holds the rules, if ADD wrote exactly these.
    backend: Option<Backend>,
    /// Where the namespace was last found.
    pub(super) netns: PathBuf,
}

impl PodRules {
    /// Nothing is compared yet.
    pub(super) fn new(
        host: Rc<SystemHost>,
        dir: Rc<StateDir>,
        (file, stamp): (OsString, FileStamp),
        (state, expected): (State, Rc<Expected>),
        netns: PathBuf,
    ) -> Self {
        let desired = Rc::new(Guarded::new(DesiredState::empty()));
        Self { host, dir, file, stamp, state, expected, desired, digest: 0, backend: None, netns }
    }

    /// Whether the rules have been compared once.
    pub(super) const fn is_compared(&self) -> bool {
        self.digest != 0
    }

    /// Opens the namespace, if it is still the one of the state file.
    pub(super) fn open(&self) -> Option<Namespace> {
        open(&self.netns, &self.state, self.stamp)
    }
}

/// What a state file asks for.
pub(in crate::install) fn expected(state: &State) -> Result<Expected, String> {
    let values = state.options().ok_or("an option of another version")?;
    let mut expected = Expected::new(&CaptureOptions::of_values(values), &state.interface, state.backend())?;
    // The thread of the guard has mounts of its own already.
    for resolved in [Some(&mut expected.resolved), expected.of_add.as_mut()].into_iter().flatten() {
        resolved.run.cni_mode = false;
    }
    Ok(expected)
}

/// Opens the namespace at a path, if a state file is about it. The kernel uses the number of a namespace
/// again: one that was made after the file was written is another one.
pub(in crate::install) fn open(path: &std::path::Path, state: &State, stamp: FileStamp) -> Option<Namespace> {
    let namespace = Namespace::open(path).ok()?;
    let is_it = namespace.id().is_ok_and(|id| id.inode == state.netns);
    (is_it && namespace.made().is_ok_and(|made| made <= stamp.written)).then_some(namespace)
}

impl Rules for PodRules {
    fn desired(&self) -> &Guarded {
        &self.desired
    }

    fn backend(&self) -> Option<Backend> {
        self.backend
    }

    /// The last ADD may have been another one, and a namespace is empty before its end.
    fn is_current(&self) -> bool {
        self.dir.stamp(&self.file) == Some(self.stamp)
    }

    fn compared(&mut self) -> Result<Differences, Failure> {
        let compared = self.expected.compare(&self.host, Some(&self.state))?;
        let digest = compared.desired.digest();
        if self.digest != digest {
            (self.desired, self.digest) = (Rc::new(Guarded::new(compared.desired.clone())), digest);
        }
        self.backend = compared.is_of_add.then_some(compared.differences.backend);
        Ok(compared.drift())
    }

    /// In the backend of ADD; natively, if its tools are not there.
    fn repair(&mut self) -> Result<u64, Failure> {
        let run = &self.expected.of_add.as_ref().unwrap_or(&self.expected.resolved).run;
        let run = RunOptions { cni_mode: true, ..run.clone() };
        if self.backend == Some(Backend::Iptables(Variant::Nft)) {
            activate_tables(&self.desired.state)?;
        }
        let before = passed::rules();
        let repaired = match apply::repair(self.host.as_ref(), &self.desired.state, &run) {
            Err(failure) if failure.exit == Exit::Unavailable => {
                let native = RunOptions { backend: BackendChoice::Nftables, ..run };
                apply::repair(self.host.as_ref(), &self.desired.state, &native)
                    .map_err(|native| failure.detail(format!("natively: {native}")))
            }
            repaired => repaired,
        };
        repaired.map(|_| passed::removed(&before, &passed::rules()))
    }
}
