use super::*;
use netlab::in_new_namespace;
use netlab::process::{run, run_with_input};

#[test]
fn errors_are_classified() {
    let of = |errno| means_absent(&io::Error::from_raw_os_error(errno));
    assert!(of(libc::EPROTONOSUPPORT) && of(libc::EINVAL));
    assert!(!of(libc::EPERM) && !of(libc::ENOBUFS));
}

#[test]
fn reading_has_no_side_effects() {
    in_new_namespace(|| {
        assert!(Nftables::open_if_present().unwrap().is_some());
        let mut nftables = Nftables::open().unwrap();
        let before = nftables.generation().unwrap();
        assert_eq!(nftables.tables().unwrap(), []);
        let absent = TableName::new(TableFamily::Ip, "nat");
        assert_eq!(nftables.chains_of(TableFamily::Ip).unwrap(), []);
        assert_eq!(nftables.rule_counts(&absent).unwrap(), BTreeMap::new());
        assert_eq!(nftables.generation().unwrap(), before);
        assert_eq!(run("nft", &["list", "ruleset"]), "");
    });
}

#[test]
fn rules_of_iptables_nft_are_counted() {
    in_new_namespace(|| {
        let rules: String =
            (0..12_000).map(|n| format!("-A MANY -p tcp --dport {} -j RETURN\n", n + 1)).collect();
        let file = format!("*nat\n:MANY - [0:0]\n:EMPTY - [0:0]\n-A OUTPUT -j MANY\n{rules}COMMIT\n");
        run_with_input("iptables-nft-restore", &["--noflush"], &file);
        run("ip6tables-nft", &["-t", "raw", "-A", "OUTPUT", "-j", "ACCEPT"]);
        run("nft", &["add table bridge foreign"]);
        let mut nftables = Nftables::open().unwrap();
        let (nat, raw) = (TableName::new(TableFamily::Ip, "nat"), TableName::new(TableFamily::Ip6, "raw"));
        let mut tables = nftables.tables().unwrap();
        tables.sort();
        assert_eq!(tables, [nat.clone(), raw.clone()]);
        let counts = nftables.rule_counts(&nat).unwrap();
        assert_eq!((counts["MANY"], counts["EMPTY"], counts["OUTPUT"]), (12_000, 0, 1));
        assert_eq!(nftables.rule_counts(&raw).unwrap()["OUTPUT"], 1);
    });
}

#[test]
fn tables_go_together_or_not_at_all() {
    in_new_namespace(|| {
        for kind in ["nat", "mangle", "raw"] {
            run("nft", &[&format!("add table inet istio-proxy-{kind}")]);
            run("nft", &[&format!("add chain inet istio-proxy-{kind} output")]);
            run("nft", &[&format!("add rule inet istio-proxy-{kind} output counter")]);
        }
        run("nft", &["add table ip foreign"]);
        let mut nftables = Nftables::open().unwrap();
        let ours: Vec<TableName> = nftables
            .tables()
            .unwrap()
            .into_iter()
            .filter(|table| table.name.starts_with("istio-proxy-"))
            .collect();
        assert_eq!(ours.len(), 3);
        let absent = TableName::new(TableFamily::Inet, "absent");
        let error = nftables.delete_tables(&[ours[0].clone(), absent, ours[1].clone()]).unwrap_err();
        assert_eq!(error.message, Some(1));
        assert_eq!(error.error.raw_os_error(), Some(libc::ENOENT));
        assert_eq!(nftables.tables().unwrap().len(), 4);
        nftables.delete_tables(&ours).unwrap();
        assert_eq!(nftables.tables().unwrap(), [TableName::new(TableFamily::Ip, "foreign")]);
        nftables.delete_tables(&[]).unwrap();
    });
}

#[test]
fn a_transaction_bigger_than_the_default_buffer_is_sent_whole() {
    in_new_namespace(|| {
        let mut socket = Socket::open_for_transactions().unwrap();
        let many = |kind: Kind| -> Vec<Message> {
            let named = |n| message(kind, 2).with_text(NFTA_TABLE_NAME, &format!("t{n}"));
            (0..20_000).map(|n| named(n % 100)).collect()
        };
        // None of them is there: the replies overflow, and the first is still reported.
        let error = socket.transaction(&many(Kind::DelTable)).unwrap_err();
        assert_eq!((error.message, error.error.raw_os_error()), (Some(0), Some(libc::ENOENT)));
        // The socket is usable afterwards.
        socket.transaction(&many(Kind::NewTable)).unwrap();
        assert_eq!(Nftables { socket }.tables().unwrap().len(), 100);
    });
}

#[test]
fn rules_that_store_marks_are_limited_to_lo_and_no_others_change() {
    in_new_namespace(|| {
        let table = "table inet istio-proxy-mangle {
            chain prerouting {
                type filter hook prerouting priority mangle; policy accept;
                iifname \"eth1\" return
                meta l4proto tcp meta mark 1337 counter ct mark set meta mark comment \"first\"
                meta mark 7 ct mark set meta mark
                iifname \"eth2\" meta mark 8 ct mark set meta mark
                ct mark 9 meta mark set ct mark
            }
        }";
        run_with_input("nft", &["-f", "-"], table);
        let name = TableName::new(TableFamily::Inet, "istio-proxy-mangle");
        assert_eq!(limit_save_mark(&name).unwrap(), 2);
        let listed = run("nft", &["list", "table", "inet", "istio-proxy-mangle"]);
        let rules: Vec<&str> = listed.lines().map(str::trim).skip(3).take(5).collect();
        assert_eq!(
            rules,
            [
                "iifname \"eth1\" return",
                "iifname \"lo\" meta l4proto tcp meta mark 0x00000539 counter packets 0 bytes 0 ct mark set meta mark comment \"first\"",
                "iifname \"lo\" meta mark 0x00000007 ct mark set meta mark",
                "iifname \"eth2\" meta mark 0x00000008 ct mark set meta mark",
                "ct mark 0x00000009 meta mark set ct mark",
            ]
        );
        assert_eq!(limit_save_mark(&name).unwrap(), 0);
        let absent = TableName::new(TableFamily::Inet, "istio-proxy-raw");
        assert_eq!(limit_save_mark(&absent).unwrap(), 0);
    });
}
