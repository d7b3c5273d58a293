//! Strategic merge patch, as the API server merges pods.
//!
//! Example: `tests::module_example`.
//!
//! [`merge_over`] works on untyped JSON, so that fields of newer Kubernetes versions survive; the merge keys
//! come from [`crate::schema`]. Called with `&schema::POD` for a template over a pod, with
//! `&schema::CONTAINER` for a user's container over the template's.
//!
//! The rules of [`merge_into`] are those of `k8s.io/apimachinery/pkg/util/strategicpatch`:
//! - Maps merge; scalars, and lists without a merge key, are replaced; `null` deletes the key, in new items
//!   too.
//! - Lists with a merge key merge by item. Order: the patch's items in the patch's order; every other item
//!   comes, in its own order, before the first patch item that the original has after it.
//! - An item without its merge key is an error. Of several items with one key only the first merges.
//! - Directives: `$patch: replace|delete|merge`, `$deleteFromPrimitiveList/x`, `$setElementOrder/x`,
//!   `$retainKeys`.
//!
//! Different on purpose:
//! - `$patch: merge` is accepted and means the default.
//! - Deletions from a primitive list come before additions to it (Kubernetes: in random order).
//! - Directives in items and maps that are new are carried out: `delete` leaves nothing, `replace` the map
//!   itself. (Kubernetes leaves deleted items of a new item's lists in the pod and drops a new map with
//!   `$patch: replace`.)
//! - `$setElementOrder` with deletions in the same list orders by the original list as it was.
//! - An empty list in the patch leaves a merged list alone, duplicates included.
//!
//! Merging twice gives the same as merging once, unless a key occurs twice in one of the patch's lists, or a
//! `$retainKeys` or `$setElementOrder` is in a new item: those act only on existing content.

#![allow(clippy::wildcard_enum_match_arm, reason = "JSON is a map, a list, or something else")]

mod alternatives;
mod directive;
mod merge;
mod order;
mod ports;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use gotemplate::Schema;
use serde_json::{Map, Value};

use crate::path::{Path, type_name};

/// Nesting deeper than this is refused; pods from JSON or YAML text are never that deep.
const MAX_DEPTH: usize = 200;

/// [`merge_into`] of copies.
/// Errors: when the patch (or a list of the original that it touches) breaks the rules of strategic merge;
/// the error names the path within the object.
#[cfg(test)]
pub(crate) fn merge(original: &Value, patch: &Value, schema: &'static Schema) -> Result<Value, MergeError> {
    let mut merged = original.clone();
    merge_into(&mut merged, patch.clone(), schema)?;
    Ok(merged)
}

/// Merges `patch` with `original`, both of type `schema`, in place; what the original lacks is moved, not
/// copied. After an error `original` is half merged.
fn merge_into(original: &mut Value, patch: Value, schema: &'static Schema) -> Result<(), MergeError> {
    let root = Path::root();
    if original.is_null() {
        *original = Value::Object(Map::new());
    }
    let fields = match original {
        Value::Object(fields) => fields,
        other => return Err(error(&root, Problem::NotAMap { found: type_name(other) })),
    };
    match patch {
        Value::Object(patch) => merge::merge_fields(fields, patch, merge::Fields::of(schema), &root),
        Value::Null => Ok(()),
        other => Err(error(&root, Problem::NotAMap { found: type_name(&other) })),
    }
}

/// [`merge_ports_apart`], and a value of another kind replaces.
pub(crate) fn merge_over(
    original: &mut Value,
    patch: Value,
    schema: &'static Schema,
) -> Result<(), MergeError> {
    alternatives::drop_replaced(original, &patch, schema);
    merge_ports_apart(original, patch, schema)
}

/// [`merge_into`], and ports of two protocols stay two, unlike in Kubernetes.
pub(crate) fn merge_ports_apart(
    original: &mut Value,
    mut patch: Value,
    schema: &'static Schema,
) -> Result<(), MergeError> {
    let distinguished = ports::distinguish(original, &mut patch, schema);
    merge_into(original, patch, schema)?;
    if distinguished {
        ports::restore(original, schema);
    }
    Ok(())
}

fn error(path: &Path<'_>, problem: Problem) -> MergeError {
    MergeError { path: path.to_string(), problem }
}

fn check_depth(path: &Path<'_>) -> Result<(), MergeError> {
    if path.depth() > MAX_DEPTH { Err(error(path, Problem::TooDeep)) } else { Ok(()) }
}

/// A patch that cannot be applied: where, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", if path.is_empty() { "the object" } else { path })]
pub struct MergeError {
    /// The place, like `spec.containers[1].env[0]`; empty for the object itself.
    pub path: String,
    /// What is wrong there.
    pub problem: Problem,
}

/// The error of a patch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A list item lacks the field by which items are matched.
    #[error(
        "map: {item} does not contain declared merge key: {key} (in the {})",
        if *in_patch { "patch" } else { "original" }
    )]
    NoMergeKey { key: &'static str, item: String, in_patch: bool },
    /// A list of maps has something else in it.
    #[error("expected a map, found {found}")]
    NotAMap { found: &'static str },
    /// A directive's value is not a list.
    #[error("{directive} expects a list, found {found}")]
    NotAList { directive: String, found: &'static str },
    /// `$patch` with an unknown value.
    #[error("unknown patch directive $patch: {value}; expected replace, delete or merge")]
    UnknownDirective { value: String },
    /// `$retainKeys` lacks a key that the patch sets.
    #[error("the patch sets {key:?}, which its $retainKeys does not list")]
    NotRetained { key: String },
    /// `$setElementOrder/x` does not name the patch's items in the patch's order.
    #[error("the order of {list} does not match $setElementOrder/{list}")]
    OrderMismatch { list: String },
    /// Lists in lists, or nesting beyond every pod.
    #[error("nested too deeply")]
    TooDeep,
}
