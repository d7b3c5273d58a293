//! Which kernel modules are loaded, as far as a container can see it.

use std::io;
use std::path::Path;

use super::netlink::{Message, Protocol, Socket};
use super::procfs;

const NFNL_SUBSYS_NFT_COMPAT: u16 = 11;
const NFTA_COMPAT_NAME: u16 = 1;
const NFTA_COMPAT_REV: u16 = 2;
const NFTA_COMPAT_TYPE: u16 = 3;
/// A target, as opposed to a match.
const TARGET: u32 = 1;
/// `struct nfgenmsg`: IPv4, version 0, no resource.
const NFGENMSG_IPV4: [u8; 4] = [2, 0, 0, 0];

/// Whether a module is certainly there. The kernel lists modules in `/sys/module`, but of those that are
/// built in only those that have parameters or a version.
#[must_use]
pub fn is_loaded(module: &str) -> bool {
    match module {
        "ip_tables" => procfs::own_exists("net/ip_tables_names"),
        "ip6_tables" => procfs::own_exists("net/ip6_tables_names"),
        "nft_compat" => has_nft_compat(),
        _ => Path::new("/sys/module").join(module).exists(),
    }
}

/// Asks `nft_compat` whether it has a target, as iptables-nft does. Where it is missing, the kernel knows no
/// such request (`EINVAL`), whatever the target.
fn has_nft_compat() -> bool {
    let message = Message::new(NFNL_SUBSYS_NFT_COMPAT << 8, 0, &NFGENMSG_IPV4)
        .with_text(NFTA_COMPAT_NAME, "REDIRECT")
        .with(NFTA_COMPAT_REV, &0_u32.to_be_bytes())
        .with(NFTA_COMPAT_TYPE, &TARGET.to_be_bytes());
    let asked = Socket::open(Protocol::Netfilter).and_then(|mut socket| socket.request(&message));
    match asked {
        Ok(()) => true,
        Err(error) => is_reply(&error),
    }
}

/// Whether an error is the reply of the module: it has no such target (`ENOENT`), or another version of it
/// (`EPROTONOSUPPORT`).
fn is_reply(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EPROTONOSUPPORT))
}

#[cfg(test)]
mod tests {
    use netlab::in_new_namespace;

    use super::*;

    #[test]
    fn modules_that_rules_need_are_found_once_rules_are_there() {
        in_new_namespace(|| {
            netlab::process::run(
                "iptables-nft",
                &["-t", "nat", "-A", "OUTPUT", "-p", "tcp", "-j", "REDIRECT"],
            );
            netlab::process::run("iptables-legacy", &["-t", "nat", "-L"]);
            for module in ["nft_compat", "ip_tables", "nf_conntrack"] {
                assert!(is_loaded(module), "{module}");
            }
            assert!(!is_loaded("xt_no_such_module"));
        });
    }
}
