//! Network namespaces for tests.
//!
//! A [`Namespace`] has no name and disappears with its last handle; closures, commands and sockets run inside
//! it, and the caller's own namespace is never changed. A [`Holder`] is a process that also holds namespaces
//! of other kinds, for programs that enter them from outside. [`User`]s are clients and servers with their
//! own uid; a [`Server`] responds with the facts of the call: see [`Response`].
//!
//! ```no_run
//! use netlab::{Listen, Namespace, User};
//!
//! let [client, server] = [(); 2].map(|()| Namespace::with_loopback());
//! client.connect("eth0", &server, "eth0");
//! client.add_address([10, 0, 0, 1].into(), 24, "eth0");
//! server.add_address([10, 0, 0, 2].into(), 24, "eth0");
//! let _app = User::new(&server, 1000, 1000).serve("app", &[Listen::Tcp(8080)]);
//! let response = User::new(&client, 0, 0).call(([10, 0, 0, 2], 8080).into());
//! response.served_by("app");
//! ```
//!
//! Needs root (`CAP_SYS_ADMIN`, `CAP_NET_ADMIN`), the program `ip`, and for [`Holder`] util-linux. A panic
//! names what is missing: a test without it must fail.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "for tests, which fail by panicking"
)]

mod bpf;
mod device_program;
mod holder;
mod links;
pub mod namespace;
mod packet_program;
pub mod process;
pub mod response;
mod retransmission;
pub mod segment;
pub mod server;
pub mod socket;
mod socket_program;
pub mod user;

pub use device_program::{DeviceHookKind, DeviceProgram};
pub use holder::{Holder, Kinds};
pub use links::Links;
pub use namespace::{Namespace, in_new_namespace, ip_batch};
pub use packet_program::PacketProgram;
pub use response::{Outcome, Response};
pub use retransmission::NoRetransmission;
pub use server::{Listen, Server};
pub use socket_program::{Cgroup, SocketProgram};
pub use user::{Conversation, User};
