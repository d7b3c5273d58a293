//! A fresh network namespace that looks like a pod's.

use std::thread::sleep;
use std::time::Duration;

use netlab::{Namespace, ip_batch};

/// Address families of the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Families {
    Ipv4,
    Dual,
}

impl Families {
    /// Input for `ip -batch`. The addresses are on `lo`: cheaper to make and to take away than a link, and
    /// nothing that is measured here asks for more than addresses.
    const fn links(self) -> &'static str {
        match self {
            Self::Ipv4 => "link set lo up\naddress add 10.1.2.3/24 dev lo\n",
            Self::Dual => {
                "link set lo up\naddress add 10.1.2.3/24 dev lo\naddress add 2001:db8::3/64 dev lo nodad\n"
            }
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::Dual => "dual stack",
        }
    }
}

/// Namespaces in use. Taking one down costs the kernel milliseconds in the background, which would fall into
/// the next run: they are kept, and let go together.
#[derive(Debug, Default)]
pub(crate) struct Namespaces(Vec<Namespace>);

impl Namespaces {
    /// Puts this thread, and what it starts, into a new namespace.
    pub(crate) fn enter_new(&mut self, families: Families) {
        let namespace = Namespace::new();
        namespace.enter();
        ip_batch(families.links());
        self.0.push(namespace);
    }

    /// Lets all of them go and waits until the kernel has taken them down.
    pub(crate) fn clear(&mut self) {
        let settle = Duration::from_millis(200 + 5 * self.0.len() as u64);
        self.0.clear();
        sleep(settle);
    }
}
