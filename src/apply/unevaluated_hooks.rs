//! What decides over packets outside of the tables of rules: IPsec policies, base chains of nftables at
//! devices, filters of tc, programs of XDP and tcx.

use std::io;

use crate::kernel::nftables::Nftables;
use crate::kernel::rtnetlink::Rtnetlink;
use crate::kernel::{bpf, recording, xfrm};
use crate::model::{DeviceHook, Link};
use crate::text::one_line;

/// What is there.
#[derive(Debug, Default)]
pub(super) struct UnevaluatedHooks {
    pub(super) devices: Vec<DeviceHook>,
    /// What is there in words, each with its consequence.
    pub(super) notices: Vec<String>,
    /// Notes: what this process may not read, what a bundle does not have, and what is not evaluated.
    pub(super) unread: Vec<String>,
}

impl UnevaluatedHooks {
    /// Any other error is a notice: it is unexpected.
    fn add_unread(&mut self, what: &str, error: &io::Error) {
        let is_absent = recording::is_replayed() && error.raw_os_error().is_none();
        if is_absent {
            self.unread.push(format!("{what} are not known: the bundle does not have them"));
            return;
        }
        let is_refused = error.kind() == io::ErrorKind::PermissionDenied;
        let list = if is_refused { &mut self.unread } else { &mut self.notices };
        list.push(format!("{what} cannot be read: {}", one_line(&error.to_string())));
    }
}

/// Reads it all. An old bundle does not have all of it.
pub(super) fn read(links: &[Link]) -> UnevaluatedHooks {
    let mut outside = UnevaluatedHooks::default();
    match Nftables::open_if_present()
        .and_then(|socket| socket.map_or(Ok(Vec::new()), |mut socket| socket.device_chains()))
    {
        Ok(chains) => {
            outside.notices.extend(chains.iter().map(ToString::to_string));
            outside.devices.extend(chains.iter().flat_map(|chain| chain.hooks()));
        }
        Err(error) => outside.add_unread("the base chains of nftables at network devices", &error),
    }
    let xdp = links.iter().filter_map(|link| {
        let what = format!("an XDP program (number {})", link.xdp_program?);
        Some(DeviceHook { interface: link.name.clone(), what, leaves: false })
    });
    let mut hooks: Vec<_> = xdp.collect();
    let mut add = |what: &str, found: io::Result<Vec<DeviceHook>>| match found {
        Ok(found) => hooks.extend(found),
        Err(error) => outside.add_unread(what, &error),
    };
    add("filters of tc at interfaces", recording::optional(|| Rtnetlink::open()?.filters()));
    add("BPF programs of tcx at interfaces", recording::optional(|| bpf::at_interfaces(links)));
    outside.notices.extend(hooks.iter().map(ToString::to_string));
    outside.devices.extend(hooks);
    match recording::optional(xfrm::has_policies) {
        Ok(true) => outside.unread.push(
            "IPsec policies exist, they are not evaluated: list them with `ip xfrm policy` and `ip xfrm policy getdefault`"
                .to_owned(),
        ),
        Ok(false) => {}
        Err(error) => outside.add_unread("IPsec policies", &error),
    }
    outside
}
