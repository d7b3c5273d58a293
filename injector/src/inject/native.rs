//! Whether the proxy is a native sidecar.

use serde_json::Value;

use crate::pod::list::annotation;

/// What the pod says, else `default`.
pub(super) fn wanted(pod: &Value, default: bool) -> bool {
    match annotation(pod, "sidecar.istio.io/nativeSidecar") {
        Some("true") => true,
        Some("false") => false,
        _ => default,
    }
}
