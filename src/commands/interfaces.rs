//! Warnings about interfaces in options that do not exist: a typo, or a name from another machine.

use crate::cli::Key;
use crate::config::{PacketQuery, Traffic};
use crate::kernel::rtnetlink::Rtnetlink;
use crate::model::Links;
use crate::text::one_line;

/// Warns of `--in` and `--out` of `explain`.
pub(super) fn warn_of_query(query: &PacketQuery) {
    let named = [("--in", &query.in_interface), ("--out", &query.out_interface)];
    for (option, name) in named.into_iter().filter_map(|(option, name)| Some((option, name.as_ref()?))) {
        warn(option, name, |links| links.named(name).is_some());
    }
}

/// Warns of the interfaces of options. Not for a run: an interface of a virtual machine is made after it.
pub(super) fn warn_of_options(traffic: &Traffic) {
    let Traffic { excluded_interfaces, virtual_interfaces, .. } = traffic;
    for (key, interfaces) in
        [(Key::ExcludeInterfaces, excluded_interfaces), (Key::KubeVirtInterfaces, virtual_interfaces)]
    {
        for interface in interfaces {
            let covers = |links: &Links| links.each.iter().any(|link| interface.covers(&link.name));
            warn(&format!("--{}", key.spec().name), interface.as_str(), covers);
        }
    }
}

fn warn(option: &str, name: &str, is_there: impl Fn(&Links) -> bool) {
    // Where links cannot be listed, the report does not depend on them.
    let Ok(links) = Rtnetlink::open().and_then(|mut socket| socket.links()) else { return };
    if !is_there(&links) {
        let names: Vec<_> = links.each.iter().map(|link| one_line(&link.name)).collect();
        log::warn!("{option}: there is no interface {name} here, only {}", names.join(", "));
    }
}
