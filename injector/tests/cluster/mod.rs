//! What is read from a cluster and written to it, against an API server in memory.

mod bundles;
mod certificate;
mod commands;
mod config;
mod connection;
mod doctor;
mod fake;
mod owners;
mod permissions;
mod program;
mod proxy;
mod proxy_configs;
mod replica;
mod state;
