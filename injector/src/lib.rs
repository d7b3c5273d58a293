//! Sidecar injection: a pod goes in, the injected pod comes out.

pub mod annotations;
pub mod decide;
pub mod overlay;
pub mod pod;
pub mod quantity;
pub mod schema;
pub mod template;
pub mod yaml;
