//! Sources of facts about a pod, in the configured order.

use crate::deadline::Deadline;
use crate::environment::PodName;
use crate::error::{CniError, Code};
use crate::lookup::{self, Failure};
use crate::netconf::{NetConf, POD_ANNOTATIONS, SourceKind};
use crate::pod::{Pod, STATUS};

/// Kubelet sets it on every pod: the annotations are complete.
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";

/// The part of the deadline that the agent may take for a pod, and that is left for the rules when the API
/// server takes longest.
const PART: u32 = 10;

/// The pod as the source reports it, or why it does not.
///
/// # Errors
/// Code 7: the configuration is invalid. Code 11: the pod does not exist any more, or the runtime ended this
/// process.
pub fn pod(
    conf: &NetConf<'_>,
    source: SourceKind,
    name: &PodName,
    deadline: &Deadline,
) -> Result<Result<Pod, String>, CniError> {
    let part = deadline.limit() / PART;
    let (refresh, within) = match source {
        SourceKind::Annotations => return annotations(conf),
        SourceKind::Agent => (false, part),
        SourceKind::Api => (true, deadline.remaining().saturating_sub(part)),
    };
    let later = |problem: String| CniError::new(Code::TryAgainLater, problem);
    match lookup::ask(&conf.run_dir()?, name, refresh, within, deadline) {
        Ok(known) => Ok(Ok(known.pod)),
        Err(Failure::Problem(problem)) => Ok(Err(problem)),
        Err(Failure::NotFound) => {
            Err(later(format!("pod {name} does not exist: the API server knows no pod of this name (404)")))
        }
        Err(Failure::Interrupted(interrupted)) => Err(later(interrupted.to_string())),
    }
}

/// The annotations that the runtime passes. A pod that seems not to be injected counts as known only if
/// kubelet's own annotation is there too: a runtime that passes none must not leave pods uncaptured.
///
/// # Errors
/// Code 7: the runtime's configuration is invalid.
pub fn annotations(conf: &NetConf<'_>) -> Result<Result<Pod, String>, CniError> {
    let Some(annotations) = conf.pod_annotations()? else {
        let problem = format!(
            "the runtime passes none; set \"capabilities\": {{{POD_ANNOTATIONS:?}: true}} in the entry \
             of istio-cni"
        );
        return Ok(Err(problem));
    };
    if !annotations.contains_key(CONFIG_SOURCE) && !annotations.contains_key(STATUS) {
        return Ok(Err(format!("incomplete, without {CONFIG_SOURCE}, which kubelet sets on every pod")));
    }
    Ok(Ok(Pod { annotations, ..Pod::default() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(runtime: &str) -> Result<Pod, String> {
        let text = format!("{{\"runtimeConfig\": {runtime}}}");
        annotations(&NetConf::parse(text.as_bytes()).unwrap()).unwrap()
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
            let problem = of(unknown).unwrap_err();
            assert!(problem.contains("passes none") || problem.contains("incomplete"), "{problem}");
        }
        for known in [CONFIG_SOURCE, STATUS] {
            let pod =
                of(&format!("{{\"io.kubernetes.cri.pod-annotations\": {{{known:?}: \"x\"}}}}")).unwrap();
            assert_eq!((pod.annotations[known].as_str(), pod.containers), ("x", None));
        }
    }
}
