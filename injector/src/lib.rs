//! Sidecar injection: a pod goes in, the injected pod comes out.

pub mod overlay;
pub mod template;
