//! The file that the CAs are written to.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::files;
use crate::webhook::watch::PATIENCE;

/// The file. Its file system may hang: each write has a thread of its own, and there is no other until it is back.
#[derive(Debug)]
pub(super) struct CaFile {
    path: PathBuf,
    patience: Duration,
    writing: Mutex<Option<JoinHandle<io::Result<()>>>>,
}

impl CaFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, patience: PATIENCE, writing: Mutex::default() }
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
        let hangs = |_| io::Error::other(format!("the file system has not answered for {:?}", self.patience));
        let mut writing = self.writing.lock().await;
        if let Some(before) = writing.as_mut() {
            // What came of it does not matter: it is written again.
            let _ = timeout(self.patience, before).await.map_err(hangs)?;
        }
        let now = writing.insert(tokio::task::spawn_blocking(write));
        let written = timeout(self.patience, now).await.map_err(hangs)?;
        *writing = None;
        written.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_write_that_hangs_is_told_of_and_nobody_waits_for_it() {
        let file = CaFile { patience: Duration::from_millis(10), ..CaFile::new("ca.crt".into()) };
        let (release, held) = mpsc::channel::<()>();
        let hanging = move || {
            let _ = held.recv();
            Ok(())
        };
        let (done, order) = mpsc::channel();
        let told = |text: &'static str| {
            let done = done.clone();
            move || done.send(text).map_err(io::Error::other)
        };
        let problem = file.run(hanging).await.expect_err("it hangs").to_string();
        assert_eq!(problem, "the file system has not answered for 10ms");
        file.run(told("second thread")).await.expect_err("it hangs still");
        drop(release);
        while file.run(told("written")).await.is_err() {}
        assert!(order.try_iter().all(|text| text == "written"), "one write at a time");
    }
}
