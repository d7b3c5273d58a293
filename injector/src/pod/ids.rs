//! Users and groups: the ranges of an OpenShift namespace, and a proxy with a user of its own.

use serde_json::{Value, json};

use super::list::{List, containers, containers_mut, name, object_mut};
use super::{INIT, PROXY, VALIDATION, list};
use crate::path::Lookup as _;
use crate::validity::breaks_non_root;

const UID_RANGE: &str = "openshift.io/sa.scc.uid-range";
const GROUPS: &str = "openshift.io/sa.scc.supplemental-groups";

/// The proxy's user and group where the namespace says which ones its pods may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ids {
    /// User.
    pub uid: Option<i64>,
    /// Group.
    pub gid: Option<i64>,
}

impl Ids {
    /// The last user of the namespace's range and the last group of its first block, far from what its apps
    /// get. A namespace without groups of its own has those of its users.
    ///
    /// # Errors
    ///
    /// The annotation that is missing or cannot be read.
    pub fn of_namespace(namespace: &Value) -> Result<Self, String> {
        let groups = list::annotation(namespace, GROUPS).map_or(UID_RANGE, |_| GROUPS);
        let last = |key: &str| {
            let text = list::annotation(namespace, key)
                .ok_or_else(|| format!("the namespace has no annotation {key}"))?;
            last_of_range(text).ok_or_else(|| {
                format!("annotation {key}: {text:?} is not accepted, expected START/SIZE or START-END")
            })
        };
        Ok(Self { uid: Some(last(UID_RANGE)?), gid: Some(last(groups)?) })
    }
}

/// `1000620000/10000` and `1000620000-1000629999` both end at 1000629999; of several blocks the first one
/// counts.
fn last_of_range(text: &str) -> Option<i64> {
    let block = text.split(',').next()?.trim();
    let number = |text: &str| text.trim().parse::<i64>().ok().filter(|number| (0..1 << 32).contains(number));
    if let Some((start, size)) = block.split_once('/') {
        let size = number(size).filter(|size| *size > 0)?;
        return Some(number(start)? + size - 1);
    }
    let (start, end) = block.split_once('-')?;
    number(end).filter(|end| number(start).is_some_and(|start| start <= *end))
}

/// The user and group that the user's own proxy container sets.
pub(crate) fn of_container(container: &Value) -> Ids {
    let number =
        |key: &str| container.lookup("securityContext").and_then(|context| context.lookup(key)?.as_i64());
    Ids { uid: number("runAsUser"), gid: number("runAsGroup") }
}

/// Takes user and group from a customized proxy that has an app's user: OpenShift assigns the same one to
/// every container, which would exempt the app from capture. Istio compares the last app, unset as 0; here
/// every app with that user counts.
pub(crate) fn drop_assigned(pod: &mut Value) {
    let uid = |container: &Value| of_container(container).uid;
    let Some(proxy) = list::proxy(pod).map(uid) else { return };
    let apps = list::all_containers(pod).filter(|app| !matches!(name(app), PROXY | INIT | VALIDATION));
    let apps: Vec<i64> = apps.filter_map(uid).collect();
    let same = match proxy {
        Some(user) => apps.contains(&user) || apps.is_empty() && user == 0,
        // Without a user, only values that Istio considers the same are removed: the author's group stays
        // with other users.
        None => apps.last().is_none_or(|user| *user == 0),
    };
    if same {
        let context =
            list::proxy_mut(pod).and_then(|proxy| proxy.get_mut("securityContext")?.as_object_mut());
        if let Some(context) = context {
            context.retain(|key, _| key != "runAsUser" && key != "runAsGroup");
        }
    }
}

/// Carries the user and group that the user gave the proxy to what must agree with it: the user whose traffic
/// is not captured, and the validation container where there is no init container. With TPROXY the proxy
/// needs root, whatever the user sets, and the validation container stays as it is.
pub fn apply_proxy_ids(pod: &mut Value, given: Ids, tproxy: bool) {
    if given == Ids::default() {
        return;
    }
    let init = containers(pod, List::InitContainers);
    let found = [INIT, VALIDATION].into_iter().find(|wanted| list::find(init, wanted).is_some());
    let mut init = containers_mut(pod, List::InitContainers).iter_mut();
    if let Some(container) = init.find(|item| Some(name(item)) == found) {
        if found == Some(VALIDATION) && !tproxy {
            set(container, "runAsUser", given.uid);
            set(container, "runAsGroup", given.gid);
        }
        if let Some(uid) = given.uid.filter(|uid| *uid != 0) {
            set_argument(container, "-u", &uid.to_string());
        }
    }
    if tproxy
        && given.uid.is_some()
        && let Some(proxy) = list::proxy_mut(pod)
    {
        set(proxy, "runAsUser", Some(0));
    }
}

/// Lets injected containers whose own user is 0 start where the pod has `runAsNonRoot: true`. What a
/// container says of `runAsNonRoot` itself stays.
pub(crate) fn allow_root(pod: &mut Value, is_added: impl Fn(List, &str) -> bool) {
    for list in List::BOTH {
        let needs = |container: &Value| {
            let context = container.lookup("securityContext").and_then(Value::as_object);
            let own = |key: &str| context.and_then(|own| own.lookup(key)).filter(|value| !value.is_null());
            own("runAsNonRoot").is_none()
                && own("runAsUser").is_some()
                && container.as_object().is_some_and(|container| breaks_non_root(pod, container))
        };
        let all: Vec<bool> = containers(pod, list).iter().map(needs).collect();
        for (container, needs) in containers_mut(pod, list).iter_mut().zip(all) {
            if needs
                && is_added(list, name(container))
                && let Some(context) = object_mut(container, "securityContext")
            {
                context.insert("runAsNonRoot".to_owned(), json!(false));
            }
        }
    }
}

fn set(container: &mut Value, key: &str, number: Option<i64>) {
    if let Some(number) = number
        && let Some(context) = object_mut(container, "securityContext")
    {
        context.insert(key.to_owned(), json!(number));
    }
}

fn set_argument(container: &mut Value, flag: &str, value: &str) {
    let Some(arguments) = container.get_mut("args").and_then(Value::as_array_mut) else {
        return;
    };
    if let Some(at) = arguments.iter().position(|argument| argument.as_str() == Some(flag))
        && let Some(slot) = arguments.get_mut(at + 1)
    {
        *slot = json!(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(uids: &str, groups: &str) -> Value {
        json!({"metadata": {"annotations": {UID_RANGE: uids, GROUPS: groups}}})
    }

    #[test]
    fn the_ends_of_the_ranges() {
        let ids = Ids { uid: Some(1_000_629_999), gid: Some(1_000_639_999) };
        let namespace = namespace("1000620000/10000", "1000630000-1000639999,1/5");
        assert_eq!(Ids::of_namespace(&namespace), Ok(ids));
    }

    #[test]
    fn ranges_that_cannot_be_read() {
        for text in ["", "5", "a/b", "1/0", "9-1", "1/-1", "99999999999/1"] {
            let error = Ids::of_namespace(&namespace(text, "1/1")).unwrap_err();
            assert!(error.contains(UID_RANGE) && error.contains("START/SIZE"), "{error}");
        }
        let error = Ids::of_namespace(&json!({})).unwrap_err();
        assert_eq!(error, format!("the namespace has no annotation {UID_RANGE}"));
    }

    fn pod() -> Value {
        json!({"spec": {
            "initContainers": [
                {"name": "istio-validation", "args": ["x", "-u", "1337", "-m"]}, {"name": "user", "args": ["-u", "5"]},
            ],
            "containers": [{"name": "istio-proxy", "securityContext": {"runAsUser": 1234}}],
        }})
    }

    #[test]
    fn validation_container_gets_the_user_of_the_proxy() {
        let mut pod = pod();
        apply_proxy_ids(&mut pod, Ids { uid: Some(1234), gid: Some(7) }, false);
        let validation = &pod["spec"]["initContainers"][0];
        assert_eq!(validation["args"], json!(["x", "-u", "1234", "-m"]));
        assert_eq!(validation["securityContext"], json!({"runAsUser": 1234, "runAsGroup": 7}));
        assert_eq!(pod["spec"]["initContainers"][1]["args"], json!(["-u", "5"]));
        assert_eq!(pod["spec"]["containers"][0]["securityContext"]["runAsUser"], 1234);
    }

    #[test]
    fn tproxy_needs_root_but_spares_the_user_s_uid() {
        let mut pod = pod();
        apply_proxy_ids(&mut pod, Ids { uid: Some(1234), gid: None }, true);
        assert_eq!(pod["spec"]["containers"][0]["securityContext"]["runAsUser"], 0);
        let validation = &pod["spec"]["initContainers"][0];
        assert_eq!((&validation["args"][2], validation.get("securityContext")), (&json!("1234"), None));
    }

    #[test]
    fn validation_container_beside_an_init_container_is_the_user_s() {
        let mut pod = pod();
        let init = pod["spec"]["initContainers"].as_array_mut().unwrap();
        init.push(json!({"name": "istio-init", "args": ["-u", "1337"]}));
        let validation = init[0].clone();
        apply_proxy_ids(&mut pod, Ids { uid: Some(1234), gid: Some(7) }, false);
        assert_eq!(pod["spec"]["initContainers"][0], validation);
        assert_eq!(pod["spec"]["initContainers"][2]["args"], json!(["-u", "1234"]));
    }
}
