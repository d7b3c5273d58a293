//! The only code that does I/O on the machine.

pub mod capabilities;
mod child;
pub mod conntrack;
pub mod idmap;
pub mod input;
pub mod legacy;
pub mod limits;
pub mod lock;
mod memory;
pub mod modules;
pub use nfnetlink as netlink;
pub mod netns;
pub mod nftables;
pub mod observe;
pub mod probe;
pub mod process;
pub mod processes;
mod procfs;
pub mod release;
pub mod restore;
pub mod rtnetlink;
pub mod rules_file;
pub mod snapshot;
pub mod sock_diag;
mod startup;
pub mod terminal;
pub mod tools;
