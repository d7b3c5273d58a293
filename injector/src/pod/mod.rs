//! What injection does to a pod besides the templates: small functions on JSON, each of which can be applied twice
//! without a difference.
//!
//! A pod here is the object that holds `metadata` and `spec`: a Pod, or the template of a workload.

pub mod annotations;
pub mod env;
pub mod exempt;
pub mod ids;
pub mod image;
pub mod init_options;
pub mod list;
pub mod order;
pub mod overrides;
pub mod probes;
pub mod prometheus;
pub mod security;
pub mod status;
pub mod strip;
pub mod workload;

/// The proxy's container.
pub const PROXY: &str = "istio-proxy";
/// The container that sets up capture.
pub const INIT: &str = "istio-init";
/// The container that checks capture when a CNI plugin sets it up.
pub const VALIDATION: &str = "istio-validation";
/// The container that allows core dumps.
pub const CORE_DUMP: &str = "enable-core-dump";
/// The image that means "the template's image".
pub const AUTO_IMAGE: &str = "auto";

/// Whether a container of this name is Istio's own, customized or not.
#[must_use]
pub fn is_istio_container(name: &str) -> bool {
    matches!(name, PROXY | INIT | VALIDATION | CORE_DUMP)
}
