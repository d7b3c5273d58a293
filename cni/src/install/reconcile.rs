//! Reconciliation: compares the program and the entry with the desired state, and handles changes by other
//! programs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use istio_iptables::kernel::process::SystemHost;
use istio_iptables::text::path_shown;

use super::backoff::RewriteBackoff;
use super::error::InstallError;
use super::events::Events;
use super::metrics::Metrics;
use super::options::{Dirs, Install, InstallMode};
use super::splice::TYPE;
use super::{Program, bin_dir, binary, dry_add, entry, files, foreign, net_dir};

/// The installation as it was last found.
#[derive(Default)]
pub(super) struct Installed {
    backoff: RewriteBackoff,
    /// Whether the entry has been in place.
    placed: Option<PathBuf>,
    /// What changes the configuration, as far as that is known.
    writer: &'static str,
    /// What it changes.
    conflict: String,
    tried: bool,
    failures: u32,
    /// The last failure that was logged.
    failure: String,
    pub(super) metrics: Arc<Metrics>,
}

impl Installed {
    /// One reconciliation. Returns the delay of a write, if any.
    pub(super) fn reconcile(
        &mut self,
        options: &Install,
        host: &SystemHost,
        program: &Program,
    ) -> Result<Option<Duration>, InstallError> {
        let delay = self.attempt(options, host, program)?;
        (self.failures, self.failure) = (0, String::new());
        Ok(delay)
    }

    fn attempt(
        &mut self,
        options: &Install,
        host: &SystemHost,
        program: &Program,
    ) -> Result<Option<Duration>, InstallError> {
        let dirs = &options.dirs;
        let istio = foreign::check(options)?;
        self.writer = if istio.is_empty() { "another program" } else { "Istio's agent" };
        if self.placed.is_some() && binary::is_replaced(&program.plugin, &dirs.bin)? {
            let path = dirs.bin.join(TYPE);
            self.conflict = format!("replaces {}", path_shown(&path));
            if let Some(delay) = self.delay(&path, "another program replaced the program: delayed") {
                return Ok(Some(delay));
            }
        }
        files::create_dir(&dirs.run)?;
        let (program, written) = binary::install(host, &program.plugin, &dirs.bin)?;
        if written {
            log::info!(file = path_shown(&program); "program written, answers VERSION");
        }
        if options.mode == InstallMode::Standalone {
            files::create_dir(&dirs.net)?;
        } else {
            require_settled(dirs)?;
        }
        if let Some(refused) = entry::refuse_version(dirs, options.mode)? {
            // The entry comes back as if it were new.
            self.placed = None;
            return Err(refused);
        }
        let warning = bin_dir::check(options)?;
        if let Some(delay) = self.conflict(options)? {
            return Ok(Some(delay));
        }
        let placed = entry::insert(dirs, options.mode, &options.entry, options.replace_istio)?;
        if placed.changed {
            self.report(&placed.path, warning);
        }
        if placed.changed || written {
            self.metrics.installation(true);
        }
        if options.mode == InstallMode::DropIn && self.placed.is_none() && !placed.changed {
            entry::notify_runtime(&dirs.net)?;
        }
        if placed.changed || written {
            self.backoff.written(Instant::now());
        } else {
            self.backoff.found();
        }
        self.placed = Some(placed.path);
        self.tried &= !(placed.changed || written);
        if options.dry_add && !self.tried {
            dry_add::dry_add(host, &program, &dirs.run, &options.entry)?;
            log::info!("test run of ADD in a temporary network namespace succeeded");
        }
        self.tried = true;
        Ok(None)
    }

    /// Whether another program has changed what was written. Returns how long the next write is delayed, if
    /// it is.
    fn conflict(&mut self, options: &Install) -> Result<Option<Duration>, InstallError> {
        let (dirs, mode, entry) = (&options.dirs, options.mode, &options.entry);
        let Some(old) = self.placed.clone() else { return Ok(None) };
        if entry::is_in_place(dirs, mode, entry)? {
            return Ok(None);
        }
        // The entry is still there, but another file became the first.
        if entry::is_in(&old, entry)? {
            let first = net_dir::choose(dirs)?.path;
            self.backoff.moved(Instant::now(), files::changed(&first));
        }
        let file = path_shown(&old);
        let (conflict, message) = if entry::find(dirs).is_ok() {
            (
                format!("writes another entry into {file}, with which pods start"),
                "another program replaced the entry again: delayed",
            )
        } else {
            (
                format!("removes the entry from {file}; pods start without capture"),
                "another program removed the entry again: delayed",
            )
        };
        self.conflict = conflict;
        Ok(self.delay(&old, message))
    }

    /// Waits for the next attempt. Returns whether the agent shall end. Attempts that follow a change by
    /// another program do not lengthen the delay, and the same failure is logged once.
    pub(super) fn failed(
        &mut self,
        failure: &str,
        events: &Events,
        longest: Duration,
    ) -> Result<bool, InstallError> {
        let wait = Duration::from_secs(1 << self.failures.min(5)).min(longest);
        self.metrics.installation(false);
        if self.failure != failure {
            log::error!(retry_s = wait.as_secs(); "{failure}");
        }
        failure.clone_into(&mut self.failure);
        let begin = Instant::now();
        let ended = events.wait_after_failure(wait)?;
        if begin.elapsed() >= wait {
            self.failures += 1;
            self.failure.clear();
        }
        Ok(ended)
    }

    /// The entry was written.
    fn report(&self, path: &Path, warning: Option<InstallError>) {
        let file = path_shown(path);
        let Some(old) = &self.placed else {
            log::info!(file; "entry written and read back");
            if let Some(warning) = warning {
                log::warn!("{warning}");
            }
            return;
        };
        self.metrics.conflict();
        let (changed, writer) = (path_shown(old), self.writer);
        let missing_s = self.backoff.missing(Instant::now()).as_secs_f32();
        log::warn!(file, changed, missing_s, writer; "another program changed the configuration: entry written again");
    }

    /// The delay of a write because of another program, if any. It is logged once.
    fn delay(&mut self, path: &Path, message: &str) -> Option<Duration> {
        let is_new = self.backoff.lost(Instant::now(), files::changed(path));
        let delay = Some(self.backoff.delay(Instant::now())).filter(|delay| !delay.is_zero())?;
        if is_new {
            let file = path_shown(path);
            log::warn!(file, delay_s = delay.as_secs_f32(), writer = self.writer; "{message}");
        }
        Some(delay)
    }

    /// Why the agent is not ready although nothing failed.
    pub(super) fn waiting(&self, wait: Option<Duration>) -> Option<String> {
        let (writer, conflict) = (self.writer, &self.conflict);
        wait.map(|wait| format!("{writer} {conflict} until it is written again in {} s", wait.as_secs() + 1))
    }
}

/// Waits for other writers: a file that sorts before the runtime's and is invalid may be incomplete.
fn require_settled(dirs: &Dirs) -> Result<(), InstallError> {
    let invalid = net_dir::invalid(dirs)?;
    for (path, _) in &invalid {
        if !files::is_special(path) && !files::is_settled(path) {
            let path = path_shown(path);
            return Err(InstallError::new(format!(
                "{path}: invalid, and just written; waiting until it is complete"
            )));
        }
    }
    // Without a valid one, the error names them.
    if net_dir::choose(dirs).is_ok() {
        for (path, problem) in &invalid {
            log::warn!("invalid network configuration, skipped: {}: {problem}", path_shown(path));
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use std::time::SystemTime;

    use super::super::options::{self, Command};
    use super::*;

    fn install(net: &Path) -> Install {
        let (command, _) = options::install(&[format!("--net-dir={}", net.display())]).unwrap();
        let Command::Install(options) = command else { panic!("{command:?}") };
        *options
    }

    /// Of two agents with different options each replaces the other's entry.
    #[test]
    fn entry_of_another_agent_is_reported_as_another_one_not_as_missing() {
        let net = tempfile::tempdir().unwrap();
        let path = net.path().join("10-a.conflist");
        let options = install(net.path());
        for (plugins, expected) in [
            (r#"{"type":"bridge"}"#, "removes the entry from"),
            (r#"{"type":"bridge"},{"type":"istio-cni","on_unknown":"pass"}"#, "writes another entry into"),
        ] {
            let list = format!(r#"{{"cniVersion":"1.0.0","name":"a","plugins":[{plugins}]}}"#);
            std::fs::write(&path, list).unwrap();
            let mut installed = Installed { placed: Some(path.clone()), ..Installed::default() };
            installed.conflict(&options).unwrap();
            assert!(installed.conflict.starts_with(expected), "{}", installed.conflict);
        }
    }

    #[test]
    fn invalid_file_that_was_just_written_is_waited_for() {
        let net = tempfile::tempdir().unwrap();
        let dirs = install(net.path()).dirs;
        std::fs::write(net.path().join("10-a.conf"), "{\"type\": \"bridge\"}").unwrap();
        std::fs::write(net.path().join("20-b.conf"), "{").unwrap();
        assert_eq!(require_settled(&dirs), Ok(()), "behind the first valid file");
        let path = net.path().join("05-c.conflist");
        std::fs::write(&path, "{").unwrap();
        let file = std::fs::File::options().append(true).open(&path).unwrap();
        // The file's time is set, so that the result does not depend on scheduling.
        let at = |written: SystemTime| {
            file.set_modified(written).unwrap();
            require_settled(&dirs)
        };
        let problem = at(SystemTime::now()).unwrap_err().to_string();
        assert!(problem.contains("/05-c.conflist: invalid, and just written"), "{problem}");
        assert_eq!(at(SystemTime::now() - Duration::from_secs(3)), Ok(()));
    }
}
