//! Sidecar injection: a pod goes in, the injected pod comes out.

pub mod annotations;
pub mod config;
pub mod data;
pub mod decide;
pub mod inject;
pub mod overlay;
pub mod pod;
pub mod quantity;
pub mod schema;
pub mod template;
pub mod yaml;
