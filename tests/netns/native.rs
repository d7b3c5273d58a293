//! Native nftables beside iptables: rules for which the two kernels' matches differ, and what the tables look
//! like.

use istio_iptables::model::{
    Family as ModelFamily, FamilyRules, Hook, HookRules, Match, Matcher, Owner, Port, Protocol, Rule,
    Statement, Table, TableRules, Target, Transport, Why,
};
use istio_iptables::render;

use crate::lab::fixture::at;
use crate::lab::native;
use crate::lab::pod::PROXY;
use crate::lab::program::tool;
use crate::lab::server::Listen;
use crate::lab::{Backend, Family, Fixture, Outcome, Pod, for_each_fixture_and_native};

for_each_fixture_and_native!(a_negated_owner_matches_packets_without_a_socket);

/// No socket listens here: the kernel replies with a RST that no socket sent.
const CLOSED: u16 = 81;
const OF_APP: u16 = 82;
const OF_PROXY: u16 = 83;
/// No socket listens here either, and no rule matches it.
const OTHER: u16 = 84;

/// TCP from this port that is not of the proxy, and what happens to it: the replies of a server.
fn not_of_the_proxy(port: u16, target: Target) -> Rule {
    let port = Port::new(port).unwrap();
    let matcher = Matcher {
        protocol: Some(Protocol::from(Transport::Tcp, port)),
        owners: vec![Match::Not(Owner::Uid(PROXY))],
        ..Matcher::default()
    };
    Rule { statement: Statement { matcher, target }, only: None, why: Why::AppLoopback }
}

/// Drops, in mangle OUTPUT, the replies from these ports unless the proxy sends them.
fn drops(family: ModelFamily) -> FamilyRules {
    let tail = [CLOSED, OF_APP, OF_PROXY].map(|port| not_of_the_proxy(port, Target::Drop)).to_vec();
    let hooks = [(Hook::Output, HookRules { head: Vec::new(), tail })].into();
    let mut rules = FamilyRules::none(family);
    rules.tables.insert(Table::Mangle, TableRules { hooks, ..TableRules::default() });
    rules
}

fn put(pod: &Pod, fixture: Fixture) {
    let model = |family: &Family| match family {
        Family::V4 => ModelFamily::V4,
        Family::V6 => ModelFamily::V6,
    };
    let rules = fixture.families().iter().map(|family| (model(family), drops(model(family)))).collect();
    match fixture.backend {
        Backend::Native => pod.namespace.run(|| native::put(&rules)),
        Backend::IptablesNft | Backend::IptablesLegacy => {
            for family in fixture.families() {
                pod.restore(*family, &render::fresh(rules.get(&model(family)).unwrap()));
            }
        }
    }
}

/// Which of the ports give a sign of life to a caller outside.
fn replying(pod: &Pod, family: Family) -> Vec<u16> {
    let marker = at(family.pod(), OTHER + 1);
    let silent = |port: &u16| pod.outside().gets_no_reply(at(family.pod(), *port), marker);
    [CLOSED, OF_APP, OF_PROXY, OTHER].into_iter().filter(|port| !silent(port)).collect()
}

fn a_negated_owner_matches_packets_without_a_socket(fixture: Fixture) {
    let pod = fixture.pod();
    let marker = OTHER + 1;
    let _servers = (pod.app_listens(&[OF_APP, marker]), pod.proxy().serve("proxy", &[Listen::Tcp(OF_PROXY)]));
    for family in fixture.families() {
        assert_eq!(replying(&pod, *family), [CLOSED, OF_APP, OF_PROXY, OTHER], "without rules, {family:?}");
        assert!(matches!(pod.outside().call(at(family.pod(), CLOSED)), Outcome::Refused));
    }
    put(&pod, fixture);
    for family in fixture.families() {
        assert_eq!(replying(&pod, *family), [OF_PROXY, OTHER], "with rules, {family:?}");
        pod.outside().call(at(family.pod(), OF_PROXY)).served_by("proxy");
    }
}

/// The reason why negated owners are not written as such: this kernel's `skuid !=` misses the RST.
#[test]
fn nft_negation_of_an_owner_misses_packets_without_a_socket() {
    let fixture = Fixture { backend: Backend::Native, stack: crate::lab::Stack::V4 };
    let pod = fixture.pod();
    let _servers = pod.app_listens(&[OF_APP, OTHER + 1]);
    let rules = format!(
        "table inet t {{ chain output {{ type route hook output priority mangle; \
         tcp sport {{ {CLOSED}, {OF_APP} }} meta skuid != {PROXY} drop; }}\n}}\n"
    );
    pod.namespace.run(|| tool("nft", &["-f", "-"], &rules));
    let ports = replying(&pod, Family::V4);
    assert!(ports.contains(&CLOSED) && !ports.contains(&OF_APP), "{ports:?}");
}

/// A packet that TPROXY finds no listener for is dropped, as with iptables: the app must not get what the
/// proxy has to see.
#[test]
fn without_a_listening_proxy_tproxy_hands_nothing_to_the_app() {
    for backend in [Backend::IptablesNft, Backend::IptablesLegacy, Backend::Native] {
        let fixture = Fixture { backend, stack: crate::lab::Stack::Dual };
        let pod = fixture.pod();
        let _app = pod.app_listens(&[8080, 9090]);
        pod.apply(&["-b", "*", "-m", "TPROXY", "-d", "9090"]);
        for family in fixture.families() {
            let (captured, excluded) = (at(family.pod(), 8080), at(family.pod(), 9090));
            assert!(pod.outside().gets_no_reply(captured, excluded), "{backend:?}, {family:?}");
        }
        let _proxy = pod.proxy_listens();
        for family in fixture.families() {
            let target = at(family.pod(), 8080);
            pod.outside().call(target).captured(15006, target);
        }
    }
}
