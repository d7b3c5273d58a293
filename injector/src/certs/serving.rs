//! The pair that is served now; another one takes its place between two handshakes.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::Pair;

/// What handshakes are answered with.
#[derive(Debug, Default)]
pub struct Serving {
    pair: ArcSwapOption<Pair>,
}

impl Serving {
    /// Serves this pair from the next handshake on.
    pub fn replace(&self, pair: Pair) {
        self.pair.store(Some(Arc::new(pair)));
    }

    /// What is served, if there is anything yet.
    #[must_use]
    pub fn pair(&self) -> Option<Arc<Pair>> {
        self.pair.load_full()
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.pair.load().as_ref().map(|pair| Arc::clone(&pair.certified))
    }
}
