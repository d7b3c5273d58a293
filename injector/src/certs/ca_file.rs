//! The file of `--ca-out`, to which the CAs are written.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::file_watcher::FILE_TIMEOUT;
use crate::files;

/// The file. Its file system may be unresponsive: each write has a thread of its own, and the next one waits
/// for it.
#[derive(Debug)]
pub(super) struct CaFile {
    path: PathBuf,
    timeout: Duration,
    writing: Mutex<Option<JoinHandle<io::Result<()>>>>,
}

impl CaFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, timeout: FILE_TIMEOUT, writing: Mutex::default() }
    }

    /// Writes the CAs, in bounded time.
    pub(super) async fn write(&self, trusted: Arc<str>) -> io::Result<()> {
        let name = self.name();
        self.run(move || files::replace(&name, &trusted)).await
    }

    pub(super) fn name(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    async fn run(&self, write: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
        let hangs = |_| {
            io::Error::other(format!("not written for {:?}: the file system is unresponsive", self.timeout))
        };
        let mut writing = self.writing.lock().await;
        if let Some(before) = writing.as_mut() {
            // Its result does not matter: the file is written again.
            let _ = timeout(self.timeout, before).await.map_err(hangs)?;
        }
        let now = writing.insert(tokio::task::spawn_blocking(write));
        let written = timeout(self.timeout, now).await.map_err(hangs)?;
        *writing = None;
        written.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn write_that_hangs_is_reported_and_blocks_nothing() {
        let file = CaFile { timeout: Duration::from_millis(10), ..CaFile::new("ca.crt".into()) };
        let (release, held) = mpsc::channel::<()>();
        let hanging = move || {
            let _ = held.recv();
            Ok(())
        };
        let (done, order) = mpsc::channel();
        let write = |text: &'static str| {
            let done = done.clone();
            move || done.send(text).map_err(io::Error::other)
        };
        let problem = file.run(hanging).await.expect_err("it hangs").to_string();
        assert_eq!(problem, "not written for 10ms: the file system is unresponsive");
        file.run(write("second thread")).await.expect_err("it hangs still");
        drop(release);
        while file.run(write("written")).await.is_err() {}
        assert!(order.try_iter().all(|text| text == "written"), "one write at a time");
    }
}
