//! The recorded rule sets of Istio's own binary, against ours for the same options: equal for all packets.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use istio_iptables::cli::{self, Outcome};
use istio_iptables::config::{self, Output};
use istio_iptables::diff::{self, Conclusion, Side};
use istio_iptables::explain::Rules;
use istio_iptables::facts::Files;
use istio_iptables::model::{Family, InterfaceAddress, Network, PerFamily};
use istio_iptables::{nft, parse, policy};
use serde_json::Value;

/// The recorded cases, in `CONFORMANCE_DATA` or beside this repository.
pub(crate) fn cases() -> Option<String> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    let path =
        std::env::var_os("CONFORMANCE_DATA").map_or_else(beside, PathBuf::from).join("capture-cases.jsonl");
    let cases = fs::read_to_string(&path).ok();
    if cases.is_none() {
        eprintln!("NOT TESTED: {} is not there; CONFORMANCE_DATA names the folder with it", path.display());
    }
    cases
}

pub(crate) fn words(value: &Value) -> Vec<String> {
    value
        .as_array()
        .map(|items| items.iter().map(|item| item.as_str().unwrap().to_owned()).collect())
        .unwrap_or_default()
}

fn network(case: &Value) -> Network {
    let address = |entry: &String| {
        let (address, link) = entry.split_once('@').unwrap_or((entry, "eth0"));
        let (address, prefix) = address.split_once('/').unwrap();
        let (address, prefix) = (address.parse().unwrap(), prefix.parse().unwrap());
        InterfaceAddress { interface: link.to_owned(), address, prefix }
    };
    let mut addresses: Vec<_> = words(&case["addrs"]).iter().map(address).collect();
    // As the kernel lists them.
    addresses.sort_by_key(|address| address.address.is_ipv6());
    Network { addresses, ipv6: true }
}

/// Our rules for the options of a case, with iptables and with native nftables.
fn ours(case: &Value, network: &Network) -> Option<[Side; 2]> {
    let args = ["istio-iptables".to_owned()].into_iter().chain(words(&case["args"])).map(OsString::from);
    let env = case["env"].as_object().unwrap().iter();
    let env = env.map(|(name, value)| (OsString::from(name), OsString::from(value.as_str().unwrap())));
    let no_file = |_: &Path| Err(io::ErrorKind::NotFound.into());
    let Ok(Outcome::Run(raw)) = cli::parse(args, env, &mut io::empty(), &no_file) else { return None };
    let files = Files {
        passwd: format!("root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n{}\n", words(&case["passwd"]).join("\n")),
        // Those of the machine on which was recorded.
        group: "root:x:0:\ndaemon:x:1:\nwww-data:x:33:\njava:x:202:\nmonitoring:x:2001:\nbackup-agents:x:70001:\nnogroup:x:65534:\n".to_owned(),
        resolv_conf: Ok(case["resolv_conf"].as_str().unwrap_or_default().to_owned()),
    };
    let resolved = config::resolve(&raw, &files).ok()?;
    let (config, _) = resolved.intent.decide(network);
    let rules = policy::ruleset(&config);
    let rules: PerFamily<_> = Family::ALL.into_iter().map(|family| (family, rules.resolve(family))).collect();
    let live = nft::LiveTables::new(nft::tables(&rules).iter().map(nft::encode).collect(), Vec::new());
    let iptables = rules
        .iter()
        .fold(Side::new("ours".to_owned()), |side, (family, rules)| side.rules(*family, &Rules::from(rules)));
    let native = Family::ALL.into_iter().fold(Side::new("ours, native".to_owned()), |side, family| {
        side.rules(family, &Rules::native(&live, family))
    });
    Some([iptables, native])
}

/// What was recorded, as `iptables-save` prints it.
fn recorded(state: &Value) -> Side {
    Family::ALL.into_iter().fold(Side::new("Istio's".to_owned()), |side, family| {
        let mut text = String::new();
        let tables =
            state[if family == Family::V4 { "v4" } else { "v6" }].as_object().cloned().unwrap_or_default();
        for (table, chains) in &tables {
            text.push_str(&format!("*{table}\n"));
            for chain in chains.as_object().unwrap().keys() {
                text.push_str(&format!(":{chain} - [0:0]\n"));
            }
            for (chain, rules) in chains.as_object().unwrap() {
                words(rules).iter().for_each(|rule| text.push_str(&format!("-A {chain} {rule}\n")));
            }
            text.push_str("COMMIT\n");
        }
        side.saved(&parse::iptables_save(family, &text))
    })
}

#[test]
fn rules_of_istios_binary_are_equal_to_ours_for_all_packets() {
    let Some(cases) = cases() else { return };
    let mut compared = 0;
    for case in cases.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")) {
        let name = case["name"].as_str().unwrap();
        let state = &case["expect"]["any"];
        // Refused, cleaned up, not applied; foreign rules belong to no option.
        if state["v4"].is_null() || !case["foreign"].is_null() {
            continue;
        }
        let network = network(&case);
        let ours = ours(&case, &network).unwrap_or_else(|| panic!("{name}: our options"));
        for side in ours {
            let (text, conclusion) = diff::report(&[recorded(state), side], &network, Output::Text);
            assert_eq!(conclusion, Conclusion::Equal, "{name}: {text}");
        }
        compared += 1;
    }
    eprintln!("{compared} recorded rule sets, with iptables and native nftables");
    assert!(compared > 50, "{compared} cases");
}
