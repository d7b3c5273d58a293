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
    let position = if hold_application { Position::First } else { Position::Last };
    put(pod, List::Containers, moved(containers, PROXY, position));

    let mut init = take(pod, List::InitContainers);
    let steps: &[(&str, Position)] = if find(&init, PROXY).is_some() {
        &[
            (CORE_DUMP, Position::First),
            (PROXY, Position::First),
            (VALIDATION, Position::First),
            (INIT, Position::First),
        ]
    } else {
        &[(VALIDATION, Position::First), (INIT, Position::Last), (CORE_DUMP, Position::Last)]
    };
    for (container, position) in steps {
        init = moved(init, container, *position);
    }
    put(pod, List::InitContainers, init);
}

#[derive(Clone, Copy)]
enum Position {
    First,
    Last,
}

/// Of several containers with this name only the last one stays.
fn moved(items: Vec<Value>, wanted: &str, position: Position) -> Vec<Value> {
    let (mut matching, mut others): (Vec<Value>, Vec<Value>) =
        items.into_iter().partition(|item| name(item) == wanted);
    if let Some(item) = matching.pop() {
        match position {
            Position::First => others.insert(0, item),
            Position::Last => others.push(item),
        }
    }
    others
}
