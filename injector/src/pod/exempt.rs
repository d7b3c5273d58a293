//! App containers whose traffic is not captured, because they run as the proxy's user or group.

use istio_iptables::cli::Key;
use istio_iptables::config::PROXY_ID;
use serde_json::Value;

use super::ids::{Ids, of_container};
use super::init_options::InitOptions;
use super::is_istio_container;
use super::list::{self, List, containers, name};

/// Users and groups whose outbound traffic is not captured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exempt {
    /// Users.
    pub uids: Vec<i64>,
    /// Groups.
    pub gids: Vec<i64>,
}

impl Exempt {
    /// What a finished pod exempts: what its init container says, else the user of its proxy container, else
    /// the user that the namespace prescribes. Without groups of their own the users' numbers are groups too.
    pub(crate) fn of(pod: &Value, init: Option<&InitOptions>, ids: Ids) -> Self {
        let resolved = init.and_then(|init| init.resolved.as_ref());
        let given = resolved.map_or(&[][..], |resolved| &resolved.given);
        let numbers = |key: Key| -> Vec<i64> {
            let texts = given.iter().filter(|option| option.key == key);
            texts
                .flat_map(|option| option.text.split(',').filter_map(|text| text.trim().parse().ok()))
                .collect()
        };
        let (mut uids, mut gids) = (numbers(Key::ProxyUid), numbers(Key::ProxyGid));
        if uids.is_empty() {
            let of_proxy = list::proxy(pod).and_then(|proxy| of_container(proxy).uid);
            uids = vec![of_proxy.or(ids.uid).unwrap_or(PROXY_ID.into())];
        }
        if gids.is_empty() {
            gids.clone_from(&uids);
        }
        Self { uids, gids }
    }

    /// The app containers with such a user. Init containers that end are not apps: it is a known way to reach
    /// the network before the proxy runs.
    pub(crate) fn by_user(&self, pod: &Value) -> Vec<(String, i64)> {
        sharing(pod, "runAsUser", &self.uids)
    }

    /// The app containers with such a group, for which the same holds.
    pub(crate) fn by_group(&self, pod: &Value) -> Vec<(String, i64)> {
        sharing(pod, "runAsGroup", &self.gids)
    }
}

fn sharing(pod: &Value, key: &str, numbers: &[i64]) -> Vec<(String, i64)> {
    let of = |value: &Value| value.get("securityContext")?.get(key)?.as_i64();
    let of_pod = pod.get("spec").and_then(of);
    let lasting =
        |container: &&Value| container.get("restartPolicy").and_then(Value::as_str) == Some("Always");
    let init = containers(pod, List::InitContainers).iter().filter(lasting);
    let apps =
        containers(pod, List::Containers).iter().chain(init).filter(|app| !is_istio_container(name(app)));
    let number = |app: &Value| of(app).or(of_pod).filter(|number| numbers.contains(number));
    apps.filter_map(|app| Some((name(app).to_owned(), number(app)?))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_arguments_count_then_the_proxy_then_the_namespace() {
        let of = |arguments: &Value, proxy: &Value, uid| {
            let pod = json!({"spec": {
                "initContainers": [{"name": "istio-init", "args": arguments}],
                "containers": [{"name": "istio-proxy", "securityContext": proxy}],
            }});
            let exempt = Exempt::of(&pod, InitOptions::of(&pod).as_ref(), Ids { uid, gid: None });
            (exempt.uids, exempt.gids)
        };
        let proxy = json!({"runAsUser": 5});
        let given = json!(["istio-iptables", "-u", "4444", "-m", "REDIRECT"]);
        assert_eq!(of(&given, &proxy, Some(6)), (vec![4444], vec![4444]));
        let both = json!(["--proxy-uid=1,2", "-g", "3"]);
        assert_eq!(of(&both, &proxy, None), (vec![1, 2], vec![3]));
        assert_eq!(of(&json!([]), &proxy, Some(6)), (vec![5], vec![5]));
        assert_eq!(of(&json!([]), &json!({}), Some(6)), (vec![6], vec![6]));
        assert_eq!(of(&json!([]), &json!({}), None), (vec![1337], vec![1337]));
    }
}
