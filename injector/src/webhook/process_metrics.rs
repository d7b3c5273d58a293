//! The process's own metrics, by the names that Prometheus' client libraries give them.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::files;

/// Ticks per second of `/proc/PID/stat`: `USER_HZ`, 100 on every architecture of Linux that Rust supports.
const TICKS: f64 = 100.0;

/// Reads `/proc` on each scrape; what cannot be read is left out.
#[derive(Debug)]
pub(super) struct ProcessMetrics;

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let Some(process) = Process::read() else { return Ok(()) };
        let cpu = ConstCounter::new(process.cpu);
        let help = "Total user and system CPU time spent in seconds";
        cpu.encode(encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?)?;
        for (name, help, value) in [
            (
                "process_start_time_seconds",
                "Start time of the process since the epoch in seconds",
                process.start,
            ),
            ("process_resident_memory_bytes", "Resident memory size in bytes", process.resident),
            ("process_virtual_memory_bytes", "Virtual memory size in bytes", process.virtual_size),
            ("process_open_fds", "Number of open file descriptors", process.open),
            ("process_max_fds", "Maximum number of open file descriptors", process.limit),
        ] {
            if let Some(value) = value {
                let gauge = ConstGauge::new(value);
                gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
            }
        }
        Ok(())
    }
}

#[derive(Debug, PartialEq)]
struct Process {
    cpu: f64,
    start: Option<f64>,
    resident: Option<f64>,
    virtual_size: Option<f64>,
    open: Option<f64>,
    limit: Option<f64>,
}

impl Process {
    fn read() -> Option<Self> {
        let text = |name: &str| String::from_utf8(files::read(name).ok()?).ok();
        let stat = text("/proc/self/stat")?;
        let status = text("/proc/self/status").unwrap_or_default();
        let limits = text("/proc/self/limits").unwrap_or_default();
        let boot = text("/proc/stat").and_then(|stat| after(&stat, "btime"));
        let ticks = ticks(&stat)?;
        Some(Self {
            cpu: ticks.cpu / TICKS,
            start: boot.map(|boot| boot + ticks.start / TICKS),
            resident: after(&status, "VmRSS:").map(|kib| kib * 1024.0),
            virtual_size: after(&status, "VmSize:").map(|kib| kib * 1024.0),
            open: files::count("/proc/self/fd")
                .ok()
                .and_then(|count| u32::try_from(count).ok())
                .map(f64::from),
            limit: after(&limits, "Max open files"),
        })
    }
}

/// The number behind a word at the start of a line.
fn after(text: &str, word: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(word))?;
    rest.split_whitespace().next()?.parse().ok()
}

struct Ticks {
    cpu: f64,
    start: f64,
}

/// `utime` and `stime`, fields 14 and 15 of `/proc/PID/stat`, and `starttime`, field 22. The second field, the program's
/// name in parentheses, may hold anything.
fn ticks(stat: &str) -> Option<Ticks> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
    Some(Ticks { cpu: number(14)? + number(15)?, start: number(22)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_the_name() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 3 0 4200 1000 20";
        let found = ticks(stat).unwrap();
        assert!((found.cpu - 300.0).abs() < 1e-9 && (found.start - 4200.0).abs() < 1e-9);
        assert!(ticks("7 (a) S").is_none() && ticks("").is_none());
        assert_eq!(after("VmSize:\t  12 kB\nVmRSS:\t  8 kB\n", "VmRSS:"), Some(8.0));
        assert_eq!(
            after(
                "Max open files            1024                 4096                 files",
                "Max open files"
            ),
            Some(1024.0)
        );
        assert_eq!(after("Max open files            unlimited", "Max open files"), None);
    }

    #[test]
    fn this_process_is_read() {
        let process = Process::read().unwrap();
        assert!(process.start.is_some_and(|start| start > 1.7e9), "{process:?}");
        assert!(
            process.resident.is_some_and(|bytes| bytes > 1e6) && process.open.is_some_and(|open| open >= 3.0)
        );
        assert!(process.virtual_size > process.resident, "{process:?}");
    }
}
