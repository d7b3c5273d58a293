//! Metrics merging (`enablePrometheusMerge`): the scrape annotations point to the agent;
//! `ISTIO_PROMETHEUS_ANNOTATIONS` has the app's.

use std::collections::BTreeMap;

use istio_iptables::config::parse_bool;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::annotations::{AnnotationError, RESERVED};
use super::env;
use super::list::{annotation, metadata, metadata_mut, proxy, proxy_mut};
use crate::annotations::keys;

/// The proxy's variable with the app's own annotations.
pub(crate) const VARIABLE: &str = "ISTIO_PROMETHEUS_ANNOTATIONS";

const SECURE_VARIABLE: &str = "ENVOY_SECURE_MERGED_METRICS_PORT";
const DEFAULT_PORT: i64 = 15020;
const PATH_OF_AGENT: &str = "/stats/prometheus";

/// Points scrapers to the agent's `port` and passes the previous annotations to the agent.
///
/// Does nothing if the app must not be scraped, or if the annotations name the agent's port already, and no
/// targets: then the user decided, or an earlier injection.
pub(crate) fn merge(pod: &mut Value, port: i64) {
    let own = Scrape::of(pod);
    let named = own.targets.is_empty() && own.port == port.to_string();
    if parse_bool(&own.scrape) == Some(false) {
        return;
    }
    // A copy of an injected pod has the variable, and may lack the annotations.
    let own = Some(own).filter(|_| !named).and_then(Scrape::into_json);
    let text = own.or_else(|| noted(pod)?.into_json());
    if let Some(text) = text
        && let Some(proxy) = proxy_mut(pod)
    {
        env::remove(proxy, VARIABLE);
        env::push(proxy, VARIABLE, &text);
    }
    if named {
        return;
    }
    let Some(annotations) = metadata_mut(pod, "annotations") else {
        return;
    };
    annotations.retain(|key, _| !is_scraped(key));
    annotations.insert(keys::PROMETHEUS_PATH.to_owned(), json!(PATH_OF_AGENT));
    annotations.insert(keys::PROMETHEUS_PORT.to_owned(), json!(port.to_string()));
    annotations.insert(keys::PROMETHEUS_SCRAPE.to_owned(), json!("true"));
}

/// What the agent at `port` cannot scrape when metrics are merged: an invalid port, or one of the proxy's
/// own.
pub(crate) fn problems(pod: &Value, port: i64) -> Vec<AnnotationError> {
    let own = Scrape::of(pod);
    let given = Some(own.port.clone()).filter(|port| own.targets.is_empty() && !port.is_empty());
    if parse_bool(&own.scrape) == Some(false) || given == Some(port.to_string()) {
        return Vec::new();
    }
    let usable = |given: &String| {
        let number =
            given.parse::<i64>().ok().filter(|number| (1..=65535).contains(number) && *number != port);
        number.and_then(|number| u64::try_from(number).ok()).is_some_and(|number| !RESERVED.contains(&number))
    };
    let targets = own.targets.into_iter().map(|target| (keys::SCRAPE_TARGETS, target.port));
    let all = targets.chain(given.map(|port| (keys::PROMETHEUS_PORT, port)));
    let reserved: Vec<String> = RESERVED.iter().map(ToString::to_string).collect();
    let refused = all.filter(|(_, given)| !usable(given)).map(|(key, given)| AnnotationError::NotAccepted {
        key: key.to_owned(),
        given,
        expected: format!(
            "a port of the app, not {port} nor one of the proxy's own ({})",
            reserved.join(", ")
        ),
    });
    refused.collect()
}

/// The user's scheme, which stays beside the agent's port, where only HTTP is spoken. Called before
/// [`merge`].
pub(crate) fn unserved_scheme(pod: &Value, port: i64) -> Option<String> {
    const KEY: &str = "prometheus.io/scheme";
    let scheme = annotation(pod, KEY).filter(|scheme| scheme.eq_ignore_ascii_case("https"))?;
    let scraped = parse_bool(&Scrape::of(pod).scrape) != Some(false);
    scraped.then(|| {
        format!(
            "annotation {KEY}: {scheme:?}: the metrics are merged, and the agent on port {port} neither serves HTTPS nor scrapes it: \
             remove the annotation, or keep the app's own metrics with {}: \"false\"",
            keys::MERGE_METRICS
        )
    })
}

/// Announces the port on which the proxy serves the metrics behind mutual TLS, if it is configured.
pub(crate) fn announce_secure_port(pod: &mut Value) {
    let port = proxy(pod).and_then(|proxy| env::value(proxy, SECURE_VARIABLE)).unwrap_or_default();
    if port.is_empty() || port == "0" || annotation(pod, keys::SECURE_PORT).is_some() {
        return;
    }
    let port = json!(port);
    if let Some(annotations) = metadata_mut(pod, "annotations") {
        annotations.insert(keys::SECURE_PORT.to_owned(), port);
    }
}

/// Whether the annotations are those that [`merge`] writes, and no others.
pub(crate) fn merged(pod: &Value, port: i64) -> bool {
    let port = port.to_string();
    let annotations = metadata(pod, "annotations").into_iter().flatten();
    let own: Vec<(&str, Option<&str>)> = annotations
        .filter(|(key, _)| is_scraped(key))
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    let written = [
        (keys::PROMETHEUS_PATH, PATH_OF_AGENT),
        (keys::PROMETHEUS_PORT, port.as_str()),
        (keys::PROMETHEUS_SCRAPE, "true"),
    ];
    own.len() == written.len() && written.iter().all(|(key, value)| own.contains(&(*key, Some(*value))))
}

/// Whether the annotations are those that [`merge`] writes with the default port of the agent.
pub(crate) fn merged_by_default(pod: &Value) -> bool {
    merged(pod, DEFAULT_PORT)
}

/// Whether [`merge`] writes this annotation.
pub(crate) fn is_written(key: &str) -> bool {
    [keys::PROMETHEUS_PATH, keys::PROMETHEUS_PORT, keys::PROMETHEUS_SCRAPE].contains(&key)
}

/// Whether this annotation is one of those that say what to scrape, in whichever spelling.
pub(crate) fn is_scraped(key: &str) -> bool {
    kind(key).is_some() || key == keys::SCRAPE_TARGETS
}

/// Whether [`restore`] gives what the pod had `before` the injection.
pub(crate) fn is_recorded(before: &Value, after: &Value) -> bool {
    let of = |pod: &Value| -> BTreeMap<String, String> {
        let all = metadata(pod, "annotations").into_iter().flatten().filter(|(key, _)| is_scraped(key));
        all.map(|(key, text)| (key.clone(), text.as_str().unwrap_or_default().to_owned())).collect()
    };
    let own = of(before);
    let unchanged = own == of(after) && !merged_by_default(after);
    let restored =
        || noted(after).unwrap_or_default().annotations().map(|(key, text)| (key.to_owned(), text));
    unchanged || own == restored().collect()
}

/// What was passed to the agent.
fn noted(pod: &Value) -> Option<Scrape> {
    serde_json::from_str(proxy(pod).and_then(|proxy| env::value(proxy, VARIABLE))?).ok()
}

/// What [`restore`] cannot know, where metrics are merged.
pub(crate) fn unrecorded(pod: &Value, port: i64) -> Option<String> {
    let noted = noted(pod).filter(|_| merged(pod, port))?;
    Some(if noted.targets.is_empty() {
        format!(
            "{}, {} and {}: the proxy's environment records their values, but neither empty ones nor other spellings such as \
             prometheus_io_port",
            keys::PROMETHEUS_PATH,
            keys::PROMETHEUS_PORT,
            keys::PROMETHEUS_SCRAPE
        )
    } else {
        format!(
            "{} and {}: with {}, an injection does not record them; if the pod had them, add them again",
            keys::PROMETHEUS_PORT,
            keys::PROMETHEUS_PATH,
            keys::SCRAPE_TARGETS
        )
    })
}

/// Puts back the annotations that [`merge`] replaced. Where nothing is noted, it has replaced none; they are
/// its own then only if metrics are merged.
pub(crate) fn restore(pod: &mut Value, port: i64, merges: bool) {
    let before = noted(pod);
    if !merged(pod, port) || before.is_none() && !merges {
        return;
    }
    let Some(annotations) = metadata_mut(pod, "annotations") else {
        return;
    };
    annotations.retain(|key, _| kind(key).is_none());
    for (key, text) in before.unwrap_or_default().annotations() {
        annotations.insert(key.to_owned(), json!(text));
    }
}

/// What the annotations say: the variable has it as JSON. An empty text says as little as none, to Istio too.
#[derive(Default, Deserialize, Serialize, PartialEq)]
#[serde(default)]
struct Scrape {
    scrape: String,
    path: String,
    port: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    targets: Vec<Target>,
}

#[derive(Clone, Deserialize, Serialize, PartialEq)]
struct Target {
    port: String,
    path: String,
}

impl Scrape {
    /// Of several spellings the usual one wins, else the last in alphabetical order: the order of a JSON
    /// object says nothing.
    fn of(pod: &Value) -> Self {
        const USUAL: [&str; 3] = [keys::PROMETHEUS_PATH, keys::PROMETHEUS_PORT, keys::PROMETHEUS_SCRAPE];
        let annotations = metadata(pod, "annotations").into_iter().flatten();
        let mut given: Vec<(&String, &str)> = annotations
            .filter_map(|(key, value)| Some((key, value.as_str()?)))
            .filter(|(key, text)| !text.is_empty() && (is_scraped(key)))
            .collect();
        given.sort_unstable_by_key(|(key, _)| (USUAL.contains(&key.as_str()), *key));
        let mut found = Self::default();
        for (key, text) in given {
            match kind(key) {
                Some(Kind::Path) => text.clone_into(&mut found.path),
                Some(Kind::Port) => text.clone_into(&mut found.port),
                Some(Kind::Scrape) => text.clone_into(&mut found.scrape),
                None => found.targets = targets(text),
            }
        }
        found
    }

    /// What the agent gets: with targets, the first of them instead of the pod's own path and port.
    /// The annotations that say so.
    fn annotations(self) -> impl Iterator<Item = (&'static str, String)> {
        let Self { scrape, path, port, targets } = self;
        // With targets, path and port were made from the first of them.
        let own = |text: String| if targets.is_empty() { text } else { String::new() };
        let (path, port) = (own(path), own(port));
        let targets: Vec<String> =
            targets.into_iter().map(|Target { port, path }| format!("{port}:{path}")).collect();
        let all = [
            (keys::SCRAPE_TARGETS, targets.join(",")),
            (keys::PROMETHEUS_SCRAPE, scrape),
            (keys::PROMETHEUS_PATH, path),
            (keys::PROMETHEUS_PORT, port),
        ];
        all.into_iter().filter(|(_, text)| !text.is_empty())
    }

    fn into_json(mut self) -> Option<String> {
        if let Some(Target { port, path }) = self.targets.first().cloned() {
            (self.port, self.path) = (port, path);
        }
        (self != Self::default()).then(|| serde_json::to_string(&self).ok()).flatten()
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Path,
    Port,
    Scrape,
}

/// `prometheus.io/port`, however its separators are written.
fn kind(key: &str) -> Option<Kind> {
    let is_separator = |c: char| !c.is_ascii_alphanumeric();
    let host = key.strip_prefix("prometheus")?.strip_prefix(is_separator)?;
    match host.strip_prefix("io")?.strip_prefix(is_separator)? {
        "path" => Some(Kind::Path),
        "port" => Some(Kind::Port),
        "scrape" => Some(Kind::Scrape),
        _ => None,
    }
}

/// `8080:/metrics,9100:/other`; a path that is left out is `/metrics`.
fn targets(text: &str) -> Vec<Target> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    items
        .map(|item| {
            let (port, path) = item.split_once(':').unwrap_or((item, ""));
            let path = if path.trim().is_empty() { "/metrics" } else { path.trim() };
            Target { port: port.trim().to_owned(), path: path.to_owned() }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(annotations: &Value) -> Value {
        json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "istio-proxy"}]}})
    }

    fn variable(pod: &Value) -> Option<&str> {
        proxy(pod).and_then(|proxy| env::value(proxy, VARIABLE))
    }

    #[test]
    fn the_app_s_own_annotations_go_to_the_agent() {
        let mut pod = pod(&json!({"prometheus_io_port": "8080", "prometheus.io/scrape": "true"}));
        merge(&mut pod, 15020);
        assert_eq!(variable(&pod), Some(r#"{"scrape":"true","path":"","port":"8080"}"#));
        let agent = json!({
            "prometheus.io/path": "/stats/prometheus", "prometheus.io/port": "15020", "prometheus.io/scrape": "true",
        });
        assert_eq!(pod["metadata"]["annotations"], agent);
        let once = pod.clone();
        merge(&mut pod, 15020);
        assert_eq!(pod, once);
    }

    #[test]
    fn without_annotations_the_agent_gets_no_variable() {
        let mut pod = pod(&json!({}));
        merge(&mut pod, 15020);
        assert_eq!(variable(&pod), None);
        assert_eq!(pod["metadata"]["annotations"]["prometheus.io/port"], "15020");
    }

    #[test]
    fn order_of_annotations_has_no_effect() {
        for (annotations, expected) in [
            ([("prometheus.io/port", ""), ("prometheus_io_port", "15020")], "15020"),
            ([("prometheus.io/port", "8080"), ("prometheus_io_port", "15020")], "8080"),
            ([("prometheus/io/port", "1"), ("prometheus_io_port", "2")], "2"),
        ] {
            let [first, second] = annotations;
            for (one, other) in [(first, second), (second, first)] {
                let pod = pod(&json!({(one.0): one.1, (other.0): other.1}));
                assert_eq!(Scrape::of(&pod).port, expected, "{pod}");
            }
        }
    }

    #[test]
    fn app_that_must_not_be_scraped_is_unchanged() {
        let mut pod = pod(&json!({"prometheus.io/scrape": "false"}));
        let before = pod.clone();
        merge(&mut pod, 15020);
        assert_eq!(pod, before);
    }

    #[test]
    fn a_scheme_that_the_agent_does_not_serve_is_reported() {
        for (annotations, reported) in [
            (json!({"prometheus.io/scheme": "https", "prometheus.io/port": "8443"}), true),
            (json!({"prometheus.io/scheme": "HTTPS"}), true),
            (json!({"prometheus.io/scheme": "http"}), false),
            (json!({"prometheus.io/scheme": "https", "prometheus.io/scrape": "false"}), false),
            (json!({}), false),
        ] {
            let found = unserved_scheme(&pod(&annotations), 15020);
            assert_eq!(found.is_some(), reported, "{annotations}: {found:?}");
        }
    }

    #[test]
    fn the_secure_port_is_announced() {
        let mut pod = pod(&json!({}));
        announce_secure_port(&mut pod);
        assert_eq!(pod["metadata"]["annotations"], json!({}));
        env::push(proxy_mut(&mut pod).unwrap(), SECURE_VARIABLE, "15092");
        announce_secure_port(&mut pod);
        assert_eq!(pod["metadata"]["annotations"], json!({(keys::SECURE_PORT): "15092"}));
        pod["metadata"]["annotations"][keys::SECURE_PORT] = json!("1");
        announce_secure_port(&mut pod);
        assert_eq!(pod["metadata"]["annotations"][keys::SECURE_PORT], "1");
    }

    #[test]
    fn several_targets() {
        let mut pod =
            pod(&json!({"prometheus.io/scrape": "true", keys::SCRAPE_TARGETS: "8080:/metrics,9100:/x"}));
        let before = pod.clone();
        merge(&mut pod, 15020);
        assert_eq!(
            variable(&pod),
            Some(concat!(
                r#"{"scrape":"true","path":"/metrics","port":"8080","#,
                r#""targets":[{"port":"8080","path":"/metrics"},{"port":"9100","path":"/x"}]}"#
            ))
        );
        assert!(unrecorded(&pod, 15020).unwrap().contains("with prometheus.istio.io/scrape-targets"));
        assert_eq!(unrecorded(&before, 15020), None);
        restore(&mut pod, 15020, true);
        assert_eq!(pod["metadata"], before["metadata"]);
    }
}
