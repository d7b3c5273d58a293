//! Post-processing of the merged pod (`postProcessPod` of Istio).

use std::collections::HashMap;

use istio_iptables::config::parse_bool;
use serde_json::{Value, json};

use super::{Injected, InjectionContext, Injector};
use crate::annotations::keys;
use crate::config::Mesh;
use crate::path::{Lookup as _, at};
use crate::pod::ids::{self, Ids};
use crate::pod::list::{self, List, annotation, label, metadata_mut, name};
use crate::pod::probes::Rewritten;
use crate::pod::status::Status;
use crate::pod::{env, order, pod_resources, probes};
use crate::pod::{prometheus, proxy_resources};

impl Injector {
    /// Post-processes in this order: users, environment, metrics, probes, status, labels, annotations, order
    /// of containers. Returns what `uninject` has to know of probes.
    pub(super) fn postprocess(
        &self,
        injected: &mut Injected,
        context: &InjectionContext,
        asked: &Ids,
        own_mesh: &Mesh,
        status: &Status,
    ) -> Rewritten {
        let pod = &mut injected.pod;
        let mode = annotation(pod, keys::INTERCEPTION_MODE).unwrap_or_default();
        let tproxy = own_mesh.interception_mode() == "TPROXY" || mode == "TPROXY";
        ids::apply_proxy_ids(pod, *asked, tproxy);
        ids::allow_root(pod, |list, container| status.lists(list, container));
        let environment = self.environment(pod, context);
        let network =
            environment.iter().find(|(key, _)| key == "ISTIO_META_NETWORK").map(|(_, value)| value.clone());
        if let Some(proxy) = list::proxy_mut(pod) {
            env::append_sorted(proxy, environment);
        }
        let status_port = own_mesh.status_port();
        injected.warnings.extend(proxy_resources::replaced(pod, &self.settings.values));
        if self.merges_metrics(pod) {
            injected.warnings.extend(prometheus::unserved_scheme(pod, status_port));
            prometheus::merge(pod, status_port);
        }
        prometheus::announce_secure_port(pod);
        let port = annotation(pod, keys::STATUS_PORT).and_then(|port| port.parse().ok());
        let port = port.unwrap_or(status_port);
        // Port 0 means that the agent has none: nothing would respond there, and Kubernetes rejects such a
        // probe.
        let rewrites = port != 0 && self.rewrites_probes(pod);
        let rewritten = if rewrites { probes::rewrite(pod, port, status_port) } else { Default::default() };
        injected.warnings.extend(rewritten.warnings.iter().cloned());
        pod_resources::raise(pod, |container| {
            status.lists(List::Containers, container) || status.lists(List::InitContainers, container)
        });
        if let Some(annotations) = metadata_mut(pod, "annotations") {
            annotations.insert(keys::STATUS.to_owned(), json!(status.to_json()));
            let more = self.settings.injector.injected_annotations.iter();
            annotations.extend(more.map(|(key, value)| (key.clone(), value.clone())));
        }
        if let Some(network) = network
            && let Some(labels) = metadata_mut(pod, "labels")
        {
            labels.insert(keys::NETWORK.to_owned(), json!(network));
        }
        order::order(
            pod,
            own_mesh.hold_application() || self.flag("/global/proxy/holdApplicationUntilProxyStarts"),
        );
        let policy = at(pod, "/spec/dnsPolicy").and_then(Value::as_str).unwrap_or("ClusterFirst");
        if policy != "ClusterFirst" {
            injected.warnings.push(format!(
                "spec.dnsPolicy is {policy}: the proxy may not be able to look up the control plane; expected ClusterFirst"
            ));
        }
        rewritten
    }

    /// Cluster and network: values, then options, then for the network the pod's label.
    fn environment(&self, pod: &Value, context: &InjectionContext) -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> = Vec::new();
        let mut set = |key: &str, value: &str| {
            all.retain(|(old, _)| old != key);
            if !value.is_empty() {
                all.push((key.to_owned(), value.to_owned()));
            }
        };
        let text =
            |pointer: &str| at(&self.settings.values, pointer).and_then(Value::as_str).unwrap_or_default();
        set("ISTIO_META_CLUSTER_ID", text("/global/multiCluster/clusterName"));
        set("ISTIO_META_NETWORK", text("/global/network"));
        for (key, value) in &context.environment {
            set(key, value);
        }
        if let Some(network) = label(pod, keys::NETWORK).filter(|network| !network.is_empty()) {
            set("ISTIO_META_NETWORK", network);
        }
        all
    }

    pub(super) fn merges_metrics(&self, pod: &Value) -> bool {
        let own = annotation(pod, keys::MERGE_METRICS).and_then(parse_bool);
        own.unwrap_or_else(|| self.settings.mesh.prometheus_merge())
    }

    fn rewrites_probes(&self, pod: &Value) -> bool {
        let own = annotation(pod, keys::REWRITE_APP_HTTP_PROBERS).and_then(parse_bool);
        let value = at(&self.settings.values, "/sidecarInjectorWebhook/rewriteAppHTTPProbe");
        own.unwrap_or(value == Some(&Value::Bool(true)))
    }

    pub(super) fn flag(&self, pointer: &str) -> bool {
        at(&self.settings.values, pointer) == Some(&Value::Bool(true))
    }
}

/// Keys that the pod had before keep their position; new ones follow. A second injection changes no byte, and
/// a diff shows only what is new.
pub(super) fn preserve_order(value: &mut Value, before: &Value) {
    match (value, before) {
        (Value::Object(object), Value::Object(before)) => {
            for (key, value) in object.iter_mut() {
                if let Some(old) = before.lookup(key) {
                    preserve_order(value, old);
                }
            }
            if !object.keys().take(before.len()).eq(before.keys()) {
                let places: HashMap<&String, usize> = before.keys().zip(0..).collect();
                let mut entries: Vec<(String, Value)> = std::mem::take(object).into_iter().collect();
                entries.sort_by_key(|(key, _)| places.get(key).copied().unwrap_or(usize::MAX));
                *object = entries.into_iter().collect();
            }
        }
        (Value::Array(items), Value::Array(before)) => {
            // Most items are where they were; the others are found by name.
            let mut by_name: Option<HashMap<&str, &Value>> = None;
            for (at, item) in items.iter_mut().enumerate() {
                let wanted = name(item);
                if wanted.is_empty() {
                    continue;
                }
                let same = before.get(at).filter(|old| name(old) == wanted);
                let old = same.or_else(|| {
                    let by_name =
                        by_name.get_or_insert_with(|| before.iter().map(|item| (name(item), item)).collect());
                    by_name.get(wanted).copied()
                });
                if let Some(old) = old {
                    preserve_order(item, old);
                }
            }
        }
        _ => {}
    }
}
