//! The pods of this node, kept up to date by a watch. A pod that is not among them is read once more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use apiclient::{Cached, connect_with_rate, describe, watch_selected};
use istio_cni::environment::PodName;
use istio_cni::install::error::InstallError;
use istio_cni::install::options::PodsOptions;
use istio_cni::install::pods::{PodNotice, Pods, TAINT};
use istio_cni::lookup::{Query, Response};
use k8s_openapi::serde_json::{self, json};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch::{Receiver, Sender};

use crate::facts::{NodePod, known};
use crate::objects::{Node, Pod};
use crate::reports::{self, Reports};

/// The limit for any lookup: longer than a node waits for a sandbox.
const LONGEST: Duration = Duration::from_secs(240);

/// For a request about the Node object. The installation waits for it, and must not depend on an API server.
const NODE_REQUEST: Duration = Duration::from_secs(3);
/// The status of a JSON patch whose test fails.
const CHANGED: u16 = 422;
/// The number of retries for a Node that another client changes meanwhile.
const ATTEMPTS: usize = 5;
/// Requests in 10 s, as kubelet may send (`kubeAPIQPS`: 50 per second): each pod that starts may need one,
/// and after a reboot all of a node start at once.
const RATE_LIMIT: u64 = 500;

/// The pods of one node.
struct NodePods {
    node: String,
    runtime: Runtime,
    client: Client,
    cached: Receiver<Cached<NodePod>>,
    reports: Arc<Reports>,
}

/// Begins to watch the pods of a node.
pub(crate) fn connect(options: &PodsOptions) -> Result<Arc<dyn Pods>, InstallError> {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| InstallError::new(format!("cannot start a thread: {error}")))?;
    let connection = runtime.block_on(connect_with_rate(options.kubeconfig.as_deref(), None, RATE_LIMIT));
    let connection = connection.map_err(|error| InstallError::new(error.to_string()))?;
    log::info!(api_server = connection.target, node = options.node; "watching pods of this node");
    let client = connection.client;
    let sender = Sender::new(Cached::empty());
    let cached = sender.subscribe();
    runtime.spawn(report(sender.subscribe()));
    let api = Api::<Pod>::all(client.clone());
    let fields = format!("spec.nodeName={}", options.node);
    runtime.spawn(async move { watch_selected(api, Some(&fields), NodePod::new, &sender).await });
    let reports = Arc::new(Reports::default());
    runtime.spawn(reports::send(Arc::clone(&reports), client.clone(), options.node.clone()));
    Ok(Arc::new(NodePods { node: options.node.clone(), runtime, client, cached, reports }))
}

/// Logs when the watch fails and when it works again; and once for each pod that has started without capture.
async fn report(mut cached: Receiver<Cached<NodePod>>) {
    let mut last = None;
    let mut reported = BTreeSet::new();
    while cached.changed().await.is_ok() {
        let (problem, pods, now) = {
            let cached = cached.borrow_and_update();
            let pods = cached.objects.as_ref().map_or(0, BTreeMap::len);
            (cached.problem.clone(), pods, uncaptured(&cached))
        };
        for (pod, uid) in now.difference(&reported) {
            log::warn!(pod, uid; "pod has started without capture: istio-validation has ended with exit code 126; delete the pod");
        }
        reported = now;
        if last.as_ref() != Some(&problem) {
            match &problem {
                Some(problem) => log::warn!(pods; "pods of this node may be outdated: {problem}"),
                None => log::info!(pods; "pods of this node are known"),
            }
            last = Some(problem);
        }
    }
}

/// The pods that have started without capture: namespace and name, and uid. What has ended is not repaired.
fn uncaptured(cached: &Cached<NodePod>) -> BTreeSet<(String, String)> {
    let pods = cached.objects.iter().flatten().filter(|(_, pod)| pod.is_uncaptured && !pod.is_ending);
    pods.map(|(name, pod)| (name.clone(), pod.known.uid.clone())).collect()
}

impl NodePods {
    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// The API of a pod's namespace, and its uid there, which is not the node's own of a static pod. A pod of
    /// the same name that has come meanwhile is another one.
    fn of_uid(&self, pod: &PodName) -> (Api<Pod>, String) {
        let cached = self.cached.borrow();
        let found = cached.objects.as_ref().and_then(|all| all.get(&pod.to_string()));
        let found = found.filter(|found| found.known.has_uid(&pod.uid));
        let uid = found.map_or(&pod.uid, |found| &found.known.uid).clone();
        (Api::namespaced(self.client.clone(), &pod.namespace), uid)
    }

    fn wait<T>(&self, request: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
        match self.runtime.block_on(async { tokio::time::timeout(NODE_REQUEST, request).await }) {
            Ok(response) => response.map_err(|error| describe(&error)),
            Err(_) => Err(format!("no response from the API server within {} s", NODE_REQUEST.as_secs())),
        }
    }
}

/// Removes the taint with any value and effect. Kubelet changes the Node often: only the taints must be those
/// that were read.
async fn remove_taint(nodes: &Api<Node>, name: &str) -> kube::Result<bool> {
    let mut attempts = 0;
    loop {
        let node = nodes.get(name).await?;
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        let mut patch = Vec::new();
        // From the last one on: those before keep their places.
        for (place, _) in taints.iter().enumerate().rev().filter(|(_, taint)| taint.key == TAINT) {
            let path = format!("/spec/taints/{place}");
            patch.push(json!({"op": "test", "path": format!("{path}/key"), "value": TAINT}));
            patch.push(json!({"op": "remove", "path": path}));
        }
        if patch.is_empty() {
            return Ok(false);
        }
        let patch = serde_json::from_value(json!(patch)).map_err(kube::Error::SerdeError)?;
        match nodes.patch(name, &PatchParams::default(), &Patch::<()>::Json(patch)).await {
            Err(kube::Error::Api(status)) if status.code == CHANGED && attempts < ATTEMPTS => attempts += 1,
            patched => return patched.map(|_| true),
        }
    }
}

impl Pods for NodePods {
    fn container_runtime(&self) -> Result<String, String> {
        let node = self.wait(self.nodes().get(&self.node))?;
        let info = node.status.and_then(|status| status.node_info);
        let version = info.map(|info| info.container_runtime_version).filter(|version| !version.is_empty());
        version.ok_or_else(|| format!("Node {}: no containerRuntimeVersion", self.node))
    }

    fn remove_taint(&self) -> Result<bool, String> {
        self.wait(remove_taint(&self.nodes(), &self.node))
    }

    fn report(&self, notice: PodNotice) {
        self.reports.add(notice);
    }

    fn find(&self, query: &Query) -> Response {
        // Without a uid, the pod may be an earlier one of the same name.
        if !query.refresh && !query.uid.is_empty() {
            let cached = self.cached.borrow();
            let found = cached
                .objects
                .as_ref()
                .and_then(|all| all.get(&format!("{}/{}", query.namespace, query.name)));
            if let Some(known) = found.map(|pod| &pod.known).filter(|known| known.has_uid(&query.uid)) {
                return Response::Pod(Box::new(known.clone()));
            }
        }
        let api = Api::<Pod>::namespaced(self.client.clone(), &query.namespace);
        let wait = Duration::from_millis(query.wait_ms).min(LONGEST);
        match self.runtime.block_on(async { tokio::time::timeout(wait, api.get(&query.name)).await }) {
            Ok(Ok(pod)) => Response::Pod(Box::new(known(pod))),
            // Anything else with this status is not the API server's, a proxy's for instance.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 && status.reason == "NotFound" => {
                Response::NotFound
            }
            // The message of a pod's event has no room for the API server's.
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                let problem = describe(&kube::Error::Api(status));
                let problem = format!("missing permission to get pods: {problem}");
                log::warn!("{problem}");
                Response::Unknown(problem)
            }
            Ok(Err(error)) => Response::Unknown(describe(&error)),
            Err(_) => {
                Response::Unknown(format!("no response from the API server within {} ms", wait.as_millis()))
            }
        }
    }

    fn uncaptured(&self) -> Vec<PodName> {
        let pods = self.cached.borrow();
        let pods = pods.objects.iter().flat_map(BTreeMap::values);
        let pods = pods.filter(|pod| pod.is_uncaptured && !pod.is_ending).map(|pod| &pod.known);
        pods.map(|known| PodName {
            namespace: known.namespace.clone(),
            name: known.name.clone(),
            uid: known.uid.clone(),
        })
        .collect()
    }

    fn is_live(&self, pod: &PodName) -> Option<bool> {
        let cached = self.cached.borrow();
        let found = cached.objects.as_ref()?.get(&pod.to_string());
        Some(found.is_some_and(|found| found.known.has_uid(&pod.uid) && !found.is_ending))
    }

    fn label(&self, pod: &PodName, (key, value): (&str, &str)) -> Result<(), String> {
        let (api, uid) = self.of_uid(pod);
        // Another pod of the same name refuses it.
        let patch = json!({"metadata": {"uid": uid, "labels": {key: value}}});
        self.wait(api.patch(&pod.name, &PatchParams::default(), &Patch::Merge(&patch))).map(drop)
    }

    fn delete(&self, pod: &PodName) -> Result<(), String> {
        let (api, uid) = self.of_uid(pod);
        let only = Preconditions { uid: Some(uid), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
        self.wait(api.delete(&pod.name, &parameters)).map(drop)
    }

    /// An outage later on is no problem for pods that are known.
    fn problem(&self) -> Option<String> {
        let cached = self.cached.borrow();
        if cached.objects.is_some() {
            return None;
        }
        let reason = cached.problem.as_deref().unwrap_or("waiting for the API server");
        Some(format!("pods of node {} are not known yet: {reason}", self.node))
    }
}
