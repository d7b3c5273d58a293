//! `istio-cni uninstall`: the entry first, then the state, then the program if nothing names it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use istio_iptables::text::path_shown;
use serde::Deserialize;
use serde_json::Value;

use super::entry;
use super::error::InstallError;
use super::files;
use super::foreign::{self, Foreign, Kind};
use super::locked_dir::LockedDir;
use super::options::{Dirs, Uninstall};
use super::socket;
use super::splice::TYPE;
use super::unexamined::{self, Unexamined};
use crate::{log_sink, lookup};

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Files that were changed or removed.
    pub changed: Vec<PathBuf>,
    /// What keeps the program on the node; empty if it was removed, or was not to be.
    pub blockers: Vec<PathBuf>,
    /// Files from which the entry was not removed, or that were not examined.
    pub unexamined: Vec<Unexamined>,
    /// What has our type or name and is not ours: it was left.
    pub left: Vec<Foreign>,
}

impl Report {
    /// Whether everything of ours that was to be removed is gone.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.blockers.is_empty() && !self.unexamined.iter().any(|one| one.names_plugin)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::default() {
            writeln!(f, "nothing of istio-cni found")?;
        }
        for path in &self.changed {
            writeln!(f, "changed: {}", path_shown(path))?;
        }
        for one in &self.unexamined {
            writeln!(f, "{}: {one}", one.outcome())?;
        }
        for path in &self.blockers {
            writeln!(f, "program kept, named by: {}", path_shown(path))?;
        }
        for foreign in &self.left {
            writeln!(f, "left: {foreign}")?;
        }
        Ok(())
    }
}

/// Takes out our entry and the state. Pods that run stay captured, and the program stays for their DEL.
///
/// # Errors
/// A file cannot be changed: what comes after it is left.
pub fn entry_and_state(dirs: &Dirs) -> Result<Vec<PathBuf>, InstallError> {
    settle(&dirs.net)?;
    let changed = entry::remove(&dirs.net)?;
    files::remove_dir(&dirs.run.join("state"))?;
    // The log stays as long as the program: it may say why this was needed.
    for path in [lookup::socket(&dirs.run), dirs.run.join(log_sink::SOCKET)] {
        socket::remove_abandoned(&path)?;
    }
    Ok(changed)
}

/// Waits for other writers: an incomplete file may contain the entry once it is complete.
fn settle(net: &Path) -> Result<(), InstallError> {
    const LONGEST: Duration = Duration::from_secs(10);
    let begin = Instant::now();
    while begin.elapsed() < LONGEST && unexamined::find(net)?.iter().any(Unexamined::is_recent) {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Uninstalls. After an error, the report lists the steps that were completed.
///
/// # Errors
/// A file cannot be changed: what comes after it is left.
pub fn uninstall(options: &Uninstall, report: &mut Report) -> Result<(), InstallError> {
    report.changed = entry_and_state(&options.dirs)?;
    report.unexamined = unexamined::find(&options.dirs.net)?;
    report.left = foreign::find(&options.dirs)?;
    let is_program_ours = report.left.iter().all(|one| one.kind != Kind::Program);
    if options.binary && is_program_ours {
        report.blockers = blockers(&options.dirs, &options.results)?;
        let named = report.unexamined.iter().filter(|one| one.names_plugin).map(|one| one.path.clone());
        report.blockers.extend(named);
        report.blockers.sort();
        report.blockers.dedup();
        let path = options.dirs.bin.join(TYPE);
        if report.blockers.is_empty() && files::size(&path).is_some() {
            LockedDir::lock(&options.dirs.bin)?.remove(&path)?;
            report.changed.push(path);
        }
        if report.blockers.is_empty() {
            report.changed.extend(logs(&options.dirs.run)?);
            files::remove_empty_dir(&options.dirs.run);
        }
    }
    Ok(())
}

/// Removes the files of the log, to which nothing writes any more. Returns those that were there.
fn logs(run_dir: &Path) -> Result<Vec<PathBuf>, InstallError> {
    let mut removed = Vec::new();
    for ending in ["", log_sink::OLD] {
        let path = run_dir.join(format!("{}{ending}", log_sink::FILE));
        if files::remove(&path)? {
            removed.push(path);
        }
    }
    Ok(removed)
}

/// Configurations, and cached results of pods, that name the plugin: the runtime calls it for their DEL.
fn blockers(dirs: &Dirs, results: &Path) -> Result<Vec<PathBuf>, InstallError> {
    let mut blockers = entry::users(&dirs.net)?;
    if results.exists() {
        for name in files::names(results)? {
            let path = results.join(name);
            if !files::is_special(&path) && names_plugin(&files::read(&path)?.unwrap_or_default()) {
                blockers.push(path);
            }
        }
    }
    Ok(blockers)
}

/// Whether a cached result names the plugin: libcni keeps the configuration in Base64. One that cannot be
/// read counts if its text does.
fn names_plugin(bytes: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Cached {
        #[serde(default)]
        config: String,
    }
    let quoted = format!("\"{TYPE}\"");
    let text = String::from_utf8_lossy(bytes);
    if text.contains(&quoted) {
        return true;
    }
    let Ok(cached) = serde_json::from_slice::<Cached>(bytes) else { return text.contains(TYPE) };
    let Some(config) = base64(&cached.config) else { return cached.config.contains(TYPE) };
    match serde_json::from_slice::<Value>(&config) {
        Ok(value) => value.to_string().contains(&quoted),
        Err(_) => String::from_utf8_lossy(&config).contains(TYPE),
    }
}

/// Base64 with padding, as Go's `encoding/json` writes bytes.
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut buffer, mut bits) = (0_u32, 0_u32);
    for c in text.trim_end_matches('=').bytes() {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        buffer = (buffer << 6 | u32::from(value)) & 0xffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.extend(u8::try_from(buffer >> bits & 0xff));
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_as_go_writes_it() {
        for (text, bytes) in
            [("", ""), ("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYmFy", "foobar")]
        {
            assert_eq!(base64(text).as_deref(), Some(bytes.as_bytes()), "{text}");
        }
        assert_eq!(base64("+/+/").unwrap(), [0xfb, 0xff, 0xbf]);
        assert_eq!(base64("a b"), None);
    }

    #[test]
    fn cached_results_name_the_plugin_in_their_configuration() {
        let config =
            "eyJuYW1lIjoibmV0IiwicGx1Z2lucyI6W3sidHlwZSI6ImJyaWRnZSJ9LHsidHlwZSI6ImlzdGlvLWNuaSJ9XX0=";
        let cached = format!(r#"{{"kind":"cniCacheV1","containerId":"x","config":"{config}"}}"#);
        assert!(names_plugin(cached.as_bytes()));
        let other = r#"{"kind":"cniCacheV1","config":"eyJ0eXBlIjoiYnJpZGdlIn0="}"#;
        assert!(!names_plugin(other.as_bytes()));
        assert!(names_plugin(b"broken istio-cni"));
        assert!(!names_plugin(b"broken"));
    }
}
