//! The proxy's resources, of the config or of annotations.

use serde_json::Value;

use super::list::{annotation, proxy};
use crate::annotations::keys;
use crate::path::{Lookup as _, at};

/// Each annotation with the field that it sets.
const FIELDS: [(&str, &str, &str); 4] = [
    (keys::PROXY_CPU, "requests", "cpu"),
    (keys::PROXY_MEMORY, "requests", "memory"),
    (keys::PROXY_CPU_LIMIT, "limits", "cpu"),
    (keys::PROXY_MEMORY_LIMIT, "limits", "memory"),
];

/// What the config gives every proxy and this one does not have, because one annotation replaces all
/// resources, as in Istio.
pub(crate) fn replaced(pod: &Value, values: &Value) -> Option<String> {
    let (given, _, _) = FIELDS.into_iter().find(|(key, _, _)| annotation(pod, key).is_some())?;
    let config = at(values, "/global/proxy/resources")?;
    let proxy = proxy(pod)?;
    let has = |from: &Value, section: &str, name: &str| {
        from.get(section).is_some_and(|all| all.lookup(name).is_some())
    };
    let lost = FIELDS.into_iter().filter(|(_, section, name)| {
        has(config, section, name) && !proxy.lookup("resources").is_some_and(|own| has(own, section, name))
    });
    let (fields, keys): (Vec<String>, Vec<&str>) =
        lost.map(|(key, section, name)| (format!("{section}.{name}"), key)).unzip();
    (!fields.is_empty()).then(|| {
        format!(
            "annotation {given} replaces all resources of the proxy: it has no {}, which a HorizontalPodAutoscaler or a \
             ResourceQuota may need; expected {} as well",
            fields.join(", "),
            keys.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_one_annotation_removes_is_named() {
        let values = json!({"global": {"proxy": {"resources": {
            "requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "2"}}}}});
        let pod = |annotations: Value, resources: Value| {
            json!({"metadata": {"annotations": annotations},
                   "spec": {"containers": [{"name": "istio-proxy", "resources": resources}]}})
        };
        let one = pod(json!({(keys::PROXY_CPU): "200m"}), json!({"requests": {"cpu": "200m"}}));
        let found = replaced(&one, &values).unwrap();
        assert!(found.contains("it has no requests.memory, limits.cpu, which"), "{found}");
        assert!(
            found.ends_with("expected sidecar.istio.io/proxyMemory, sidecar.istio.io/proxyCPULimit as well"),
            "{found}"
        );
        assert_eq!(replaced(&one, &json!({})), None);
        let all = pod(json!({(keys::PROXY_CPU): "200m"}), values["global"]["proxy"]["resources"].clone());
        assert_eq!(replaced(&all, &values), None);
        assert_eq!(replaced(&pod(json!({}), json!({})), &values), None);
    }
}
