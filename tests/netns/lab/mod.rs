//! A pod in network namespaces, its processes, and the network outside of it; what is not about Istio is in
//! the crate `netlab`.

pub(crate) mod fixture;
pub(crate) mod kill;
pub(crate) mod native;
pub(crate) mod pod;
pub(crate) mod program;
pub(crate) mod queries;
pub(crate) mod report;
pub(crate) mod rules;
pub(crate) mod slow;
pub(crate) mod tools;
pub(crate) mod traffic;

pub(crate) use fixture::{Backend, Family, Fixture, Stack};
pub(crate) use fixture::{
    for_each_backend, for_each_backend_and_native, for_each_fixture, for_each_fixture_and_native,
    for_these_fixtures,
};
pub(crate) use netlab::{Outcome, User, namespace, segment, server, socket, user};
pub(crate) use pod::{Pod, Topology};
pub(crate) use report::verdict;
