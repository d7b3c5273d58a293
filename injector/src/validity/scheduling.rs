//! Rules of a pod's names and of where it is scheduled.

use serde_json::Value;

use super::{Scope, is_zero};
use crate::path::{Lookup as _, at};

/// The pod has no node before its gates are gone.
pub(super) fn gates(scope: &mut Scope<'_, '_, '_>) {
    let gated = scope.get("schedulingGates").is_some_and(|gates| !is_zero(gates));
    if gated && !scope.text("nodeName").is_empty() {
        let given = format!("{:?}", scope.text("nodeName"));
        scope.report("nodeName", given, "none with schedulingGates", &[]);
    }
}

/// An admission plugin that is on by default computes the number from the class.
pub(super) fn priority(scope: &mut Scope<'_, '_, '_>) {
    let number = scope.get("priority").filter(|number| !is_zero(number)).map(Value::to_string);
    if let Some(number) = number.filter(|_| scope.text("priorityClassName").is_empty()) {
        scope.report("priority", number, "that of priorityClassName, which sets it", &[]);
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
    label_keys(scope);
}

/// Keys of the pod's own labels that a term or constraint compares, or must not.
pub(super) fn label_keys(scope: &mut Scope<'_, '_, '_>) {
    let keys = |key: &str| -> Vec<String> {
        let items = scope.get(key).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
    };
    let (same, other) = (keys("matchLabelKeys"), keys("mismatchLabelKeys"));
    let Some(selector) = scope.get("labelSelector") else {
        for (key, keys) in [("matchLabelKeys", &same), ("mismatchLabelKeys", &other)] {
            if !keys.is_empty() {
                scope.report(key, "set", "none without labelSelector", &[]);
            }
        }
        return;
    };
    // The API server adds an expression for each of the keys that the pod has as a label.
    let own = at(scope.checker.pod, "/metadata/labels");
    let has = |labels: Option<&Value>, key: &str| labels.is_some_and(|labels| labels.lookup(key).is_some());
    let again = same.iter().find(|key| {
        let expressions = selector.lookup("matchExpressions").and_then(Value::as_array).into_iter().flatten();
        let expressions = expressions.filter(|one| one.lookup("key").is_some_and(|of| of == *key)).count();
        expressions + usize::from(has(selector.lookup("matchLabels"), key)) + usize::from(has(own, key)) > 1
    });
    if let Some(key) = again {
        let accepted = "a key that labelSelector does not have, or that is no label of the pod";
        scope.report("matchLabelKeys", format!("{key:?}"), accepted, &["labelSelector"]);
    }
    if let Some(both) = same.iter().find(|key| other.contains(key)) {
        let accepted = "a key in one of matchLabelKeys, mismatchLabelKeys";
        scope.report("", format!("{both:?} in both"), accepted, &["matchLabelKeys", "mismatchLabelKeys"]);
    }
}

/// A node has one name.
pub(super) fn node_field(scope: &mut Scope<'_, '_, '_>) {
    let count = scope.get("values").and_then(Value::as_array).map_or(0, Vec::len);
    if count != 1 {
        scope.report("values", format!("{count} values"), "one value, the name of a node", &[]);
    }
}

/// Search domains are not too long together.
pub(super) fn searches(scope: &mut Scope<'_, '_, '_>) {
    const MOST: usize = 2048;
    let searches = scope.get("searches").and_then(Value::as_array).into_iter().flatten();
    let lengths: Vec<usize> = searches.filter_map(|one| one.as_str().map(str::len)).collect();
    let all = lengths.iter().sum::<usize>() + lengths.len().saturating_sub(1);
    if all > MOST {
        let accepted = format!("at most {MOST} with the blanks between them");
        scope.report("searches", format!("{all} characters"), accepted, &[]);
    }
}
