//! `bundle`: questions about the file have the same reports as on the machine, byte by byte.

use std::fs;

use netlab::{DeviceHookKind, DeviceProgram};
use serde_json::Value;

use crate::lab::program::{Program, try_tool};
use crate::lab::{Backend, Fixture, Pod, for_each_backend_and_native};

for_each_backend_and_native!(
    redirected_pod_with_foreign_rules_is_reported_alike,
    pod_with_tproxy_and_foreign_routes_is_reported_alike,
    pod_without_rules_is_reported_alike,
    what_older_bundles_lack_is_named,
    damaged_bundles_end_with_one_error_or_a_report
);

const QUESTIONS: [&[&str]; 12] = [
    &["explain", "--live"],
    &["explain", "--live", "--output", "json"],
    &["explain", "--live", "--to", "10.3.4.5:80"],
    &["explain", "--live", "--to", "[2001:db8:9::5]:443", "--from", "proxy", "--output", "json"],
    &["explain", "--live", "--from", "outside", "--to", "10.99.0.2:8080", "--mark", "1337"],
    &["explain", "--live", "--to", "10.3.4.5:53", "--proto", "udp", "--output", "mermaid"],
    &["check"],
    &["check", "--output", "json"],
    &["check", "--backend", "nftables", "-o", "443"],
    &["check", "--backend", "iptables-legacy"],
    &["show"],
    &["show", "--output", "json"],
];

/// What the machine of these tests has and no bundle may have.
const SECRET: &str = "rosebud";

/// A bundle of the pod, made with these options.
fn bundle(pod: &Pod, options: &[&str]) -> tempfile::NamedTempFile {
    let program = pod.plain_istio_iptables(&[&["bundle"], options].concat());
    let program = program.env("API_TOKEN", SECRET).env("ISTIO_LOCAL_EXCLUDE_PORTS", "15020");
    let resolv_conf = format!("# {SECRET}\nsearch {SECRET}.example\nnameserver 10.96.0.10\n");
    let made = program.file("/etc/resolv.conf", &resolv_conf).run().succeeded();
    assert!(!made.stdout().contains(SECRET), "{}", made.stdout());
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), made.stdout()).unwrap();
    file
}

/// How often a bundle is made of a pod whose counters go on meanwhile.
const ATTEMPTS: usize = 40;

/// The reports on the machine: exit code and standard output.
fn reports_there(pod: &Pod, options: &[&str]) -> Vec<(i32, String)> {
    let ask = |question: &&[&str]| {
        // The rules that are there are shown, whatever the options.
        let options = if question.contains(&"show") { &[] } else { options };
        let asked = pod.plain_istio_iptables(&[question, options].concat());
        let asked = asked.env("ISTIO_LOCAL_EXCLUDE_PORTS", "15020");
        let ended = asked.file("/etc/resolv.conf", "nameserver 10.96.0.10\n").run();
        (ended.code(), ended.stdout())
    };
    QUESTIONS.iter().map(ask).collect()
}

/// Each question has the same report and exit code, there and here.
pub(crate) fn reports_are_equal(pod: &Pod, options: &[&str]) {
    // Packets of the kernel's own are counted at any time: the reports count if they are the same before and
    // after.
    let mut before = reports_there(pod, options);
    let quiet = (0..ATTEMPTS).find_map(|_| {
        let file = bundle(pod, options);
        let after = reports_there(pod, options);
        let is_same = before == after;
        before = after;
        is_same.then_some(file)
    });
    let file = quiet.expect("a bundle without a packet meanwhile");
    let path = file.path().to_str().unwrap();
    let size = file.path().metadata().unwrap().len();
    assert!((5_000..100_000).contains(&size), "{size} bytes");
    for (question, there) in QUESTIONS.iter().zip(&before) {
        // The options of the bundle count, and no variables here.
        let here = Program::anywhere(&[question, &["--bundle", path][..]].concat());
        let here = here.env("ISTIO_LOCAL_EXCLUDE_PORTS", "1").run();
        assert_eq!(&(here.code(), here.stdout()), there, "{question:?}");
        assert!([0, 1].contains(&here.code()), "{question:?}: {}", here.output());
    }
    // The report about all traffic is in the file, as lines.
    let parsed: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let report = parsed["report"].as_array().unwrap().iter().map(|line| line.as_str().unwrap());
    assert_eq!(report.collect::<Vec<_>>().join("\n"), before[0].1);
}

fn redirected_pod_with_foreign_rules_is_reported_alike(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    let options = ["-i", "*", "-b", "*", "-x", "10.3.0.0/16", "--redirect-dns", "--ip-family", "dual"];
    pod.bare_istio_iptables(&options).run().succeeded();
    // A connection, and what another program added.
    pod.app().call(crate::lab::fixture::at(crate::lab::Family::V4.service(), 80));
    for &family in fixture.families() {
        pod.restore(
            family,
            "*nat\n-I OUTPUT -p tcp -m tcp --dport 9 -m comment --comment agent -j ACCEPT\nCOMMIT\n",
        );
    }
    pod.namespace.run(|| {
        let rules =
            "table inet agent { chain out { type filter hook output priority -350; meta mark set 7; }; }\n";
        try_tool("nft", &["-f", "-"], rules).unwrap();
        for words in IPSEC {
            try_tool("ip", &words.split(' ').collect::<Vec<_>>(), "").unwrap();
        }
        for words in FILTER {
            try_tool("tc", &words.split(' ').collect::<Vec<_>>(), "").unwrap();
        }
    });
    let _program = DeviceProgram::dropping(&pod.namespace, "eth0", (DeviceHookKind::Tcx, 9, false));
    reports_are_equal(&pod, &options);
}

const IPSEC: [&str; 2] = [
    "xfrm policy add dir out dst 10.3.4.5 action block",
    "xfrm policy add dir in src 10.3.4.0/24 tmpl proto esp mode transport",
];
const FILTER: [&str; 2] = [
    "qdisc add dev eth0 clsact",
    "filter add dev eth0 egress protocol ip u32 match ip dport 9 0xffff action mirred egress redirect dev eth0",
];

/// Facts that programs before this one did not record.
fn what_older_bundles_lack_is_named(fixture: Fixture) {
    let pod = fixture.pod();
    let options = ["-i", "*", "-b", "*"];
    pod.bare_istio_iptables(&options).run().succeeded();
    let file = bundle(&pod, &options);
    let path = file.path().to_str().unwrap();
    let mut whole: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let explain = || {
        Program::anywhere(&["explain", "--bundle", path, "--to", "10.0.0.1:80"]).run().succeeded().stdout()
    };
    assert!(!explain().contains("are not known"), "{}", explain());
    let facts = whole["facts"].as_object_mut().unwrap();
    let before = facts.len();
    facts.retain(|name, _| {
        !name.contains("IPsec") && !name.contains(" xfrm ") && !name.contains("BPF programs at interfaces")
    });
    assert!(facts.len() < before);
    fs::write(path, whole.to_string()).unwrap();
    for what in ["IPsec policies", "BPF programs of tcx at interfaces"] {
        let named = format!("{what} are not known: the bundle does not have them");
        assert!(explain().contains(&named), "{}", explain());
    }
}

fn pod_with_tproxy_and_foreign_routes_is_reported_alike(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    let options = ["-i", "*", "-b", "*", "-m", "TPROXY", "--ip-family", "dual"];
    pod.bare_istio_iptables(&options).run().succeeded();
    pod.namespace.run(|| {
        try_tool("ip", &["rule", "add", "pref", "50", "fwmark", "0x539", "lookup", "200"], "").unwrap();
        try_tool("ip", &["route", "add", "blackhole", "default", "table", "200"], "").unwrap();
    });
    reports_are_equal(&pod, &options);
}

fn pod_without_rules_is_reported_alike(fixture: Fixture) {
    let pod = fixture.pod();
    reports_are_equal(&pod, &["-i", "*"]);
}

/// Every fact in turn is taken away, or is of no use.
fn damaged_bundles_end_with_one_error_or_a_report(fixture: Fixture) {
    let pod = fixture.pod();
    let options = ["-i", "*", "-b", "*"];
    pod.bare_istio_iptables(&options).run().succeeded();
    let file = bundle(&pod, &options);
    let path = file.path().to_str().unwrap();
    let whole: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let mut refused = 0;
    for name in whole["facts"].as_object().unwrap().keys() {
        for other in [None, Some(""), Some("AAAA"), Some("x\ny z 1 2 3 4\n")] {
            let mut damaged = whole.clone();
            let facts = damaged["facts"].as_object_mut().unwrap();
            match other {
                None => drop(facts.remove(name)),
                Some(text) => drop(facts.insert(name.clone(), text.into())),
            }
            fs::write(path, damaged.to_string()).unwrap();
            let ended = Program::anywhere(&["explain", "--bundle", path, "--to", "10.0.0.1:80"]).run();
            assert!([0, 64, 69, 70].contains(&ended.code()), "{name}: {other:?}: {}", ended.output());
            if other.is_none() && ended.code() != 0 {
                assert!(ended.output().contains(name.as_str()), "{name}: {}", ended.output());
                refused += 1;
            }
        }
    }
    // Without rules, addresses or the kernel's replies there is no verdict.
    let least = if fixture.backend == Backend::IptablesLegacy { 3 } else { 5 };
    assert!(refused >= least, "{refused} facts are needed");
}
