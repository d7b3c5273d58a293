//! Traffic that goes on while a test changes something: connections that are held open, and new ones all the
//! time.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use netlab::socket::{self, Binding};
use netlab::user::{Conversation, User};

/// Timeout of a response.
const LIMIT: Duration = Duration::from_secs(30);
/// Time between two exchanges.
const PAUSE: Duration = Duration::from_millis(10);
/// Time between two exchanges in times of what the last one took: on a busy machine, the run that is watched
/// takes longer, too.
const PAUSE_RATIO: u32 = 4;
/// Exchanges of every flow that [`Traffic::goes_on`] waits for: one may have begun before the call, the
/// others have not.
const EXCHANGES: usize = 4;

/// A connection to be made, and where it has to arrive.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) name: String,
    pub(crate) from: User,
    pub(crate) binding: Binding,
    pub(crate) to: SocketAddr,
    /// The server that has to respond: its name and its port.
    pub(crate) server: (&'static str, u16),
}

impl Flow {
    /// A connection of this flow.
    pub(crate) fn open(&self) -> io::Result<Conversation> {
        self.from.run(|| self.connect())
    }

    /// Connects as the calling thread, which has to be the flow's user already.
    fn connect(&self) -> io::Result<Conversation> {
        let conversation = Conversation::open(socket::connect_tcp(self.to, self.binding, LIMIT)?)?;
        let response = &conversation.greeting;
        if (response.server.as_str(), response.port) == self.server {
            Ok(conversation)
        } else {
            Err(io::Error::other(format!("arrived at {response}")))
        }
    }
}

/// What one flow has come to.
#[derive(Debug, Default)]
struct Progress {
    exchanges: AtomicUsize,
    losses: Mutex<Vec<String>>,
    /// Nothing more will come.
    ended: AtomicBool,
}

/// Flows that run until this is dropped.
pub(crate) struct Traffic {
    flows: Vec<(String, Arc<Progress>)>,
    stop: Arc<AtomicBool>,
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.flows.iter().map(|(name, _)| name).collect::<Vec<_>>().fmt(f)
    }
}

impl Traffic {
    /// Opens the `held` flows, which exchange a line about every 10 ms from now on, and makes connection
    /// after connection of the `new` ones.
    pub(crate) fn start(held: Vec<Flow>, new: Vec<Flow>) -> Self {
        let mut traffic = Self { flows: Vec::new(), stop: Arc::new(AtomicBool::new(false)) };
        for flow in held {
            let name = format!("held: {}", flow.name);
            traffic.spawn(name, move |progress, stop| hold(&flow, progress, stop));
        }
        for flow in new {
            let name = format!("new: {}", flow.name);
            traffic.spawn(name, move |progress, stop| repeat(&flow, progress, stop));
        }
        traffic.goes_on();
        traffic
    }

    fn spawn(&mut self, name: String, run: impl FnOnce(&Progress, &AtomicBool) + Send + 'static) {
        let progress = Arc::new(Progress::default());
        let (mine, stop) = (Arc::clone(&progress), Arc::clone(&self.stop));
        thread::spawn(move || {
            run(&mine, &stop);
            mine.ended.store(true, Ordering::Relaxed);
        });
        self.flows.push((name, progress));
    }

    /// Waits until every flow has made some more exchanges; none may have been lost until then.
    #[track_caller]
    pub(crate) fn goes_on(&self) {
        let made = |progress: &Progress| progress.exchanges.load(Ordering::Relaxed);
        let goals: Vec<usize> = self.flows.iter().map(|(_, progress)| made(progress) + EXCHANGES).collect();
        for ((_, progress), target) in self.flows.iter().zip(goals) {
            while made(progress) < target && !progress.ended.load(Ordering::Relaxed) {
                thread::sleep(PAUSE);
            }
        }
        let losses: Vec<String> = self.flows.iter().filter_map(loss).collect();
        assert!(
            losses.is_empty(),
            "{} of {} flows lost something: {losses:#?}",
            losses.len(),
            self.flows.len()
        );
    }
}

fn loss((name, progress): &(String, Arc<Progress>)) -> Option<String> {
    let losses = progress.losses.lock().expect("no flow panics");
    let made = progress.exchanges.load(Ordering::Relaxed);
    (!losses.is_empty()).then(|| format!("{name}, after {made} exchanges: {losses:?}"))
}

fn hold(flow: &Flow, progress: &Progress, stop: &AtomicBool) {
    flow.from.switch_thread();
    let talk = || -> io::Result<()> {
        let mut conversation = flow.connect()?;
        while !stop.load(Ordering::Relaxed) {
            let begin = Instant::now();
            conversation.echo("still there")?;
            progress.exchanges.fetch_add(1, Ordering::Relaxed);
            pause_after(begin);
        }
        Ok(())
    };
    if let Err(error) = talk() {
        progress.losses.lock().expect("no flow panics").push(error.to_string());
    }
}

fn repeat(flow: &Flow, progress: &Progress, stop: &AtomicBool) {
    flow.from.switch_thread();
    while !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let talk = || flow.connect()?.echo("hello");
        if let Err(error) = talk() {
            progress.losses.lock().expect("no flow panics").push(error.to_string());
        }
        progress.exchanges.fetch_add(1, Ordering::Relaxed);
        pause_after(begin);
    }
}

/// Between an exchange that began then and the next one.
pub(crate) fn pause_after(begin: Instant) {
    thread::sleep(PAUSE.max(PAUSE_RATIO * begin.elapsed()));
}
