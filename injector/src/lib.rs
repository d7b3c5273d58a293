//! Sidecar injection: a pod in, the injected pod out.

pub mod annotations;
pub mod certs;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod decide;
pub mod doctor;
pub mod events;
pub mod file_watcher;
pub mod files;
pub mod inject;
pub mod manifests;
pub mod object;
pub mod overlay;
pub mod path;
pub mod pod;
pub mod quantity;
pub mod schema;
pub mod template;
pub mod webhook;
pub mod yaml;
