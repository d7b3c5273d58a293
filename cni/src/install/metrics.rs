//! The agent's metrics, in the text format of Prometheus.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};

use super::dry_add::POD as DRY_ADD;
use crate::lookup::Response;

/// A family of counters: name and help.
type Family = (&'static str, &'static str);

/// As Istio's agent has it.
const READY: Family = ("istio_cni_install_ready", "Whether the plugin is installed and the agent is ready.");
/// As Istio's agent has it.
const INSTALLS: Family = (
    "istio_cni_installs_total",
    "Installations: program or entry written (SUCCESS), attempts that failed (FAILURE).",
);
const CONFLICTS: Family =
    ("istio_cni_conflicts_total", "How often the entry was written again after a change by another program.");
const ADDS: Family = (
    "istio_cni_adds_total",
    "Calls of ADD by the runtime that ended with this outcome, from the plugin's log lines.",
);
const ERRORS: Family = (
    "istio_cni_errors_total",
    "Calls by the runtime that failed, by the error's code, from the plugin's log lines.",
);
const LOOKUPS: Family = ("istio_cni_pod_lookups_total", "Lookups of a pod by the plugin, by result.");

/// Of the pods of this node.
const UNCAPTURED: Family =
    ("istio_cni_uncaptured_pods", "Pods that were injected for the plugin and run without capture.");

/// As Istio's agent has it.
const POD_REPAIRS: Family = (
    "istio_cni_repair_pods_repaired_total",
    "Attempts to repair a pod that has started without capture, by action and result.",
);
const DRIFT: Family = (
    "istio_cni_drift_total",
    "How often the rules of a captured pod were changed by another program, by what differs: rules, network, or a foreign rule.",
);
const CONFLICTING: Family = (
    "istio_cni_repair_conflicts_total",
    "How often a repair was delayed because another program keeps changing the rules of a captured pod, by that program.",
);
/// Most programs that have a label of their own: a program in a pod may give itself any name.
const MOST_PROGRAMS: usize = 16;
const GUARD_FAILURES: Family =
    ("istio_cni_guard_failures_total", "Comparisons and repairs of the rules of a captured pod that failed.");
const LOST_NOTICES: Family = (
    "istio_cni_lost_notices_total",
    "How often the kernel dropped notices of changes; all pods are compared then.",
);
const ESCAPED: Family = (
    "istio_cni_escaped_connections_total",
    "Connections that began while the rules of a captured pod were not as they should be, and that are outside the mesh.",
);
const RESET: Family =
    ("istio_cni_reset_connections_total", "Those of them that were reset (option --reset-escaped).");
const GUARDED: Family = ("istio_cni_guarded_pods", "Captured pods whose rules are guarded.");
const UNGUARDED: Family = (
    "istio_cni_unguarded_pods",
    "Captured pods whose network namespace is not in the directory of the option --netns-dir, or whose state cannot be used.",
);
const DRIFTED: Family = ("istio_cni_drifted_pods", "Guarded pods whose rules differ now.");
const ANNOUNCED: Family = (
    "istio_cni_guard_notices",
    "Whether the kernel announces changes to the agent; without, audits alone find them.",
);
const REPAIRS: Family = (
    "istio_cni_repair_seconds",
    "Time from the notice of a change, or the begin of the audit, to repaired rules.",
);
/// The upper bounds of repair times, in microseconds and as labels.
const BOUNDS: [(u64, &str); 9] = [
    (500, "0.0005"),
    (1_000, "0.001"),
    (2_000, "0.002"),
    (5_000, "0.005"),
    (20_000, "0.02"),
    (100_000, "0.1"),
    (1_000_000, "1"),
    (10_000_000, "10"),
    (u64::MAX, "+Inf"),
];

/// Repair times: how many are within each bound, and their sum in microseconds.
#[derive(Clone, Copy, Default)]
struct Repairs {
    within: [u64; BOUNDS.len()],
    sum: u64,
}

impl Repairs {
    fn text(&self) -> String {
        let name = REPAIRS.0;
        let mut text = head(REPAIRS, "histogram");
        for ((_, label), count) in BOUNDS.iter().zip(self.within) {
            text.push_str(&format!("{name}_bucket{{le=\"{label}\"}} {count}\n"));
        }
        let (sum, count) = (Duration::from_micros(self.sum), self.within.last().copied().unwrap_or_default());
        text.push_str(&format!("{name}_sum {}\n{name}_count {count}\n", sum.as_secs_f64()));
        text
    }
}

/// The counters, by family and labels.
#[derive(Default)]
pub struct Metrics {
    counters: Mutex<BTreeMap<(Family, String), u64>>,
    /// Of the guard, once it runs.
    gauges: Mutex<BTreeMap<Family, usize>>,
    repairs: Mutex<Repairs>,
    uncaptured: OnceLock<Box<dyn Fn() -> usize + Send + Sync>>,
}

impl Metrics {
    /// From now on pods without capture are counted, too.
    pub fn count_uncaptured(&self, uncaptured: impl Fn() -> usize + Send + Sync + 'static) {
        // The node stays the same one.
        let _ = self.uncaptured.set(Box::new(uncaptured));
    }

    fn add(&self, family: Family, labels: String) {
        self.add_number(family, labels, 1);
    }

    fn add_number(&self, family: Family, labels: String, number: usize) {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = counters.entry((family, labels)).or_default();
        *counter = counter.saturating_add(u64::try_from(number).unwrap_or(u64::MAX));
    }

    /// The guard runs; whether changes are announced to it.
    pub fn guards(&self, is_announced: bool) {
        self.gauge(ANNOUNCED, usize::from(is_announced));
    }

    /// Pods without capture are repaired by this action from now on.
    pub fn repairs_pods(&self, action: &str) {
        self.uncaptured(0);
        // A rate begins at 0.
        for result in ["success", "fail", "skip"] {
            self.add_number(POD_REPAIRS, repair_labels(action, result), 0);
        }
    }

    /// An attempt to repair a pod without capture.
    pub fn pod_repair(&self, action: &str, result: &str) {
        self.add(POD_REPAIRS, repair_labels(action, result));
    }

    /// How many pods run without capture.
    pub fn uncaptured(&self, pods: usize) {
        self.gauge(UNCAPTURED, pods);
    }

    /// How many pods are guarded, how many of them differ, and how many are not guarded.
    pub fn guarded(&self, pods: usize, drifted: usize, others: usize) {
        self.gauge(GUARDED, pods);
        self.gauge(UNGUARDED, others);
        self.gauge(DRIFTED, drifted);
    }

    fn gauge(&self, family: Family, value: usize) {
        self.gauges.lock().unwrap_or_else(PoisonError::into_inner).insert(family, value);
    }

    /// The rules of a pod differ: what.
    pub fn drift(&self, reason: &str) {
        self.add(DRIFT, format!("{{reason=\"{reason}\"}}"));
    }

    /// A repair is delayed; `programs` keep changing the rules, none where that is not known.
    pub fn repair_conflict<'a>(&self, programs: impl Iterator<Item = &'a str>) {
        let mut programs = programs.peekable();
        if programs.peek().is_none() {
            self.add(CONFLICTING, label("program", "unknown"));
        }
        for program in programs {
            let labels = label("program", program);
            let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
            let known = counters.keys().filter(|(family, _)| *family == CONFLICTING);
            let is_own =
                known.clone().count() < MOST_PROGRAMS || known.into_iter().any(|(_, one)| *one == labels);
            drop(counters);
            self.add(CONFLICTING, if is_own { labels } else { label("program", "other") });
        }
    }

    /// The rules of a pod are repaired.
    pub fn repaired(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let mut repairs = self.repairs.lock().unwrap_or_else(PoisonError::into_inner);
        for (count, (bound, _)) in repairs.within.iter_mut().zip(BOUNDS) {
            *count += u64::from(micros <= bound);
        }
        repairs.sum = repairs.sum.saturating_add(micros);
    }

    /// Connections are outside the mesh; how many of them were reset.
    pub fn escaped(&self, connections: usize, reset: usize) {
        self.add_number(ESCAPED, String::new(), connections);
        self.add_number(RESET, String::new(), reset);
    }

    /// The rules of a pod cannot be compared or repaired.
    pub fn guard_failed(&self) {
        self.add(GUARD_FAILURES, String::new());
    }

    /// The kernel has dropped notices.
    pub fn notices_lost(&self) {
        self.add(LOST_NOTICES, String::new());
    }

    /// An attempt to install, which wrote something or failed.
    pub fn installation(&self, succeeded: bool) {
        let result = if succeeded { "SUCCESS" } else { "FAILURE" };
        self.add(INSTALLS, format!("{{result=\"{result}\"}}"));
    }

    /// Another program changed the entry.
    pub fn conflict(&self) {
        self.add(CONFLICTS, String::new());
    }

    /// The agent has responded to a lookup.
    pub fn lookup(&self, response: &Response) {
        let result = match response {
            Response::Pod(_) => "pod",
            Response::NotFound => "not_found",
            Response::Unknown(_) => "unknown",
        };
        self.add(LOOKUPS, format!("{{result=\"{result}\"}}"));
    }

    /// The plugin has sent a log line. Lines of the test run are not those of a pod.
    pub fn plugin_line(&self, line: &Map<String, Value>) {
        let text = |key: &str| line.get(key).and_then(Value::as_str);
        if text("pod") == Some(DRY_ADD) {
            return;
        }
        // The plugin runs as root, but what it logs is no reason for a series of any name.
        let outcomes = ["captured", "not_captured"];
        if let Some(outcome) = outcomes.into_iter().find(|outcome| text("outcome") == Some(outcome)) {
            self.add(ADDS, format!("{{outcome=\"{outcome}\"}}"));
        }
        let commands = ["ADD", "CHECK", "GC", "STATUS"];
        let command = commands.into_iter().find(|command| text("command") == Some(command));
        let code = line.get("code").and_then(Value::as_u64).filter(|code| *code < 1000);
        if let (Some(command), Some(code)) = (command, code) {
            if command == "ADD" {
                self.add(ADDS, "{outcome=\"failed\"}".to_owned());
            }
            self.add(ERRORS, format!("{{command=\"{command}\",code=\"{code}\"}}"));
        }
    }

    /// Everything, for a scrape.
    #[must_use]
    pub fn text(&self, ready: bool) -> String {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Without labels, so that a rate begins at 0.
        counters.entry((CONFLICTS, String::new())).or_default();
        let gauges = self.gauges.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_guarded = gauges.contains_key(&ANNOUNCED);
        if is_guarded {
            for reason in ["rules", "network", "foreign"] {
                counters.entry((DRIFT, format!("{{reason=\"{reason}\"}}"))).or_default();
            }
            for family in [GUARD_FAILURES, LOST_NOTICES, ESCAPED, RESET] {
                counters.entry((family, String::new())).or_default();
            }
        }
        let mut text = head(READY, "gauge");
        text.push_str(&format!("{} {}\n", READY.0, u8::from(ready)));
        if let Some(uncaptured) = self.uncaptured.get() {
            text.push_str(&format!("{}{} {}\n", head(UNCAPTURED, "gauge"), UNCAPTURED.0, uncaptured()));
        }
        for (family, value) in &gauges {
            text.push_str(&format!("{}{} {value}\n", head(*family, "gauge"), family.0));
        }
        if is_guarded {
            let repairs = *self.repairs.lock().unwrap_or_else(PoisonError::into_inner);
            text.push_str(&repairs.text());
        }
        let mut last = None;
        for ((family, labels), count) in &counters {
            if last != Some(family) {
                text.push_str(&head(*family, "counter"));
                last = Some(family);
            }
            text.push_str(&format!("{}{labels} {count}\n", family.0));
        }
        text
    }
}

fn repair_labels(action: &str, result: &str) -> String {
    format!("{{type=\"{action}\",result=\"{result}\"}}")
}

/// A label with its value, escaped as in the text format of Prometheus.
fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{{{name}=\"{value}\"}}")
}

fn head((name, help): Family, kind: &str) -> String {
    format!("# HELP {name} {help}\n# TYPE {name} {kind}\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(metrics: &Metrics, line: &Value) {
        metrics.plugin_line(line.as_object().unwrap());
    }

    #[test]
    fn programs_that_undo_repairs_have_a_limited_number_of_labels() {
        let metrics = Metrics::default();
        metrics.repair_conflict(["nft", "a\"b\\c\n"].into_iter());
        metrics.repair_conflict(std::iter::empty());
        let others: Vec<String> = (0..100).map(|number| format!("program-{number}")).collect();
        metrics.repair_conflict(others.iter().map(String::as_str).chain(["nft"]));
        let text = metrics.text(true);
        for sample in ["nft\"} 2", "unknown\"} 1", "a\\\"b\\\\c\\n\"} 1", "other\"} 87"] {
            let sample = format!("istio_cni_repair_conflicts_total{{program=\"{sample}");
            assert!(text.lines().any(|line| line == sample), "{sample}: {text}");
        }
        assert_eq!(text.matches("istio_cni_repair_conflicts_total{").count(), MOST_PROGRAMS + 1);
    }

    #[test]
    fn repair_times_are_a_histogram_once_the_guard_runs() {
        let metrics = Metrics::default();
        assert!(!metrics.text(true).contains("istio_cni_drift_total"));
        metrics.guards(true);
        metrics.guarded(3, 1, 2);
        metrics.drift("rules");
        metrics.repaired(Duration::from_micros(700));
        metrics.repaired(Duration::from_secs(11));
        let text = metrics.text(true);
        for sample in [
            "istio_cni_guarded_pods 3",
            "istio_cni_drifted_pods 1",
            "istio_cni_unguarded_pods 2",
            "istio_cni_guard_notices 1",
            "istio_cni_drift_total{reason=\"rules\"} 1",
            "istio_cni_drift_total{reason=\"foreign\"} 0",
            "istio_cni_lost_notices_total 0",
            "istio_cni_repair_seconds_bucket{le=\"0.0005\"} 0",
            "istio_cni_repair_seconds_bucket{le=\"0.001\"} 1",
            "istio_cni_repair_seconds_bucket{le=\"10\"} 1",
            "istio_cni_repair_seconds_bucket{le=\"+Inf\"} 2",
            "istio_cni_repair_seconds_sum 11.0007",
            "istio_cni_repair_seconds_count 2",
        ] {
            assert!(text.lines().any(|line| line == sample), "{sample}: {text}");
        }
    }

    /// Without the guard, whose families are its own.
    #[test]
    fn repairs_of_pods_begin_at_0() {
        let metrics = Metrics::default();
        metrics.repairs_pods("label");
        metrics.pod_repair("label", "fail");
        metrics.uncaptured(2);
        let text = metrics.text(true);
        for sample in [
            "istio_cni_uncaptured_pods 2",
            "istio_cni_repair_pods_repaired_total{type=\"label\",result=\"success\"} 0",
            "istio_cni_repair_pods_repaired_total{type=\"label\",result=\"fail\"} 1",
            "istio_cni_repair_pods_repaired_total{type=\"label\",result=\"skip\"} 0",
        ] {
            assert!(text.lines().any(|line| line == sample), "{sample}: {text}");
        }
        assert!(
            !text.contains("istio_cni_drift_total") && !text.contains("istio_cni_repair_seconds"),
            "{text}"
        );
    }

    #[test]
    fn counters_are_in_the_text_format() {
        let metrics = Metrics::default();
        metrics.installation(true);
        metrics.installation(false);
        metrics.installation(false);
        metrics.lookup(&Response::NotFound);
        line(&metrics, &json!({"msg": "captured", "outcome": "captured", "pod": "a/b"}));
        line(&metrics, &json!({"level": "error", "command": "ADD", "code": 11, "pod": "a/b"}));
        line(&metrics, &json!({"level": "error", "command": "STATUS", "code": 50}));
        let text = metrics.text(true);
        for sample in [
            "istio_cni_install_ready 1",
            "istio_cni_installs_total{result=\"SUCCESS\"} 1",
            "istio_cni_installs_total{result=\"FAILURE\"} 2",
            "istio_cni_conflicts_total 0",
            "istio_cni_adds_total{outcome=\"captured\"} 1",
            "istio_cni_adds_total{outcome=\"failed\"} 1",
            "istio_cni_errors_total{command=\"ADD\",code=\"11\"} 1",
            "istio_cni_errors_total{command=\"STATUS\",code=\"50\"} 1",
            "istio_cni_pod_lookups_total{result=\"not_found\"} 1",
        ] {
            assert!(text.lines().any(|line| line == sample), "{sample}: {text}");
        }
        assert!(metrics.text(false).contains("\nistio_cni_install_ready 0\n"));
        // Each family has its head once, and before its samples.
        let heads: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
        assert_eq!(heads.len(), 6, "{text}");
        for head in heads {
            let name = head.split(' ').nth(2).unwrap();
            let at = text.find(head).unwrap();
            assert!(text.find(&format!("\n{name}")).unwrap() > at, "{text}");
        }
    }

    #[test]
    fn lines_make_no_series_of_any_name() {
        let metrics = Metrics::default();
        let before = metrics.text(true);
        for other in [
            json!({"msg": "captured", "outcome": "x\"} 1\n"}),
            json!({"command": "ADD\"", "code": 1}),
            json!({"command": "ADD", "code": 100_000}),
            json!({"outcome": "captured", "pod": DRY_ADD}),
            json!({"command": "ADD", "code": 102, "pod": DRY_ADD}),
            json!({"msg": "captured"}),
        ] {
            line(&metrics, &other);
        }
        assert_eq!(metrics.text(true), before);
    }
}
