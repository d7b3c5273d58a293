//! One set-up. Rules of iptables are in the form of the restore tools: `-4` and `-6` select those of one
//! family.

use crate::lab::Backend;

/// What another program, or a person, puts into the namespace of a pod, and packets that meet it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    pub(super) name: &'static str,
    pub(super) options: &'static [&'static str],
    pub(super) iptables: &'static str,
    pub(super) nft: &'static str,
    pub(super) ip: &'static str,
    pub(super) packets: &'static [&'static str],
}

impl Situation {
    /// Rules of iptables are tried with the same variant, those of nftables beside each backend.
    pub(super) fn is_for(&self, backend: Backend) -> bool {
        self.iptables.is_empty() || backend != Backend::Native
    }
}

/// What a set-up does not have.
pub(super) const NONE: Situation =
    Situation { name: "", options: &[], iptables: "", nft: "", ip: "", packets: &[] };
