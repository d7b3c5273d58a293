//! Connections that are held open while rules change.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::lab::fixture::at;
use crate::lab::user::Conversation;
use crate::lab::{Family, Pod};

/// How long an echo may take. A connection that is reset fails at once; one whose packets are dropped fails
/// then.
pub(crate) const ECHO_LIMIT: Duration = Duration::from_secs(30);
/// Lost connections after which a test need not wait for more.
const ENOUGH: usize = 5;
/// Time between two echoes of a busy connection.
const PAUSE: Duration = Duration::from_millis(5);

/// Open connections: one half is busy while something happens, the other half is idle.
pub(crate) struct OpenConnections {
    idle: Mutex<Vec<Conversation>>,
    busy: Mutex<Vec<Conversation>>,
    lost: Mutex<Vec<String>>,
}

impl OpenConnections {
    /// Opens `each` idle and `each` busy ones in each family and direction; they must reach these servers.
    pub(crate) fn open(pod: &Pod, families: &[Family], each: usize, inbound: &str, outbound: &str) -> Self {
        let held = Self::open_anywhere(pod, families, each);
        for list in [&held.idle, &held.busy] {
            for conversation in list.lock().unwrap().iter() {
                let who = conversation.greeting.server.as_str();
                assert!([inbound, outbound].contains(&who), "{:?}", conversation.greeting);
            }
        }
        held
    }

    /// Opens `each` idle and `each` busy ones in each family and direction, regardless of the server.
    pub(crate) fn open_anywhere(pod: &Pod, families: &[Family], each: usize) -> Self {
        let open = || {
            let mut list = Vec::new();
            for &family in families {
                for _ in 0..each {
                    list.push(pod.outside().connect(at(family.pod(), 8080)).expect("an inbound connection"));
                    list.push(pod.app().connect(at(family.service(), 80)).expect("an outbound connection"));
                }
            }
            Mutex::new(list)
        };
        Self { idle: open(), busy: open(), lost: Mutex::default() }
    }

    /// Does something while the busy ones are busy.
    pub(crate) fn during<T: Send>(&self, work: impl FnOnce() -> T) -> T {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut busy = self.busy.lock().unwrap();
                while !stop.load(Ordering::SeqCst) {
                    let begin = Instant::now();
                    busy.retain_mut(|one| self.alive(one, "meanwhile"));
                    // Many connections leave the run that is watched half of the time.
                    thread::sleep(PAUSE.max(begin.elapsed()));
                }
            });
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            stop.store(true, Ordering::SeqCst);
            done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.idle.lock().unwrap().len() + self.busy.lock().unwrap().len()
    }

    fn alive(&self, conversation: &mut Conversation, when: &str) -> bool {
        if self.lost.lock().unwrap().len() >= ENOUGH {
            return false;
        }
        let outcome: io::Result<()> = conversation.echo_within("still there", ECHO_LIMIT);
        if let Err(error) = &outcome {
            self.lost.lock().unwrap().push(format!("{when}: {error} ({})", conversation.greeting));
        }
        outcome.is_ok()
    }

    #[track_caller]
    pub(crate) fn all_alive(&self) {
        self.all_alive_after("the run");
    }

    /// Every connection is reset.
    #[track_caller]
    pub(crate) fn all_lost(&self) {
        for list in [&self.idle, &self.busy] {
            for conversation in list.lock().unwrap().iter_mut() {
                let error = conversation
                    .echo_within("still there", ECHO_LIMIT)
                    .expect_err("a connection that was cut off");
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
            }
        }
    }

    /// Every connection, idle or busy, is open and echoes.
    #[track_caller]
    pub(crate) fn all_alive_after(&self, what: &str) {
        let mut count = 0;
        for (list, kind) in [(&self.idle, "idle"), (&self.busy, "busy")] {
            let mut list = list.lock().unwrap();
            count += list.len();
            for conversation in list.iter_mut() {
                self.alive(conversation, kind);
            }
        }
        let lost = self.lost.lock().unwrap();
        assert!(lost.is_empty(), "after {what}: {} lost, of {count} or more: {lost:#?}", lost.len());
    }
}

/// Does something while the busy ones of all of them are busy.
pub(crate) fn during_all(held: &[OpenConnections], work: &(dyn Fn() + Sync)) {
    match held.split_first() {
        Some((first, rest)) => first.during(|| during_all(rest, work)),
        None => work(),
    }
}
