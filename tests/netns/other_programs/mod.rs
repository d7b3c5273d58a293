//! Typical rules of other programs beside ours: what is captured, what is named, and that theirs never
//! change. The directory `other_programs/` has their rules: `-4` and `-6` select those of one family.

mod programs;

use netlab::Listen;

use crate::foreign_preserved::EVERYTHING;
use crate::lab::fixture::at;
use crate::lab::program::{Ended, tool};
use crate::lab::{Backend, Family, Fixture, Pod, for_each_backend_and_native};
use programs::{
    AMBIENT, AMBIENT_NFT, OF_CLUSTERS, OF_CONTAINER_ENGINES, OF_HOSTS, OF_MESHES, OF_NETWORK_PLUGINS,
    OF_NETWORKS, Program, Routes, Rules,
};

for_each_backend_and_native!(
    cluster_programs_live_beside_ours,
    network_plugins_live_beside_ours,
    container_engines_live_beside_ours,
    tunnels_and_second_interfaces_live_beside_ours,
    host_programs_live_beside_ours,
    other_meshes_live_beside_ours,
    ambient_mode_is_refused_and_keeps_its_rules,
    ambient_mode_with_nftables_is_refused_and_keeps_its_rules,
    firewalld_that_filters_forwarded_packets_only_passes_tproxy,
    wg_quick_that_accepts_what_arrives_on_lo_passes_replies,
);

impl Program {
    fn install(&self, pod: &Pod) {
        pod.ip(self.network);
        match self.rules {
            Rules::Iptables("") => {}
            Rules::Iptables(text) => {
                for family in pod.fixture.families() {
                    pod.restore(*family, text);
                }
            }
            Rules::Nft(text) => drop(pod.namespace.run(|| tool("nft", &["-f", "-"], text))),
        }
    }

    /// The program's rules, chains and policies without counters. Of iptables all tables: nothing else may be
    /// in them.
    fn live(&self, pod: &Pod) -> Vec<String> {
        let lists: Vec<String> = match self.rules {
            Rules::Iptables(_) => pod
                .fixture
                .families()
                .iter()
                .flat_map(|family| {
                    let save = pod.fixture.backend.tool(*family, "-save");
                    rules_of(&pod.namespace.run(|| tool(&save, &[], "")), *family)
                })
                .collect(),
            Rules::Nft(text) => text
                .lines()
                .filter_map(|line| line.strip_prefix("table ")?.strip_suffix(" {"))
                .map(|table| {
                    let words: Vec<_> = ["-s", "list", "table"].into_iter().chain(table.split(' ')).collect();
                    pod.namespace.run(|| tool("nft", &words, ""))
                })
                .collect(),
        };
        let network = self.network_of(pod);
        assert!(lists.len() + network.len() > 0, "{}: its rules are live", self.name);
        [lists, network].concat()
    }

    /// Addresses, routes and policy rules.
    fn network_of(&self, pod: &Pod) -> Vec<String> {
        if self.network.is_empty() {
            return Vec::new();
        }
        let lists =
            ["-4 rule", "-6 rule", "-4 route show table all", "-6 route show table all", "-o address"];
        let list = |words: &str| {
            let listed = pod.namespace.run(|| tool("ip", &words.split(' ').collect::<Vec<_>>(), ""));
            listed.lines().map(|line| format!("{words}: {}", line.trim())).collect::<Vec<_>>()
        };
        lists.into_iter().flat_map(list).collect()
    }

    /// What was there before ours is there, in the same order.
    fn is_kept(&self, pod: &Pod, before: &[String]) {
        let live = self.live(pod);
        let mut rest = live.iter();
        for line in before {
            assert!(rest.any(|live| live == line), "{}: {line} is missing or moved: {live:#?}", self.name);
        }
    }

    /// The warnings about foreign rules are those that are expected, for every rule that is named.
    fn is_named(&self, fixture: Fixture, run: &Ended, seen: &mut Vec<&'static str>) {
        let beside_iptables = if fixture.backend == Backend::Native { &[] } else { self.accepts };
        let is_warning = |line: &&str| {
            line.contains("a foreign ")
                && ["decide", "applies to packets", "drops packets"].iter().any(|words| line.contains(words))
        };
        for line in run.output().lines().filter(is_warning) {
            // An iptables rule is shown as "nat `-A OUTPUT …`", a policy as "nat `-P OUTPUT …`".
            let line = line.replace("`-A ", "").replace("`-P ", "");
            let part = self.named.iter().chain(beside_iptables).find(|part| line.contains(*part));
            seen.push(part.unwrap_or_else(|| panic!("{}: {line}", self.name)));
        }
    }

    /// Connections arrive at the proxy, or where the other program's rules send them.
    fn captures(&self, pod: &Pod, tproxy: bool) {
        // Our native chains are made last: of two with the same priority they come first.
        let redirects = self.redirects.filter(|_| pod.fixture.backend != Backend::Native);
        let (outbound, inbound) = redirects.unwrap_or((15001, 15006));
        // TPROXY is in mangle, before each redirection.
        let inbound = if tproxy { 15006 } else { inbound };
        for family in pod.fixture.families() {
            let (to_app, to_service) = (at(family.pod(), 8080), at(family.service(), 80));
            if tproxy && self.drops_tproxy == Some(*family) {
                let marker = at(Family::V4.pod(), 8080);
                assert!(pod.outside().gets_no_reply(to_app, marker), "{}: {family:?}", self.name);
            } else {
                pod.outside().call(to_app).captured(inbound, to_app);
            }
            if self.routes == Routes::DropReplies {
                let marker = at(family.pod(), 8080);
                assert!(pod.app().gets_no_reply(to_service, marker), "{}: {family:?}", self.name);
            } else {
                pod.app().call(to_service).captured(outbound, to_service);
            }
        }
    }

    fn lives_beside_ours(&self, fixture: Fixture) {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        let _other_mesh = self.redirects.map(|(out, inn)| pod.proxy_also_listens(&[out, inn]));
        self.install(&pod);
        let (before, state) = (self.live(&pod), pod.state());
        let excluded = [&EVERYTHING[..], &["-x", "198.51.100.0/24,2001:db8:3::/48"]].concat();
        let tproxy = [&EVERYTHING[..], &["-m", "TPROXY"]].concat();
        let mut seen = Vec::new();
        for args in [&EVERYTHING[..], &excluded, &tproxy] {
            self.is_named(fixture, &pod.apply(args), &mut seen);
            self.captures(&pod, args == tproxy);
            self.is_kept(&pod, &before);
            if args == EVERYTHING {
                pod.apply(args).output_contains("already converged");
            } else if args == excluded && self.redirects.is_none() && self.routes == Routes::Services {
                for family in fixture.families() {
                    pod.app().call(at(family.other_service(), 80)).served_by("outside");
                }
            }
        }
        assert!(self.named.iter().all(|part| seen.contains(part)), "{}: {seen:?}", self.name);
        pod.apply(&["cleanup"]).output_contains("no rules in place");
        assert_eq!(self.live(&pod), before, "{}", self.name);
        assert_eq!(pod.state(), state, "{}", self.name);
    }
}

/// Rules, chains and policies other than ACCEPT, with their tables.
fn rules_of(saved: &str, family: Family) -> Vec<String> {
    let (mut table, mut rules) = ("", Vec::new());
    for line in saved.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        } else if let Some(chain) = line.strip_prefix(':') {
            let chain = chain.split(" [").next().unwrap_or(chain);
            rules.extend((!chain.ends_with(" ACCEPT")).then(|| format!("{family:?} {table} :{chain}")));
        } else if line.starts_with("-A ") {
            rules.push(format!("{family:?} {table} {line}"));
        }
    }
    rules
}

fn cluster_programs_live_beside_ours(fixture: Fixture) {
    OF_CLUSTERS.iter().for_each(|program| program.lives_beside_ours(fixture));
}

fn network_plugins_live_beside_ours(fixture: Fixture) {
    OF_NETWORK_PLUGINS.iter().for_each(|program| program.lives_beside_ours(fixture));
}

fn container_engines_live_beside_ours(fixture: Fixture) {
    OF_CONTAINER_ENGINES.iter().for_each(|program| program.lives_beside_ours(fixture));
}

fn tunnels_and_second_interfaces_live_beside_ours(fixture: Fixture) {
    OF_NETWORKS.iter().for_each(|program| program.lives_beside_ours(fixture));
}

fn host_programs_live_beside_ours(fixture: Fixture) {
    OF_HOSTS.iter().for_each(|program| program.lives_beside_ours(fixture));
}

fn other_meshes_live_beside_ours(fixture: Fixture) {
    OF_MESHES.iter().for_each(|program| program.lives_beside_ours(fixture));
}

fn ambient_mode_is_refused_and_keeps_its_rules(fixture: Fixture) {
    let pod = fixture.pod();
    AMBIENT.install(&pod);
    let (before, state) = (AMBIENT.live(&pod), pod.state());
    let words = "Istio's ambient mode captures this pod: mangle ISTIO_PRERT";
    for args in [&EVERYTHING[..], &["cleanup"]] {
        pod.istio_iptables(args).run().ended_with(70).output_contains(words);
        assert_eq!((AMBIENT.live(&pod), pod.state()), (before.clone(), state.clone()), "{args:?}");
    }
    let dry = [&EVERYTHING[..], &["--dry-run"]].concat();
    pod.istio_iptables(&dry).run().ended_with(70).output_contains(words);
}

fn ambient_mode_with_nftables_is_refused_and_keeps_its_rules(fixture: Fixture) {
    let pod = fixture.pod();
    AMBIENT_NFT.install(&pod);
    let (before, state) = (AMBIENT_NFT.live(&pod), pod.state());
    let words = "Istio's ambient mode captures this pod: inet istio-ambient-";
    pod.istio_iptables(&EVERYTHING).run().ended_with(70).output_contains(words);
    let dry = [&EVERYTHING[..], &["--dry-run"]].concat();
    pod.istio_iptables(&dry).run().ended_with(70).output_contains(words);
    assert_eq!((AMBIENT_NFT.live(&pod), pod.state()), (before.clone(), state));
    // A sidecar that was there before can be taken out.
    pod.apply(&["cleanup"]);
    assert_eq!(AMBIENT_NFT.live(&pod), before);
}

/// `IPv6_rpfilter=strict-forward`: the lookup by `fib saddr . mark` is not in the path of inbound packets,
/// which carry the mark of TPROXY there and would find the route of its table.
fn firewalld_that_filters_forwarded_packets_only_passes_tproxy(fixture: Fixture) {
    const FIREWALLD: &str = include_str!("firewalld.nft");
    const PREROUTING: &str = "type filter hook prerouting priority filter + 10;";
    assert_eq!(FIREWALLD.matches(PREROUTING).count(), 1);
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    let rules = FIREWALLD.replace(PREROUTING, "type filter hook forward priority filter + 10;");
    pod.namespace.run(|| tool("nft", &["-f", "-"], &rules));
    pod.apply(&[&EVERYTHING[..], &["-m", "TPROXY"]].concat());
    for family in fixture.families() {
        let app = at(family.pod(), 8080);
        pod.outside().call(app).captured(15006, app);
    }
}

/// The remedy that the warning and docs/foreign-rules.md name.
fn wg_quick_that_accepts_what_arrives_on_lo_passes_replies(fixture: Fixture) {
    for program in &OF_NETWORKS[..2] {
        let with_remedy = |args: &[&str]| {
            let pod = fixture.pod();
            program.install(&pod);
            pod.apply(args).output_contains("insert a rule before it that accepts packets arriving on lo");
            fixture.families().iter().for_each(|family| accept_on_lo(&pod, program.rules, *family));
            pod.apply(args);
            pod
        };
        let pod = with_remedy(&EVERYTHING);
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
        Program { routes: Routes::Elsewhere, ..*program }.captures(&pod, false);
        // A proxy that responds to queries by itself: the name server is behind the tunnel.
        let pod = with_remedy(&[&EVERYTHING[..], &["--redirect-dns", "--capture-all-dns"]].concat());
        let listen = fixture.families().iter().map(|family| Listen::Udp(at(family.loopback(), 15053)));
        let _proxy = pod.proxy().serve("proxy", &listen.collect::<Vec<_>>());
        for family in fixture.families() {
            pod.app().ask(at(family.name_server(), 53)).served_by("proxy");
        }
    }
}

fn accept_on_lo(pod: &Pod, rules: Rules, family: Family) {
    match rules {
        Rules::Iptables(_) => drop(pod.iptables(family, "-t raw -I PREROUTING -i lo -j ACCEPT")),
        Rules::Nft(_) => {
            let name = if family == Family::V4 { "ip" } else { "ip6" };
            let rule = ["insert", "rule", name, "wg-quick-wg0", "preraw", "iifname", "lo", "accept"];
            pod.namespace.run(|| tool("nft", &rule, ""));
        }
    }
}
