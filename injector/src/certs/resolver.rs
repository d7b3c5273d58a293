//! The served certificate and key; hot reload replaces them between two handshakes.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use arc_swap::ArcSwapOption;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::ServingCert;

/// The pair that handshakes get.
#[derive(Debug, Default)]
pub struct CertResolver {
    pair: ArcSwapOption<ServingCert>,
    expiry: Gauge,
    errors: Counter,
}

impl CertResolver {
    /// Serves this pair from the next handshake on.
    pub fn replace(&self, pair: ServingCert) {
        let expiry = pair.not_after.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.expiry.set(i64::try_from(expiry.as_secs()).unwrap_or(i64::MAX));
        self.pair.store(Some(Arc::new(pair)));
    }

    /// The served pair, if there is one yet.
    #[must_use]
    pub fn pair(&self) -> Option<Arc<ServingCert>> {
        self.pair.load_full()
    }

    /// When the served pair expires, in seconds since 1970.
    #[must_use]
    pub const fn expiry(&self) -> &Gauge {
        &self.expiry
    }

    /// Pairs that were rejected, or could not be issued; their providers count them here.
    #[must_use]
    pub const fn errors(&self) -> &Counter {
        &self.errors
    }
}

impl ResolvesServerCert for CertResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.pair.load().as_ref().map(|pair| Arc::clone(&pair.certified))
    }
}
