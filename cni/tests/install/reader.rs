//! A container runtime that reads the configurations again and again, as fast as it can while they change:
//! the first file must be valid at every instant.

use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use serde_json::Value;

use super::node;

/// How many readings a test needs at least.
pub(crate) fn wanted() -> usize {
    std::env::var("INSTALL_READINGS").map_or(1_000, |text| text.parse().expect("INSTALL_READINGS: a number"))
}

/// Readings after the last change, one after the other; later ones have a pause before them, which the next
/// change ends.
const BURST: usize = 50;
const PAUSE: Duration = Duration::from_millis(1);

/// The changes of a directory and of the files in it.
struct Changes(Inotify);

impl Changes {
    fn of(dir: &Path) -> Self {
        let changes = AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_MOVE;
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).expect("inotify");
        inotify.add_watch(dir, changes).expect("watch the directory");
        Self(inotify)
    }

    /// Whether there was one since the last call.
    fn is_changed(&self) -> bool {
        self.0.read_events().is_ok_and(|events| !events.is_empty())
    }

    fn pause(&self) {
        let mut change = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        let limit = u16::try_from(PAUSE.as_millis()).unwrap();
        // A signal ends it, too.
        let _ = poll(&mut change, limit);
    }
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
        let changes = Changes::of(&dir);
        let thread = std::thread::spawn(move || {
            let mut invalid = Vec::new();
            let mut unchanged = 0;
            while !end.load(Ordering::SeqCst) {
                if unchanged > BURST {
                    changes.pause();
                }
                invalid.extend(reading(&dir).err());
                count.fetch_add(1, Ordering::SeqCst);
                unchanged = if changes.is_changed() { 0 } else { unchanged + 1 };
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
            std::thread::sleep(PAUSE);
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
