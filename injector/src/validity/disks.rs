//! Rules of volumes on disks that depend on several fields.

use serde_json::Value;

use super::{ABSENT, EnforcedBy, Scope, is_zero};
use crate::path::Lookup as _;
use crate::quantity;

/// The place of an Azure disk depends on its kind.
pub(super) fn azure(scope: &mut Scope<'_, '_, '_>) {
    let uri = scope.text("diskURI");
    // The API server's default is Shared.
    let is_managed = scope.text("kind") == "Managed";
    let begin = if is_managed { "/subscriptions/" } else { "https://" };
    if !uri.is_empty() && !uri.starts_with(begin) {
        let kind = if is_managed { "Managed" } else { "other than Managed" };
        scope.report("diskURI", format!("{uri:?}"), format!("{begin}..., with a kind {kind}"), &[]);
    }
}

/// A target has one sort of names; its world-wide ones need the number of a unit.
pub(super) fn fibre_channel(scope: &mut Scope<'_, '_, '_>) {
    let set = |key: &str| scope.get(key).is_some_and(|names| !is_zero(names));
    let given: Vec<&str> = ["targetWWNs", "wwids"].into_iter().filter(|key| set(key)).collect();
    one_of(scope, &given, "one of targetWWNs, wwids");
    if given.contains(&"targetWWNs") && scope.get("lun").is_none() {
        scope.absent("lun", "0-255, with targetWWNs");
    }
}

/// A dataset is known by its name or by its number.
pub(super) fn flocker(scope: &mut Scope<'_, '_, '_>) {
    let set = |key: &str| !scope.text(key).is_empty();
    let given: Vec<&str> = ["datasetName", "datasetUUID"].into_iter().filter(|key| set(key)).collect();
    one_of(scope, &given, "one of datasetName, datasetUUID");
}

fn one_of(scope: &mut Scope<'_, '_, '_>, given: &[&str], accepted: &str) {
    match given {
        [] => {
            scope.report("", "none is set", accepted, &[]);
            scope.enforced_by(Some(EnforcedBy::ApiServer), ABSENT);
        }
        [_] => {}
        several => scope.report("", several.join(" and "), accepted, several),
    }
}

/// What a claim is filled from: of the core group only another claim.
pub(super) fn data_source(scope: &mut Scope<'_, '_, '_>) {
    let kind = scope.text("kind");
    if scope.text("apiGroup").is_empty() && !matches!(kind, "" | "PersistentVolumeClaim") {
        let given = format!("{kind:?}");
        scope.report("kind", given, "PersistentVolumeClaim, or an apiGroup beside it", &[]);
    }
}

/// The two forms of a source say the same.
pub(super) fn data_sources(scope: &mut Scope<'_, '_, '_>) {
    let (Some(one), Some(other)) = (scope.get("dataSource"), scope.get("dataSourceRef")) else { return };
    let in_namespace = other.lookup("namespace").is_some_and(|namespace| !is_zero(namespace));
    let differ = ["apiGroup", "kind", "name"].iter().any(|key| one.lookup(key) != other.lookup(key));
    let fields = ["dataSource", "dataSourceRef"];
    if in_namespace {
        let given = "dataSource, and dataSourceRef with a namespace";
        scope.report("", given, "dataSourceRef alone", &fields);
    } else if differ {
        let given = "dataSource and dataSourceRef with different content";
        scope.report("", given, "one of them, or both alike", &fields);
    }
}

/// CHAP has a secret.
pub(super) fn iscsi(scope: &mut Scope<'_, '_, '_>) {
    let chap = scope.is_true("chapAuthDiscovery") || scope.is_true("chapAuthSession");
    if chap && scope.get("secretRef").is_none() {
        scope.absent("secretRef", "a value, with chapAuthDiscovery or chapAuthSession");
    }
}

/// A claim of one pod is of no other node.
pub(super) fn access_modes(scope: &mut Scope<'_, '_, '_>) {
    let modes = scope.get("accessModes").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    if modes.len() > 1 && modes.iter().any(|mode| mode == "ReadWriteOncePod") {
        scope.report("accessModes", "ReadWriteOncePod and others", "ReadWriteOncePod alone, or others", &[]);
    }
}

/// A claim asks for some storage.
pub(super) fn storage(scope: &mut Scope<'_, '_, '_>) {
    let Some(given) = scope.get("storage").map(quantity::text) else { return };
    if quantity::nanos(&given).is_some_and(|amount| amount <= 0) {
        scope.report("storage", format!("{given:?}"), "more than 0", &[]);
    }
}
