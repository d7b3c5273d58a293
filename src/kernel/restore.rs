//! The restore and save tools: how they are run.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::legacy;
use super::process::{Command, Host, Output};
use crate::model::{Family, Table, Tools, Variant};

/// How long a legacy tool waits for the lock, in seconds.
pub const LOCK_WAIT_SECONDS: u32 = 30;

/// Timeout of iptables-restore: 60 s ([`super::process::TIMEOUT`]), the wait for the lock, and this much for
/// each KiB of rules: several times what 40,000 rules take.
const PER_KIB: Duration = Duration::from_millis(80);

/// Why a tool did not do its work.
#[derive(Debug)]
pub enum ToolError {
    /// The tool cannot be started.
    CannotRun {
        /// The command as typed in a shell.
        line: String,
        /// The error of the system call.
        error: io::Error,
    },
    /// The tool hung, and was killed.
    TimedOut {
        /// The command as typed in a shell.
        line: String,
        /// How long it may run.
        timeout: Duration,
    },
    /// The tool ended with an error.
    Failed {
        /// The command as typed in a shell.
        line: String,
        /// What it printed, and its exit code.
        output: Output,
    },
    /// The kernel does not say which legacy tables there are.
    Tables(io::Error),
}

/// Runs the restore tool over a rules file, in one process.
///
/// `lock` is the lock file that the tool is to use instead of the shared one; only the legacy tools lock.
///
/// # Errors
///
/// The tool cannot be run, or fails.
pub fn restore(
    host: &impl Host,
    variant: Variant,
    tools: &Tools,
    input: File,
    lock: Option<&Path>,
) -> Result<(), ToolError> {
    let mut command = Command::new(tools.restore.clone());
    command.args.push("--noflush".to_owned());
    let kib = input.metadata().map_or(0, |file| u32::try_from(file.len() >> 10).unwrap_or(u32::MAX));
    command.timeout += PER_KIB.saturating_mul(kib);
    command.input = Some(input);
    if variant == Variant::Legacy {
        command.timeout += Duration::from_secs(LOCK_WAIT_SECONDS.into());
        command.args.push(format!("--wait={LOCK_WAIT_SECONDS}"));
        command.env.extend(lock.map(|lock| ("XTABLES_LOCKFILE".to_owned(), OsString::from(lock))));
    }
    let (line, output) = run_tool(host, command)?;
    for complaint in output.stderr.lines() {
        log::debug!("{complaint}");
    }
    if output.code == Some(0) { Ok(()) } else { Err(ToolError::Failed { line, output }) }
}

/// Runs the restore tool of iptables-legacy over a rules file in a network namespace that ends with it.
///
/// # Errors
///
/// As for [`restore`]; `CannotRun` if there can be no such namespace.
pub fn try_out(host: &impl Host, tools: &Tools, input: File, lock: Option<&Path>) -> Result<(), ToolError> {
    let mut command = Command::new(tools.restore.clone());
    command.args.push("--noflush".to_owned());
    command.input = Some(input);
    command.env.extend(lock.map(|lock| ("XTABLES_LOCKFILE".to_owned(), OsString::from(lock))));
    command.is_trial = true;
    let (line, output) = run_tool(host, command)?;
    if output.code == Some(0) { Ok(()) } else { Err(ToolError::Failed { line, output }) }
}

/// Reads back the rules of a family.
///
/// # Errors
///
/// The tool cannot be run, or fails.
pub fn save(host: &impl Host, variant: Variant, family: Family, tools: &Tools) -> Result<String, ToolError> {
    let forbidden = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    if variant == Variant::Nft || !legacy::tables(family).is_err_and(forbidden) {
        return run_save(host, tools, None);
    }
    // The tool finds its tables by the list, which we may not read. A table that is not there has nothing to
    // show.
    let ours = Table::ALL.map(Table::name);
    let tables = legacy::by_name(family, &ours).map_err(ToolError::Tables)?;
    tables.keys().map(|table| run_save(host, tools, Some(table))).collect()
}

fn run_save(host: &impl Host, tools: &Tools, table: Option<&str>) -> Result<String, ToolError> {
    let mut command = Command::new(tools.save.clone());
    command.args.extend(table.into_iter().flat_map(|table| ["-t".to_owned(), table.to_owned()]));
    let (line, output) = run_tool(host, command)?;
    if output.code == Some(0) { Ok(output.stdout) } else { Err(ToolError::Failed { line, output }) }
}

/// Reads the rules of one chain, in the format of the save tool. iptables-nft does that for each chain whose
/// rules it knows, also where another chain of the table has others. `None` where it refuses.
///
/// # Errors
///
/// The tool cannot be run.
pub fn list_chain(
    host: &impl Host,
    tools: &Tools,
    table: &str,
    chain: &str,
) -> Result<Option<String>, ToolError> {
    let mut command = Command::new(tools.list());
    command.args.extend(["-t", table, "-S", chain].map(str::to_owned));
    let output = match run_tool(host, command) {
        Ok((_, output)) => output,
        // An image may have the save and the restore tool only.
        Err(ToolError::CannotRun { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
            return saved_chain(host, tools, table, chain);
        }
        Err(error) => return Err(error),
    };
    if output.code != Some(0) {
        return Ok(None);
    }
    let line = |line: &str| match (line.strip_prefix("-P "), line.strip_prefix("-N ")) {
        (Some(base), _) => format!(":{base} [0:0]\n"),
        (None, Some(name)) => format!(":{name} - [0:0]\n"),
        (None, None) => format!("{line}\n"),
    };
    Ok(Some(output.stdout.lines().map(line).collect()))
}

/// The rules of one chain by the save tool, which fails where it cannot read another chain of the table.
fn saved_chain(
    host: &impl Host,
    tools: &Tools,
    table: &str,
    chain: &str,
) -> Result<Option<String>, ToolError> {
    let prefix = format!("-A {chain} ");
    match run_save(host, tools, Some(table)) {
        Ok(saved) => Ok(Some(saved.split_inclusive('\n').filter(|line| line.starts_with(&prefix)).collect())),
        Err(ToolError::Failed { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Runs a tool to its end. Returns the command as typed in a shell, and what the tool printed.
fn run_tool(host: &impl Host, command: Command) -> Result<(String, Output), ToolError> {
    let line = command.line();
    log::debug!("running: {line}");
    let timeout = command.timeout;
    match host.run(command) {
        Ok(output) => Ok((line, output)),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(ToolError::TimedOut { line, timeout }),
        Err(error) => Err(ToolError::CannotRun { line, error }),
    }
}
