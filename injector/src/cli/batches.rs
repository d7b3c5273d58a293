//! Works on several documents of a file at a time, in the order of the file.

use std::sync::Mutex;
use std::thread;

use super::Failure;
use super::input::each_part;
use crate::files::Input;
use crate::yaml::Part;

/// How much text is worked on at a time, at least one document.
const BATCH_BYTES: usize = 256 << 10;
/// Starting a thread costs as much as a few documents.
const WORTH_A_THREAD: usize = 4;

/// Passes each document of a file to `work`, on two threads, and the results in the order of the documents to `done`, until that
/// returns false.
/// Errors: the file cannot be read; those of `done`.
pub(super) fn in_batches<T: Send>(
    input: &mut Input,
    work: &(dyn Fn(Result<Part, String>) -> T + Sync),
    done: &mut dyn FnMut(T) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let (mut batch, mut bytes, mut open) = (Vec::new(), 0, true);
    each_part(input, &mut |part| {
        bytes += part.as_ref().map_or(0, |part| part.body.len());
        batch.push(part);
        if bytes >= BATCH_BYTES {
            bytes = 0;
            open = finish(std::mem::take(&mut batch), work, done)?;
        }
        Ok(open)
    })?;
    if open {
        finish(batch, work, done)?;
    }
    Ok(())
}

/// Works on one batch.
fn finish<T: Send>(
    batch: Vec<Result<Part, String>>,
    work: &(dyn Fn(Result<Part, String>) -> T + Sync),
    done: &mut dyn FnMut(T) -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    for result in both(batch, work) {
        if !done(result)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The results, in order: each of two threads takes the next document that is left.
fn both<T: Send>(
    batch: Vec<Result<Part, String>>,
    work: &(dyn Fn(Result<Part, String>) -> T + Sync),
) -> Vec<T> {
    if batch.len() < WORTH_A_THREAD {
        return batch.into_iter().map(work).collect();
    }
    let left = Mutex::new(batch.into_iter().enumerate());
    let next = || left.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
    let each = || {
        let mut results = Vec::new();
        while let Some((at, part)) = next() {
            results.push((at, work(part)));
        }
        results
    };
    let mut all = thread::scope(|scope| {
        // Without another thread, this one takes all of them.
        let other = thread::Builder::new().spawn_scoped(scope, each);
        let mut all = each();
        match other.map(thread::ScopedJoinHandle::join) {
            Ok(Ok(more)) => all.extend(more),
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => {}
        }
        all
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, result)| result).collect()
}
