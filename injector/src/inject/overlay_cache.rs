//! The overlays of earlier pods. The replicas of a workload share one: they differ in what no template reads,
//! such as the name of the volume with their token.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, PoisonError};

use gotemplate::Reads;

use super::InjectError;
use super::render::{Overlay, Rendering};
use crate::template::Data;

/// Overlays by template, and by all that the template reads of a pod. The config is that of the injector that
/// has the cache.
#[derive(Debug, Default)]
pub(super) struct OverlayCache(Mutex<HashMap<String, OfTemplate>>);

#[derive(Debug, Default)]
struct OfTemplate {
    /// What any rendering so far has read: what each key consists of.
    reads: Arc<Reads>,
    known: HashMap<Vec<u8>, Arc<Overlay>>,
    /// Hashes of the keys that were rendered last. Only a key that comes again is kept: pods that all differ
    /// cost no memory.
    seen: Vec<u64>,
    hasher: RandomState,
}

/// A key, and what it consists of.
struct Key {
    reads: Arc<Reads>,
    bytes: Vec<u8>,
}

impl OverlayCache {
    /// When there are so many, all are dropped.
    const MOST: usize = 128;
    /// Longer keys and texts are rendered each time.
    const MOST_BYTES: usize = 32 << 10;
    /// How many keys are remembered that were rendered once.
    const MOST_SEEN: usize = 256;

    /// The overlay of this template: a known one, or else the one that `render` makes.
    pub(super) fn overlay(
        &self,
        name: &str,
        data: &Data<'_>,
        render: impl FnOnce() -> Result<Rendering, InjectError>,
    ) -> Result<Overlay, InjectError> {
        let reads = self.of(name, |cache| Arc::clone(&cache.reads));
        if reads.is_volatile() {
            return render().map(|rendering| rendering.overlay);
        }
        let key = Key { bytes: data.key(&reads), reads };
        if let Some(known) = self.of(name, |cache| cache.known.get(&key.bytes).map(Arc::clone)) {
            return Ok(Overlay::clone(&known));
        }
        let rendering = render()?;
        self.of(name, |cache| cache.note(key, &rendering));
        Ok(rendering.overlay)
    }

    fn of<T>(&self, name: &str, with: impl FnOnce(&mut OfTemplate) -> T) -> T {
        let mut caches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match caches.get_mut(name) {
            Some(cache) => with(cache),
            None => with(caches.entry(name.to_owned()).or_default()),
        }
    }
}

impl OfTemplate {
    fn note(&mut self, key: Key, rendering: &Rendering) {
        let mut reads = Reads::clone(&self.reads);
        if reads.add(&rendering.reads) {
            // The keys so far lack something that is read.
            self.reads = Arc::new(reads);
            self.known.clear();
        }
        if !Arc::ptr_eq(&key.reads, &self.reads) {
            return;
        }
        if key.bytes.len() + rendering.bytes <= OverlayCache::MOST_BYTES && self.is_seen(&key.bytes) {
            if self.known.len() >= OverlayCache::MOST {
                self.known.clear();
            }
            self.known.insert(key.bytes, Arc::new(rendering.overlay.clone()));
        }
    }

    /// Whether a key was rendered before, if not too long ago.
    fn is_seen(&mut self, key: &[u8]) -> bool {
        let hash = self.hasher.hash_one(key);
        self.seen.resize(OverlayCache::MOST_SEEN, 0);
        let place = usize::try_from(hash % OverlayCache::MOST_SEEN as u64).unwrap_or_default();
        self.seen.get_mut(place).is_some_and(|seen| std::mem::replace(seen, hash) == hash)
    }
}
