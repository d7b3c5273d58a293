//! A container runtime that reads the configurations again and again: the first file must be valid at every instant.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use serde_json::Value;

use super::node;

/// How many readings a test needs at least.
pub(crate) fn wanted() -> usize {
    std::env::var("INSTALL_READINGS").map_or(1_000, |text| text.parse().expect("INSTALL_READINGS: a number"))
}

pub(crate) struct Reader {
    ended: Arc<AtomicBool>,
    readings: Arc<AtomicUsize>,
    thread: Option<JoinHandle<Vec<String>>>,
}

impl Reader {
    pub(crate) fn start(dir: PathBuf) -> Self {
        let (ended, readings) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (end, count) = (Arc::clone(&ended), Arc::clone(&readings));
        let thread = std::thread::spawn(move || {
            let mut invalid = Vec::new();
            while !end.load(Ordering::SeqCst) {
                invalid.extend(reading(&dir).err());
                count.fetch_add(1, Ordering::SeqCst);
            }
            invalid
        });
        Self { ended, readings, thread: Some(thread) }
    }

    pub(crate) fn readings(&self) -> usize {
        self.readings.load(Ordering::SeqCst)
    }

    /// Waits for as many readings as a test needs.
    pub(crate) fn wait(&self) {
        while self.readings() < wanted() {
            std::thread::yield_now();
        }
    }

    /// Ends; no reading may have been invalid.
    #[track_caller]
    pub(crate) fn finish(mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let invalid = self.thread.take().unwrap().join().unwrap();
        let count = self.readings();
        assert!(count >= wanted(), "{count} readings");
        assert!(invalid.is_empty(), "{} of {count} readings, the first: {}", invalid.len(), invalid[0]);
        println!("{count} readings, none invalid");
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
    }
}

/// Reads as containerd does: the first file counts, and an invalid one is an error.
pub(crate) fn reading(dir: &Path) -> Result<Vec<String>, String> {
    // A directory is not read at one instant: a file that was renamed since is looked for again.
    for _ in 0..100 {
        let mut names = node::names(dir);
        names.retain(|name| [".conf", ".conflist", ".json"].iter().any(|ending| name.ends_with(ending)));
        let Some(first) = names.first() else { return Err("no configuration".to_owned()) };
        let text = match fs::read_to_string(dir.join(first)) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            read => read.map_err(|error| format!("{first}: {error}"))?,
        };
        let types = if first.ends_with(".conflist") { node::types(&text) } else { single(&text) };
        let types = types.ok_or_else(|| format!("{first}: {text:?}"))?;
        let others: Vec<&str> =
            types.iter().map(String::as_str).filter(|kind| *kind != "istio-cni").collect();
        let ours = types.len() - others.len();
        if others.first() != Some(&"bridge") || ours > 1 {
            return Err(format!("{first}: {types:?}"));
        }
        return Ok(types);
    }
    Err("files vanish 100 times in turn".to_owned())
}

fn single(text: &str) -> Option<Vec<String>> {
    let plugin: Value = serde_json::from_str(text).ok()?;
    Some(vec![plugin["type"].as_str()?.to_owned()])
}
