//! DNS queries that a foreign rule exempts from connection tracking, and what `explain --live` says about
//! them.

use crate::dns::{resolved_through_the_proxy, with_name_server};
use crate::explain_live::{Question, report};
use crate::foreign_preserved::insert;
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Backend, Fixture, for_each_backend_and_native, verdict};

for_each_backend_and_native!(zone_of_nftables_replaces_notrack_unlike_that_of_iptables);

const IN_NFTABLES: &str = "table inet agent {
    chain out { type filter hook output priority -310; udp dport 53 notrack; }
}";

fn zone_of_nftables_replaces_notrack_unlike_that_of_iptables(fixture: Fixture) {
    for is_of_nftables in [false, true] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.outside_listens(&[]));
        with_name_server(&pod, &["-i", "*", "--redirect-dns"]).run().succeeded();
        if is_of_nftables {
            pod.namespace.run(|| tool("nft", &["-f", "-"], IN_NFTABLES));
        } else {
            insert(&pod, "-t raw -I OUTPUT -p udp --dport 53 -j NOTRACK");
        }
        let overview = pod.bare_istio_iptables(&["explain", "--live"]).run().succeeded().stdout();
        let is_named = verdict(&overview).to_lowercase().contains("notrack");
        assert_eq!(is_named, fixture.backend != Backend::Native, "{overview}");
        for family in fixture.families() {
            let server = at(family.name_server(), 53);
            let asked = pod.app().ask(server);
            let explained = report(&pod, &[], &Question { from: "app", to: server, is_udp: true });
            if fixture.backend == Backend::Native {
                resolved_through_the_proxy(&asked);
                assert_eq!(explained["verdict"], "captured", "{explained:#}");
            } else {
                asked.served_by("outside");
                assert_eq!(explained["verdict"], "not-captured", "{explained:#}");
            }
            assert_eq!(explained["problem"], serde_json::Value::Null, "{explained:#}");
        }
    }
}
