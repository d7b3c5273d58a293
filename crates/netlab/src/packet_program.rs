//! BPF programs that drop packets elsewhere than at an interface.

use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};

use crate::bpf::{instruction, link, load};
use crate::{Cgroup, Namespace};

/// Types of programs and their hooks: linux/bpf.h.
const SK_LOOKUP: (u32, u32) = (30, 36);
const CGROUP_SKB_EGRESS: (u32, u32) = (8, 1);

/// A program that drops all that it sees, until this is dropped.
#[derive(Debug)]
pub struct PacketProgram(#[expect(dead_code, reason = "the kernel detaches it when this is closed")] OwnedFd);

impl PacketProgram {
    /// The kernel finds no listener for what arrives in the namespace.
    #[must_use]
    pub fn hiding_listeners(namespace: &Namespace) -> Self {
        let file = File::open(namespace.path()).expect("open a network namespace");
        Self::dropping(SK_LOOKUP, &file)
    }

    /// Processes in the cgroup send nothing.
    #[must_use]
    pub fn dropping_sent(cgroup: &Cgroup) -> Self {
        Self::dropping(CGROUP_SKB_EGRESS, &cgroup.open())
    }

    fn dropping(kind: (u32, u32), target: &File) -> Self {
        let program = [
            instruction(0xb7, [0, 0], 0, 0), // r0 = drop
            instruction(0x95, [0, 0], 0, 0), // end
        ];
        Self(link(&load(kind, &program), target.as_raw_fd().unsigned_abs(), kind.1, 0))
    }
}
