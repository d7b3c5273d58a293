//! Outputs of iptables 1.8.9 on Linux 6.1, recorded with one module hidden each.

use std::collections::BTreeSet;

use super::*;

/// Head lines: `== MODULE VARIANT MODE`.
const RECORDED: &str = include_str!("recorded.txt");
const REDIRECT: &str = include_str!("redirect.rules");
const TPROXY: &str = include_str!("tproxy.rules");

struct Recorded {
    hidden: &'static str,
    variant: Variant,
    rules: String,
    stderr: &'static str,
}

fn recorded() -> Vec<Recorded> {
    let cases = RECORDED.split("== ").skip(1).map(|case| {
        let (head, stderr) = case.split_once('\n').unwrap();
        let [hidden, variant, mode] = head.split(' ').collect::<Vec<_>>()[..] else { panic!("{head}") };
        let variant = if variant == "nft" { Variant::Nft } else { Variant::Legacy };
        let rules = if mode == "TPROXY" { TPROXY } else { REDIRECT }.to_owned();
        // Where nothing is tracked, rules of nat come first.
        let (raw, nat) = rules.split_at(rules.find("*nat").unwrap());
        let rules = if hidden == "nf_conntrack" { format!("{nat}{raw}") } else { rules };
        Recorded { hidden, variant, rules, stderr }
    });
    cases.collect()
}

/// A module that is hidden, and those that depend on it, are not loaded. Nothing else is known.
fn is_loaded(hidden: &str, module: &str) -> bool {
    let conntrack = ["nf_nat", "nft_chain_nat", "xt_REDIRECT", "iptable_nat", "xt_CT"];
    let nat = ["nft_chain_nat", "xt_REDIRECT", "iptable_nat"];
    module != hidden
        && match hidden {
            "nf_conntrack" => !conntrack.contains(&module),
            "nf_nat" => !nat.contains(&module),
            "ip_tables" => !module.starts_with("iptable_"),
            _ => true,
        }
}

#[test]
fn hidden_module_is_named_first() {
    let cases = recorded();
    assert!(cases.len() > 20);
    for Recorded { hidden, variant, rules, stderr } in &cases {
        let named = of_restore(*variant, V4, stderr, rules, &|module| is_loaded(hidden, module));
        assert_eq!(named.first(), Some(hidden), "{variant}: {named:?}\n{stderr}");
    }
}

#[test]
fn hidden_module_is_named_where_no_module_can_be_seen() {
    for Recorded { hidden, variant, rules, stderr } in recorded() {
        let named = of_restore(variant, V4, stderr, &rules, &|module| {
            module == "nft_compat" && hidden != "nft_compat"
        });
        assert!(named.contains(&hidden), "{variant}: {hidden}: {named:?}\n{stderr}");
    }
}

#[test]
fn ipv6_tables_have_modules_of_their_own() {
    let stderr =
        "ip6tables-restore v1.8.9 (legacy): ip6tables-restore: unable to initialize table 'mangle'\n";
    let named = of_restore(Variant::Legacy, V6, stderr, "*mangle\nCOMMIT\n", &|_| false);
    assert_eq!(named, ["ip6_tables", "ip6table_mangle"]);
    let named =
        of_restore(Variant::Legacy, V6, stderr, "*mangle\nCOMMIT\n", &|module| module == "ip6_tables");
    assert_eq!(named, ["ip6table_mangle"]);
}

#[test]
fn tools_without_warnings_name_lines() {
    let number = 1 + REDIRECT.lines().position(|line| line.contains("-j REDIRECT")).unwrap();
    let no_nat = ["nft_compat", "nf_conntrack", "nf_nat"];
    for (variant, stderr) in [
        (
            Variant::Nft,
            format!("line {number}: RULE_APPEND failed (No such file or directory): rule in chain X\n"),
        ),
        (
            Variant::Legacy,
            format!("iptables-restore: line {number} failed: No chain/target/match by that name.\n"),
        ),
    ] {
        let named = of_restore(variant, V4, &stderr, REDIRECT, &|module| no_nat.contains(&module));
        assert_eq!(named, ["xt_REDIRECT"], "{stderr}");
    }
    // iptables-legacy names the line of the commit.
    let commit = REDIRECT.lines().position(|line| line == "COMMIT").unwrap() + 1;
    let stderr = format!("iptables-restore: line {commit} failed: No chain/target/match by that name.\n");
    let named = of_restore(Variant::Legacy, V4, &stderr, REDIRECT, &|module| module == "nf_conntrack");
    assert_eq!(named, ["xt_CT", "xt_owner"]);
}

#[test]
fn other_failures_name_no_module() {
    for stderr in [
        "",
        "line 3: RULE_APPEND failed (Invalid argument): rule in chain ISTIO_OUTPUT\n",
        "line 19: CHAIN_ADD failed (Device or resource busy): chain PREROUTING\n",
        "iptables-restore: line 38 failed\n",
        "line 99999999999999999999: CHAIN_ADD failed (No such file or directory)\n",
        "line 0: CHAIN_ADD failed (No such file or directory)\nline 4000: CHAIN_ADD failed (No such file or directory)\n",
    ] {
        for variant in Variant::ALL {
            assert_eq!(of_restore(variant, V4, stderr, REDIRECT, &|_| false), [""; 0], "{stderr}");
        }
    }
    let chain = "line 19: CHAIN_ADD failed (No such file or directory): chain PREROUTING\n";
    let named = of_restore(Variant::Nft, V4, chain, REDIRECT, &|module| module == "nf_conntrack");
    assert_eq!(named, ["nf_nat", "nft_chain_nat"], "a jump to a chain is no extension");
    let warned = "Warning: Extension owner revision 0 not supported, missing kernel module?\n";
    assert_eq!(of_restore(Variant::Nft, V4, warned, REDIRECT, &|_| true), [""; 0], "all of them are loaded");
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the rules of the gallery are files")]
fn every_extension_of_a_rule_is_in_the_table() {
    let known: BTreeSet<&str> = MODULES
        .iter()
        .filter_map(|(missing, _)| match missing {
            Extension(name) => Some(*name),
            Table(..) | NfTables | NatChain | Compat | Expression(_) => None,
        })
        .collect();
    let verdicts = ["RETURN", "ACCEPT", "DROP"];
    let mut seen = BTreeSet::new();
    for folder in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/rules")).unwrap() {
        let rules =
            std::fs::read_to_string(folder.unwrap().path().join("iptables.rules")).unwrap_or_default();
        for line in rules.lines().filter(|line| line.starts_with("-A ")) {
            seen.extend(extensions_of(line).filter(|name| !name.starts_with("ISTIO_")).map(str::to_owned));
        }
    }
    let seen: Vec<&str> = seen.iter().map(String::as_str).filter(|name| !verdicts.contains(name)).collect();
    assert!(seen.contains(&"REDIRECT") && seen.contains(&"TPROXY"), "{seen:?}");
    assert!(seen.iter().all(|name| known.contains(name)), "{seen:?}");
}
