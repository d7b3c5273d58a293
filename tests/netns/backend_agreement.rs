//! Random configurations: the three backends decide alike about the same packets, and as `explain` says.
//!
//! Ranges overlap, touch and contain each other, which one rule each (iptables) and merged interval sets
//! (native nftables) must treat alike; packets go to their first and last addresses and just beyond.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;

use ipnetwork::{IpNetwork, Ipv4Network, Ipv6Network};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};
use serde_json::{Value, json};

use istio_iptables::kernel::rtnetlink;
use istio_iptables::model::Network;

use crate::explainer::{Explainer, Flow};
use crate::lab::fixture::at;
use crate::lab::{Backend, Family, Fixture, Outcome, Stack, Topology, User};
use crate::regressions::{finding, regressions, texts};

/// Configurations per run; `EXPLAIN_CASES` gives another number.
const CASES: u32 = 5;
/// Ports of servers outside, apart from 53.
const OUTSIDE_PORTS: [u16; 4] = [80, 443, 5432, 9090];
/// Ports of the app.
const APP_PORTS: [u16; 4] = [80, 7000, 8080, 15020];
/// Ranges whose addresses are all there outside.
const REACHABLE: [&str; 4] = ["192.0.2.0/24", "198.51.100.0/24", "2001:db8:2::/64", "2001:db8:3::/64"];

/// Options and variables, and packets that they may concern.
#[derive(Clone, Debug)]
struct Configuration {
    args: Vec<String>,
    env: Option<(&'static str, &'static str)>,
    /// Destinations of outbound connections.
    targets: Vec<SocketAddr>,
}

/// A range of those that are reachable, or one that contains some.
fn range() -> impl Strategy<Value = IpNetwork> {
    prop_oneof![
        4 => (any::<bool>(), any::<u8>(), select(vec![8, 24, 26, 27, 28, 28, 29, 29, 30, 30, 31, 31, 32, 32])).prop_map(|(other, host, prefix)| {
            let address = if other { [198, 51, 100, host] } else { [192, 0, 2, host] };
            let network = Ipv4Network::new(Ipv4Addr::from(address), prefix).unwrap();
            IpNetwork::V4(Ipv4Network::new(network.network(), prefix).unwrap())
        }),
        4 => (2u16..4, any::<u8>(), select(vec![32, 64, 122, 123, 124, 124, 125, 125, 126, 126, 127, 127, 128, 128])).prop_map(|(third, host, prefix)| {
            let address = Ipv6Addr::new(0x2001, 0xdb8, third, 0, 0, 0, 0, host.into());
            let network = Ipv6Network::new(address, prefix).unwrap();
            IpNetwork::V6(Ipv6Network::new(network.network(), prefix).unwrap())
        }),
        1 => select(vec!["127.0.0.0/8", "::1/128", "10.1.0.0/24", "fd00:1::/64"]).prop_map(|range| range.parse().unwrap()),
    ]
}

/// Neighbours too: the range, and the one of the same length after it.
fn ranges(least: usize) -> impl Strategy<Value = Vec<IpNetwork>> {
    (vec(range(), least..8), any::<bool>()).prop_map(|(mut ranges, touching)| {
        let next = ranges.last().copied().filter(|_| touching).and_then(after);
        ranges.extend(next);
        ranges
    })
}

fn after(range: IpNetwork) -> Option<IpNetwork> {
    let next = beyond(range)?;
    IpNetwork::new(next, range.prefix()).ok().filter(|range| range.network() == next)
}

/// The address that follows a range.
fn beyond(range: IpNetwork) -> Option<IpAddr> {
    match range.broadcast() {
        IpAddr::V4(last) => u32::from(last).checked_add(1).map(|next| Ipv4Addr::from(next).into()),
        IpAddr::V6(last) => u128::from(last).checked_add(1).map(|next| Ipv6Addr::from(next).into()),
    }
}

fn ports(among: &[u16]) -> impl Strategy<Value = String> + use<> {
    subsequence(among.to_vec(), 0..=among.len()).prop_map(|ports| list(&ports))
}

fn list<T: ToString>(values: &[T]) -> String {
    values.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

fn configuration() -> impl Strategy<Value = Configuration> {
    let included = prop_oneof![1 => Just(None), 3 => Just(Some(Vec::new())), 3 => ranges(2).prop_map(Some)];
    let outbound = (included, ranges(2), ports(&OUTSIDE_PORTS[1..]), ports(&[53, 443, 5432]));
    let inbound = prop_oneof![Just("*".to_owned()), ports(&APP_PORTS)]
        .prop_flat_map(|ports_| (Just(ports_), ports(&APP_PORTS)));
    let switches = subsequence(vec!["--redirect-dns", "--capture-all-dns", "--drop-invalid"], 0..=3);
    let kind =
        (select(vec!["REDIRECT", "TPROXY"]), select(vec!["dual", "dual", "ipv4", "ipv6"]), any::<bool>());
    let env = select(vec![
        None,
        Some(("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "101")),
        Some(("ISTIO_OUTBOUND_OWNER_GROUPS", "101")),
    ]);
    (outbound, inbound, switches, kind, env).prop_map(
        |(
            (included, excluded, more, less),
            (inbound, inbound_less),
            switches,
            (mode, families, second),
            env,
        )| {
            let mut args = ["-m", mode, "--ip-family", families, "-x", &list(&excluded), "-b", &inbound]
                .map(str::to_owned)
                .to_vec();
            let mut option = |name: &str, value: String| args.extend([name.to_owned(), value]);
            option("-q", more);
            option("-o", less);
            // No range at all is the star.
            let included = included.map(|ranges| (list(&ranges), ranges));
            option(
                "-i",
                included.as_ref().map_or_else(String::new, |(list, _)| {
                    if list.is_empty() { "*".to_owned() } else { list.clone() }
                }),
            );
            if inbound == "*" {
                option("-d", inbound_less);
            }
            if second {
                option("-c", "eth1".to_owned());
            }
            args.extend(switches.into_iter().map(str::to_owned));
            let ranges = excluded.into_iter().chain(included.into_iter().flat_map(|(_, ranges)| ranges));
            Configuration { args, env, targets: targets(ranges) }
        },
    )
}

/// The ends of the ranges and what follows them, as far as a server is there; each with one of the ports.
fn targets(ranges: impl Iterator<Item = IpNetwork>) -> Vec<SocketAddr> {
    let reachable = REACHABLE.map(|range| range.parse::<IpNetwork>().unwrap());
    let fixed =
        [Family::V4, Family::V6].into_iter().flat_map(|family| [family.service(), family.other_service()]);
    let mut addresses: Vec<IpAddr> = ranges
        .flat_map(|range| [Some(range.network()), Some(range.broadcast()), beyond(range)])
        .flatten()
        .filter(|address| reachable.iter().any(|range| range.contains(*address)))
        .chain(fixed)
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    let ports = OUTSIDE_PORTS.into_iter().cycle();
    let once = addresses.iter().copied().zip(ports.clone()).map(|(address, port)| at(address, port));
    let again = addresses.iter().copied().zip(ports.skip(1)).map(|(address, port)| at(address, port));
    once.chain(again).collect()
}

#[test]
fn random_configurations_get_the_same_verdicts_from_every_backend() {
    let number = |name: &str| {
        let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
        Some(text.parse::<u64>().unwrap_or_else(|error| panic!("{name}={text}: a number is needed: {error}")))
    };
    let cases = number("EXPLAIN_CASES").map_or(CASES, |cases| u32::try_from(cases).unwrap());
    let now = || std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos().into();
    let seed = number("EXPLAIN_SEED").unwrap_or_else(now);
    eprintln!("EXPLAIN_SEED={seed}");
    let (captured, direct) = (Cell::new(0), Cell::new(0));
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 60,
        rng_seed: RngSeed::Fixed(seed),
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&configuration(), |configuration| {
        let native = compare(&configuration)?;
        let by_proxy = native.iter().filter(|(_, verdict)| verdict.starts_with("proxy")).count();
        captured.set(captured.get() + by_proxy);
        direct.set(direct.get() + native.len() - by_proxy);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("EXPLAIN_SEED={seed}: {}", finding(REGRESSIONS, &error, Configuration::to_json));
    }
    let counts = (captured.get(), direct.get());
    eprintln!("{cases} configurations, packets captured and not captured: {counts:?}");
    assert!(counts.0 > 0 && counts.1 > 0, "captured and direct: {counts:?}: nothing was compared");
}

#[test]
fn regressions_get_the_same_verdicts_from_every_backend() {
    for (name, content) in regressions(REGRESSIONS) {
        compare(&Configuration::from_json(&content)).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// The folder of regression files.
const REGRESSIONS: &str = "agreement";

impl Configuration {
    fn to_json(&self) -> Value {
        let Self { args, env, targets } = self;
        let targets: Value = targets.iter().map(ToString::to_string).collect();
        json!({ "options": args, "variable": env, "destinations": targets })
    }

    fn from_json(content: &Value) -> Self {
        let variable = content["variable"].as_array().map(|_| texts(&content["variable"]));
        let targets = texts(&content["destinations"]);
        Self {
            args: texts(&content["options"]),
            env: variable.map(|words| {
                let [name, value] = <[String; 2]>::try_from(words).expect("a name and a value");
                (&*name.leak(), &*value.leak())
            }),
            targets: targets.iter().map(|to| to.parse().expect("an address with a port")).collect(),
        }
    }
}

type Verdicts = Vec<(Flow, String)>;

/// Every backend decides alike, and as `explain` says; what became of the packets.
fn compare(configuration: &Configuration) -> Result<Verdicts, TestCaseError> {
    let [(network, nft), (_, legacy), (_, native)] = thread::scope(|scope| {
        [Backend::IptablesNft, Backend::IptablesLegacy, Backend::Native]
            .map(|backend| scope.spawn(move || verdicts(backend, configuration)))
            .map(|verdicts| verdicts.join().expect("no panic of the lab"))
    });
    same("iptables-legacy", &legacy, &nft)?;
    same("native nftables", &native, &nft)?;
    explained(configuration, network, &native)?;
    Ok(native)
}

const RESOLV_CONF: &str = "nameserver 10.96.0.10\nnameserver fd00:96::10\n";

/// `explain` says of each packet what became of it.
fn explained(
    configuration: &Configuration,
    network: Network,
    verdicts: &Verdicts,
) -> Result<(), TestCaseError> {
    let Configuration { args, env, targets: _ } = configuration.clone();
    let explainer = Explainer { args, env, resolv_conf: RESOLV_CONF, network };
    let differs = |(flow, verdict): &&(Flow, String)| match explainer.port(flow) {
        // The proxy has asked the server itself.
        Some(15053) if flow.is_udp => !verdict.starts_with("proxy+outside 53 "),
        Some(port) => !verdict.starts_with(&format!("proxy {port} ")),
        None => verdict.starts_with("proxy"),
    };
    let differing: Vec<_> = verdicts.iter().filter(differs).collect();
    prop_assert!(differing.is_empty(), "`explain` says otherwise: {differing:#?}");
    Ok(())
}

fn same(name: &str, found: &Verdicts, expected: &Verdicts) -> Result<(), TestCaseError> {
    let differing: Vec<_> =
        found.iter().zip(expected).filter(|(found, expected)| found != expected).collect();
    prop_assert!(
        differing.is_empty() && found.len() == expected.len(),
        "{name} against iptables-nft: {differing:#?}"
    );
    Ok(())
}

/// What happens to each packet with this backend.
fn verdicts(backend: Backend, configuration: &Configuration) -> (Network, Verdicts) {
    let pod = Fixture { backend, stack: Stack::Dual }.pod_in(Topology::SecondNic);
    pod.outside()
        .namespace()
        .ip(&REACHABLE.map(|range| format!("route add local {range} dev lo")).join("\n"));
    let _servers = (pod.proxy_listens(), pod.app_listens(&APP_PORTS), pod.outside_listens(&OUTSIDE_PORTS));
    let args: Vec<&str> = configuration.args.iter().map(String::as_str).collect();
    let mut run = pod.bare_istio_iptables(&args);
    if let Some((name, value)) = configuration.env {
        run = run.env(name, value);
    }
    run.file("/etc/resolv.conf", RESOLV_CONF).run().succeeded();
    let network = pod.namespace.run(|| rtnetlink::network().unwrap());
    let users = [("app", pod.app()), ("uid:101", pod.user(101, 101)), ("proxy", pod.proxy())];
    let mut verdicts = Verdicts::new();
    let mut note = |from: &str, to, is_udp, outcome: &Outcome| {
        verdicts.push((Flow { from: from.to_owned(), to, is_udp }, verdict(outcome)));
    };
    for (name, user) in &users {
        for target in &configuration.targets {
            note(name, *target, false, &user.call(*target));
        }
        for family in [Family::V4, Family::V6] {
            for to in [at(family.pod(), 8080), at(family.loopback(), 8080), at(family.name_server(), 53)] {
                note(name, to, false, &user.call(to));
            }
            for to in [at(family.name_server(), 53), at(family.service(), 53), at(family.service(), 5353)] {
                note(name, to, true, &user.ask(to));
            }
        }
    }
    for (to, outcome) in inbound(&pod.outside()) {
        note("outside", to, false, &outcome);
    }
    (network, verdicts)
}

fn inbound(outside: &User) -> Vec<(SocketAddr, Outcome)> {
    let addresses =
        [Family::V4, Family::V6].into_iter().flat_map(|family| [family.pod(), family.pod_second()]);
    let targets = addresses.flat_map(|address| APP_PORTS.map(|port| at(address, port)));
    targets.map(|target| (target, outside.call(target))).collect()
}

/// Which server responded on which port, for which destination, and the address that it saw; the caller's
/// port is of no interest.
fn verdict(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Responded(response) => {
            format!(
                "{} {} for {} from {}",
                response.server,
                response.port,
                response.original,
                response.source.ip()
            )
        }
        Outcome::Refused | Outcome::TimedOut | Outcome::Failed(_) => format!("{outcome:?}"),
    }
}
