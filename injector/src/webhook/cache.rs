//! Verdicts that were reached before. Bounded by bytes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::key::Key;
use super::verdict::Verdict;

/// What an entry takes besides its texts: key, counts, its share of the tables.
const OVERHEAD: usize = 256;

/// Two halves: what is asked for moves to the young one; when that is full it becomes the old one, and the old one goes.
#[derive(Debug)]
pub struct Cache {
    half: usize,
    halves: Mutex<Halves>,
}

#[derive(Debug, Default)]
struct Halves {
    young: HashMap<Key, Arc<Verdict>>,
    old: HashMap<Key, Arc<Verdict>>,
    young_bytes: usize,
}

impl Cache {
    /// A cache of so many bytes, none for 0.
    #[must_use]
    pub fn new(bytes: usize) -> Option<Self> {
        (bytes > 0).then(|| Self { half: bytes / 2, halves: Mutex::default() })
    }

    /// A verdict that was kept.
    #[must_use]
    pub fn find(&self, key: &Key) -> Option<Arc<Verdict>> {
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(verdict) = halves.young.get(key) {
            return Some(Arc::clone(verdict));
        }
        let verdict = halves.old.remove(key)?;
        let gone = halves.put(*key, Arc::clone(&verdict), self.half);
        drop(halves);
        drop(gone);
        Some(verdict)
    }

    /// Keeps a verdict, unless it is larger than half of the cache.
    pub fn keep(&self, key: Key, verdict: Arc<Verdict>) {
        if bytes(&verdict) > self.half {
            return;
        }
        // What goes is freed when nobody waits for it.
        let gone = self.halves.lock().unwrap_or_else(PoisonError::into_inner).put(key, verdict, self.half);
        drop(gone);
    }
}

impl Halves {
    /// The half that goes, if one does.
    fn put(&mut self, key: Key, verdict: Arc<Verdict>, half: usize) -> HashMap<Key, Arc<Verdict>> {
        let new = bytes(&verdict);
        let mut gone = HashMap::new();
        if self.young_bytes + new > half {
            gone = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
            self.young_bytes = 0;
        }
        self.young_bytes += new;
        if let Some(before) = self.young.insert(key, verdict) {
            self.young_bytes -= bytes(&before);
        }
        gone
    }
}

fn bytes(verdict: &Verdict) -> usize {
    OVERHEAD + verdict.bytes()
}

#[cfg(test)]
mod tests {
    use super::super::key::Parts;
    use super::*;

    fn key(number: usize) -> Key {
        Parts::default().and(number.to_string()).key()
    }

    fn verdict(length: usize) -> Arc<Verdict> {
        Arc::new(Verdict { message: "x".repeat(length), ..Verdict::default() })
    }

    fn kept(cache: &Cache) -> usize {
        let halves = cache.halves.lock().unwrap();
        halves.young.values().chain(halves.old.values()).map(|verdict| bytes(verdict)).sum()
    }

    #[test]
    fn it_never_grows_beyond_its_bound() {
        let cache = Cache::new(100_000).unwrap();
        for number in 0..2000 {
            cache.keep(key(number % 700), verdict(number * 7 % 3000));
            if number % 3 == 0 {
                let _ = cache.find(&key(number / 2));
            }
            assert!(kept(&cache) <= 100_000);
            assert_eq!(cache.find(&key(number % 700)), Some(verdict(number * 7 % 3000)));
        }
        cache.keep(key(9999), verdict(60_000));
        assert_eq!(cache.find(&key(9999)), None);
        assert!(Cache::new(0).is_none());
    }

    #[test]
    fn what_is_asked_for_stays() {
        let cache = Cache::new(10 * (OVERHEAD + 100)).unwrap();
        cache.keep(key(0), verdict(100));
        for number in 1..1000 {
            cache.keep(key(number), verdict(100));
            assert!(cache.find(&key(0)).is_some(), "{number}");
        }
        assert!(cache.find(&key(1)).is_none());
    }
}
