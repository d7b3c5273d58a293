//! The pod's loopback interface, which the runtime sets up at the same time.
//!
//! containerd calls the plugin `loopback` beside the network's list, not before it. That plugin sets `lo` up and then refuses
//! an address that is not one of loopback, as `::6` is, which captured pods need there: its own work must be done before.

use std::fs;
use std::io;
use std::os::unix::process::parent_id;
use std::thread;
use std::time::{Duration, Instant};

use istio_iptables::kernel::rtnetlink::loopback;

/// How long to wait at most, whatever the deadline.
pub const LONGEST: Duration = Duration::from_secs(10);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// So many looks in a row find nothing under way, once anything was: while a process starts a program in its place, its variables
/// cannot be read.
const QUIET_LOOKS: u32 = 5;

/// Waits until `lo` is up in this thread's network namespace and the runtime runs no plugin for it, at most so long: not every
/// runtime sets it up.
pub fn wait_until_set_up(container: &str, limit: Duration) {
    let begin = Instant::now();
    let (mut quiet, mut needed) = (0, 1);
    loop {
        // An interface that cannot be looked at is not waited for.
        if !loopback::is_up().unwrap_or(true) || is_being_set_up(container).unwrap_or(false) {
            (quiet, needed) = (0, QUIET_LOOKS);
        } else {
            quiet += 1;
        }
        if quiet >= needed {
            return;
        }
        if begin.elapsed() >= limit {
            log::debug!(waited_ms = limit.as_millis(); "lo is not set up yet");
            return;
        }
        thread::sleep(PAUSE);
    }
}

/// Whether a process that the runtime has started sets up `lo` for this container.
fn is_being_set_up(container: &str) -> io::Result<bool> {
    let wanted = [format!("CNI_CONTAINERID={container}"), "CNI_IFNAME=lo".to_owned()];
    for thread in fs::read_dir(format!("/proc/{}/task", parent_id()))?.flatten() {
        // A thread may end meanwhile. Where the kernel does not list children, there are none.
        for child in read(&thread.path().join("children").to_string_lossy()).split(' ') {
            let environment = read(&format!("/proc/{child}/environ"));
            let has = |wanted: &String| environment.split('\0').any(|variable| variable == wanted);
            if wanted.iter().all(has) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Empty if the process has ended.
#[allow(clippy::disallowed_methods, reason = "what runs beside this process is read here alone")]
fn read(path: &str) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}
