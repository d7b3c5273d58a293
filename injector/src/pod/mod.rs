//! What injection does to a pod besides the templates: small idempotent functions on JSON.
//!
//! A pod here is the object that has `metadata` and `spec`: a Pod, or the template of a workload.

pub(crate) mod annotations;
pub(crate) mod changes;
pub(crate) mod env;
pub(crate) mod exempt;
pub mod ids;
pub(crate) mod image;
pub mod init_options;
pub(crate) mod injected_fields;
pub(crate) mod list;
pub(crate) mod order;
pub(crate) mod original_forms;
pub(crate) mod overrides;
pub(crate) mod place;
pub(crate) mod pod_resources;
pub(crate) mod probes;
pub(crate) mod prometheus;
pub(crate) mod proxy_resources;
pub mod security;
pub(crate) mod status;
pub(crate) mod strip;
pub mod workload;

pub use istio_cni::pod::{INIT, PROXY, VALIDATION};

/// The container that allows core dumps.
pub(crate) const CORE_DUMP: &str = "enable-core-dump";
/// The image that means "the template's image".
pub(crate) const AUTO_IMAGE: &str = "auto";

/// Whether a container of this name is Istio's own, customized or not.
pub(crate) fn is_istio_container(name: &str) -> bool {
    matches!(name, PROXY | INIT | VALIDATION | CORE_DUMP)
}
