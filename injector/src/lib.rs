//! Sidecar injection: takes a pod and returns the injected pod.
//!
//! The modules are listed from the leaves to the commands; none imports from a later one.

// A module imports from those above it only, which `tests/imports.rs` of the workspace checks.
pub mod annotations;
pub mod events;
mod file_watcher;
pub mod files;
mod path;

mod schema;

pub mod object;
pub mod quantity;
mod strategic_merge;
mod validity;

pub mod yaml;

pub mod pod;

pub mod decide;

pub mod config;
pub mod manifests;

mod template;

pub mod inject;

pub mod certs;

pub mod cluster;

pub mod doctor;
pub mod webhook;

pub mod cli;
