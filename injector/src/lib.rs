//! Sidecar injection: a pod goes in, the injected pod comes out.

pub mod annotations;
pub mod certs;
pub mod cli;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod config;
pub mod decide;
pub mod doctor;
pub mod files;
pub mod inject;
pub mod manifests;
pub mod notice;
pub mod object;
pub mod overlay;
pub mod path;
pub mod pod;
pub mod quantity;
pub mod schema;
pub mod template;
pub mod webhook;
pub mod yaml;
