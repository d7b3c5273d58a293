use std::ffi::OsString;
use std::io;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::cli::{self, Outcome};
use crate::facts::Files;
use crate::model::{FamilyRules, InterfaceAddress, Network, Variant};
use crate::parse;
use crate::{config, nft, policy, render};

const DNS: &str = "-b * -i * --redirect-dns --capture-all-dns";
const SERVERS: &str = "-b * -i * --redirect-dns";

/// The IPv4 rules that `words` (variables, then flags) ask for.
fn rules(words: &str) -> FamilyRules {
    rules_with_servers(words, &["10.96.0.10"])
}

/// The IPv4 rules that `words` ask for in a pod with these name servers.
fn rules_with_servers(words: &str, servers: &[&str]) -> FamilyRules {
    let is_variable = |word: &&str| !word.starts_with('-') && word.contains('=');
    let variables = words.split(' ').take_while(is_variable);
    let env = variables.filter_map(|word| word.split_once('='));
    let flags = words.split(' ').skip_while(is_variable);
    let parsed = cli::parse(
        ["istio-iptables"].into_iter().chain(flags).map(OsString::from),
        env.map(|(name, value)| (name.into(), value.into())),
        &mut io::empty(),
        &|_: &Path| Err(io::ErrorKind::NotFound.into()),
    );
    let Ok(Outcome::Run(raw)) = parsed else { panic!("{parsed:?}") };
    let servers = servers.iter().map(|server| format!("nameserver {server}\n")).collect();
    let files = Files { passwd: String::new(), group: String::new(), resolv_conf: Ok(servers) };
    let address =
        InterfaceAddress { interface: "eth0".to_owned(), address: [10, 1, 0, 2].into(), prefix: 24 };
    let resolved = config::resolve(&raw, &files).unwrap_or_else(|errors| panic!("{errors:?}"));
    let (config, _) = resolved.intent.decide(&Network { addresses: vec![address], ipv6: false });
    policy::ruleset(&config).resolve(Family::V4)
}

fn live(words: &str) -> Observed {
    let saved = render::fresh(&rules(words));
    let observed = parse::iptables_save(Family::V4, &saved);
    assert!(observed.has_ours());
    observed
}

/// The entries of a run that makes the live rules into the desired ones.
fn stale(
    after: &str,
    live: impl IntoIterator<Item = (Variant, Observed)>,
    entries: &TrackingState,
    changed: BTreeSet<Family>,
) -> StaleEntries {
    let rules = live.into_iter().map(|(variant, rules)| ((variant, Family::V4), rules)).collect();
    plan([&self::rules(after)], &ObservedState { rules: &rules, native: Native::Absent, entries }, changed)
}

/// The DNS flows that change when these live rules become the desired ones.
fn dns_flows(live: impl IntoIterator<Item = (Variant, Observed)>, after: &str) -> Option<DnsFlows> {
    stale(after, live, &TrackingState::Some, BTreeSet::new()).dns.get(&Family::V4).copied()
}

fn flows(before: &str, after: &str) -> Option<DnsFlows> {
    dns_flows([(Variant::Nft, live(before))], after)
}

fn flows_in_native_tables(before: &str, after: &str) -> Option<DnsFlows> {
    let tables = |words: &str| nft::tables(&[(Family::V4, rules(words))].into());
    let live = nft::LiveTables::new(tables(before).iter().map(nft::encode).collect(), Vec::new());
    native_flows(&live, &tables(after)).get(&Family::V4).copied()
}

#[test]
fn wider_and_narrower_dns_capture_are_distinguished() {
    let with = |more: &str| format!("{DNS} {more}");
    let by = |variable: &str| format!("{variable} {DNS}");
    let cases = [
        ("-b * -i *".to_owned(), DNS.to_owned(), Some(DnsFlows::Direct)),
        (DNS.to_owned(), "-b * -i *".to_owned(), Some(DnsFlows::Captured)),
        (with("-o 53"), DNS.to_owned(), Some(DnsFlows::Direct)),
        (DNS.to_owned(), with("-o 53"), Some(DnsFlows::Captured)),
        (with("-o 53"), with("-o 53,54"), None),
        (with("-o 54"), with("-o 53"), Some(DnsFlows::Captured)),
        (by("ISTIO_OUTBOUND_OWNER_GROUPS=5"), DNS.to_owned(), Some(DnsFlows::Direct)),
        (by("ISTIO_OUTBOUND_OWNER_GROUPS=5"), by("ISTIO_OUTBOUND_OWNER_GROUPS=6"), Some(DnsFlows::All)),
        (by("ISTIO_OUTBOUND_OWNER_GROUPS=5"), by("ISTIO_OUTBOUND_OWNER_GROUPS=5,6"), Some(DnsFlows::Direct)),
        (
            by("ISTIO_OUTBOUND_OWNER_GROUPS=5,6"),
            by("ISTIO_OUTBOUND_OWNER_GROUPS=5"),
            Some(DnsFlows::Captured),
        ),
        (DNS.to_owned(), by("ISTIO_OUTBOUND_OWNER_GROUPS=5,6"), Some(DnsFlows::Captured)),
        (by("ISTIO_OUTBOUND_OWNER_GROUPS=5,6"), by("ISTIO_OUTBOUND_OWNER_GROUPS=5,7"), Some(DnsFlows::All)),
        (
            by("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE=5,6"),
            by("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE=5"),
            Some(DnsFlows::Direct),
        ),
        (DNS.to_owned(), by("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE=5"), Some(DnsFlows::Captured)),
        (with("-c eth1"), DNS.to_owned(), Some(DnsFlows::Direct)),
        (DNS.to_owned(), with("-c eth1"), Some(DnsFlows::Captured)),
        (SERVERS.to_owned(), DNS.to_owned(), Some(DnsFlows::Direct)),
        (DNS.to_owned(), SERVERS.to_owned(), Some(DnsFlows::Captured)),
        (format!("{SERVERS} -o 53"), DNS.to_owned(), Some(DnsFlows::Direct)),
        (SERVERS.to_owned(), with("-o 53"), Some(DnsFlows::All)),
        (SERVERS.to_owned(), with("-c eth1"), Some(DnsFlows::All)),
    ];
    for (before, after, expected) in cases {
        assert_eq!(flows(&before, &after), expected, "{before} -> {after}");
        assert_eq!(flows_in_native_tables(&before, &after), expected, "native: {before} -> {after}");
    }
}

#[test]
fn order_of_servers_changes_no_dns_flow() {
    let servers = |servers: &[&str]| rules_with_servers(SERVERS, servers);
    let native = |before: &[&str], after: &[&str]| {
        let tables = |list: &[&str]| nft::tables(&[(Family::V4, servers(list))].into());
        let live = nft::LiveTables::new(tables(before).iter().map(nft::encode).collect(), Vec::new());
        native_flows(&live, &tables(after)).get(&Family::V4).copied()
    };
    let flows = |before: &[&str], after: &[&str]| {
        let live = parse::iptables_save(Family::V4, &render::fresh(&servers(before)));
        let rules = [((Variant::Nft, Family::V4), live)].into();
        let observed = ObservedState { rules: &rules, native: Native::Absent, entries: &TrackingState::Some };
        let flows = plan([&servers(after)], &observed, BTreeSet::new()).dns.get(&Family::V4).copied();
        assert_eq!(native(before, after), flows, "native: {before:?} -> {after:?}");
        flows
    };
    let (a, b, c) = ("10.96.0.10", "10.96.0.11", "192.0.2.1");
    assert_eq!(flows(&[a, b], &[b, a]), None);
    assert_eq!(flows(&[a, b], &[c, b, a]), Some(DnsFlows::Direct));
    assert_eq!(flows(&[c, a, b], &[b, a]), Some(DnsFlows::Captured));
    assert_eq!(flows(&[a, b], &[c, a]), Some(DnsFlows::All));
    assert_eq!(flows(&[a], &[a, b]), Some(DnsFlows::Direct));
    assert_eq!(flows(&[a, b], &[a, b, "10.96.0.12"]), Some(DnsFlows::Direct));
    assert_eq!(flows(&[a, b, "10.96.0.12", c], &[c]), Some(DnsFlows::Captured));
}

#[test]
fn new_query_is_captured_direct_or_depends_on_its_owner() {
    let captures = |words: &str, servers: &[&str], destination: &str, interface: Option<&str>| {
        let rules = [rules_with_servers(words, servers)];
        let dns = dns_rules(&rules).get(&Family::V4).cloned().unwrap();
        let (source, destination) = ([10, 1, 0, 2].into(), destination.parse().unwrap());
        dns.captures(&Query { source, destination, out_interface: interface })
    };
    let (a, b, c) = ("10.96.0.10", "10.96.0.11", "192.0.2.1");
    let group = format!("ISTIO_OUTBOUND_OWNER_GROUPS=5 {SERVERS}");
    let not_group = format!("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE=5 {DNS}");
    let (port, nic, nics) = (format!("{DNS} -o 53"), format!("{DNS} -c eth1"), format!("{DNS} -c eth+"));
    for (words, destination, interface, expected) in [
        (SERVERS, a, None, Some(true)),
        (SERVERS, b, None, Some(true)),
        (SERVERS, c, None, Some(false)),
        (DNS, c, None, Some(true)),
        ("-b * -i *", a, None, Some(false)),
        (&port, a, None, Some(false)),
        (&nic, a, None, None),
        (&nic, a, Some("eth0"), Some(true)),
        (&nic, a, Some("eth1"), Some(false)),
        (&nics, a, Some("eth1"), Some(false)),
        (&group, a, None, None),
        (&group, c, None, Some(false)),
        (&not_group, a, None, None),
        (&format!("{SERVERS} -c eth1"), c, None, Some(false)),
        (&format!("{DNS} -u 1337,1500 -g 5 -m TPROXY -k br0 -x 10.0.0.0/8"), a, None, Some(true)),
    ] {
        assert_eq!(captures(words, &[a, b], destination, interface), expected, "{words}: {destination}");
    }
    let nothing = FamilyRules::none(Family::V4);
    let none = dns_rules([&nothing]).get(&Family::V4).cloned().unwrap();
    let query =
        Query { source: [10, 1, 0, 2].into(), destination: [10, 96, 0, 10].into(), out_interface: None };
    assert_eq!(none.captures(&query), Some(false));
}

#[test]
fn unrelated_change_changes_no_dns_flow() {
    for words in [
        "",
        "-d 8080 -o 443",
        "-x 10.9.0.0/16",
        "-q 80",
        "-m TPROXY",
        "-p 16001",
        "--drop-invalid",
        "-k br0",
        "-u 1337,1500",
    ] {
        assert_eq!(flows(DNS, format!("{DNS} {words}").trim_end()), None, "{words}");
    }
    assert_eq!(flows("-b * -i *", "-b 80 -i * -m TPROXY"), None);
}

#[test]
fn rules_that_are_not_understood_may_do_anything() {
    let saved =
        render::fresh(&rules(DNS)).replace("-A ISTIO_OUTPUT_DNS -p udp", "-A ISTIO_OUTPUT_DNS -m u32 -p udp");
    let odd = parse::iptables_save(Family::V4, &saved);
    assert_eq!(dns_flows([(Variant::Nft, odd)], DNS), Some(DnsFlows::All));
}

#[test]
fn a_move_between_backends_changes_a_flow_only_with_the_options() {
    let moved = |before: &str, after: &str| dns_flows([(Variant::Legacy, live(before))], after);
    assert_eq!(moved(DNS, DNS), None);
    assert_eq!(moved("-b * -i *", DNS), Some(DnsFlows::Direct));
    let both = [(Variant::Legacy, live(DNS)), (Variant::Nft, live(&format!("{DNS} -o 53")))];
    assert_eq!(dns_flows(both, DNS), Some(DnsFlows::All));
}

#[test]
fn step_says_what_it_does_to_which_entries() {
    const TCP: &str =
        "replace at the next SYN after the connection has ended: conntrack entries of TCP (IPv4, IPv6)";
    const UDP: &str = "conntrack entries of UDP to port 53 (IPv4, not captured before)";
    let tcp = StaleEntries { tcp: BTreeSet::from(Family::ALL), ..StaleEntries::default() };
    assert_eq!(Step::DeleteStale(tcp.clone(), PerFamily::default()).to_string(), TCP);
    let both = StaleEntries { dns: PerFamily::from([(Family::V4, DnsFlows::Direct)]), ..tcp };
    assert_eq!(
        Step::DeleteStale(both.clone(), PerFamily::default()).to_string(),
        format!("delete {UDP}; {TCP}")
    );
    let changed = Changed { deleted: 3, updated: 557 };
    assert_eq!(
        both.describe(Some(changed)),
        format!("3 deleted: {UDP}; 557 to be {}", TCP.replacen("replace", "replaced", 1))
    );
}

#[test]
fn a_namespace_without_connections_has_no_stale_entry() {
    assert!(stale(DNS, [], &TrackingState::None, BTreeSet::from(Family::ALL)).is_empty());
}

#[test]
fn entries_of_an_interrupted_run_are_deleted_by_the_next() {
    let left = StaleEntries {
        dns: PerFamily::from([(Family::V4, DnsFlows::Direct)]),
        tcp: BTreeSet::from([Family::V6]),
    };
    let (captured, entries) = (|| [(Variant::Nft, live(DNS))], TrackingState::Interrupted(left.clone()));
    assert_eq!(stale(DNS, captured(), &entries, BTreeSet::new()), left);
    let narrowed = stale("-b * -i *", captured(), &entries, BTreeSet::from([Family::V4]));
    assert_eq!(narrowed.dns, PerFamily::from([(Family::V4, DnsFlows::All)]));
    assert_eq!(narrowed.tcp, BTreeSet::from(Family::ALL));
}

proptest! {
    #[test]
    fn note_round_trips(bits in 1_u32..0x0800) {
        let stale = StaleEntries::from_bits(bits);
        prop_assert_eq!(stale.to_bits(), bits & 0x0707);
        if !stale.is_empty() {
            prop_assert_eq!(StaleEntries::from_bits(stale.to_bits()), stale);
        }
    }
}

#[test]
fn note_without_a_number_means_all_entries() {
    let everything = StaleEntries::from_bits(0);
    assert_eq!(everything.tcp, BTreeSet::from(Family::ALL));
    assert_eq!(everything.dns, PerFamily::from(Family::ALL.map(|family| (family, DnsFlows::All))));
}
