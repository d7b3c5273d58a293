//! The order of containers.

use serde_json::Value;

use super::list::{List, find, name, put, take};
use super::{CORE_DUMP, INIT, PROXY, VALIDATION};

/// Puts Istio's containers where they belong; the others keep their order.
///
/// The proxy comes last, so that `kubectl exec` keeps going to the app, or first if the app has to wait for it. As a
/// native sidecar it comes before the user's init containers, behind the one that sets up capture. Without native
/// sidecars capture is set up last: the proxy does not run yet while the user's init containers do.
pub(crate) fn order(pod: &mut Value, hold_application: bool) {
    let containers = take(pod, List::Containers);
    let place = if hold_application { Placement::First } else { Placement::Last };
    put(pod, List::Containers, moved(containers, PROXY, place));

    let mut init = take(pod, List::InitContainers);
    let steps: &[(&str, Placement)] = if find(&init, PROXY).is_some() {
        &[
            (CORE_DUMP, Placement::First),
            (PROXY, Placement::First),
            (VALIDATION, Placement::First),
            (INIT, Placement::First),
        ]
    } else {
        &[(VALIDATION, Placement::First), (INIT, Placement::Last), (CORE_DUMP, Placement::Last)]
    };
    for (container, place) in steps {
        init = moved(init, container, *place);
    }
    put(pod, List::InitContainers, init);
}

#[derive(Clone, Copy)]
enum Placement {
    First,
    Last,
}

/// Of several containers with this name only the last one stays.
fn moved(items: Vec<Value>, wanted: &str, place: Placement) -> Vec<Value> {
    let (mut matching, mut others): (Vec<Value>, Vec<Value>) =
        items.into_iter().partition(|item| name(item) == wanted);
    if let Some(item) = matching.pop() {
        match place {
            Placement::First => others.insert(0, item),
            Placement::Last => others.push(item),
        }
    }
    others
}
