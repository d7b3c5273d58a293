//! Works on several documents of a file at a time: this thread reads and writes, two others do what is
//! between.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Scope};

use super::Failure;
use super::input::each_part;
use crate::files::Input;
use crate::yaml::Part;

/// How much text is read ahead of what is done, at least one document.
const AHEAD_BYTES: usize = 256 << 10;
/// Starting the threads costs as much as a few documents.
const WORTH_THREADS: usize = 4;
const THREADS: usize = 2;

type Job = Result<Part, String>;
type Outcome<T> = Result<T, Box<dyn Any + Send>>;
type Work<'w, T> = dyn Fn(Job) -> T + Sync + 'w;
type Done<'d, T> = dyn FnMut(T) -> Result<bool, Failure> + 'd;

/// Passes each document of a file to `work`, and the results in the order of the documents to `done`, until
/// that returns false. Errors: the file cannot be read; those of `done`.
pub(super) fn each_in_order<T: Send>(
    input: &mut Input,
    work: &Work<'_, T>,
    done: &mut Done<'_, T>,
) -> Result<(), Failure> {
    let queue = Mutex::new(None);
    thread::scope(|scope| {
        let mut first = Vec::new();
        let mut pipeline: Option<Pipeline<T>> = None;
        let mut alone = false;
        each_part(input, &mut |job| match &mut pipeline {
            Some(pipeline) => pipeline.push(job, done),
            None if alone => done(work(job)),
            None => {
                first.push(job);
                if first.len() < WORTH_THREADS {
                    return Ok(true);
                }
                pipeline = Pipeline::start(scope, &queue, work);
                alone = pipeline.is_none();
                let mut all = std::mem::take(&mut first).into_iter();
                all.try_fold(true, |open, job| match &mut pipeline {
                    Some(pipeline) => Ok(open && pipeline.push(job, done)?),
                    None => Ok(open && done(work(job))?),
                })
            }
        })?;
        match &mut pipeline {
            Some(pipeline) => pipeline.finish(done),
            None => first.into_iter().try_fold(true, |open, job| Ok(open && done(work(job))?)).map(|_| ()),
        }
    })
}

/// The queue that the threads take documents from, each with its number.
type Queue = Mutex<Option<Receiver<(usize, Job)>>>;

/// The documents that are under way.
struct Pipeline<T> {
    /// Dropped when all are sent: then the threads end.
    jobs: Option<Sender<(usize, Job)>>,
    outcomes: Receiver<(usize, Outcome<T>)>,
    sent: usize,
    delivered: usize,
    /// What came before its turn.
    early: BTreeMap<usize, Outcome<T>>,
    /// The lengths of those that are not delivered.
    lengths: VecDeque<usize>,
    bytes: usize,
    open: bool,
}

impl<T: Send> Pipeline<T> {
    /// `None` if the system gives no thread.
    fn start<'s, 'e: 's>(scope: &'s Scope<'s, 'e>, queue: &'e Queue, work: &'e Work<'e, T>) -> Option<Self>
    where
        T: 's,
    {
        let (jobs, receiver) = channel();
        *queue.lock().unwrap_or_else(PoisonError::into_inner) = Some(receiver);
        let (sender, outcomes) = channel();
        let started = (0..THREADS).filter(|_| {
            let sender = sender.clone();
            let all = move || {
                while let Some((number, job)) = next(queue) {
                    let outcome = catch_unwind(AssertUnwindSafe(|| work(job)));
                    if sender.send((number, outcome)).is_err() {
                        return;
                    }
                }
            };
            thread::Builder::new().spawn_scoped(scope, all).is_ok()
        });
        (started.count() > 0).then(|| Self {
            jobs: Some(jobs),
            outcomes,
            sent: 0,
            delivered: 0,
            early: BTreeMap::new(),
            lengths: VecDeque::new(),
            bytes: 0,
            open: true,
        })
    }

    /// Sends a document, and delivers results until there is room for the next one; false if no more are
    /// wanted.
    fn push(&mut self, job: Job, done: &mut Done<'_, T>) -> Result<bool, Failure> {
        let length = job.as_ref().map_or(0, |part| part.body.len());
        if let Some(jobs) = &self.jobs
            && jobs.send((self.sent, job)).is_ok()
        {
            self.sent += 1;
            self.bytes += length;
            self.lengths.push_back(length);
        }
        while self.open && self.bytes >= AHEAD_BYTES && self.delivered < self.sent {
            self.deliver(done)?;
        }
        Ok(self.open)
    }

    /// Delivers the rest.
    fn finish(&mut self, done: &mut Done<'_, T>) -> Result<(), Failure> {
        self.jobs = None;
        while self.open && self.delivered < self.sent {
            self.deliver(done)?;
        }
        Ok(())
    }

    /// Waits for the next result in order, and passes it to `done`.
    fn deliver(&mut self, done: &mut Done<'_, T>) -> Result<(), Failure> {
        let outcome = loop {
            if let Some(outcome) = self.early.remove(&self.delivered) {
                break outcome;
            }
            // Every document that was sent has an outcome.
            let (number, outcome) =
                self.outcomes.recv().unwrap_or_else(|_| resume_unwind(Box::new("a thread ended early")));
            self.early.insert(number, outcome);
        };
        self.delivered += 1;
        self.bytes -= self.lengths.pop_front().unwrap_or_default();
        self.open = done(outcome.unwrap_or_else(|panic| resume_unwind(panic)))?;
        Ok(())
    }
}

/// The next document for a thread; `None` after the last.
fn next(queue: &Queue) -> Option<(usize, Job)> {
    let queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
    queue.as_ref()?.recv().ok()
}
