//! `explain --live` beside foreign rules: each verdict against a connection.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::thread;

use netlab::Namespace;
use serde_json::Value;

use crate::explainer::Flow;
use crate::foreign_preserved::EVERYTHING;
use crate::lab::fixture::at;
use crate::lab::program::{Program, tool};
use crate::lab::{Backend, Family, Fixture, Outcome, Pod, for_each_backend_and_native, for_these_fixtures};

for_each_backend_and_native!(
    live_rules_are_explained_with_their_own_ports,
    process_names_the_network_namespace,
    without_rules_nothing_is_captured,
    options_have_the_value_of_the_live_rules,
    queues_take_packets_or_may_take_them
);
for_these_fixtures!(
    changed: Native Dual;
    [changed_native_rules_change_the_verdict, base_chains_that_change_packets_are_named]
);
for_these_fixtures!(
    foreign_nft: IptablesNft Dual, foreign_legacy: IptablesLegacy Dual;
    [
        foreign_rules_that_take_connections_are_the_reason,
        rules_that_cannot_be_evaluated_are_named,
        base_chains_that_change_packets_are_named,
        odd_foreign_rules_are_followed_or_named,
        connections_that_are_tracked_in_one_direction_do_not_work
    ]
);

/// What is asked of `explain`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    /// As in `--from`.
    pub(crate) from: &'a str,
    pub(crate) to: SocketAddr,
    pub(crate) is_udp: bool,
}

/// What `explain --live` says of a packet.
pub(crate) fn report(pod: &Pod, args: &[&str], question: &Question<'_>) -> Value {
    let (to, proto) = (question.to.to_string(), if question.is_udp { "udp" } else { "tcp" });
    let words =
        ["explain", "--live", "--from", question.from, "--to", &to, "--proto", proto, "--output", "json"];
    let output = pod.bare_istio_iptables(&[&words, args].concat()).run().succeeded().output();
    let line = output.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{output}"));
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

fn explain(pod: &Pod, args: &[&str], flow: &Flow) -> Value {
    report(pod, args, &Question { from: &flow.from, to: flow.to, is_udp: flow.is_udp })
}

/// The connection, and what `explain` reports of it, agree on whether the proxy gets it.
fn agrees(pod: &Pod, flow: &Flow) -> Value {
    let user = match flow.from.as_str() {
        "outside" => pod.outside(),
        "proxy" => pod.proxy(),
        _ => pod.app(),
    };
    let outcome = user.call(flow.to);
    let explained = explain(pod, &[], flow);
    let by_proxy = match &outcome {
        Outcome::Responded(response) if response.server == "proxy" => Some(u64::from(response.port)),
        Outcome::Responded(_) | Outcome::Refused | Outcome::TimedOut | Outcome::Failed(_) => None,
    };
    assert_eq!(explained["port"].as_u64(), by_proxy, "{flow}: {outcome:?}: {explained:#}");
    explained
}

fn flow(from: &str, address: std::net::IpAddr, port: u16) -> Flow {
    Flow { from: from.to_owned(), to: at(address, port), is_udp: false }
}

fn foreign_rules_that_take_connections_are_the_reason(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[80, 7001, 8080]), pod.outside_listens(&[80, 443]));
    pod.apply(&EVERYTHING);
    for &family in fixture.families() {
        let (accepted, own) = (family.other_service(), family.pod());
        pod.restore(
            family,
            &format!(
                "*nat\n:AGENT -\n:UNUSED -\n-I OUTPUT -d {accepted} -p tcp -m tcp --dport 443 -m comment --comment \"agent: -p\" -g AGENT\n\
                 -A AGENT ! -o lo -p tcp -j ACCEPT\n-I OUTPUT -p tcp -m tcp --dport 9 -j UNUSED\n-A UNUSED -j ACCEPT\n\
                 -I PREROUTING -i eth0 -p tcp -m tcp --dport 7000 -j REDIRECT --to-ports 7001\n\
                 -I PREROUTING -p tcp -m multiport --dports 7002:7010,7020 -j DNAT --to-destination {}\nCOMMIT\n",
                at(own, 8080)
            ),
        );
        for (flow, foreign) in [
            (flow("app", accepted, 443), Some("AGENT")),
            (flow("app", accepted, 80), None),
            (flow("app", family.service(), 443), None),
            (flow("proxy", family.service(), 443), None),
            (flow("outside", own, 7000), Some("PREROUTING")),
            (flow("outside", own, 7005), Some("PREROUTING")),
            (flow("outside", own, 80), None),
        ] {
            let explained = agrees(&pod, &flow);
            let decisive = &explained["rule"];
            let by = decisive["chain"].as_str().filter(|_| decisive["foreign"] == true);
            // A list of ports with a range has no words in the model: it is named, not guessed.
            let uncertain = explained["may_decide"].as_array().is_some_and(|rules| !rules.is_empty());
            assert!(by == foreign || uncertain && foreign.is_some(), "{flow}: {explained:#}");
        }
    }
}

fn rules_that_cannot_be_evaluated_are_named(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    for &family in fixture.families() {
        pod.restore(
            family,
            "*nat\n:SOMETIMES -\n-I OUTPUT -p tcp -m statistic --mode random --probability 0.5 -j SOMETIMES\n-A SOMETIMES -j ACCEPT\n\
             -I OUTPUT -p tcp -m statistic --mode random --probability 0.5 -j LOG\nCOMMIT\n",
        );
        let explained = explain(&pod, &[], &flow("app", family.service(), 80));
        let rules: Vec<&str> = explained["may_decide"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|rule| rule["rule"].as_str())
            .collect();
        assert!(matches!(rules.as_slice(), [rule] if rule.contains("-j SOMETIMES")), "{explained:#}");
        let text =
            pod.bare_istio_iptables(&["explain", "--live", "--to", &at(family.service(), 80).to_string()]);
        text.run().succeeded().output_contains("unless   a rule decides that cannot be evaluated");
    }
}

/// What the kernel does with a connection beside each of these rules is what `explain` reports, or a rule is
/// named that may decide.
fn odd_foreign_rules_are_followed_or_named(fixture: Fixture) {
    for mode in ["REDIRECT", "TPROXY"] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        pod.apply(&["-i", "*", "-b", "*", "-m", mode]);
        for &family in fixture.families() {
            for rules in [
                "*nat\n-I OUTPUT ! -o eth+ -j ACCEPT\n",
                "*nat\n-I OUTPUT ! -o lo+ -j ACCEPT\n",
                "*nat\n-I PREROUTING ! -i eth+ -j ACCEPT\n",
                "*nat\n-I OUTPUT -p tcp -m conntrack --ctstate NEW -j ACCEPT\n",
                "*nat\n-I OUTPUT -p tcp -m conntrack ! --ctstate RELATED,ESTABLISHED -j RETURN\n",
                "*mangle\n-I OUTPUT -p tcp -m length --length 0:2000 -j MARK --set-mark 8\nCOMMIT\n*nat\n-I OUTPUT -m mark --mark 8 -j ACCEPT\n",
                "*mangle\n:MARKS -\n-I OUTPUT -j MARKS\n-A MARKS -p tcp -j MARK --set-xmark 0x8/0xff\nCOMMIT\n*nat\n-I OUTPUT -m mark --mark 8 -j ACCEPT\n",
                "*nat\n:EMPTY -\n-I OUTPUT -p tcp -m length --length 0:2000 -g EMPTY\n",
                "*nat\n:EMPTY -\n-I OUTPUT -p tcp -g EMPTY\n",
                "*mangle\n-I PREROUTING -p tcp -m socket -j ACCEPT\n",
                "*raw\n-I PREROUTING -p tcp -m tcp --dport 8080 -j CT --notrack\n",
                "*mangle\n-I OUTPUT -p tcp -j NFQUEUE --queue-num 5 --queue-bypass\n",
            ] {
                // With REDIRECT, replies to what is not tracked are lost: a wait without a verdict.
                if rules.contains("notrack") && mode == "REDIRECT" {
                    continue;
                }
                pod.restore(family, &format!("{rules}COMMIT\n"));
                for flow in [flow("app", family.service(), 80), flow("outside", family.pod(), 8080)] {
                    let user = if flow.from == "app" { pod.app() } else { pod.outside() };
                    let outcome = user.call(flow.to);
                    let by_proxy = match &outcome {
                        Outcome::Responded(response) if response.server == "proxy" => {
                            Some(u64::from(response.port))
                        }
                        Outcome::Responded(_) | Outcome::Refused | Outcome::TimedOut | Outcome::Failed(_) => {
                            None
                        }
                    };
                    let explained = explain(&pod, &[], &flow);
                    let is_uncertain =
                        explained["may_decide"].as_array().is_some_and(|rules| !rules.is_empty());
                    let agrees = explained["port"].as_u64() == by_proxy;
                    assert!(agrees || is_uncertain, "{mode}, {rules}{flow}: {outcome:?}: {explained:#}");
                }
                let undo: Vec<String> = rules.lines().filter_map(undone).collect();
                pod.restore(family, &format!("{}\nCOMMIT\n", undo.join("\n")));
            }
        }
    }
}

/// Without a program, a queue with bypass lets packets go on, and any other one drops them.
fn queues_take_packets_or_may_take_them(fixture: Fixture) {
    let program = if fixture.backend == Backend::Native { Backend::IptablesNft } else { fixture.backend };
    for option in ["", " --queue-bypass"] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
        let queue = format!("-j NFQUEUE --queue-num 5{option}");
        for &family in fixture.families() {
            let words = format!("-t mangle -I OUTPUT -p tcp --dport 80 {queue}");
            let words: Vec<_> = words.split(' ').collect();
            pod.namespace.run(|| tool(&program.tool(family, ""), &words, ""));
        }
        let warned = pod.apply(&EVERYTHING).output();
        assert!(
            warned.lines().any(|line| line.contains("before ours") && line.contains("queue")),
            "{warned}"
        );
        for family in fixture.families() {
            let to = at(family.service(), 80);
            let explained = explain(&pod, &[], &flow("app", family.service(), 80));
            if option.is_empty() {
                assert!(pod.app().gets_no_reply(to, at(family.service(), 443)));
                assert_eq!(explained["verdict"], "taken-by-foreign-rule", "{explained:#}");
                let because = explained["because"].as_str().unwrap_or_default();
                assert!(because.ends_with("without one it is dropped)"), "{explained:#}");
            } else {
                pod.app().call(to).captured(15001, to);
                let rule = explained["may_decide"][0]["rule"].as_str().unwrap_or_default();
                assert!(rule.ends_with(&queue) && explained["port"] == 15001, "{explained:#}");
            }
        }
    }
}

/// With REDIRECT: what the kernel does with replies that are not tracked, or to packets that are not.
fn connections_that_are_tracked_in_one_direction_do_not_work(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80, 443]));
    pod.apply(&["-i", "*", "-b", "*"]);
    for &family in fixture.families() {
        pod.restore(
            family,
            "*raw\n-I PREROUTING -p tcp -m tcp --dport 8080 -j CT --notrack\n-I OUTPUT -p tcp -m tcp --dport 80 -j CT --notrack\n\
             -I OUTPUT -p tcp -m tcp --sport 15006 -j CT --notrack\nCOMMIT\n",
        );
    }
    let flows = |family: Family| {
        [
            (flow("outside", family.pod(), 8080), "go to the proxy's port 15001"),
            (flow("app", family.service(), 80), "go to the proxy's port 15006"),
            (flow("outside", family.pod(), 7001), "the proxy's replies are not tracked"),
            (flow("app", family.service(), 443), ""),
        ]
    };
    let flows: Vec<_> = fixture.families().iter().flat_map(|family| flows(*family)).collect();
    // Some wait for a reply that does not come.
    thread::scope(|scope| {
        for (flow, expected) in &flows {
            let pod = &pod;
            scope.spawn(move || {
                let user = if flow.from == "app" { pod.app() } else { pod.outside() };
                let outcome = user.call(flow.to);
                let explained = explain(pod, &[], flow);
                let problem = explained["problem"].as_str().unwrap_or_default();
                assert!(problem.contains(expected), "{flow}: {outcome:?}: {explained:#}");
                let works = matches!(outcome, Outcome::Responded(_));
                assert_eq!(works, problem.is_empty(), "{flow}: {outcome:?}: {explained:#}");
            });
        }
    });
}

/// What takes a line of a rules file back.
fn undone(line: &str) -> Option<String> {
    match line.split_once(' ') {
        Some(("-I", rest)) => Some(format!("-D {rest}")),
        Some(("-A", _)) => None,
        _ if line.starts_with(':') => None,
        _ => Some(line.to_owned()),
    }
}

fn live_rules_are_explained_with_their_own_ports(fixture: Fixture) {
    let pod = fixture.pod();
    let args =
        ["-i", "*", "-b", "*", "-d", "15020", "-p", "15101", "-z", "15106", "--dual-stack", "-m", "TPROXY"];
    let _servers = (
        pod.proxy_listens_on(15101, 15106, 15008),
        pod.app_listens(&[8080, 15020]),
        pod.outside_listens(&[80]),
    );
    pod.bare_istio_iptables(&args).run().succeeded();
    for &family in fixture.families() {
        for (flow, because) in [
            (flow("app", family.service(), 80), "(-i '*')"),
            (flow("outside", family.pod(), 8080), "(-b '*')"),
            (flow("outside", family.pod(), 15020), "(-d)"),
            (flow("proxy", family.service(), 80), "(-u, -g)"),
            (flow("app", family.pod(), 8080), "over loopback"),
            (flow("proxy", family.pod(), 8080), "own service"),
        ] {
            let explained = agrees(&pod, &flow);
            assert!(
                explained["because"].as_str().is_some_and(|text| text.contains(because)),
                "{flow}: {explained:#}"
            );
        }
    }
}

/// A mark that another table sets before our rules is named where ours test marks.
fn base_chains_that_change_packets_are_named(fixture: Fixture) {
    for (mode, jump, is_named) in [
        ("TPROXY", "tcp dport 8080 jump marks", true),
        ("TPROXY", "tcp dport vmap { 8080 : jump marks }", true),
        ("TPROXY", "tcp dport vmap { 8080 : goto marks, 8081 : accept }", true),
        ("TPROXY", "tcp dport vmap @ports", true),
        // UDP has another way.
        ("TPROXY", "udp dport vmap { 5353 : jump marks }", false),
        ("REDIRECT", "tcp dport vmap { 8080 : jump marks }", false),
        ("REDIRECT", "tcp dport 8080 jump marks", false),
    ] {
        let pod = fixture.pod();
        pod.apply(&["-i", "*", "-b", "*", "-m", mode]);
        let table = format!(
            "table inet agent {{\nmap ports {{ type inet_service : verdict; elements = {{ 8080 : jump marks }}; }}\n\
             chain marks {{\nmeta mark set 1337\n}}\nchain early {{\ntype filter hook prerouting priority -301\n{jump}\n}}\n}}\n"
        );
        pod.namespace.run(|| tool("nft", &["-f", "-"], &table));
        let explained = explain(&pod, &[], &flow("outside", Family::V4.pod(), 8080));
        let notes = explained["notices"].to_string();
        let note = "inet agent early (prerouting, priority -301): mark set to 1337";
        assert_eq!(notes.contains(note), is_named, "{mode} {jump}: {explained:#}");
    }
}

/// Rules of our native tables are walked as the kernel holds them: each change made by `nft` is seen in the
/// traffic and in the report.
fn changed_native_rules_change_the_verdict(fixture: Fixture) {
    for mode in ["REDIRECT", "TPROXY"] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080, 9090]), pod.outside_listens(&[80, 443]));
        let excluded = format!("{}/32,{}/128", Family::V4.other_service(), Family::V6.other_service());
        pod.apply(&["-i", "*", "-x", &excluded, "-b", "*", "-d", "9090,9091", "-m", mode]);
        let flows = |family: Family| {
            [
                flow("app", family.service(), 80),
                flow("app", family.other_service(), 443),
                flow("proxy", family.service(), 80),
                flow("outside", family.pod(), 8080),
                flow("outside", family.pod(), 9090),
            ]
        };
        let verdicts = || -> Vec<Value> {
            let families = fixture.families().iter();
            families
                .flat_map(|family| flows(*family))
                .map(|flow| agrees(&pod, &flow)["port"].clone())
                .collect()
        };
        let mut before = verdicts();
        let table = if mode == "TPROXY" { "istio-proxy-mangle" } else { "istio-proxy-nat" };
        for change in [
            // Another program excludes a port, then lets everything pass.
            "insert rule inet istio-proxy-nat istio-output tcp dport 80 counter return".to_owned(),
            format!("insert rule inet {table} prerouting meta l4proto tcp accept"),
        ] {
            pod.namespace.run(|| tool("nft", &["-f", "-"], &change));
            let after = verdicts();
            assert_ne!(after, before, "{change}");
            before = after;
        }
        let explained = explain(&pod, &[], &flow("outside", Family::V4.pod(), 8080));
        assert_eq!(explained["rule"]["foreign"], true, "{explained:#}");
        pod.apply(&["-i", "*", "-b", "*", "-m", mode, "--force-apply"]);
        let whole = verdicts();
        // A rule of ours is deleted: the one that jumps to the inbound chain.
        let handles =
            pod.namespace.run(|| tool("nft", &["-a", "list", "chain", "inet", table, "prerouting"], ""));
        let jump = handles.lines().find(|line| line.contains("jump istio-inbound")).expect("the jump");
        let handle = jump.rsplit(' ').next().expect("a handle");
        let delete = format!("delete rule inet {table} prerouting handle {handle}");
        pod.namespace.run(|| tool("nft", &["-f", "-"], &delete));
        assert_ne!(verdicts(), whole, "{delete}");
    }
}

/// A fix is typed where the question was asked.
fn a_fix_names_the_network_namespace(pod: &Pod, pid: &str, question: &[&str]) {
    pod.iptables(Family::V4, "-t nat -I OUTPUT -d 192.0.2.0/24 -j ACCEPT");
    let node = Namespace::new();
    let note = format!(
        "note: fixes are for that network namespace, not for this one: `nsenter --target {pid} --net COMMAND`"
    );
    for (words, outcome) in [
        (question, "not captured"),
        (&["explain", "--live", "--pid", pid], "problem"),
        (&["check", "--pid", pid], "problem"),
    ] {
        let said = Program::new(&node, words).run().stdout();
        assert!(said.contains(outcome) && said.trim_end().ends_with(&note), "{words:?}: {said}");
    }
    let inside = pod.istio_iptables(&["explain", "--live", "--to", "192.0.2.10:80"]).run().stdout();
    assert!(inside.contains("fix ") && !inside.contains("nsenter"), "{inside}");
    let iptables = pod.fixture.backend.tool(Family::V4, "");
    let fix = "-t nat -D OUTPUT -d 192.0.2.0/24 -j ACCEPT".split(' ');
    let fix: Vec<&str> = ["--target", pid, "--net", &iptables].into_iter().chain(fix).collect();
    node.run(|| tool("nsenter", &fix, ""));
    Program::new(&node, question).run().output_contains("captured: goes to the proxy");
}

fn process_names_the_network_namespace(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    let mut process =
        pod.namespace.run(|| Command::new("cat").stdin(Stdio::piped()).spawn().expect("start cat"));
    let pid = process.id().to_string();
    let question = ["explain", "--live", "--pid", &pid, "--to", "192.0.2.10:80"];
    let explained = Program::new(&Namespace::new(), &question).run();
    let by_options = ["explain", "--pid", &pid, "--to", "192.0.2.10:80"];
    let by_options = Program::new(&Namespace::new(), &by_options).run();
    if pod.fixture.backend != Backend::Native {
        a_fix_names_the_network_namespace(&pod, &pid, &question);
    }
    drop(process.stdin.take());
    process.wait().expect("cat ends");
    explained.succeeded().output_contains("captured: goes to the proxy's outbound port 15001");
    by_options.succeeded().output_contains("the rules of this network namespace are not read");
}

fn options_have_the_value_of_the_live_rules(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&["-i", "*", "-b", "*", "-o", "9000", "-u", "1337"]);
    for (from, to, port, name, value) in [
        ("app", Family::V4.service(), 80, "istio-service-cidr", "*"),
        ("app", Family::V4.service(), 9000, "istio-local-outbound-ports-exclude", "9000"),
        ("outside", Family::V4.pod(), 8080, "istio-inbound-ports", "*"),
        ("proxy", Family::V4.service(), 80, "proxy-uid", "1337"),
    ] {
        // Options that the rules do not come from have no say.
        for given in [&[][..], &["-i", "10.0.0.0/8", "-b", "1"]] {
            let option = explain(&pod, given, &flow(from, to, port))["option"].clone();
            assert_eq!((&option["name"], &option["value"]), (&name.into(), &value.into()), "{option}");
            assert!(option["from"].is_null(), "{option}");
        }
    }
}

fn without_rules_nothing_is_captured(fixture: Fixture) {
    let pod = fixture.pod();
    let explained = explain(&pod, &["-i", "*"], &flow("app", Family::V4.service(), 80));
    assert_eq!(explained["verdict"], "not-captured", "{explained:#}");
    assert!(
        explained["because"].as_str().is_some_and(|text| text.contains("no capture rule is live")),
        "{explained:#}"
    );
}
