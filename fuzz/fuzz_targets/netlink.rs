//! Whatever the kernel replies: reading it never panics.
#![no_main]

use istio_iptables::kernel::conntrack::Entry;
use istio_iptables::kernel::netlink::Reply;
use istio_iptables::kernel::sock_diag::InetSocket;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: (u16, &[u8])| {
    let (kind, body) = data;
    let reply = Reply { kind, flags: 0, sequence: 0, port: 0, body };
    let _ = Entry::read(&reply);
    let _ = InetSocket::read(&reply);
});
