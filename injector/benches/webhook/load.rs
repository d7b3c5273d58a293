//! Load: at a fixed rate, or as fast as responses come.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::server::Server;

/// What a load run measured.
pub(crate) struct LoadResult {
    /// Each request's time, sorted.
    pub(crate) latencies: Vec<Duration>,
    /// From the first request to the last response.
    pub(crate) elapsed: Duration,
    /// The server's processor time, per request.
    pub(crate) cpu: Duration,
}

impl LoadResult {
    /// A percentile; 100 is the slowest.
    pub(crate) fn percentile(&self, percent: f64) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let at = (last as f64 * percent / 100.0).round() as usize;
        self.latencies.get(at.min(last)).copied().unwrap_or_default()
    }

    /// Requests a second.
    pub(crate) fn rate(&self) -> f64 {
        #[allow(clippy::cast_precision_loss)]
        let count = self.latencies.len() as f64;
        count / self.elapsed.as_secs_f64()
    }
}

/// When requests are sent.
#[derive(Clone, Copy)]
pub(crate) enum Pace {
    /// So many a second. A request that has to wait for a free connection counts from when it was due.
    Rate(u32),
    /// The next one when a response has come.
    Closed,
}

/// Sends the requests in turn over so many connections. Every response must have the status; another one ends
/// the run.
pub(crate) fn run(
    server: &Server,
    requests: &[Vec<u8>],
    status: u16,
    connections: usize,
    pace: Pace,
    duration: Duration,
) -> Result<LoadResult, String> {
    let (due, sent) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let request = || &requests[sent.fetch_add(1, Ordering::Relaxed) % requests.len()];
    let all: Mutex<Vec<Duration>> = Mutex::default();
    let clients: Result<Vec<Client>, String> = (0..connections)
        .map(|_| {
            let mut client =
                Client::connect(server.address, &server.tls).map_err(|error| error.to_string())?;
            client.ask(request()).map_err(|error| error.to_string())?; // the handshake is not part of the time
            Ok(client)
        })
        .collect();
    let cpu = server.cpu();
    let start = Instant::now();
    let worker = |mut client: Client| -> Result<(), String> {
        let mut own = Vec::new();
        while let Some(from) = next(&due, start, pace, duration) {
            let response = client.ask(request()).map_err(|error| error.to_string())?;
            own.push(from.elapsed());
            if response.status != status {
                return Err(format!("{}: {}", response.status, String::from_utf8_lossy(&response.body)));
            }
        }
        all.lock().unwrap().extend(own);
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = clients?.into_iter().map(|client| scope.spawn(|| worker(client))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    let elapsed = start.elapsed();
    let mut latencies = all.into_inner().unwrap();
    latencies.sort_unstable();
    let count = u32::try_from(latencies.len().max(1)).unwrap_or(u32::MAX);
    Ok(LoadResult { latencies, elapsed, cpu: (server.cpu() - cpu) / count })
}

/// Waits for the next request's moment; from when its time counts, or `None` at the end.
fn next(due: &AtomicUsize, start: Instant, pace: Pace, duration: Duration) -> Option<Instant> {
    let now = Instant::now();
    let Pace::Rate(rate) = pace else {
        return (now.duration_since(start) < duration).then_some(now);
    };
    let turn = u32::try_from(due.fetch_add(1, Ordering::Relaxed)).ok()?;
    let moment = Duration::from_secs(1) * turn / rate;
    if moment >= duration {
        return None;
    }
    let moment = start + moment;
    if now >= moment {
        return Some(moment);
    }
    std::thread::sleep(moment - now);
    // What the sleep took longer is the clock's, not the server's.
    Some(Instant::now())
}
