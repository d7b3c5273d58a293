//! Where the facts of a pod come from, in the configured order.

use crate::error::CniError;
use crate::netconf::{NetConf, POD_ANNOTATIONS, SourceKind};
use crate::pod::Pod;

/// Kubelet sets it on every pod: the annotations are complete.
const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// Injection sets it.
const STATUS: &str = "sidecar.istio.io/status";

/// The pod as the source reports it, or why it does not.
///
/// # Errors
/// Code 7: the configuration is invalid.
pub fn pod(conf: &NetConf<'_>, source: SourceKind) -> Result<Result<Pod, String>, CniError> {
    match source {
        SourceKind::Annotations => annotations(conf),
    }
}

/// The annotations that the runtime hands over. A pod that seems not to be injected counts as known only if kubelet's own
/// annotation is there too: a runtime that hands over none must not leave pods uncaptured.
fn annotations(conf: &NetConf<'_>) -> Result<Result<Pod, String>, CniError> {
    let Some(annotations) = conf.pod_annotations()? else {
        let problem = format!(
            "annotations: the runtime hands over none; set \"capabilities\": {{{POD_ANNOTATIONS:?}: true}} in the entry \
             of istio-cni"
        );
        return Ok(Err(problem));
    };
    if !annotations.contains_key(CONFIG_SOURCE) && !annotations.contains_key(STATUS) {
        return Ok(Err(format!(
            "annotations: incomplete, without {CONFIG_SOURCE}, which kubelet sets on every pod"
        )));
    }
    Ok(Ok(Pod { annotations, ..Pod::default() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(runtime: &str) -> Result<Pod, String> {
        let text = format!("{{\"runtimeConfig\": {runtime}}}");
        pod(&NetConf::parse(text.as_bytes()).unwrap(), SourceKind::Annotations).unwrap()
    }

    #[test]
    fn pods_are_known_by_complete_annotations_only() {
        for unknown in [
            "null",
            "{}",
            r#"{"portMappings": []}"#,
            r#"{"io.kubernetes.cri.pod-annotations": null}"#,
            r#"{"io.kubernetes.cri.pod-annotations": {}}"#,
            r#"{"io.kubernetes.cri.pod-annotations": {"a": "b"}}"#,
        ] {
            assert!(of(unknown).unwrap_err().starts_with("annotations: "), "{unknown}");
        }
        for known in [CONFIG_SOURCE, STATUS] {
            let pod =
                of(&format!("{{\"io.kubernetes.cri.pod-annotations\": {{{known:?}: \"x\"}}}}")).unwrap();
            assert_eq!((pod.annotations[known].as_str(), pod.containers), ("x", None));
        }
    }
}
