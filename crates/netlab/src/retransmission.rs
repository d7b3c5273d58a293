//! TCP that sends nothing twice: a packet that is lost stays lost, so that the connection shows it.

use std::os::fd::OwnedFd;

use crate::Namespace;
use crate::bpf::{self, SOCK_OPS, instruction};

/// `BPF_CGROUP_SOCK_OPS` and `BPF_SOCK_OPS_TIMEOUT_INIT`: linux/bpf.h.
const HOOK: u32 = 3;
const TIMEOUT_INIT: i32 = 1;
/// In ticks of the kernel, of which there are 100 to 1,000 in a second.
const TIMEOUT: i32 = 30_000;

/// For half a minute at least, no TCP socket of some namespaces repeats a packet, until this is dropped.
#[derive(Debug)]
pub struct NoRetransmission(
    #[expect(dead_code, reason = "the kernel detaches the programs when these are closed")] Vec<OwnedFd>,
);

impl NoRetransmission {
    /// In these namespaces. Sockets that are open already are not covered. Data is, from Linux 6.11 on;
    /// handshakes are, from 5.15 on.
    #[must_use]
    pub fn within(namespaces: &[&Namespace]) -> Self {
        let program = [
            instruction(0x61, [2, 6], 0, 0),            // w2 = what is asked for
            instruction(0x56, [2, 0], 2, TIMEOUT_INIT), // if it is something else: end
            instruction(0xb4, [2, 0], 0, TIMEOUT),
            instruction(0x63, [6, 2], 4, 0), // reply = w2
        ];
        let cgroup = bpf::root_cgroup();
        let attach = |namespace: &&Namespace| {
            namespace.run(repeat_no_data);
            bpf::attach(&cgroup, (SOCK_OPS, HOOK), namespace, &program)
        };
        Self(namespaces.iter().map(attach).collect())
    }
}

/// No probe at the end of what was sent, and a late timeout.
fn repeat_no_data() {
    std::fs::write("/proc/sys/net/ipv4/tcp_early_retrans", "0").expect("switch tail loss probes off");
    // Not in older kernels.
    let _ = std::fs::write("/proc/sys/net/ipv4/tcp_rto_min_us", "30000000");
}
