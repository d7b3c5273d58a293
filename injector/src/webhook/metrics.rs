//! What is counted.
//!
//! Names of our own begin with `sidecar_injector_`; those that begin with `sidecar_injection_` are Istio's, so that
//! its dashboards and alerts go on working.

use std::fmt::Write as _;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::admit::Record;
use super::live::Live;
use super::log_queue::Dropped;
use super::progress::Progress;
use super::verdict::Outcome;
use crate::certs::Serving;

/// From a quarter of a millisecond, in seconds.
const BUCKETS: [f64; 15] =
    [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// What became of a request, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Why {
    outcome: &'static str,
    reason: &'static str,
}

/// Which program this is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
}

/// Everything that is counted.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<Why, Counter>,
    duration: Histogram,
    cache_hits: Counter,
    cache_misses: Counter,
    istio: IstioMetrics,
    /// Requests that are read or worked on.
    pub in_flight: Gauge,
    /// Open connections to the admission port.
    pub connections: Gauge,
    /// Connections that were accepted.
    pub accepted: Counter,
    /// Idle connections that were closed to make room for others.
    pub evicted: Counter,
    /// Silent connections to the monitoring port that were closed to make room for others.
    pub monitoring_evicted: Counter,
    /// Handshakes that failed or took too long.
    pub handshake_failures: Counter,
    /// Requests during which the program itself failed.
    pub panics: Counter,
}

/// Istio's own metrics.
#[derive(Debug)]
struct IstioMetrics {
    requests: Counter,
    success: Counter,
    failure: Counter,
    skip: Counter,
    time: Histogram,
}

impl Metrics {
    /// Nothing counted yet.
    #[must_use]
    pub fn new(live: &Live, serving: &Serving, progress: &Progress) -> Self {
        let mut registry = Registry::default();
        let istio = IstioMetrics::registered(&mut registry);
        let mut all = Self {
            requests: Family::default(),
            duration: Histogram::new(BUCKETS),
            cache_hits: Counter::default(),
            cache_misses: Counter::default(),
            istio,
            in_flight: Gauge::default(),
            connections: Gauge::default(),
            accepted: Counter::default(),
            evicted: Counter::default(),
            monitoring_evicted: Counter::default(),
            handshake_failures: Counter::default(),
            panics: Counter::default(),
            registry: Registry::default(),
        };
        let own = registry.sub_registry_with_prefix("sidecar_injector");
        all.register(own);
        register_state(own, live, serving);
        own.register_collector(Box::new(progress.clone()));
        own.register_collector(Box::new(Dropped));
        all.registry = registry;
        all
    }

    fn register(&self, own: &mut Registry) {
        own.register("requests", "Requests by what became of them", self.requests.clone());
        own.register_with_unit(
            "request_duration",
            "Time from a request's head to its answer",
            Unit::Seconds,
            self.duration.clone(),
        );
        own.register("requests_in_flight", "Requests that are read or worked on", self.in_flight.clone());
        own.register("cache_hits", "Patches that were taken from the cache", self.cache_hits.clone());
        own.register("cache_misses", "Patches that were made", self.cache_misses.clone());
        own.register("connections", "Open connections to the admission port", self.connections.clone());
        own.register("connections_accepted", "Connections that were accepted", self.accepted.clone());
        own.register("connections_evicted", "Idle connections closed to make room", self.evicted.clone());
        own.register(
            "monitoring_connections_evicted",
            "Silent connections to the monitoring port closed to make room",
            self.monitoring_evicted.clone(),
        );
        own.register(
            "tls_handshake_failures",
            "Handshakes that failed or took too long",
            self.handshake_failures.clone(),
        );
        own.register("panics", "Requests during which the program itself failed", self.panics.clone());
    }

    /// Counts an answer of the engine; `engine` is the time that it took, `whole` the time since the request's head.
    pub fn answered(&self, record: &Record, engine: Duration, whole: Duration) {
        self.count(record.outcome.slug(), record.reason, whole);
        self.istio.time.observe(engine.as_secs_f64());
        match record.outcome {
            Outcome::Injected => {
                self.istio.success.inc();
                if record.cached {
                    self.cache_hits.inc()
                } else {
                    self.cache_misses.inc()
                };
            }
            Outcome::Skipped => {
                self.istio.skip.inc();
            }
            Outcome::Denied | Outcome::Invalid => {
                self.istio.failure.inc();
            }
        }
    }

    /// Counts a request that did not get as far as the engine.
    pub fn rejected(&self, reason: &'static str, whole: Duration) {
        self.count("rejected", reason, whole);
        self.istio.failure.inc();
    }

    fn count(&self, outcome: &'static str, reason: &'static str, whole: Duration) {
        self.istio.requests.inc();
        self.requests.get_or_create(&Why { outcome, reason }).inc();
        self.duration.observe(whole.as_secs_f64());
    }

    /// All of them, for a scraper that accepts this; with the `Content-Type`.
    #[must_use]
    pub fn text(&self, accept: &str) -> (&'static str, String) {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        if accept.contains("application/openmetrics-text") {
            ("application/openmetrics-text; version=1.0.0; charset=utf-8", text)
        } else {
            ("text/plain; version=0.0.4; charset=utf-8", plain(&text))
        }
    }
}

impl IstioMetrics {
    fn registered(registry: &mut Registry) -> Self {
        let all = Self {
            requests: Counter::default(),
            success: Counter::default(),
            failure: Counter::default(),
            skip: Counter::default(),
            time: Histogram::new(BUCKETS),
        };
        registry.register(
            "sidecar_injection_requests",
            "Total number of sidecar injection requests",
            all.requests.clone(),
        );
        registry.register(
            "sidecar_injection_success",
            "Total number of successful sidecar injection requests",
            all.success.clone(),
        );
        registry.register(
            "sidecar_injection_failure",
            "Total number of failed sidecar injection requests",
            all.failure.clone(),
        );
        registry.register(
            "sidecar_injection_skip",
            "Total number of skipped sidecar injection requests",
            all.skip.clone(),
        );
        registry.register_with_unit(
            "sidecar_injection_time",
            "Total time taken for injection",
            Unit::Seconds,
            all.time.clone(),
        );
        all
    }
}

/// What config and certificate know of themselves.
fn register_state(own: &mut Registry, live: &Live, serving: &Serving) {
    let loads = live.loads();
    own.register("config_generation", "Counts the configs that were in force", loads.generation.clone());
    own.register("config_load_errors", "Configs that were refused", loads.errors.clone());
    own.register(
        "config_stale",
        "1 while the newest config is refused and an older one is in force",
        loads.stale.clone(),
    );
    own.register_with_unit(
        "config_last_success_timestamp",
        "When a config was last found good",
        Unit::Seconds,
        loads.success.clone(),
    );
    own.register_with_unit(
        "certificate_expiry_timestamp",
        "When the served certificate expires",
        Unit::Seconds,
        serving.expiry().clone(),
    );
    own.register(
        "certificate_errors",
        "Certificates that were refused or could not be made",
        serving.errors().clone(),
    );
    let build = Family::<Build, Gauge>::default();
    build.get_or_create(&Build { version: env!("CARGO_PKG_VERSION") }).set(1);
    own.register("build_info", "Which program this is", build);
}

/// What the parts say that follow a cluster; nothing without one.
impl Collector for Progress {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let snapshot = self.snapshot();
        if snapshot.parts.is_empty() {
            return Ok(());
        }
        let help = "1 while this part of the cluster cannot be read or written";
        let mut problems = encoder.encode_descriptor("cluster_problem", help, None, MetricType::Gauge)?;
        for (part, problem) in &snapshot.parts {
            ConstGauge::new(i64::from(*problem)).encode(problems.encode_family(&[("part", *part)])?)?;
        }
        for (name, help, count) in [
            ("ca_bundle_writes", "Writes of a caBundle", snapshot.ca_bundle_writes),
            (
                "ca_bundle_disputes",
                "Repairs of a caBundle that were put off because somebody else keeps changing it",
                snapshot.ca_bundle_disputes,
            ),
        ] {
            let counter = ConstCounter::new(count);
            counter.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        Ok(())
    }
}

/// OpenMetrics text in the older format of Prometheus, where a counter's whole name is that of its samples.
fn plain(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), Some(words)) => help = Some((name, words)),
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let suffix = if kind == "counter" { "_total" } else { "" };
                if let Some((_, words)) = help.take().filter(|(of, _)| *of == name) {
                    // Writing to a string does not fail.
                    let _ = writeln!(text, "# HELP {name}{suffix} {words}");
                }
                let _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
            }
            (Some("#"), ..) => {} // UNIT and EOF are not known there
            _ => {
                let _ = writeln!(text, "{line}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats() {
        let open = "# HELP a_b Things.\n# TYPE a_b counter\na_b_total{c=\"# d\"} 1\n# HELP t Time.\n# TYPE t gauge\n\
                    # UNIT t seconds\nt 2\n# EOF\n";
        let expected = "# HELP a_b_total Things.\n# TYPE a_b_total counter\na_b_total{c=\"# d\"} 1\n# HELP t Time.\n\
                        # TYPE t gauge\nt 2\n";
        assert_eq!(plain(open), expected);
    }
}
