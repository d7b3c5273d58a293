//! The types of the Kubernetes API that injection touches: one table for the strategic merge
//! ([`crate::strategic_merge`]: merge keys), the YAML reader ([`crate::yaml`]: types), the shape check
//! ([`check`]) and templates (Go's names, pointers, zero values).
//!
//! It does not validate pods: fields that it does not have stay in a user's pod, because newer versions of
//! Kubernetes have more of them. A row is `"jsonName" GoName: kind, attributes`:
//!
//! - `always`: Go's JSON tag has no `omitempty`.
//! - `merge("key")`: the list merges by this field of its items; `merge("set")`: scalars are united. Lists
//!   without it are replaced.
//! - `from("annotation")`: what a template prints of it is user input of this sort.

pub(crate) mod check;
pub(crate) mod mesh;
mod meta;
mod pod;
#[cfg(all(test, feature = "release-schema"))]
mod tests;
mod volume;

use gotemplate::{Field, Kind, Schema};
use serde_json::Value;

use crate::path::Path;

pub(crate) use meta::OBJECT_META;
pub(crate) use pod::{CONTAINER, POD, POD_SPEC, POD_TEMPLATE};

macro_rules! types {
    ($($name:ident $go:literal { $($key:literal $field:ident: $kind:expr $(, $attribute:ident $(($of:literal))?)*;)* })*) => {
        $(
            #[doc = concat!("`", $go, "`")]
            pub(crate) static $name: Schema = Schema {
                name: $go,
                proto: false,
                fields: &[$(Field::new(stringify!($field), $key, $kind)$(.$attribute($($of)?))*),*],
            };
        )*
    };
}
use types;

/// The version of Kubernetes whose fields the table has.
pub(crate) const KUBERNETES: &str = "1.37";

/// Go's name of the type of quantities: strings, or numbers that become some.
pub(crate) const QUANTITY_NAME: &str = "resource.Quantity";
/// Go's name of the type of fields that take an integer or a string.
pub(crate) const INT_OR_STRING_NAME: &str = "intstr.IntOrString";

const ANY: Kind = Kind::Any;
const BOOL: Kind = Kind::Bool;
const BOOL_PTR: Kind = Kind::Ptr(&BOOL);
const INT32: Kind = Kind::Int32;
const INT32_PTR: Kind = Kind::Ptr(&INT32);
const INT64: Kind = Kind::Int64;
const INT64_PTR: Kind = Kind::Ptr(&INT64);
const INT64_LIST: Kind = Kind::List(&INT64);
const STR: Kind = Kind::Str;
const STR_PTR: Kind = Kind::Ptr(&STR);
const STR_LIST: Kind = Kind::List(&STR);
const STR_MAP: Kind = Kind::Map(&STR);
const OBJECTS: Kind = Kind::List(&Kind::Map(&ANY));
const QUANTITY: Kind = Kind::Named(QUANTITY_NAME, &STR);
const QUANTITY_PTR: Kind = Kind::Ptr(&QUANTITY);
const QUANTITY_MAP: Kind = Kind::Map(&QUANTITY);
const INT_OR_STRING: Kind = Kind::Named(INT_OR_STRING_NAME, &ANY);

const fn object(of: &'static Schema) -> Kind {
    Kind::Struct(of)
}

const fn list(of: &'static Kind) -> Kind {
    Kind::List(of)
}

const fn pointer(to: &'static Kind) -> Kind {
    Kind::Ptr(to)
}

types! {
    WORKLOAD "v1.Workload" { "apiVersion" APIVersion: STR; "kind" Kind: STR; "metadata" Metadata: object(&OBJECT_META); "spec" Spec: object(&WORKLOAD_SPEC); }
    WORKLOAD_SPEC "v1.WorkloadSpec" { "template" Template: object(&POD_TEMPLATE); }
    CRON_JOB "batch/v1.CronJob" { "apiVersion" APIVersion: STR; "kind" Kind: STR; "metadata" Metadata: object(&OBJECT_META); "spec" Spec: object(&CRON_JOB_SPEC); }
    CRON_JOB_SPEC "batch/v1.CronJobSpec" { "concurrencyPolicy" ConcurrencyPolicy: STR; "jobTemplate" JobTemplate: object(&JOB_TEMPLATE); "schedule" Schedule: STR; "timeZone" TimeZone: STR_PTR; }
    JOB_TEMPLATE "batch/v1.JobTemplateSpec" { "metadata" Metadata: object(&OBJECT_META); "spec" Spec: object(&WORKLOAD_SPEC); }
}

/// The type of a document of this `kind`, as far as its pod template; `None` for a kind without pods.
pub(crate) fn workload(kind: &str) -> Option<&'static Schema> {
    match kind {
        "Pod" => Some(&POD),
        "DaemonSet"
        | "Deployment"
        | "DeploymentConfig"
        | "Job"
        | "ReplicaSet"
        | "ReplicationController"
        | "StatefulSet" => Some(&WORKLOAD),
        "CronJob" => Some(&CRON_JOB),
        _ => None,
    }
}

/// What a probe or hook does: one of these, if Kubernetes is to accept it.
pub(crate) const HANDLERS: &[&str] = &["exec", "grpc", "httpGet", "sleep", "tcpSocket"];

/// Whether a field is one of those of which an object has one: a patch with another one replaces the object.
pub(crate) fn is_alternative(of: &'static Schema, key: &str) -> bool {
    const SOURCES: &[&str] =
        &["configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef"];
    let table: [(&'static Schema, &'static [&'static str]); 4] = [
        (&pod::ENV_VAR, &["value", "valueFrom"]),
        (&pod::ENV_SOURCE, SOURCES),
        (&pod::PROBE, HANDLERS),
        (&pod::HANDLER, HANDLERS),
    ];
    // All that a volume has beside its name is its source.
    std::ptr::eq(of, &raw const volume::VOLUME) && key != "name"
        || table.into_iter().any(|(schema, keys)| std::ptr::eq(schema, of) && keys.contains(&key))
}

/// How a patch's list merges with the original's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListMerge {
    /// The patch's list replaces the original's.
    Atomic,
    /// Items are matched by this field.
    Key(&'static str),
    /// Scalars are united.
    Set,
}

/// How lists in this field merge.
pub(crate) fn list_merge(field: &Field) -> ListMerge {
    match field.merge {
        None => ListMerge::Atomic,
        Some("set") => ListMerge::Set,
        Some(key) => ListMerge::Key(key),
    }
}

/// What a pointer points to; any other type as it is.
pub(crate) const fn pointee(kind: Kind) -> Kind {
    if let Kind::Ptr(to) = kind { *to } else { kind }
}

/// Calls `visit` for every value of a known type that is not a struct, map or list of its type; stops at the
/// first error.
pub(crate) fn for_each_scalar<E>(
    value: &mut Value,
    kind: Kind,
    path: &Path<'_>,
    visit: &mut impl FnMut(&mut Value, Kind, &Path<'_>) -> Result<(), E>,
) -> Result<(), E> {
    match (pointee(kind), value) {
        (Kind::Struct(of), Value::Object(fields)) => fields.iter_mut().try_for_each(|(key, value)| {
            of.by_key(key).map_or(Ok(()), |field| for_each_scalar(value, field.kind, &path.field(key), visit))
        }),
        (Kind::Map(of), Value::Object(fields)) => fields
            .iter_mut()
            .try_for_each(|(key, value)| for_each_scalar(value, *of, &path.field(key), visit)),
        (Kind::List(of), Value::Array(items)) => items
            .iter_mut()
            .enumerate()
            .try_for_each(|(index, value)| for_each_scalar(value, *of, &path.item(index), visit)),
        (kind, value) => visit(value, kind, path),
    }
}
