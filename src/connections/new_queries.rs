//! Whether a new DNS query takes the path of an entry that exists.

use std::net::IpAddr;

use crate::connections::conntrack::{DnsRules, Query};
use crate::kernel::conntrack::{Entry, Tuple};
use crate::kernel::rtnetlink::Rtnetlink;
use crate::model::{DNS_PORT, Family, Fib, PerFamily, RouteKind};
use crate::routing::{self, Flow};

/// `IPPROTO_UDP`.
const UDP: u8 = 17;

/// New queries under rules that are live now.
pub(super) struct NewQueries<'a> {
    rules: &'a PerFamily<DnsRules>,
    /// The routes of each family that was looked up in; `None` if they cannot be listed.
    routes: PerFamily<Option<Fib>>,
}

impl<'a> NewQueries<'a> {
    pub(super) fn new(rules: &'a PerFamily<DnsRules>) -> Self {
        Self { rules, routes: PerFamily::default() }
    }

    /// Whether a new query with the source and destination of this entry is certain to be captured as the
    /// entry is, or to be direct as it is.
    pub(super) fn follow_the_path_of(&mut self, entry: &Entry) -> bool {
        let Tuple { source, destination } = entry.original;
        let Some(rules) = self.rules.get(&entry.family) else { return false };
        if destination.port() != DNS_PORT.number() {
            return false;
        }
        let query =
            |out_interface| Query { source: source.ip(), destination: destination.ip(), out_interface };
        let captures = rules.captures(&query(None)).or_else(|| {
            rules.captures(&query(Some(out_interface(self.routes(entry.family)?, &entry.original)?)))
        });
        captures == Some(entry.status.destination_translated())
    }

    fn routes(&mut self, family: Family) -> Option<&Fib> {
        if self.routes.get(&family).is_none() {
            let listed = Rtnetlink::open().and_then(|mut socket| socket.fib(family));
            let listed = listed.inspect_err(|error| log::debug!("routes cannot be listed: {error}"));
            self.routes.insert(family, listed.ok());
        }
        self.routes.get(&family)?.as_ref()
    }
}

/// The interface by which packets leave, by the routes. A socket that is bound to another one, or sends with
/// a mark, does not follow them, and has another source address: `None` unless the interface has that of
/// these packets.
fn out_interface<'a>(fib: &'a Fib, packets: &Tuple) -> Option<&'a str> {
    let Tuple { source, destination } = packets;
    let flow = Flow {
        source: source.ip(),
        destination: destination.ip(),
        mark: Some(0),
        uid: None,
        in_interface: "lo",
        protocol: UDP,
        ports: Some((source.port(), destination.port())),
    };
    let found = routing::lookup(fib, &flow);
    let route = match found.decisive.filter(|_| found.uncertain.is_empty())?.found {
        routing::Found::Route(route) => route,
        routing::Found::Rejected(_) | routing::Found::Unknown => return None,
    };
    match route.kind {
        RouteKind::Local => Some("lo"),
        RouteKind::Unicast => route.interface.as_deref().filter(|name| has_address(fib, name, source.ip())),
        RouteKind::Other
        | RouteKind::Blackhole
        | RouteKind::Unreachable
        | RouteKind::Prohibit
        | RouteKind::Throw => None,
    }
}

fn has_address(fib: &Fib, interface: &str, address: IpAddr) -> bool {
    fib.addresses.iter().any(|listed| listed.interface == interface && listed.address == address)
}
