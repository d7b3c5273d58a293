//! The settings that valid options give.

use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::cli::{Key, Origin};
use crate::facts::NameServers;
use crate::model::{Mark, Port};

fn ports(numbers: &[u16]) -> Vec<Port> {
    numbers.iter().copied().filter_map(Port::new).collect()
}

fn networks(texts: &[&str]) -> Vec<IpNetwork> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn defaults_match_istio() {
    let resolved = resolved_of(&[], &[]);
    let expected = Intent {
        family: FamilyChoice::Auto,
        dns: DnsChoice::Off,
        traffic: Traffic {
            ports: ProxyPorts {
                outbound: Port::constant(15001),
                inbound: Port::constant(15006),
                tunnel: Port::constant(15008),
            },
            proxy: ProxyOwner { uids: vec![1234], gids: vec![1234] },
            mode: Mode::Redirect,
            inbound: InboundPorts::None,
            outbound: Outbound {
                ranges: OutboundRanges::None,
                excluded_ranges: vec![],
                ports: vec![],
                excluded_ports: vec![],
                loopback: false,
                owners: OwnerGroups::All { except: vec![] },
            },
            drop_invalid: false,
            excluded_interfaces: vec![],
            virtual_interfaces: vec![],
            loopback_v4: "127.0.0.1/32".parse().unwrap(),
        },
    };
    assert_eq!(resolved.intent, expected);
    let run = RunOptions {
        action: Action::Apply,
        backend: BackendChoice::Auto,
        dry_run: false,
        dry_run_file: None,
        rules_file: None,
        skip_rule_apply: false,
        validation: None,
        force_apply: false,
        keep_connections: false,
        verify: false,
        network_namespace: None,
        cni_mode: false,
        pod_interface: None,
        name_servers: NameServers {
            v4: vec!["10.96.0.10".parse().unwrap()],
            v6: vec!["fd00::a".parse().unwrap()],
        },
    };
    assert_eq!(resolved.run, run);
    let log = LogOptions { level: log::LevelFilter::Info, format: LogFormat::Text };
    assert_eq!(resolved.log, log);
    assert_eq!((resolved.warnings, resolved.given), (vec![], vec![]));
}

#[test]
fn the_uid_is_the_one_given_or_the_user_s_or_1337() {
    let uids = |words: &[&str], variables: &[&str]| resolved_of(words, variables).intent.traffic.proxy;
    let owner = |uids: &[u32], gids: &[u32]| ProxyOwner { uids: uids.to_vec(), gids: gids.to_vec() };
    assert_eq!(uids(&[], &["ENVOY_USER=envoy"]), owner(&[555], &[555]));
    assert_eq!(uids(&[], &["ENVOY_USER=nobody-here"]), owner(&[1337], &[1337]));
    assert_eq!(uids(&["-u", "0"], &[]), owner(&[0], &[0]));
    assert_eq!(
        uids(&["-u", " 1000680000,1338 "], &[]),
        owner(&[1_000_680_000, 1338], &[1_000_680_000, 1338])
    );
    assert_eq!(uids(&["-u", "5,5", "-g", "6,4294967294"], &[]), owner(&[5], &[6, u32::MAX - 1]));
    assert_eq!(uids(&["-g", "9"], &[]), owner(&[1234], &[9]));
    assert_eq!(uids(&["-u", "", "-g", ""], &[]), owner(&[1234], &[1234]));
}

#[test]
fn the_mode_is_a_word_in_any_case() {
    for word in ["TPROXY", "tproxy", "Tproxy", " TPROXY "] {
        let expected = Mode::Tproxy(Tproxy { mark: Mark(1337), table: 133 });
        assert_eq!(intent(&["-m", word]).traffic.mode, expected, "{word}");
    }
    for word in ["REDIRECT", "redirect", ""] {
        assert_eq!(intent(&["-m", word]).traffic.mode, Mode::Redirect, "{word}");
    }
}

#[test]
fn marks_and_tables() {
    for (text, mark) in
        [("1", 1), ("0x539", 1337), ("0XfF", 255), ("4294967295", u32::MAX), ("0xffffffff", u32::MAX)]
    {
        let mode = intent(&["-m", "TPROXY", "-t", text]).traffic.mode;
        assert_eq!(mode, Mode::Tproxy(Tproxy { mark: Mark(mark), table: 133 }), "{text}");
    }
    for (text, table) in [("1", 1), ("252", 252), ("256", 256), ("4294967295", u32::MAX)] {
        let mode = intent(&["-m", "TPROXY", "-r", text]).traffic.mode;
        assert_eq!(mode, Mode::Tproxy(Tproxy { mark: Mark(1337), table }), "{text}");
    }
}

#[test]
fn inbound_ports() {
    let inbound = |words: &[&str]| intent(words).traffic.inbound;
    assert_eq!(inbound(&["-b", "*"]), InboundPorts::All { except: vec![] });
    assert_eq!(inbound(&["-b", " *"]), InboundPorts::All { except: vec![] });
    let except = ports(&[15020, 15021]);
    assert_eq!(inbound(&["-b", "*", "-d", "15020,15021,15020"]), InboundPorts::All { except });
    assert_eq!(inbound(&["-b", "7937 ,18899 "]), InboundPorts::Only(ports(&[7937, 18899])));
    assert_eq!(inbound(&["-b", ",80,,443,"]), InboundPorts::Only(ports(&[80, 443])));
    assert_eq!(inbound(&["-b", ""]), InboundPorts::None);
}

#[test]
fn outbound_ranges_and_ports() {
    let outbound = |words: &[&str]| intent(words).traffic.outbound;
    assert_eq!(outbound(&["-i", " *"]).ranges, OutboundRanges::All);
    let given =
        outbound(&["-i", "10.1.2.3/8, fd00::/8,10.0.0.0/8", "-x", "::/0,0.0.0.0/0", "-q", "80", "-o", "25"]);
    assert_eq!(given.ranges, OutboundRanges::Only(networks(&["10.0.0.0/8", "fd00::/8"])));
    assert_eq!(given.excluded_ranges, networks(&["::/0", "0.0.0.0/0"]));
    assert_eq!((given.ports, given.excluded_ports), (ports(&[80]), ports(&[25])));
}

#[test]
fn owner_groups_by_name_and_number() {
    let owners = |variables: &[&str]| resolved_of(&[], variables).intent.traffic.outbound.owners;
    assert_eq!(
        owners(&["ISTIO_OUTBOUND_OWNER_GROUPS=adm, 1000,users,4"]),
        OwnerGroups::Only(vec![4, 1000, 100])
    );
    assert_eq!(
        owners(&["ISTIO_OUTBOUND_OWNER_GROUPS=*", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE=adm,7"]),
        OwnerGroups::All { except: vec![4, 7] }
    );
    let most: Vec<String> = (1..=49).map(|gid| gid.to_string()).collect();
    let variable = format!("ISTIO_OUTBOUND_OWNER_GROUPS={}", most.join(","));
    assert_eq!(owners(&[&variable]), OwnerGroups::Only((1..=49).collect()));
}

#[test]
fn loopback_range() {
    for (text, expected) in
        [("127.0.0.0/8", "127.0.0.0/8"), ("127.1.2.3/16", "127.1.0.0/16"), ("127.0.0.6/32", "127.0.0.6/32")]
    {
        let variable = format!("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR={text}");
        let expected = expected.parse().unwrap();
        assert_eq!(resolved_of(&[], &[&variable]).intent.traffic.loopback_v4, expected);
    }
}

#[test]
fn dns_by_two_switches() {
    let servers = DnsChoice::Servers(NameServers {
        v4: vec!["10.96.0.10".parse().unwrap()],
        v6: vec!["fd00::a".parse().unwrap()],
    });
    assert_eq!(intent(&["--redirect-dns"]).dns, servers);
    assert_eq!(intent(&["--redirect-dns", "--capture-all-dns"]).dns, DnsChoice::All);
    assert_eq!(intent(&["--capture-all-dns"]).dns, DnsChoice::Off);
    assert_eq!(
        resolved_of(&[], &["ISTIO_META_DNS_CAPTURE=false", "REDIRECT_DNS=true"]).intent.dns,
        DnsChoice::Off
    );
    assert_eq!(resolved_of(&[], &["ISTIO_META_DNS_CAPTURE=", "REDIRECT_DNS=true"]).intent.dns, servers);
    assert_eq!(resolved_of(&["--redirect-dns=0"], &["REDIRECT_DNS=1"]).intent.dns, DnsChoice::Off);
}

#[test]
fn unreadable_resolv_conf_matters_only_to_dns_capture() {
    let unreadable = Files { resolv_conf: Err("permission denied".to_owned()), ..files() };
    for words in [
        &[][..],
        &["--redirect-dns", "--capture-all-dns"],
        &["--cleanup-only", "--redirect-dns"],
        &["--skip-rule-apply", "--redirect-dns"],
    ] {
        assert!(resolve(&raw_of(words, &[]), &unreadable).is_ok(), "{words:?}");
    }
    let errors = resolve(&raw_of(&["--redirect-dns"], &[]), &unreadable).unwrap_err();
    assert_eq!(
        errors[0].to_string(),
        "/etc/resolv.conf cannot be read (permission denied); --redirect-dns needs the name servers in it; \
         --capture-all-dns does without"
    );
}

#[test]
fn families_backends_and_actions() {
    for (words, expected) in [
        (&["--dual-stack"][..], FamilyChoice::DualStack),
        (&["--dual-stack", "--ip-family", "dual"], FamilyChoice::Dual),
        (&["--ip-family=ipv4"], FamilyChoice::Ipv4),
        (&["--ip-family=ipv6", "--dual-stack=false"], FamilyChoice::Ipv6),
    ] {
        assert_eq!(intent(words).family, expected, "{words:?}");
    }
    for (words, expected) in [
        (&["--backend", "iptables"][..], BackendChoice::Iptables),
        (&["--backend", "iptables", "--force-iptables-binary", "nft"], BackendChoice::IptablesNft),
        (&["--force-iptables-binary=legacy"], BackendChoice::IptablesLegacy),
        (&["--backend=iptables-legacy", "--force-iptables-binary=legacy"], BackendChoice::IptablesLegacy),
        (&["--backend=iptables-nft", "--native-nftables=false"], BackendChoice::IptablesNft),
        (&["--backend=nftables"], BackendChoice::Nftables),
        (&["--native-nftables"], BackendChoice::Nftables),
        (&["--native-nftables", "--backend=nftables"], BackendChoice::Nftables),
    ] {
        assert_eq!(resolved_of(words, &[]).run.backend, expected, "{words:?}");
    }
    for words in [["cleanup"], ["--cleanup-only"]] {
        assert_eq!(resolved_of(&words, &[]).run.action, Action::Cleanup);
    }
}

#[test]
fn switches_and_paths_of_a_run() {
    let words = [
        "--force-apply",
        "--verify",
        "--cni-mode",
        "--network-namespace=/proc/7/ns/net",
        "--rules-file",
        "/r",
        "--run-validation",
        "--iptables-probe-port=7",
        "--probe-timeout",
        "1m0.5s",
        "--reconcile",
    ];
    let resolved = resolved_of(&words, &[]);
    let run = RunOptions {
        action: Action::Apply,
        backend: BackendChoice::Auto,
        dry_run: false,
        dry_run_file: None,
        rules_file: Some(PathBuf::from("/r")),
        skip_rule_apply: false,
        validation: Some(Validation { port: Port::constant(7), timeout: Duration::from_millis(60_500) }),
        force_apply: true,
        keep_connections: false,
        verify: true,
        network_namespace: Some(NetworkNamespace::Path(PathBuf::from("/proc/7/ns/net"))),
        cni_mode: true,
        pod_interface: None,
        name_servers: NameServers::default(),
    };
    assert_eq!(resolved.run, run);
    assert_eq!(resolved.warnings, []);
    let by_pid = resolved_of(&["--pid", "7"], &["PID=8"]).run.network_namespace;
    assert_eq!(by_pid, Some(NetworkNamespace::Pid(7)));
    let dry = resolved_of(&["-n"], &["DRY_RUN_FILE_PATH=/x"]).run;
    assert_eq!((dry.dry_run, dry.dry_run_file), (true, Some(PathBuf::from("/x"))));
    let probe = resolved_of(&["--run-validation", "--skip-rule-apply"], &[]).run;
    assert!(probe.skip_rule_apply && probe.validation.is_some());
}

#[test]
fn log_options_as_istio_writes_them() {
    use log::LevelFilter;
    for (text, level) in [
        ("default:info", LevelFilter::Info),
        ("debug", LevelFilter::Debug),
        ("none", LevelFilter::Off),
        ("default:warn,dns:debug", LevelFilter::Warn),
        ("dns:debug", LevelFilter::Info),
        ("all:error", LevelFilter::Error),
        ("fatal", LevelFilter::Error),
        ("info,default:debug", LevelFilter::Debug),
        ("", LevelFilter::Info),
        ("default:wrong", LevelFilter::Info),
    ] {
        assert_eq!(log_options(&raw_of(&["--log_output_level", text], &[])).level, level, "{text}");
    }
    for (words, format) in [
        (&["--log_as_json"][..], LogFormat::Json),
        (&["--log-format=json"], LogFormat::Json),
        (&["--log-format=text", "--log_as_json"], LogFormat::Text),
        (&["--log_as_json=false"], LogFormat::Text),
    ] {
        assert_eq!(log_options(&raw_of(words, &[])).format, format, "{words:?}");
    }
}

#[test]
fn only_what_differs_from_the_defaults_is_listed() {
    let words =
        ["-p", "15001", "-z", "1", "-m", "REDIRECT", "-b", "*", "-x", "", "-n=false", "--redirect-dns"];
    let variables =
        ["DROP_INVALID=1", "ISTIO_OUTBOUND_OWNER_GROUPS=adm", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE="];
    let given = resolved_of(&words, &variables).given;
    let shown: Vec<String> = given.iter().map(GivenOption::to_string).collect();
    assert_eq!(
        shown,
        [
            "inbound-capture-port=1",
            "istio-inbound-ports=*",
            "ISTIO_OUTBOUND_OWNER_GROUPS=adm",
            "drop-invalid=1 (DROP_INVALID)",
            "redirect-dns=true"
        ]
    );
    assert_eq!(given[0].origin, Origin::Flag(Key::InboundCapturePort));
}
