//! Network namespaces that belong to a test and vanish with it.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace, held by a file descriptor: no name, nothing to clean up.
#[derive(Clone, Debug)]
pub(crate) struct Namespace(Arc<File>);

impl Namespace {
    /// Makes an empty namespace with `lo` down.
    pub(crate) fn new() -> Self {
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)
                .expect("a network namespace could not be made: run these tests as root, with CAP_SYS_ADMIN");
            File::open("/proc/thread-self/ns/net").expect("open the new network namespace")
        });
        Self(Arc::new(made.join().unwrap_or_else(|panic| resume_unwind(panic))))
    }

    /// Moves the calling thread, and only this thread, into the namespace.
    pub(crate) fn enter(&self) {
        setns(&*self.0, CloneFlags::CLONE_NEWNET).expect("enter the network namespace");
    }

    /// Runs `work` on a thread of its own inside the namespace. A panic in there is a panic here.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                self.enter();
                work()
            });
            inside.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// A path by which other processes can enter, as long as this value lives.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}
