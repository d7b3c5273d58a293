//! The test lab: a pod in network namespaces, and people in it.

pub(crate) mod answer;
pub(crate) mod fixture;
pub(crate) mod namespace;
pub(crate) mod native;
pub(crate) mod pod;
pub(crate) mod program;
pub(crate) mod queries;
pub(crate) mod rules;
pub(crate) mod segment;
pub(crate) mod server;
pub(crate) mod socket;
pub(crate) mod traffic;
pub(crate) mod user;

pub(crate) use answer::Outcome;
pub(crate) use fixture::{Backend, Family, Fixture, Stack};
pub(crate) use fixture::{
    for_each_backend, for_each_fixture, for_each_fixture_and_native, for_these_fixtures,
};
pub(crate) use pod::{Pod, Topology};
pub(crate) use user::User;
