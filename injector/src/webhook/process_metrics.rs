//! The process's own metrics, with the names of Prometheus' client libraries.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use procfs::process;

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
    #[allow(clippy::cast_precision_loss, reason = "bytes and ticks are far below 2^53")]
    fn read() -> Option<Self> {
        let own = process::Process::myself().ok()?;
        let stat = own.stat().ok()?;
        let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
        let limit = own.limits().ok().map(|limits| limits.max_open_files.soft_limit);
        Some(Self {
            cpu: seconds(stat.utime + stat.stime),
            start: procfs::boot_time_secs().ok().map(|boot| boot as f64 + seconds(stat.starttime)),
            resident: Some((stat.rss * procfs::page_size()) as f64),
            virtual_size: Some(stat.vsize as f64),
            open: own.fd_count().ok().map(|count| count as f64),
            limit: limit.and_then(|limit| match limit {
                process::LimitValue::Value(files) => Some(files as f64),
                process::LimitValue::Unlimited => None,
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_read() {
        let process = Process::read().unwrap();
        assert!(process.start.is_some_and(|start| start > 1.7e9), "{process:?}");
        assert!(
            process.resident.is_some_and(|bytes| bytes > 1e6) && process.open.is_some_and(|open| open >= 3.0)
        );
        assert!(process.virtual_size > process.resident, "{process:?}");
        assert!(process.limit >= process.open, "{process:?}");
    }
}
