use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;
use crate::kernel::netlink::Reply;
use netlab::in_new_namespace;
use netlab::process::run;

fn rules(family: &str) -> String {
    run("ip", &[family, "rule"])
}

fn routes(family: &str, table: &str) -> String {
    run("sh", &["-c", &format!("ip -d {family} route show table {table} 2>/dev/null || true")])
}

fn flag(family: Family) -> &'static str {
    match family {
        Family::V4 => "-4",
        Family::V6 => "-6",
    }
}

#[test]
fn addresses_come_in_the_kernel_s_order_with_the_names_of_their_links() {
    in_new_namespace(|| {
        run("ip", &["link", "add", "eth0", "type", "veth", "peer", "name", "other"]);
        run("ip", &["address", "add", "2001:db8::5/64", "dev", "eth0", "nodad"]);
        run("ip", &["address", "add", "10.1.2.3/24", "dev", "eth0"]);
        run("ip", &["address", "add", "10.9.9.1", "peer", "10.9.9.2/32", "dev", "other"]);
        let seen: Vec<String> = Rtnetlink::open()
            .unwrap()
            .addresses()
            .unwrap()
            .into_iter()
            .map(|found| format!("{} {}/{}", found.interface, found.address, found.prefix))
            .collect();
        let v4: Vec<_> = seen.iter().filter(|line| !line.contains(':')).collect();
        assert_eq!(seen[..v4.len()].iter().collect::<Vec<_>>(), v4, "IPv4 first: {seen:?}");
        for expected in
            ["lo 127.0.0.1/8", "lo ::1/128", "eth0 10.1.2.3/24", "eth0 2001:db8::5/64", "other 10.9.9.1/32"]
        {
            assert!(seen.iter().any(|line| line == expected), "{expected} in {seen:?}");
        }
    });
}

#[test]
fn many_addresses_take_several_datagrams() {
    in_new_namespace(|| {
        let batch: String =
            (0..2000).map(|n| format!("address add 10.1.{}.{}/32 dev lo\n", n / 250, n % 250)).collect();
        netlab::process::run_with_input("ip", &["-batch", "-"], &batch);
        assert!(Rtnetlink::open().unwrap().addresses().unwrap().len() >= 2001);
    });
}

#[test]
fn a_list_that_changes_meanwhile_is_read_again() {
    in_new_namespace(|| {
        let batch: String =
            (0..2000).map(|n| format!("address add 2001:db8::{n:x}/128 dev lo nodad\n")).collect();
        netlab::process::run_with_input("ip", &["-batch", "-"], &batch);
        let mut rtnetlink = Rtnetlink::open().unwrap();
        // Fewer changes than the list is read, however slow the machine is.
        let allowed = AtomicUsize::new(0);
        thread::scope(|scope| {
            let changing = scope.spawn(|| {
                let mut other = Rtnetlink::open().unwrap();
                for number in 0..200 {
                    while allowed.load(Ordering::SeqCst) == 0 {
                        thread::sleep(Duration::from_millis(1));
                    }
                    if number % 2 == 0 {
                        other.add_passthrough_address().unwrap();
                    } else {
                        other.delete_passthrough_address().unwrap();
                    }
                    allowed.fetch_sub(1, Ordering::SeqCst);
                    thread::sleep(Duration::from_millis(2));
                }
            });
            while !changing.is_finished() {
                allowed.store(8, Ordering::SeqCst);
                let seen = rtnetlink.addresses().unwrap();
                let lasting = seen.iter().filter(|found| found.address.is_ipv6() && found.prefix == 128);
                // 2000 and ::1, and perhaps ::6.
                let count = lasting.count();
                assert!(matches!(count, 2001 | 2002), "{count}");
            }
        });
    });
}

#[test]
fn passthrough_address_is_added_once_tagged_and_deleted() {
    in_new_namespace(|| {
        let mut rtnetlink = Rtnetlink::open().unwrap();
        assert_eq!(rtnetlink.passthrough_address().unwrap(), None);
        assert!(!rtnetlink.delete_passthrough_address().unwrap());
        assert_eq!(rtnetlink.add_passthrough_address().unwrap(), Added::New);
        assert_eq!(rtnetlink.add_passthrough_address().unwrap(), Added::AlreadyThere);
        assert!(rtnetlink.passthrough_address().unwrap().unwrap().ours());
        let shown = run("ip", &["-6", "address", "show", "dev", "lo"]);
        assert!(shown.contains("inet6 ::6/128") && !shown.contains("tentative"), "{shown}");
        assert!(rtnetlink.delete_passthrough_address().unwrap());
        assert_eq!(rtnetlink.passthrough_address().unwrap(), None);
    });
}

/// As gVisor: it adds the address, and says that it does not support the protocol number.
#[test]
fn passthrough_address_is_added_where_the_kernel_refuses_its_tag() {
    in_new_namespace(|| {
        let mut rtnetlink = Rtnetlink::open().unwrap();
        for refusal in [libc::EOPNOTSUPP, libc::EPERM] {
            let mut calls = 0;
            let added = address::add_passthrough(&mut |message| {
                calls += 1;
                let added = rtnetlink.add(message)?;
                if calls == 1 { Err(io::Error::from_raw_os_error(refusal)) } else { Ok(added) }
            });
            assert_eq!(added.is_ok(), refusal == libc::EOPNOTSUPP, "{refusal}: {added:?}");
            assert_eq!(calls, if refusal == libc::EOPNOTSUPP { 2 } else { 1 });
            assert!(rtnetlink.delete_passthrough_address().unwrap(), "it is there once");
            assert!(!rtnetlink.delete_passthrough_address().unwrap());
        }
    });
}

#[test]
fn foreign_passthrough_address_is_distinguished_and_claimed() {
    in_new_namespace(|| {
        run("ip", &["-6", "address", "add", "::6/128", "dev", "lo"]);
        let mut rtnetlink = Rtnetlink::open().unwrap();
        assert!(!rtnetlink.passthrough_address().unwrap().unwrap().ours());
        assert_eq!(rtnetlink.add_passthrough_address().unwrap(), Added::AlreadyThere);
        assert!(!rtnetlink.passthrough_address().unwrap().unwrap().ours());
        rtnetlink.claim_passthrough_address().unwrap();
        assert!(rtnetlink.passthrough_address().unwrap().unwrap().ours());
        assert_eq!(run("ip", &["-6", "address", "show", "dev", "lo"]).matches("::6/128").count(), 1);
    });
}

#[test]
fn a_rule_is_added_once() {
    for family in Family::ALL {
        in_new_namespace(|| {
            let before = rules(flag(family));
            let mut rtnetlink = Rtnetlink::open().unwrap();
            assert_eq!(rtnetlink.add_mark_rule(family, 1337, 133).unwrap(), Added::New);
            assert_eq!(rtnetlink.add_mark_rule(family, 1337, 133).unwrap(), Added::AlreadyThere);
            assert_eq!(rtnetlink.mark_rules(family).unwrap(), [MarkRule::ours(1337, 133)]);
            let shown = rules(flag(family));
            assert!(shown.contains("1337:\tfrom all fwmark 0x539 lookup 133 proto 150"), "{shown}");
            assert_eq!(shown.lines().count(), before.lines().count() + 1);
            // Another table than a byte can name, and another mark, are other rules.
            assert_eq!(rtnetlink.add_mark_rule(family, 1337, 70_000).unwrap(), Added::New);
            assert_eq!(rtnetlink.add_mark_rule(family, 7, 133).unwrap(), Added::New);
            for rule in rtnetlink.mark_rules(family).unwrap() {
                assert!(rule.is_ours() && rule.plain, "{rule:?}");
                assert!(rtnetlink.delete_mark_rule(family, &rule).unwrap());
                assert!(!rtnetlink.delete_mark_rule(family, &rule).unwrap());
            }
            assert_eq!(rules(flag(family)), before);
        });
    }
}

#[test]
fn of_identical_rules_one_is_deleted() {
    for family in Family::ALL {
        in_new_namespace(|| {
            let add = [flag(family), "rule", "add", "fwmark", "1337", "lookup", "133"];
            run("ip", &add);
            run("ip", &add);
            let mut rtnetlink = Rtnetlink::open().unwrap();
            let found = rtnetlink.mark_rules(family).unwrap();
            assert_eq!(found.len(), 2);
            assert!(found.iter().all(|rule| rule.plain && !rule.is_ours()), "{found:?}");
            assert_eq!(rtnetlink.add_mark_rule(family, 1337, 133).unwrap(), Added::New);
            assert!(rtnetlink.delete_mark_rule(family, &found[0]).unwrap());
            assert_eq!(rtnetlink.mark_rules(family).unwrap().len(), 2);
            assert!(rtnetlink.delete_mark_rule(family, &found[1]).unwrap());
            assert_eq!(rtnetlink.mark_rules(family).unwrap(), [MarkRule::ours(1337, 133)]);
        });
    }
}

#[test]
fn rules_with_more_to_them_are_not_plain() {
    in_new_namespace(|| {
        let more = [
            "from 10.0.0.0/8 fwmark 1 lookup 100",
            "to 10.0.0.0/8 fwmark 1 lookup 100",
            "not fwmark 1 lookup 100",
            "fwmark 1 iif lo lookup 100",
            "fwmark 1 oif lo lookup 100",
            "fwmark 1 uidrange 0-5 lookup 100",
            "fwmark 1 ipproto tcp dport 80 lookup 100",
            "fwmark 1 lookup main suppress_prefixlength 0",
            "fwmark 1 tos 0x10 lookup 100",
            "fwmark 1 blackhole",
        ];
        for words in more {
            let words: Vec<&str> = ["rule", "add"].into_iter().chain(words.split(' ')).collect();
            run("ip", &words);
        }
        run("ip", &["rule", "add", "fwmark", "1/0xf", "lookup", "100"]);
        run("ip", &["rule", "add", "from", "10.0.0.0/8", "lookup", "100"]);
        let found = Rtnetlink::open().unwrap().mark_rules(Family::V4).unwrap();
        assert_eq!(found.len(), more.len() + 1, "{found:?}");
        let plain: Vec<_> = found.iter().filter(|rule| rule.plain).collect();
        assert_eq!(plain.len(), 1, "{plain:?}");
        assert_eq!((plain[0].mark, plain[0].mask, plain[0].table), (1, 0xf, 100));
    });
}

#[test]
fn the_local_default_route_is_added_once() {
    for family in Family::ALL {
        for table in [133, 70_000] {
            in_new_namespace(|| {
                let mut rtnetlink = Rtnetlink::open().unwrap();
                let shown = || routes(flag(family), &table.to_string());
                assert_eq!(rtnetlink.routes(family, table).unwrap(), []);
                assert!(!rtnetlink.delete_local_default(family, table, ROUTE_PROTOCOL).unwrap());
                assert_eq!(rtnetlink.add_local_default(family, table).unwrap(), LocalDefault::New);
                assert_eq!(rtnetlink.add_local_default(family, table).unwrap(), LocalDefault::AlreadyThere);
                let found = rtnetlink.routes(family, table).unwrap();
                assert_eq!(found.len(), 1, "{found:?}");
                assert!(found[0].is_local_default() && found[0].is_ours(), "{found:?}");
                assert!(shown().contains("local default dev lo proto 150 scope"), "{}", shown());
                assert!(rtnetlink.delete_local_default(family, table, ROUTE_PROTOCOL).unwrap());
                assert_eq!(shown(), "");
            });
        }
    }
}

#[test]
fn foreign_local_default_route_is_used_and_claimed_only_on_request() {
    for (family, network) in [(Family::V4, "0.0.0.0/0"), (Family::V6, "::/0")] {
        in_new_namespace(|| {
            run("ip", &[flag(family), "route", "add", "local", network, "dev", "lo", "table", "133"]);
            let mut rtnetlink = Rtnetlink::open().unwrap();
            let found = rtnetlink.routes(family, 133).unwrap();
            assert!(found.len() == 1 && found[0].is_local_default() && !found[0].is_ours(), "{found:?}");
            assert!(!rtnetlink.delete_local_default(family, 133, ROUTE_PROTOCOL).unwrap());
            assert_eq!(rtnetlink.add_local_default(family, 133).unwrap(), LocalDefault::AlreadyThere);
            assert_eq!(rtnetlink.routes(family, 133).unwrap(), found, "it is not tagged");
            rtnetlink.claim_local_default(family, 133).unwrap();
            let found = rtnetlink.routes(family, 133).unwrap();
            assert!(found.len() == 1 && found[0].is_local_default() && found[0].is_ours(), "{found:?}");
            assert!(rtnetlink.delete_local_default(family, 133, ROUTE_PROTOCOL).unwrap());
            assert_eq!(rtnetlink.routes(family, 133).unwrap(), []);
        });
    }
}

#[test]
fn foreign_routes_are_listed_and_not_changed() {
    in_new_namespace(|| {
        run("ip", &["link", "add", "eth0", "type", "veth", "peer", "name", "other"]);
        run("ip", &["address", "add", "10.1.2.3/24", "dev", "eth0"]);
        run("ip", &["link", "set", "eth0", "up"]);
        run("ip", &["route", "add", "default", "via", "10.1.2.1", "table", "133"]);
        run("ip", &["route", "add", "local", "10.5.0.0/16", "dev", "lo", "table", "133"]);
        run("ip", &["route", "add", "blackhole", "10.6.0.0/16", "table", "134"]);
        let mut rtnetlink = Rtnetlink::open().unwrap();
        let found = rtnetlink.routes(Family::V4, 133).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|route| !route.is_local_default()));
        let local: Vec<_> = found.iter().filter(|route| route.local).collect();
        assert_eq!(local[0].destination, Some(("10.5.0.0".parse().unwrap(), 16)));
        let error = rtnetlink.add_local_default(Family::V4, 133).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EEXIST), "{error}");
        assert_eq!(rtnetlink.routes(Family::V4, 133).unwrap(), found);
    });
}

#[test]
fn ipv6_is_usable_unless_switched_off_without_any_address() {
    in_new_namespace(|| {
        let usable = || network().unwrap().ipv6;
        assert!(usable());
        run("sysctl", &["-q", "-w", "net.ipv6.conf.all.disable_ipv6=1"]);
        assert!(!usable());
        run("sysctl", &["-q", "-w", "net.ipv6.conf.lo.disable_ipv6=0"]);
        assert!(usable());
    });
}

/// A body with a header and attributes of plausible lengths, all else garbage.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    let attribute = (0_u16..24, 0_usize..20, any::<u8>());
    (proptest::collection::vec(any::<u8>(), 0..16), proptest::collection::vec(attribute, 0..8)).prop_map(
        |(mut body, attributes)| {
            for (kind, length, content) in attributes {
                body.extend_from_slice(&u16::try_from(length + 4).unwrap().to_ne_bytes());
                body.extend_from_slice(&kind.to_ne_bytes());
                body.resize(body.len() + length.next_multiple_of(4), content);
            }
            body
        },
    )
}

proptest! {
    #[test]
    fn no_message_makes_reading_panic(body in garbage(), family in prop_oneof![Just(2_u8), Just(10), any::<u8>()]) {
        let mut body = body;
        if let Some(first) = body.first_mut() {
            *first = family;
        }
        for kind in [libc::RTM_NEWADDR, libc::RTM_NEWRULE, libc::RTM_NEWROUTE] {
            let reply = Reply { kind, flags: 0, sequence: 0, port: 0, body: &body };
            let _ = (address::read_address(&reply), rule::read_rule(&reply), route::read_route(&reply));
        }
    }
}

#[test]
fn alias_of_lo_is_kept_and_taken_away() {
    in_new_namespace(|| {
        let mut rtnetlink = Rtnetlink::open().unwrap();
        assert_eq!(rtnetlink.loopback_alias().unwrap(), None);
        let longest = "a".repeat(255);
        for alias in ["istio-iptables:1 xnt000001", &longest] {
            rtnetlink.set_loopback_alias(alias).unwrap();
            assert_eq!(rtnetlink.loopback_alias().unwrap().as_deref(), Some(alias));
            assert!(run("ip", &["link", "show", "lo"]).contains(&format!("alias {alias}")));
        }
        assert!(rtnetlink.set_loopback_alias(&"a".repeat(256)).is_err());
        rtnetlink.set_loopback_alias("").unwrap();
        assert_eq!(rtnetlink.loopback_alias().unwrap(), None);
    });
}
