//! The plugin's program on the node.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use istio_iptables::kernel::process::{Command, Host, SystemHost};
use istio_iptables::text::path_shown;
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::Deserialize;
use serde_json::Value;

use super::error::InstallError;
use super::files;
use super::locked_dir::{Expected, LockedDir};
use super::splice::TYPE;

/// Timeout of a call of the plugin: more than its own deadline.
const CALL: Duration = Duration::from_secs(250);

/// Timeout of `VERSION`. It takes milliseconds; a node that has just booted is slow.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Puts the plugin's program into the directory, by a temporary file that has run VERSION. Returns its path,
/// and whether it was written: the same bytes are not written again.
///
/// # Errors
/// It cannot be written, or does not run there.
pub fn install(host: &SystemHost, source: &Path, dir: &Path) -> Result<(PathBuf, bool), InstallError> {
    let path = dir.join(TYPE);
    let missing = || {
        let source = path_shown(source);
        InstallError::new(format!(
            "{source}: no such file, expected the program {TYPE} in the directory of install-cni"
        ))
    };
    let own = files::read_program(source)?.ok_or_else(missing)?;
    let is_there = files::size(&path) == Some(own.len() as u64) && files::has_bytes(&path, &own)?;
    if is_there && version(host, &path).is_ok() {
        return Ok((path, false));
    }
    let dir = LockedDir::lock(dir)?;
    let temporary = dir.temporary(&path, &own, 0o755, None)?;
    let verified = version(host, &temporary);
    if let Err(error) = verified {
        dir.remove(&temporary)?;
        return Err(error);
    }
    dir.put(&temporary, &path, &own, Expected::Anything)?;
    version(host, &path)?;
    Ok((path, true))
}

/// Whether another program, or another version of this one, has the plugin's name.
///
/// # Errors
/// One of the two cannot be read.
pub fn is_replaced(source: &Path, dir: &Path) -> Result<bool, InstallError> {
    let (own, path) = (files::size(source), dir.join(TYPE));
    Ok(match files::size(&path) {
        None => false,
        size if size != own => true,
        _ => !files::has_bytes(&path, &files::read_program(source)?.unwrap_or_default())?,
    })
}

/// Checks that a program's output of VERSION is that of this one.
///
/// # Errors
/// It cannot be run, or prints something else.
pub fn version(host: &SystemHost, path: &Path) -> Result<(), InstallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Versions {
        supported_versions: Vec<String>,
    }
    let mut command = Command::new(path.to_owned());
    command.env = vec![("CNI_COMMAND".to_owned(), OsString::from("VERSION"))];
    command.timeout = TIMEOUT;
    let shown = path_shown(path);
    let output = host.run(command).map_err(|error| {
        InstallError::new(format!(
            "cannot run {shown}: {error}; expected a directory that is writable and not mounted noexec"
        ))
    })?;
    let versions: Option<Versions> = serde_json::from_str(&output.stdout).ok();
    let own = crate::version::Version::ALL.map(crate::version::Version::name);
    if output.code == Some(0) && versions.is_some_and(|versions| versions.supported_versions == own) {
        return Ok(());
    }
    let (code, out) = (output.code, output.stdout.trim());
    Err(InstallError::new(format!("{shown}: VERSION failed (exit code {code:?}): {out}")))
}

/// Why a call of the plugin failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// The code of the plugin's error; `None`: it could not be run, or has printed none.
    pub code: Option<u64>,
    /// The message.
    pub msg: String,
}

/// Calls a plugin with these variables, and this configuration on standard input.
///
/// # Errors
/// The plugin's, or why it cannot be run.
pub fn call(
    host: &SystemHost,
    program: &Path,
    variables: &[(&str, &str)],
    config: &Value,
) -> Result<(), CallError> {
    let not_run = |msg: String| CallError { code: None, msg };
    let input = || {
        let mut input = File::from(memfd_create(c"config", MFdFlags::MFD_CLOEXEC)?);
        input.write_all(config.to_string().as_bytes())?;
        input.rewind()?;
        Ok::<_, std::io::Error>(input)
    };
    let mut command = Command::new(program.to_owned());
    command.env = variables.iter().map(|(name, value)| ((*name).to_owned(), OsString::from(value))).collect();
    command.input = Some(input().map_err(|error| not_run(error.to_string()))?);
    command.timeout = CALL;
    let output = host.run(command);
    let output = output.map_err(|error| not_run(format!("cannot run {}: {error}", path_shown(program))))?;
    if output.code == Some(0) {
        return Ok(());
    }
    let error: Value = serde_json::from_str(&output.stdout).unwrap_or_default();
    let msg = error.get("msg").and_then(Value::as_str).unwrap_or(output.stderr.trim()).to_owned();
    Err(CallError { code: error.get("code").and_then(Value::as_u64), msg })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_that_cannot_be_run_is_reported() {
        let program = Path::new("/nonexistent/istio-cni");
        let problem = call(&SystemHost::new(None), program, &[], &Value::Null).unwrap_err().msg;
        assert!(problem.starts_with("cannot run /nonexistent/istio-cni: "), "{problem}");
    }
}
