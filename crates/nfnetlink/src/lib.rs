//! nf_tables and other netfilter subsystems over netlink, synchronously, without a child process.
//!
//! Two layers. The lower one is a small netlink socket ([`Socket`]): requests, queries, dumps and the batches
//! of nfnetlink. The upper one, [`nftables`], is typed: tables, chains, rules, sets and expressions are
//! values that are written in one transaction ([`nftables::Batch`]) and read back as the same types.
//!
//! What the kernel sends is read with bounds checks only: a short or garbled message ends an iteration, it
//! never panics.

mod batch;
mod buffer;
mod intercept;
mod message;
pub mod nftables;
mod notices;
mod ports;
mod reply;
mod requests;
mod socket;

pub use batch::BatchError;
pub use intercept::{Interceptor, intercept};
pub use message::{Message, OpenAttribute};
pub use notices::{Group, Notices};
pub use reply::{Attribute, Attributes, Reply};
pub use requests::Outcome;
pub use socket::{Protocol, Socket};

/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Length of `struct nlattr`.
const ATTRIBUTE_HEADER: usize = 4;

/// `length` rounded up to the four bytes on which netlink aligns everything.
#[must_use]
pub const fn aligned(length: usize) -> usize {
    length.saturating_add(3) & !3
}

/// The flags of a request: the bits are the same in the 16 bits of the header.
fn request_flags(more: libc::c_int) -> u16 {
    u16::try_from(libc::NLM_F_REQUEST | more).unwrap_or(0)
}
