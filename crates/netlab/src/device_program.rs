//! BPF programs at a network interface, which see packets before all rules.

use std::os::fd::OwnedFd;

use crate::Namespace;
use crate::bpf::{instruction, link, load};

/// Where a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceHookKind {
    /// XDP, without help of the driver.
    Xdp,
    /// `tcx`, of Linux 6.6, for what arrives.
    Tcx,
}

/// Types of programs, hooks, flags and what programs return: linux/bpf.h, linux/if_link.h.
const XDP: (u32, u32) = (6, 37);
const SKB_MODE: u32 = 2;
const SCHED_CLS: (u32, u32) = (3, 46);
const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;
const TCX_DROP: i32 = 2;
const TCX_NEXT: i32 = -1;

/// A program that drops TCP to one port, until this is dropped.
#[derive(Debug)]
pub struct DeviceProgram(#[expect(dead_code, reason = "the kernel detaches it when this is closed")] OwnedFd);

impl DeviceProgram {
    /// Drops what arrives on an interface of `namespace` for this port, by IPv6 or by IPv4.
    #[must_use]
    pub fn dropping(
        namespace: &Namespace,
        interface: &str,
        (kind, port, v6): (DeviceHookKind, u16, bool),
    ) -> Self {
        // Behind the headers of Ethernet and IP.
        let place: i16 = if v6 { 14 + 40 + 2 } else { 14 + 20 + 2 };
        let (data, drop, pass) = match kind {
            DeviceHookKind::Xdp => (0, XDP_DROP, XDP_PASS),
            DeviceHookKind::Tcx => (76, TCX_DROP, TCX_NEXT),
        };
        let program = [
            instruction(0x61, [2, 1], data, 0),     // r2 = begin of the packet
            instruction(0x61, [3, 1], data + 4, 0), // r3 = its end
            instruction(0xbf, [4, 2], 0, 0),        // r4 = r2
            instruction(0x07, [4, 0], 0, i32::from(place) + 2), // r4 += place
            instruction(0x2d, [4, 3], 4, 0),        // if r4 > r3: pass
            instruction(0x69, [5, 2], place, 0),    // r5 = port
            instruction(0x55, [5, 0], 2, i32::from(port.to_be())), // if r5 != port: pass
            instruction(0xb7, [0, 0], 0, drop),     // r0 = drop
            instruction(0x95, [0, 0], 0, 0),        // end
            instruction(0xb7, [0, 0], 0, pass),     // r0 = pass
            instruction(0x95, [0, 0], 0, 0),        // end
        ];
        namespace.run(|| {
            let interface = nix::net::if_::if_nametoindex(interface).expect("an interface");
            Self(match kind {
                DeviceHookKind::Xdp => link(&load(XDP, &program), interface, XDP.1, SKB_MODE),
                DeviceHookKind::Tcx => link(&load((SCHED_CLS.0, 0), &program), interface, SCHED_CLS.1, 0),
            })
        })
    }
}
