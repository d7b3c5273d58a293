//! One run of a build: time, CPU time, and peak memory as the kernel counts it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};

/// What a run has cost.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
    /// Resident memory at its peak, KiB.
    pub(crate) memory: u64,
}

/// How often the peak is read; what a process allocates after the last reading is not counted.
const INTERVAL: Duration = Duration::from_millis(2);

pub(crate) fn run(bin: &Path, files: &[PathBuf]) -> Result<Cost, String> {
    let failed = |problem: &str| format!("{}: {problem}", bin.display());
    let before = children()?;
    let start = Instant::now();
    let mut child = Command::new(bin)
        .args(["inject", "--quiet"])
        .args(files.iter().flat_map(|file| [OsStr::new("-f"), file.as_os_str()]))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(&error.to_string()))?;
    let mut memory = 0;
    let status = loop {
        memory = memory.max(peak(child.id()).unwrap_or_default());
        if let Some(status) = child.try_wait().map_err(|error| failed(&error.to_string()))? {
            break status;
        }
        std::thread::sleep(INTERVAL);
    };
    let wall = start.elapsed();
    if !status.success() || memory == 0 {
        return Err(failed(&format!("{status}")));
    }
    Ok(Cost { wall, cpu: children()?.saturating_sub(before), memory })
}

/// CPU time of all ended children.
fn children() -> Result<Duration, String> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|error| error.to_string())?;
    let time = |at: nix::sys::time::TimeVal| {
        Duration::from_secs(at.tv_sec().unsigned_abs()) + Duration::from_micros(at.tv_usec().unsigned_abs())
    };
    Ok(time(usage.user_time()) + time(usage.system_time()))
}

fn peak(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
