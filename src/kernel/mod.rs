//! The only code that does I/O on the machine.

pub mod capabilities;
pub mod legacy;
pub mod netlink;
pub mod netns;
pub mod nftables;
pub mod probe;
mod procfs;
pub mod rtnetlink;

#[cfg(test)]
mod testing;
