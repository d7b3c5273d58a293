//! Rules of volumes on disks that depend on several fields.

use serde_json::Value;

use super::Scope;
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

/// World-wide names of a target need the number of a unit.
pub(super) fn fibre_channel(scope: &mut Scope<'_, '_, '_>) {
    let names = scope.get("targetWWNs").and_then(Value::as_array).is_some_and(|names| !names.is_empty());
    if names && scope.get("lun").is_none() {
        scope.absent("lun", "0-255, with targetWWNs");
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
