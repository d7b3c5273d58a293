//! The capture options of a pod that a CNI plugin captures, as an annotation: the plugin then needs neither
//! the pod's containers nor an API server.

use istio_iptables::cli::Key;
use istio_iptables::config::{CAPTURE_ANNOTATION, proxy_id, write_capture_annotation};
use serde_json::{Value, json};

use super::Injector;
use crate::path::at;
use crate::pod::VALIDATION;
use crate::pod::init_options::InitOptions;
use crate::pod::list::{self, metadata_mut};

/// The value that enables it.
const VALUE: &str = "/pilot/cni/captureAnnotation";

impl Injector {
    /// Writes the annotation where `istio-validation` shows that a CNI plugin captures the pod. Returns
    /// warnings.
    pub(super) fn write_capture_options(&self, pod: &mut Value, init: &InitOptions) -> Vec<String> {
        if init.container != VALIDATION || !self.flag(VALUE) {
            return Vec::new();
        }
        let Some(resolved) = &init.resolved else {
            return vec![format!(
                "annotation {CAPTURE_ANNOTATION} is not written: the options of container {VALIDATION} depend on variables \
                 that are not known here; the CNI plugin uses the pod's other annotations"
            )];
        };
        let ids = [(Key::ProxyUid, "runAsUser"), (Key::ProxyGid, "runAsGroup")]
            .map(|(key, name)| (key, id(pod, name)));
        let given = resolved.given.iter().map(|given| (given.key, given.text.as_str()));
        // Of two values the later one counts.
        let all = given.chain(ids.iter().map(|(key, text)| (*key, text.as_str())));
        let text = write_capture_annotation(all);
        if let Some(annotations) = metadata_mut(pod, "annotations") {
            annotations.insert(CAPTURE_ANNOTATION.to_owned(), json!(text));
        }
        let names = init.elsewhere.iter().map(|name| {
            format!(
                "{}: {:?} is the name of a group, which the CNI plugin cannot look up: it refuses the pod; expected its number",
                name.origin, name.given
            )
        });
        names.collect()
    }
}

/// The proxy's user or group, of its container or else of the pod.
fn id(pod: &Value, name: &str) -> String {
    let of = |object: &Value| at(object, "/securityContext")?.get(name)?.as_u64();
    let own = list::proxy(pod).and_then(of).or_else(|| pod.get("spec").and_then(of));
    // No kernel has a larger one, and the API server refuses it.
    proxy_id(own.and_then(|id| u32::try_from(id).ok())).to_string()
}
