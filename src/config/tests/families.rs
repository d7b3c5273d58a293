//! Address families, from the pod's addresses.

use super::*;
use crate::facts::NameServers;
use crate::model::{Families, Family, InterfaceAddress, Links, Network};
use crate::{policy, routing};

/// Addresses as `ADDRESS@LINK`, on a kernel with IPv6.
fn network(addresses: &[&str]) -> Network {
    let addresses = addresses.iter().map(|text| {
        let (address, interface) = text.split_once('@').unwrap();
        InterfaceAddress { interface: interface.to_owned(), address: address.parse().unwrap(), prefix: 24 }
    });
    Network { addresses: addresses.collect(), ipv6: true }
}

fn decided(words: &[&str], network: &Network) -> (Families, Vec<String>) {
    let (config, notices) = intent(words).decide(network);
    (config.families, notices.iter().map(Notice::to_string).collect())
}

const V4: &str = "10.0.0.5@eth0";
const V6: &str = "fd00::5@eth0";
const LOOPBACK: [&str; 2] = ["127.0.0.1@lo", "::1@lo"];

#[test]
fn families_follow_addresses() {
    for (addresses, auto, dual_stack) in [
        (&[V4][..], Families::V4, Families::V4),
        (&[V6], Families::Both, Families::Both),
        (&[V4, V6], Families::V4, Families::Both),
        (&[V6, V4], Families::V4, Families::Both),
        (&["10.9.9.9@lo", V6], Families::V4, Families::Both),
        (&[V4, "fe80::1@eth0"], Families::V4, Families::V4),
        (&[V4, "::6@lo"], Families::V4, Families::V4),
        (&["169.254.1.1@eth0", V6], Families::Both, Families::Both),
        (&[], Families::Both, Families::Both),
        (&["169.254.1.1@eth0", "fe80::1@eth0", "::6@lo"], Families::Both, Families::Both),
    ] {
        let network = network(&[addresses, &LOOPBACK].concat());
        assert_eq!(decided(&[], &network).0, auto, "{addresses:?}");
        assert_eq!(decided(&["--dual-stack"], &network).0, dual_stack, "{addresses:?}");
        for (family, expected) in [("ipv4", Families::V4), ("ipv6", Families::V6), ("dual", Families::Both)] {
            let flag = format!("--ip-family={family}");
            assert_eq!(decided(&[&flag], &network), (expected, vec![]), "{addresses:?}");
        }
    }
}

#[test]
fn uncaptured_ipv6_address_is_a_warning() {
    let (_, notices) = intent(&[]).decide(&network(&[V4, V6]));
    assert_eq!(notices[0].level(), log::Level::Warn);
    let text = notices[0].to_string();
    assert!(text.contains("fd00::5 on eth0") && text.contains("--dual-stack"), "{text}");
    assert_eq!(decided(&["--dual-stack"], &network(&[V4, V6])).1, Vec::<String>::new());
    // On an interface that is excluded by name nothing is to be captured.
    assert_eq!(decided(&["-c", "eth+"], &network(&[V4, V6])).1, Vec::<String>::new());
    assert_eq!(decided(&[], &network(&[V4, "fe80::1@eth0", "::6@lo"])).1, Vec::<String>::new());
}

#[test]
fn without_an_address_both_families_are_captured() {
    let (_, notices) = intent(&[]).decide(&network(&LOOPBACK));
    assert_eq!(notices, [Notice::NoAddressYet]);
    assert_eq!(notices[0].level(), log::Level::Info);
}

#[test]
fn a_kernel_without_ipv6_is_no_failure() {
    for (words, loud) in [
        (&[][..], Some(false)),
        (&["--dual-stack"], Some(false)),
        (&["--ip-family=dual"], Some(true)),
        (&["--ip-family=ipv6"], Some(true)),
        (&["--ip-family=ipv4"], None),
    ] {
        for addresses in [&[V4][..], &[]] {
            let network = Network { ipv6: false, ..network(addresses) };
            let (config, notices) = intent(words).decide(&network);
            assert_eq!(config.families, Families::V4, "{words:?}");
            let expected = loud.map(|asked_for| Notice::KernelWithoutIpv6 { asked_for });
            assert_eq!(notices, Vec::from_iter(expected), "{words:?}");
        }
    }
}

fn with_servers(resolv_conf: &str, words: &[&str], network: &Network) -> (Dns, Vec<Notice>) {
    let files = Files { resolv_conf: Ok(resolv_conf.to_owned()), ..files() };
    let intent = resolve(&raw_of(words, &[]), &files).unwrap().intent;
    let (config, notices) = intent.decide(network);
    (config.dns, notices)
}

#[test]
fn dns_needs_name_servers() {
    let only_v4 = network(&[V4]);
    let (dns, notices) = with_servers("search local\n", &["--redirect-dns"], &only_v4);
    assert_eq!((dns, notices), (Dns::Off, vec![Notice::NoNameServers]));
    let (dns, notices) = with_servers("", &["--redirect-dns", "--capture-all-dns"], &only_v4);
    assert_eq!((dns, notices), (Dns::All, vec![]));
    let (dns, notices) = with_servers("", &[], &only_v4);
    assert_eq!((dns, notices), (Dns::Off, vec![]));
}

#[test]
fn name_servers_of_both_families_are_kept() {
    let text = "nameserver 10.96.0.10\nnameserver fd00::a\n";
    let expected =
        NameServers { v4: vec!["10.96.0.10".parse().unwrap()], v6: vec!["fd00::a".parse().unwrap()] };
    let (dns, notices) = with_servers(text, &["--redirect-dns"], &network(&[V4]));
    let NameServers { v4, v6 } = expected;
    assert_eq!((dns, notices), (Dns::Servers { v4, v6 }, vec![]));
}

#[test]
fn link_local_name_servers_are_worth_a_warning_if_their_queries_are_captured() {
    let text = "nameserver 10.96.0.10\nnameserver fe80::1%eth0\n";
    let server = Notice::LinkLocalNameServer("fe80::1".parse().unwrap());
    for (words, expected) in [
        (&["--redirect-dns", "--ip-family", "dual"][..], vec![server]),
        (&["--redirect-dns", "--ip-family", "ipv4"], vec![]),
        (&["--ip-family", "dual"], vec![]),
    ] {
        let (_, notices) = with_servers(text, words, &network(&[V4]));
        assert_eq!(notices, expected, "{words:?}");
    }
}

#[test]
fn name_servers_of_the_other_family_only_are_worth_a_warning() {
    let (dns, notices) = with_servers("nameserver fd00::a\n", &["--redirect-dns"], &network(&[V4]));
    assert!(matches!(dns, Dns::Servers { v4, .. } if v4.is_empty()));
    assert_eq!(notices, [Notice::NameServersOfOtherFamily(Families::V4)]);
    assert_eq!(notices[0].level(), log::Level::Warn);
    let text = notices[0].to_string();
    assert!(text.contains("resolv.conf are IPv6 and only IPv4"), "{text}");
}

/// TPROXY takes what arrives before the rules for guests.
#[test]
fn guests_with_tproxy_are_named_once() {
    let found = |words: &[&str]| {
        let (config, notices) = intent(words).decide(&network(&[V4]));
        assert_eq!(notices, [], "{words:?}");
        let rules = policy::ruleset(&config).resolve(Family::V4);
        let found = routing::captured_as_inbound(&rules, &Links::default(), None);
        found.iter().map(|finding| finding.cause.clone()).collect::<Vec<_>>()
    };
    let tproxy = ["-m", "TPROXY", "-i", "*", "-b", "*", "-k", "vnet0,tap+"];
    assert_eq!(
        found(&tproxy),
        [
            "connections of the guests behind tap+,vnet0 reach the proxy's inbound port with the pod's own port 15001 as their destination \
          (IPv4, mark 1337 of TPROXY): TPROXY decides before the rules of --kube-virt-interfaces (-k)"
        ]
    );
    // Without -i, these calls of the guests are not to be captured as outbound.
    for words in [
        &tproxy[..6],
        &["-i", "*", "-b", "*", "-k", "vnet0"],
        &["-m", "TPROXY", "-i", "*", "-b", "", "-k", "vnet0"],
        &["-m", "TPROXY", "-b", "*", "-k", "vnet0"],
    ] {
        assert_eq!(found(words), Vec::<String>::new(), "{words:?}");
    }
}
