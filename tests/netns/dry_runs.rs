//! What another program has put into a pod, and a run cannot overcome: a dry run ends with the exit code of
//! the run.

use crate::foreign_preserved::{EVERYTHING, FAMILIES};
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Family, Fixture, Pod, for_each_backend_and_native};

for_each_backend_and_native!(
    a_dry_run_ends_with_the_exit_code_of_the_run,
    a_table_with_a_foreign_default_route_is_reported_before_anything_is_written,
);

/// Programs and their arguments, one a line.
const SET_UPS: [&str; 21] = [
    "",
    "ip route add default via 10.1.0.1 table 133",
    "ip -6 route add default via fd00:1::1 table 133",
    "ip route add default via 10.1.0.1 table 133 metric 7\nip -6 route add default via fd00:1::1 table 133 metric 7",
    "ip route add blackhole default table 133",
    "ip -6 route add unreachable default table 133 metric 1024",
    "ip route add 192.0.2.0/24 via 10.1.0.1 table 133",
    "ip route add local default dev lo table 133\nip -6 route add local default dev lo table 133",
    "ip rule add priority 1337 fwmark 1337 lookup 133\nip -6 rule add priority 1337 lookup main",
    "ip link set lo down",
    "nft add table ip nat { flags dormant; }",
    "nft add table ip nat\nnft add chain ip nat ISTIO_OUTPUT\nnft add rule ip nat ISTIO_OUTPUT tcp dport { 22, 23 } drop",
    "nft add table ip nat\nnft add chain ip nat ISTIO_OUTPUT { type nat hook output priority 5 ; }",
    "nft add table ip nat\nnft add chain ip nat PREROUTING",
    "nft add table ip mangle\nnft add chain ip mangle PREROUTING { type filter hook prerouting priority 7 ; }",
    "nft add table ip nat\nnft add chain ip nat OUTPUT { type nat hook output priority 7 ; }",
    "nft add table ip nat\nnft add set ip nat hosts { type ipv4_addr ; }",
    "nft add table inet istio-proxy-nat\nnft add chain inet istio-proxy-nat istio-output",
    "nft add table inet istio-proxy-mangle { flags dormant; }",
    "iptables-nft -t nat -N ISTIO_PRERT\niptables-nft -t nat -N ISTIO_OUTPUT\niptables-nft -t nat -A ISTIO_OUTPUT -j RETURN",
    "iptables-legacy -t mangle -N AGENT\niptables-legacy -t mangle -N ISTIO_INBOUND\niptables-legacy -t mangle -A AGENT -j ISTIO_INBOUND",
];

fn set_up(pod: &Pod, commands: &str) {
    for line in commands.lines() {
        let (program, arguments) = line.split_once(' ').expect("arguments");
        pod.namespace.run(|| tool(program, &arguments.split(' ').collect::<Vec<_>>(), ""));
    }
}

fn codes(pod: &Pod, options: &[&str]) -> (i32, i32, String) {
    let dry = pod.istio_iptables(&[options, &["--dry-run"]].concat()).run();
    let run = pod.istio_iptables(options).run();
    let said = format!("dry run:\n{}run:\n{}", dry.output(), run.output());
    (dry.code(), run.code(), said)
}

fn a_dry_run_ends_with_the_exit_code_of_the_run(fixture: Fixture) {
    let tproxy = [&EVERYTHING[..], &["-m", "TPROXY"]].concat();
    let changed = [&tproxy[..], &["-d", "15020", "-r", "134"]].concat();
    let mut wrong = Vec::new();
    let mut failing = 0;
    for commands in SET_UPS {
        let pod = fixture.pod();
        set_up(&pod, commands);
        for options in [&EVERYTHING[..], &tproxy, &changed, &["cleanup"]] {
            let (dry, run, said) = codes(&pod, options);
            failing += i32::from(run != 0);
            if dry != run {
                wrong.push(format!("{commands}: {options:?}: dry run {dry}, run {run}\n{said}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(failing > 3, "{failing}");
}

fn a_table_with_a_foreign_default_route_is_reported_before_anything_is_written(fixture: Fixture) {
    let tproxy = [&EVERYTHING[..], &["-m", "TPROXY"]].concat();
    for (commands, family) in [(SET_UPS[1], Family::V4), (SET_UPS[2], Family::V6)] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
        set_up(&pod, commands);
        let before = pod.state();
        for more in [&["--dry-run"][..], &[]] {
            let run = pod.istio_iptables(&[&tproxy[..], more].concat()).run();
            let said = run.output();
            assert_eq!(run.code(), 70, "{said}");
            run.output_contains("table 133 has a foreign default route").output_contains("(-r)");
            assert_eq!(pod.state(), before, "{more:?}");
            assert!(!said.contains("that it has written"), "no rollback of nothing: {said}");
        }
        pod.outside().call(at(family.pod(), 8080)).served_by("app");
        // Another table is free.
        pod.apply(&[&tproxy[..], &["-r", "134"]].concat());
        for family in FAMILIES {
            let app = at(family.pod(), 8080);
            pod.outside().call(app).captured(15006, app);
        }
    }
}
