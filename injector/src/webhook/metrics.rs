//! Metrics for Prometheus.
//!
//! Our own names begin with `sidecar_injector_`; those that begin with `sidecar_injection_` are Istio's, so
//! that its dashboards and alerts keep working. `sidecar_injector_config_load_errors_total` is registered as
//! `config_load_errors`: the prefix and, for counters, the suffix `_total` are added.

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
use prometheus_client::registry::{Metric, Registry, Unit};
use tokio::sync::watch;

use super::config_store::ConfigStore;
use super::log_queue::DroppedLines;
use super::process_metrics::ProcessMetrics;
use super::reasons;
use super::verdict::Verdict;
use crate::certs::CertResolver;
use crate::cluster::Status;

/// From a quarter of a millisecond, in seconds.
const BUCKETS: [f64; 15] =
    [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Series that exist before the first request of their sort: `rate` and `increase` see its first increase.
const FREQUENT: [(&str, &str); 14] = [
    ("injected", reasons::ALWAYS_SELECTOR.slug()),
    ("injected", reasons::INJECTED_AGAIN.slug()),
    ("injected", reasons::POD.slug()),
    ("injected", reasons::POLICY.slug()),
    ("skipped", reasons::HOST_NETWORK.slug()),
    ("skipped", reasons::NEVER_SELECTOR.slug()),
    ("skipped", reasons::POD.slug()),
    ("skipped", reasons::POLICY.slug()),
    ("denied", reasons::ANNOTATIONS.slug()),
    ("denied", reasons::CAPTURE.slug()),
    ("denied", reasons::RENDER.slug()),
    ("denied", reasons::UNKNOWN_TEMPLATE.slug()),
    ("rejected", reasons::BUSY.slug()),
    ("rejected", reasons::DEADLINE.slug()),
];

/// The outcome of a request, and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    outcome: &'static str,
    reason: &'static str,
}

/// The build.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

/// All metrics.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    duration: Histogram,
    istio: IstioMetrics,
    /// Requests between their headers and their response.
    pub in_flight: Gauge,
    /// Open connections to the admission port.
    pub connections: Gauge,
    /// Accepted connections.
    pub accepted: Counter,
    /// TLS handshakes that failed or timed out.
    pub handshake_failures: Counter,
    /// Reviews that failed with a panic.
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

/// A new counter or gauge.
fn new<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// A new histogram of seconds.
fn seconds(registry: &mut Registry, name: &str, help: &str) -> Histogram {
    let histogram = Histogram::new(BUCKETS);
    registry.register_with_unit(name, help, Unit::Seconds, histogram.clone());
    histogram
}

impl Metrics {
    /// All at zero.
    pub(super) fn new(
        config: &ConfigStore,
        serving: &CertResolver,
        cluster: Option<&watch::Receiver<Status>>,
    ) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ProcessMetrics));
        let istio = IstioMetrics::new(&mut registry);
        let own = registry.sub_registry_with_prefix("sidecar_injector");
        register_state(own, config, serving);
        if let Some(cluster) = cluster {
            own.register_collector(Box::new(ClusterMetrics(cluster.clone())));
        }
        own.register_collector(Box::new(DroppedLines));
        let requests: Family<RequestLabels, Counter> = new(own, "requests", "Requests by outcome and reason");
        for (outcome, reason) in FREQUENT {
            drop(requests.get_or_create(&RequestLabels { outcome, reason }));
        }
        Self {
            requests,
            duration: seconds(own, "request_duration", "Time from the headers of a request to its response"),
            istio,
            in_flight: new(own, "requests_in_flight", "Requests between their headers and their response"),
            connections: new(own, "connections", "Open connections to the admission port"),
            accepted: new(own, "connections_accepted", "Accepted connections"),
            handshake_failures: new(own, "tls_handshake_failures", "TLS handshakes that failed or timed out"),
            panics: new(own, "panics", "Reviews that failed with a panic"),
            registry,
        }
    }

    /// Counts a verdict; `review` is the time that it took, `whole` the time since the head of the request.
    pub(super) fn reviewed(&self, verdict: &Verdict, review: Duration, whole: Duration) {
        self.count(verdict.outcome(), verdict.reason(), whole);
        self.istio.time.observe(review.as_secs_f64());
        match verdict {
            Verdict::Patched { .. } => self.istio.success.inc(),
            Verdict::Unchanged { .. } => self.istio.skip.inc(),
            Verdict::Denied { .. } => self.istio.failure.inc(),
        };
    }

    /// Counts a request that got no verdict.
    pub(super) fn rejected(&self, reason: &'static str, whole: Duration) {
        self.count("rejected", reason, whole);
        self.istio.failure.inc();
    }

    fn count(&self, outcome: &'static str, reason: &'static str, whole: Duration) {
        self.istio.requests.inc();
        self.requests.get_or_create(&RequestLabels { outcome, reason }).inc();
        self.duration.observe(whole.as_secs_f64());
    }

    /// The metrics, for a scraper that accepts this; with the `Content-Type`.
    pub(super) fn text(&self, accept: &str) -> (&'static str, String) {
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
    fn new(registry: &mut Registry) -> Self {
        let requests = |of: &str| format!("Total number of {of}sidecar injection requests");
        Self {
            requests: new(registry, "sidecar_injection_requests", &requests("")),
            success: new(registry, "sidecar_injection_success", &requests("successful ")),
            failure: new(registry, "sidecar_injection_failure", &requests("failed ")),
            skip: new(registry, "sidecar_injection_skip", &requests("skipped ")),
            time: seconds(registry, "sidecar_injection_time", "Total time taken for injection"),
        }
    }
}

/// The state of config and certificate.
fn register_state(own: &mut Registry, config: &ConfigStore, serving: &CertResolver) {
    let loads = config.metrics();
    own.register("config_generation", "Number of configs that have become active", loads.generation.clone());
    own.register("config_load_errors", "Rejected configs", loads.errors.clone());
    let stale = "1 while the newest config is rejected and an older one is active";
    own.register("config_stale", stale, loads.stale.clone());
    for (name, help, time) in [
        ("config_last_success_timestamp", "When a config was last accepted", &loads.success),
        ("certificate_expiry_timestamp", "When the served certificate expires", serving.expiry()),
    ] {
        own.register_with_unit(name, help, Unit::Seconds, time.clone());
    }
    let rejected = "Certificates that were rejected or could not be issued";
    own.register("certificate_errors", rejected, serving.errors().clone());
    let build: Family<BuildLabels, Gauge> = new(own, "build_info", "The version of the program");
    build.get_or_create(&BuildLabels { version: env!("CARGO_PKG_VERSION") }).set(1);
}

/// The state of what is read from the cluster and written to it.
#[derive(Debug)]
struct ClusterMetrics(watch::Receiver<Status>);

impl Collector for ClusterMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let status = self.0.borrow().clone();
        let help = "1 while this part of the cluster cannot be read or written";
        let mut problems = encoder.encode_descriptor("cluster_problem", help, None, MetricType::Gauge)?;
        for (part, problem) in status.problems() {
            ConstGauge::new(i64::from(problem)).encode(problems.encode_family(&[("part", part)])?)?;
        }
        for (name, help, count) in [
            ("ca_bundle_writes", "Writes of a caBundle", status.ca_bundle_writes),
            (
                "ca_bundle_conflicts",
                "Repairs of a caBundle that were delayed because another writer keeps changing it",
                status.ca_bundle_conflicts,
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
            (Some("#"), ..) => {} // UNIT and EOF do not exist there
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
    fn counters_are_named_by_their_samples_in_the_plain_format() {
        let open = "# HELP a_b Things.\n# TYPE a_b counter\na_b_total{c=\"# d\"} 1\n# HELP t Time.\n# TYPE t gauge\n\
                    # UNIT t seconds\nt 2\n# EOF\n";
        let expected = "# HELP a_b_total Things.\n# TYPE a_b_total counter\na_b_total{c=\"# d\"} 1\n# HELP t Time.\n\
                        # TYPE t gauge\nt 2\n";
        assert_eq!(plain(open), expected);
    }
}
