//! A fresh network namespace that looks like a pod's.

use std::fs::File;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};

use crate::Outcome;

/// Address families of the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Families {
    Ipv4,
    Dual,
}

impl Families {
    /// Input for `ip -batch`. The addresses are on `lo`: cheaper to make and to take away than a link, and nothing
    /// that is measured here asks for more than addresses.
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

/// Namespaces in use. Taking one down costs the kernel milliseconds in the background, which would fall into the next
/// run: they are kept, and let go together.
#[derive(Debug, Default)]
pub(crate) struct Namespaces(Vec<File>);

impl Namespaces {
    /// Puts this thread, and what it starts, into a new namespace.
    pub(crate) fn enter_new(&mut self, families: Families) -> Outcome<()> {
        unshare(CloneFlags::CLONE_NEWNET)
            .map_err(|e| format!("no network namespace: {e} (root is needed)"))?;
        self.0.push(File::open("/proc/thread-self/ns/net")?);
        let mut ip = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn()?;
        if let Some(mut input) = ip.stdin.take() {
            input.write_all(families.links().as_bytes())?;
        }
        if ip.wait()?.success() { Ok(()) } else { Err("ip cannot add addresses".into()) }
    }

    /// Lets all of them go and waits until the kernel has taken them down.
    pub(crate) fn clear(&mut self) {
        let settle = Duration::from_millis(200 + 5 * self.0.len() as u64);
        self.0.clear();
        sleep(settle);
    }
}
