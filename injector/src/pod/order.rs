//! The order of containers.

use serde_json::Value;

use super::list::{List, find, name, put, take};
use super::{CORE_DUMP, INIT, PROXY, VALIDATION};

/// Puts Istio's containers where they belong; the others keep their order.
///
/// The proxy comes last, so that `kubectl exec` keeps going to the app, or first if the app has to wait for
/// it. As a native sidecar it comes before the user's init containers, after the one that sets up capture.
/// Without native sidecars capture is set up last: the proxy does not run yet while the user's init
/// containers do.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::list::containers;

    /// The names of both lists after [`order`], containers first.
    fn ordered(names: &[&str], init: &[&str], hold_application: bool) -> [Vec<String>; 2] {
        let named = |names: &[&str]| names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
        let mut pod = json!({"spec": {"containers": named(names), "initContainers": named(init)}});
        order(&mut pod, hold_application);
        List::BOTH.map(|list| containers(&pod, list).iter().map(|item| name(item).to_owned()).collect())
    }

    #[test]
    fn proxy_is_last_by_default() {
        assert_eq!(ordered(&[PROXY, "a", "b"], &[], false)[0], ["a", "b", PROXY]);
    }

    #[test]
    fn proxy_is_first_with_hold_application_until_proxy_starts() {
        assert_eq!(ordered(&["a", "b", PROXY], &[], true)[0], [PROXY, "a", "b"]);
    }

    #[test]
    fn istio_init_is_after_the_init_containers_of_the_app() {
        let [_, init] = ordered(&["a", PROXY], &[CORE_DUMP, INIT, "x", "y"], false);
        assert_eq!(init, ["x", "y", INIT, CORE_DUMP]);
        assert_eq!(ordered(&["a", PROXY], &["x", VALIDATION], true)[1], [VALIDATION, "x"]);
    }

    #[test]
    fn native_sidecar_is_before_the_init_containers_of_the_app() {
        let [_, init] = ordered(&["a"], &["x", PROXY, VALIDATION, CORE_DUMP, INIT], false);
        assert_eq!(init, [INIT, VALIDATION, PROXY, CORE_DUMP, "x"]);
    }
}
