//! Checks that the directory of programs (`--bin-dir`) is the runtime's plugin directory: it has the plugins
//! that the list names.

use istio_iptables::text::path_shown;

use super::error::InstallError;
use super::net_dir;
use super::options::{Dirs, Install, InstallMode};
use super::splice::TYPE;

/// Refuses the platform's directory of programs if it has none of those that the runtime's configuration
/// names: the runtime would not find ours, and no pod could start. Returns a warning if it is one that was
/// given: a runtime may have several.
///
/// # Errors
/// It is refused; or there is no configuration, or it cannot be read.
pub fn check(options: &Install) -> Result<Option<InstallError>, InstallError> {
    if options.mode == InstallMode::Standalone {
        return Ok(None);
    }
    match missing_others(&options.dirs)? {
        Some(missing) if !options.bin_dir_given => Err(missing),
        missing => Ok(missing),
    }
}

fn missing_others(dirs: &Dirs) -> Result<Option<InstallError>, InstallError> {
    let file = net_dir::choose(dirs)?;
    let mut types = file.types();
    types.retain(|name| name != TYPE);
    // Links count: they may lead out of the directories that the agent's container has.
    let is_there = |name: &String| dirs.bin.join(name).symlink_metadata().is_ok();
    if types.is_empty() || types.iter().any(is_there) {
        return Ok(None);
    }
    let (bin, config, types) = (path_shown(&dirs.bin), path_shown(&file.path), types.join(", "));
    Ok(Some(InstallError::new(format!(
        "{bin} has no program of {config} ({types}): if the runtime has another directory of programs, no pod can start with the entry; set \
         --platform, or --bin-dir to the directory that the runtime uses"
    ))))
}
