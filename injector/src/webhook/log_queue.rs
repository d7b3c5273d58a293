//! Log lines go through a queue to a thread that writes them: where nobody reads the log, lines are lost, and pods are
//! not kept waiting.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

/// Lines that wait.
const WAITING: usize = 1024;
/// How long the end of the process is put off for lines that wait.
const PATIENCE: Duration = Duration::from_secs(1);

// The logger is one for the whole process, and so is what is known of it.
static PENDING: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// The end of the queue where lines go in, one with each write.
#[derive(Debug)]
pub struct LogQueue(SyncSender<Vec<u8>>);

impl LogQueue {
    /// Starts the thread that writes.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn to(out: impl Write + Send + 'static) -> io::Result<Self> {
        let (sender, lines) = mpsc::sync_channel(WAITING);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || write(&lines, out))?;
        Ok(Self(sender))
    }
}

fn write(lines: &Receiver<Vec<u8>>, mut out: impl Write) {
    let mut told = 0;
    for line in lines {
        // There is nowhere left to say that the log cannot be written.
        let _ = out.write_all(&line);
        PENDING.fetch_sub(1, Ordering::SeqCst);
        let dropped = DROPPED.load(Ordering::SeqCst);
        // That is a line in the queue like any other: it waits until there is room for it.
        if dropped > told && PENDING.load(Ordering::SeqCst) < WAITING as u64 / 2 {
            log::warn!(lines = dropped - told; "nobody read the log: lines were dropped");
            told = dropped;
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

/// Waits until all lines are written, if somebody reads them: before the process ends.
pub fn settle() {
    let until = Instant::now() + PATIENCE;
    while PENDING.load(Ordering::SeqCst) > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Lines that were dropped, for metrics.
#[derive(Clone, Copy, Debug)]
pub struct Dropped;

impl Collector for Dropped {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let counter = ConstCounter::new(DROPPED.load(Ordering::SeqCst));
        let help = "Log lines that were dropped because nobody read them";
        counter.encode(encoder.encode_descriptor("log_lines_dropped", help, None, MetricType::Counter)?)
    }
}
