//! Events and a condition of the pods whose rules another program has changed, as `kubectl describe pod`
//! shows them.
//!
//! A pod gets at most one event of each reason in [`INTERVAL`]; what comes meanwhile is counted in it. One
//! event is counted on for [`SERIES`], as client-go does; then another one is made.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use apiclient::describe;
use istio_cni::install::pods::PodNotice;
use istio_iptables::logging::timestamp;
use k8s_openapi::serde_json::{Value, json};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Api, Client, Resource as _};
use tokio::sync::Notify;

use crate::objects::{Event, Pod};

/// The condition of a pod.
const CONDITION: &str = "istio-iptables/TrafficCaptured";
/// The component of the events.
const COMPONENT: &str = "istio-cni";
/// The time between two events of a pod with the same reason.
const INTERVAL: Duration = Duration::from_secs(10);
/// The time after which another event begins.
const SERIES: Duration = Duration::from_secs(600);
/// The time between two attempts, and for one request.
const PAUSE: Duration = Duration::from_secs(2);
const REQUEST: Duration = Duration::from_secs(10);
/// Pods with reports that wait: more than a node has.
const PODS: usize = 1000;
/// The length of a message that events may have.
const LONGEST: usize = 1000;

/// The reports that wait, by pod.
#[derive(Default)]
pub(crate) struct Reports {
    waiting: Mutex<BTreeMap<String, Waiting>>,
    added: Notify,
}

/// Notices about a pod that have not been sent.
#[derive(Clone, Debug, Default)]
struct Waiting {
    /// By reason, with how often that happened.
    events: BTreeMap<&'static str, (u64, PodNotice)>,
    /// What is so now.
    last: Option<PodNotice>,
}

/// An event that is counted on.
struct Series {
    name: String,
    count: u64,
    first: String,
    last: Instant,
}

impl Reports {
    fn waiting(&self) -> MutexGuard<'_, BTreeMap<String, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, notice: PodNotice) {
        self.put(1, notice, true);
        self.added.notify_one();
    }

    /// Adds a notice. One that could not be sent is older than those that wait.
    fn put(&self, number: u64, notice: PodNotice, is_newer: bool) {
        let mut waiting = self.waiting();
        let key = format!("{} {}", notice.pod, notice.uid);
        if waiting.len() >= PODS && !waiting.contains_key(&key) {
            return;
        }
        let pod = waiting.entry(key).or_default();
        let (count, last) = pod.events.entry(notice.reason).or_insert_with(|| (0, notice.clone()));
        *count += number;
        if is_newer {
            *last = notice.clone();
        }
        if is_newer || pod.last.is_none() {
            pod.last = Some(notice);
        }
    }

    /// Takes what may be sent now.
    fn take(&self, may_be_sent: impl Fn(&str, &'static str) -> bool) -> Vec<(String, Waiting)> {
        let mut waiting = self.waiting();
        let is_due = |(pod, of_pod): (&String, &Waiting)| {
            of_pod.events.keys().all(|reason| may_be_sent(pod, reason)).then(|| pod.clone())
        };
        let due: Vec<_> = waiting.iter().filter_map(is_due).collect();
        due.into_iter().filter_map(|pod| waiting.remove_entry(&pod)).collect()
    }
}

/// Sends reports until the process ends.
pub(crate) async fn send(reports: Arc<Reports>, client: Client, node: String) {
    let mut sent: BTreeMap<(String, &'static str), Series> = BTreeMap::new();
    let mut failure = None;
    loop {
        sent.retain(|_, series| series.last.elapsed() < SERIES);
        let due = reports.take(|pod, reason| {
            let series = sent.get(&(pod.to_owned(), reason));
            series.is_none_or(|series| series.last.elapsed() >= INTERVAL)
        });
        for (pod, Waiting { events, last }) in due {
            for (reason, (count, notice)) in events {
                let key = (pod.clone(), reason);
                let result = send_event(&client, &node, (count, &notice), sent.get(&key)).await;
                match retried(result, &mut failure) {
                    Sent::Done(series) => drop(sent.insert(key, series)),
                    Sent::Refused => drop(sent.remove(&key)),
                    Sent::Later => reports.put(count, notice, false),
                }
            }
            if let Some(notice) = last
                && let Sent::Later = retried(send_condition(&client, &notice).await, &mut failure)
            {
                reports.put(0, notice, false);
            }
        }
        let added = reports.added.notified();
        // What waits for its interval, or for the API server, is no news.
        if reports.waiting().is_empty() {
            added.await;
        } else {
            let _ = tokio::time::timeout(PAUSE, added).await;
        }
    }
}

/// What has become of a request.
enum Sent<T> {
    Done(T),
    /// The request would be refused again.
    Refused,
    Later,
}

/// Logs why a request failed, once for each reason.
fn retried<T>(result: Result<T, Failed>, failure: &mut Option<String>) -> Sent<T> {
    let Failed { problem, is_final } = match result {
        Ok(done) => {
            *failure = None;
            return Sent::Done(done);
        }
        Err(failed) => failed,
    };
    if failure.as_ref() != Some(&problem) {
        log::warn!("events and conditions of pods cannot be written: {problem}");
        *failure = Some(problem);
    }
    if is_final { Sent::Refused } else { Sent::Later }
}

struct Failed {
    problem: String,
    is_final: bool,
}

async fn request<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Failed> {
    match tokio::time::timeout(REQUEST, request).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => {
            let is_final =
                matches!(&error, kube::Error::Api(status) if status.code < 500 && status.code != 429);
            Err(Failed { problem: describe(&error), is_final })
        }
        Err(_) => Err(Failed { problem: "no response from the API server".to_owned(), is_final: false }),
    }
}

/// Namespace and name.
fn names(notice: &PodNotice) -> (&str, &str) {
    notice.pod.split_once('/').unwrap_or(("", &notice.pod))
}

fn message(notice: &PodNotice) -> String {
    notice.message.chars().take(LONGEST).collect()
}

async fn send_event(
    client: &Client,
    node: &str,
    (count, notice): (u64, &PodNotice),
    series: Option<&Series>,
) -> Result<Series, Failed> {
    let (namespace, pod) = names(notice);
    let api = Api::<Event>::namespaced(client.clone(), namespace);
    let now = timestamp(std::time::SystemTime::now());
    if let Some(Series { name, count: before, first, .. }) = series {
        let count = before + count;
        let patch = json!({"count": count, "lastTimestamp": now, "message": message(notice)});
        match request(api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))).await {
            Ok(_) => {
                let (name, first) = (name.clone(), first.clone());
                return Ok(Series { name, count, first, last: Instant::now() });
            }
            Err(failed) if !failed.is_final => return Err(failed),
            // Events end after an hour, or are deleted.
            Err(_) => {}
        }
    }
    let event = new_event(node, (count, notice), (namespace, pod), &now);
    let create = Request::new(Event::url_path(&(), Some(namespace)))
        .create(&PostParams::default(), event.to_string().into_bytes())
        .map_err(|error| Failed { problem: error.to_string(), is_final: true })?;
    let made: Event = request(client.request(create)).await?;
    Ok(Series { name: made.metadata.name.unwrap_or_default(), count, first: now, last: Instant::now() })
}

fn new_event(
    node: &str,
    (count, notice): (u64, &PodNotice),
    (namespace, pod): (&str, &str),
    now: &str,
) -> Value {
    let first = timestamp(notice.at);
    let kind = if notice.reason == "CaptureRulesRestored" { "Normal" } else { "Warning" };
    let uid = Some(&notice.uid).filter(|uid| !uid.is_empty());
    let involved =
        json!({"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod, "uid": uid});
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": format!("{pod}."), "namespace": namespace},
        "involvedObject": involved,
        "type": kind,
        "reason": notice.reason,
        "message": message(notice),
        "source": {"component": COMPONENT, "host": node},
        "reportingComponent": COMPONENT,
        "reportingInstance": node,
        "firstTimestamp": first,
        "lastTimestamp": now,
        "count": count,
    })
}

async fn send_condition(client: &Client, notice: &PodNotice) -> Result<(), Failed> {
    let (namespace, pod) = names(notice);
    let condition = json!({
        "type": CONDITION,
        "status": if notice.is_captured { "True" } else { "False" },
        "reason": notice.reason,
        "message": message(notice),
        "lastTransitionTime": timestamp(notice.at),
    });
    // Another pod of the same name refuses it.
    let metadata = if notice.uid.is_empty() { json!({}) } else { json!({"uid": notice.uid}) };
    let patch = json!({"metadata": metadata, "status": {"conditions": [condition]}});
    let api = Api::<Pod>::namespaced(client.clone(), namespace);
    request(api.patch_status(pod, &PatchParams::default(), &Patch::Strategic(&patch))).await.map(drop)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn notice(reason: &'static str, message: &str) -> PodNotice {
        PodNotice {
            pod: "shop/web".to_owned(),
            uid: "u-1".to_owned(),
            is_captured: reason != "CaptureRulesChanged",
            reason,
            message: message.to_owned(),
            at: SystemTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn notices_of_a_pod_are_counted_by_reason_until_they_may_be_sent() {
        let reports = Reports::default();
        for message in ["a", "b"] {
            reports.add(notice("CaptureRulesRepaired", message));
        }
        reports.add(notice("CaptureRulesChanged", "c"));
        assert!(reports.take(|_, reason| reason != "CaptureRulesRepaired").is_empty());
        let taken = reports.take(|_, _| true);
        let [(pod, waiting)] = taken.as_slice() else { panic!("{}", taken.len()) };
        assert_eq!(pod, "shop/web u-1");
        let (count, last) = &waiting.events["CaptureRulesRepaired"];
        assert_eq!((*count, last.message.as_str()), (2, "b"));
        assert_eq!(waiting.last.as_ref().unwrap().message, "c");
        assert!(reports.take(|_, _| true).is_empty());
    }

    #[test]
    fn notices_that_are_sent_again_are_older_than_those_that_wait() {
        let reports = Reports::default();
        reports.add(notice("CaptureRulesRepaired", "new"));
        reports.put(3, notice("CaptureRulesRepaired", "old"), false);
        let (_, waiting) = reports.take(|_, _| true).pop().unwrap();
        let (count, last) = &waiting.events["CaptureRulesRepaired"];
        assert_eq!((*count, last.message.as_str()), (4, "new"));
        assert_eq!(waiting.last.unwrap().message, "new");
    }

    #[test]
    fn reports_are_bounded() {
        let reports = Reports::default();
        for number in 0..PODS + 10 {
            reports.add(PodNotice { pod: format!("a/p{number}"), ..notice("CaptureRulesChanged", "x") });
        }
        assert_eq!(reports.take(|_, _| true).len(), PODS);
    }
}
