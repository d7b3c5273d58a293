//! Whether the proxy is a native sidecar.

use serde_json::Value;

use crate::annotations::keys;
use crate::pod::list::annotation;

/// What the pod says, else `default`.
pub(super) fn wanted(pod: &Value, default: bool) -> bool {
    match annotation(pod, keys::NATIVE_SIDECAR) {
        Some("true") => true,
        Some("false") => false,
        _ => default,
    }
}
