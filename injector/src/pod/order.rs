//! The order of containers.

use serde_json::Value;

use super::list::{List, find, name, put, take};
use super::{CORE_DUMP, INIT, PROXY, VALIDATION};

/// Puts Istio's containers where they belong; the others keep their order.
///
/// The proxy comes last, so that `kubectl exec` keeps going to the app, or first if the app has to wait for it. As a
/// native sidecar it comes before the user's init containers, behind the one that sets up capture. Without native
/// sidecars capture is set up last: the proxy does not run yet while the user's init containers do.
pub fn order(pod: &mut Value, hold_application: bool) {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::list::containers;

    fn pod(containers: &[&str], init: &[&str]) -> Value {
        let list = |names: &[&str]| names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
        json!({"spec": {"containers": list(containers), "initContainers": list(init)}})
    }

    fn names(pod: &Value, list: List) -> String {
        containers(pod, list).iter().map(name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn capture_is_last_without_native_sidecars_and_first_with_them() {
        let mut classic = pod(&["istio-proxy", "a", "b"], &["istio-init", "u", "istio-validation"]);
        order(&mut classic, false);
        assert_eq!(names(&classic, List::Containers), "a b istio-proxy");
        assert_eq!(names(&classic, List::InitContainers), "istio-validation u istio-init");

        let mut native = pod(&["a"], &["u", "istio-proxy", "enable-core-dump", "istio-init"]);
        order(&mut native, true);
        assert_eq!(names(&native, List::InitContainers), "istio-init istio-proxy enable-core-dump u");
    }

    #[test]
    fn the_proxy_is_first_if_the_app_has_to_wait() {
        let mut waiting = pod(&["a", "istio-proxy"], &[]);
        order(&mut waiting, true);
        assert_eq!(names(&waiting, List::Containers), "istio-proxy a");
        let once = waiting.clone();
        order(&mut waiting, true);
        assert_eq!(waiting, once);
    }

    #[test]
    fn a_pod_without_init_containers_gets_no_empty_list() {
        let mut bare = json!({"spec": {"containers": [{"name": "a"}]}});
        order(&mut bare, false);
        assert_eq!(bare, json!({"spec": {"containers": [{"name": "a"}]}}));
    }
}
