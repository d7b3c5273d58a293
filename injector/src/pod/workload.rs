//! Which workload a pod belongs to: its kind, name and namespace as telemetry names it.

use serde_json::Value;

use crate::path::{Lookup as _, at};

use super::list::label;

/// The workload of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// `apiVersion` of the workload.
    pub api_version: String,
    /// Kind of the workload.
    pub kind: String,
    /// The name of the workload.
    pub name: String,
    /// The namespace of the workload, empty if unknown.
    pub namespace: String,
}

impl Workload {
    /// The workload that an object is.
    #[must_use]
    pub fn of_object(object: &Value, namespace: &str) -> Self {
        if text(object, "/kind") == "Pod" {
            return Self::of_pod(object, namespace);
        }
        Self {
            api_version: text(object, "/apiVersion").to_owned(),
            kind: text(object, "/kind").to_owned(),
            name: text(object, "/metadata/name").to_owned(),
            namespace: namespace.to_owned(),
        }
    }

    /// The workload of a bare pod. One that a controller made, with a generated name, belongs to that
    /// controller, or to the controller's own owner where its name identifies it.
    #[must_use]
    pub fn of_pod(pod: &Value, namespace: &str) -> Self {
        let own_name = text(pod, "/metadata/name");
        let mut workload = Self {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: own_name.to_owned(),
            namespace: namespace.to_owned(),
        };
        let owners = at(pod, "/metadata/ownerReferences").and_then(Value::as_array);
        let controller =
            owners.into_iter().flatten().find(|owner| owner.lookup("controller") == Some(&Value::Bool(true)));
        if let Some(controller) = controller.filter(|_| !text(pod, "/metadata/generateName").is_empty()) {
            workload.api_version = text(controller, "/apiVersion").to_owned();
            workload.kind = text(controller, "/kind").to_owned();
            workload.name = text(controller, "/name").to_owned();
            workload.climb(pod);
        }
        if workload.name.is_empty() {
            workload.name = own_name.to_owned();
        }
        workload
    }

    fn climb(&mut self, pod: &Value) {
        let hashed = |key: &str| {
            let hash = label(pod, key).filter(|hash| !hash.is_empty())?;
            Some(self.name.strip_suffix(hash)?.strip_suffix('-').unwrap_or(&self.name).to_owned())
        };
        match self.kind.as_str() {
            "ReplicaSet" => {
                if let Some(name) = hashed("pod-template-hash") {
                    self.name = name;
                    self.kind = "Deployment".to_owned();
                } else if let Some(name) = hashed("rollouts-pod-template-hash") {
                    self.name = name;
                    self.kind = "Rollout".to_owned();
                    self.api_version = "v1alpha1".to_owned();
                }
            }
            "ReplicationController" => {
                if let Some(config) = label(pod, "deploymentconfig").filter(|name| !name.is_empty()) {
                    self.name = config.to_owned();
                    self.kind = "DeploymentConfig".to_owned();
                }
            }
            "Job" => {
                if let Some(name) = cron_job(&self.name) {
                    self.name = name.to_owned();
                    self.kind = "CronJob".to_owned();
                    self.api_version = "batch/v1".to_owned();
                }
            }
            _ => {}
        }
    }
}

/// The jobs of a CronJob carry its name and the minute they were due.
fn cron_job(job: &str) -> Option<&str> {
    let (name, minute) = job.rsplit_once('-')?;
    let digits = minute.bytes().all(|byte| byte.is_ascii_digit());
    (digits && (8..=10).contains(&minute.len()) && !name.is_empty()).then_some(name)
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    at(value, pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owned(kind: &str, api: &str, owner: &str, labels: &Value) -> String {
        let pod = json!({"kind": "Pod", "metadata": {
            "generateName": "g-", "name": "g-x", "labels": labels,
            "ownerReferences": [{"controller": true, "kind": kind, "apiVersion": api, "name": owner}],
        }});
        let found = Workload::of_object(&pod, "ns");
        format!("{} {} {}", found.api_version, found.kind, found.name)
    }

    #[test]
    fn the_controller_or_its_owner() {
        let hash = json!({"pod-template-hash": "5d8"});
        assert_eq!(owned("ReplicaSet", "apps/v1", "web-5d8", &hash), "apps/v1 Deployment web");
        assert_eq!(owned("ReplicaSet", "apps/v1", "web-5d9", &hash), "apps/v1 ReplicaSet web-5d9");
        let rollout = json!({"rollouts-pod-template-hash": "5d8"});
        assert_eq!(owned("ReplicaSet", "apps/v1", "web-5d8", &rollout), "v1alpha1 Rollout web");
        assert_eq!(owned("Job", "batch/v1", "n-27000000", &json!({})), "batch/v1 CronJob n");
        assert_eq!(owned("Job", "batch/v1", "n-2700000", &json!({})), "batch/v1 Job n-2700000");
        assert_eq!(owned("Job", "batch/v1", "n-27000000x", &json!({})), "batch/v1 Job n-27000000x");
        let config = json!({"deploymentconfig": "dc"});
        assert_eq!(owned("ReplicationController", "v1", "dc-1", &config), "v1 DeploymentConfig dc");
        assert_eq!(owned("Custom", "x/v1", "c", &json!({})), "x/v1 Custom c");
    }

    #[test]
    fn pod_of_its_own_is_its_workload() {
        let pod = json!({"kind": "Pod", "metadata": {"name": "alone"}});
        let found = Workload::of_object(&pod, "");
        assert_eq!(
            (found.kind.as_str(), found.name.as_str(), found.api_version.as_str()),
            ("Pod", "alone", "v1")
        );
    }
}
