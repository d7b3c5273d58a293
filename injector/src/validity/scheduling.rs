//! Rules of a pod's names and of where it is scheduled.

use serde_json::Value;

use super::{Scope, is_zero};

/// The pod has no node before its gates are gone.
pub(super) fn gates(scope: &mut Scope<'_, '_, '_>) {
    let gated = scope.get("schedulingGates").is_some_and(|gates| !is_zero(gates));
    if gated && !scope.text("nodeName").is_empty() {
        let given = format!("{:?}", scope.text("nodeName"));
        scope.report("nodeName", given, "none with schedulingGates", &[]);
    }
}

/// What a name of the pod's host excludes.
pub(super) fn host_name(scope: &mut Scope<'_, '_, '_>) {
    const LONGEST: usize = 64;
    let Some(name) = scope.get("hostnameOverride").and_then(Value::as_str).map(str::to_owned) else { return };
    if name.is_empty() || name.len() > LONGEST {
        let accepted = format!("a DNS name of at most {LONGEST} characters");
        scope.report("hostnameOverride", format!("{name:?}"), accepted, &[]);
    }
    for key in ["setHostnameAsFQDN", "hostNetwork"] {
        if scope.is_true(key) {
            scope.report("hostnameOverride", format!("{name:?}"), format!("none with {key}: true"), &[]);
        }
    }
}

/// What a constraint's fields need of each other.
pub(super) fn spread(scope: &mut Scope<'_, '_, '_>) {
    if scope.get("minDomains").is_some() && scope.text("whenUnsatisfiable") == "ScheduleAnyway" {
        let given = scope.get("minDomains").map(ToString::to_string).unwrap_or_default();
        scope.report("minDomains", given, "none with whenUnsatisfiable: ScheduleAnyway", &[]);
    }
    let keys = scope.get("matchLabelKeys").is_some_and(|keys| !is_zero(keys));
    if keys && scope.get("labelSelector").is_none() {
        scope.report("matchLabelKeys", "set", "none without labelSelector", &[]);
    }
}
