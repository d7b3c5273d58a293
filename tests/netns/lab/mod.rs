//! The test lab: a pod in network namespaces, and people in it.

pub(crate) mod actor;
pub(crate) mod answer;
pub(crate) mod ground;
pub(crate) mod namespace;
pub(crate) mod pod;
pub(crate) mod program;
pub(crate) mod queries;
pub(crate) mod rules;
pub(crate) mod segment;
pub(crate) mod server;
pub(crate) mod socket;
pub(crate) mod traffic;

pub(crate) use actor::Actor;
pub(crate) use answer::Outcome;
pub(crate) use ground::{Backend, Family, Ground, Stack};
pub(crate) use ground::{on_each_backend, on_every_ground, on_these_grounds};
pub(crate) use pod::{Pod, World};
