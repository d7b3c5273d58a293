//! A queue of log lines and the thread that writes them: if the log is not read, lines are dropped and
//! requests do not wait.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

/// The longest queue, in lines.
const MAX_QUEUED: usize = 1024;
/// The time for which the end of the process waits for the queue.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

// There is one logger in the process, and so one queue.
static PENDING: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// The sending end of the queue: a line with each write.
#[derive(Debug)]
pub(crate) struct LogQueue(SyncSender<Vec<u8>>);

impl LogQueue {
    /// Starts the thread that writes.
    pub(crate) fn to(out: impl Write + Send + 'static) -> io::Result<Self> {
        let (sender, lines) = mpsc::sync_channel(MAX_QUEUED);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || write(&lines, out))?;
        Ok(Self(sender))
    }
}

fn write(lines: &Receiver<Vec<u8>>, mut out: impl Write) {
    let mut logged = 0;
    for line in lines {
        // There is nowhere to report that the log cannot be written.
        let _ = out.write_all(&line);
        PENDING.fetch_sub(1, Ordering::SeqCst);
        let dropped = DROPPED.load(Ordering::SeqCst);
        // This line goes through the queue too, once there is room.
        if dropped > logged && PENDING.load(Ordering::SeqCst) < MAX_QUEUED as u64 / 2 {
            log::warn!(lines = dropped - logged; "log lines dropped");
            logged = dropped;
        }
    }
}

impl Write for LogQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        PENDING.fetch_add(1, Ordering::SeqCst);
        if self.0.try_send(line.to_vec()).is_err() {
            PENDING.fetch_sub(1, Ordering::SeqCst);
            DROPPED.fetch_add(1, Ordering::SeqCst);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits until all lines are written, in bounded time: before the process ends.
pub(crate) fn flush() {
    let until = Instant::now() + FLUSH_TIMEOUT;
    while PENDING.load(Ordering::SeqCst) > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The number of dropped lines, as a metric.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DroppedLines;

impl Collector for DroppedLines {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let counter = ConstCounter::new(DROPPED.load(Ordering::SeqCst));
        let help = "Log lines dropped because the log was not read";
        counter.encode(encoder.encode_descriptor("log_lines_dropped", help, None, MetricType::Counter)?)
    }
}
