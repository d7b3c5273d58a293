//! `ObjectMeta` and `LabelSelector`.

use super::{ANY, BOOL, INT, Kind, ListMerge, STR, STR_LIST, STR_MAP, Struct, atomic, keyed, object};

/// `ObjectMeta`.
pub static OBJECT_META: Struct = Struct {
    name: "ObjectMeta",
    fields: &[
        ("annotations", STR_MAP),
        ("creationTimestamp", STR),
        ("deletionGracePeriodSeconds", INT),
        ("deletionTimestamp", STR),
        ("finalizers", Kind::List(&STR, ListMerge::Set)),
        ("generateName", STR),
        ("generation", INT),
        ("labels", STR_MAP),
        ("managedFields", atomic(&ANY)),
        ("name", STR),
        ("namespace", STR),
        ("ownerReferences", keyed(&object(&OWNER_REFERENCE), "uid")),
        ("resourceVersion", STR),
        ("selfLink", STR),
        ("uid", STR),
    ],
};

static OWNER_REFERENCE: Struct = Struct {
    name: "OwnerReference",
    fields: &[
        ("apiVersion", STR),
        ("blockOwnerDeletion", BOOL),
        ("controller", BOOL),
        ("kind", STR),
        ("name", STR),
        ("uid", STR),
    ],
};

pub(super) static LABEL_SELECTOR: Struct = Struct {
    name: "LabelSelector",
    fields: &[("matchExpressions", atomic(&object(&REQUIREMENT))), ("matchLabels", STR_MAP)],
};

pub(super) static REQUIREMENT: Struct =
    Struct { name: "Requirement", fields: &[("key", STR), ("operator", STR), ("values", STR_LIST)] };
