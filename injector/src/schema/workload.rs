//! Where the pods of each kind of document are.

use super::meta::OBJECT_META;
use super::pod::{POD, POD_TEMPLATE};
use super::{STR, Struct, object};

/// The type of a document of this `kind`, as far as its pod template; `None` for a kind that has no pods.
#[must_use]
pub fn workload(kind: &str) -> Option<&'static Struct> {
    match kind {
        "Pod" => Some(&POD),
        "Deployment"
        | "DaemonSet"
        | "DeploymentConfig"
        | "Job"
        | "ReplicaSet"
        | "ReplicationController"
        | "StatefulSet" => Some(&WORKLOAD),
        "CronJob" => Some(&CRON_JOB),
        _ => None,
    }
}

static WORKLOAD: Struct = Struct {
    name: "Workload",
    fields: &[
        ("apiVersion", STR),
        ("kind", STR),
        ("metadata", object(&OBJECT_META)),
        ("spec", object(&WORKLOAD_SPEC)),
    ],
};

static WORKLOAD_SPEC: Struct =
    Struct { name: "WorkloadSpec", fields: &[("template", object(&POD_TEMPLATE))] };

static CRON_JOB: Struct = Struct {
    name: "CronJob",
    fields: &[
        ("apiVersion", STR),
        ("kind", STR),
        ("metadata", object(&OBJECT_META)),
        ("spec", object(&CRON_JOB_SPEC)),
    ],
};

static CRON_JOB_SPEC: Struct = Struct {
    name: "CronJobSpec",
    fields: &[
        ("concurrencyPolicy", STR),
        ("jobTemplate", object(&JOB_TEMPLATE)),
        ("schedule", STR),
        ("timeZone", STR),
    ],
};

static JOB_TEMPLATE: Struct = Struct {
    name: "JobTemplateSpec",
    fields: &[("metadata", object(&OBJECT_META)), ("spec", object(&WORKLOAD_SPEC))],
};
