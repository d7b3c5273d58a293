//! `explain --live` without a packet: the proxy's listeners, processes that are exempt, connections that are
//! older than capture.

use std::net::TcpListener;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use netlab::Listen;
use netlab::socket::{self, Binding};
use serde_json::Value;

use crate::foreign_preserved::EVERYTHING;
use crate::lab::fixture::at;
use crate::lab::program::{BUILT, tool};
use crate::lab::{Family, Fixture, Pod, for_each_backend_and_native, for_these_fixtures};

for_each_backend_and_native!(
    healthy_pods_have_no_problem,
    listeners_of_the_proxy_are_examined,
    a_listener_that_is_not_transparent_is_named_with_tproxy,
    processes_with_the_proxys_ids_are_named,
    questions_are_about_the_app_that_runs,
    hidden_processes_are_noted,
    a_visible_process_is_in_another_container_than_a_hidden_proxy,
    a_shell_of_the_report_is_no_app,
    a_listener_of_another_container_on_a_proxys_port_is_not_the_proxy,
    connections_that_began_before_capture_are_named,
    connections_of_which_that_is_not_known_are_not_named,
    inbound_connections_are_named_beside_exempt_owners
);

for_these_fixtures!(v4: IptablesNft V4, v6: IptablesNft V6; [pods_of_one_family_have_no_problem_in_the_other]);

fn overview(pod: &Pod) -> Value {
    let output =
        pod.bare_istio_iptables(&["explain", "--live", "--output", "json"]).run().succeeded().output();
    let line = output.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{output}"));
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// Name, family, protocol and problem of each port in use.
fn listeners(pod: &Pod) -> Vec<[String; 4]> {
    let said = overview(pod);
    let listeners = said["listeners"].as_array().unwrap_or_else(|| panic!("{said:#}")).iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    listeners
        .map(|found| [&found["for"], &found["family"], &found["protocol"], &found["problem"]].map(text))
        .collect()
}

fn healthy_pods_have_no_problem(fixture: Fixture) {
    for options in [
        ["-b", "*", "-i", "*", "-m", "REDIRECT"],
        ["-b", "*", "-i", "*", "-m", "TPROXY"],
        ["-b", "80", "-i", "10.0.0.0/8", "-m", "TPROXY"],
        ["-b", "", "-i", "10.0.0.0/8", "-m", "TPROXY"],
        ["-b", "*", "-i", "", "-m", "TPROXY"],
        ["-b", "*", "-i", "", "-m", "REDIRECT"],
        ["-b", "*", "-i", "*", "-x", "0.0.0.0/2"],
        ["-b", "*", "-i", "*", "-x", "::/1"],
    ] {
        let pod = fixture.pod();
        pod.apply(&options);
        let ports = [Listen::Tcp(15001), Listen::TcpTransparent(15006)];
        let _servers = (pod.proxy().serve("proxy", &ports), pod.app_listens(&[80]));
        let said = overview(&pod);
        assert_eq!(said["problems"], Value::Array(Vec::new()), "{options:?}: {said:#}");
    }
}

/// Rules of the other family are there, too.
fn pods_of_one_family_have_no_problem_in_the_other(fixture: Fixture) {
    let pod = fixture.pod();
    // As the kernel gives one to each interface where IPv6 is not switched off.
    let link_local = ["-6", "address", "replace", "fe80::a/64", "dev", "eth0", "nodad"];
    pod.namespace.run(|| tool("ip", &link_local, ""));
    // Envoy's listeners on `::` take IPv6 alone.
    pod.namespace.run(|| tool("sysctl", &["-qw", "net.ipv6.bindv6only=1"], ""));
    let any = if fixture.families() == [Family::V4] { "0.0.0.0" } else { "::" }.parse().expect("an address");
    let _proxy = pod.proxy().serve("proxy", &[15001, 15006].map(|port| Listen::TcpAt(at(any, port))));
    for families in ["--dual-stack", "--ip-family=dual"] {
        pod.bare_istio_iptables(&["-b", "*", "-i", "*", families]).run().succeeded();
        let said = overview(&pod);
        assert_eq!(said["problems"], Value::Array(Vec::new()), "{families}: {said:#}");
        assert!(said["traffic"].as_array().is_some_and(|rows| !rows.is_empty()), "{said:#}");
    }
}

fn listeners_of_the_proxy_are_examined(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&["-i", "*", "-b", "*", "--redirect-dns", "--capture-all-dns"]);
    let families = fixture.families().len();
    let none = listeners(&pod);
    // TCP: outbound, inbound and DNS; UDP: DNS.
    assert_eq!(none.len(), 4 * families, "{none:?}");
    assert!(none.iter().all(|[.., problem]| problem == "nothing listens there"), "{none:?}");
    let packet = ["explain", "--live", "--to", &at(Family::V4.service(), 80).to_string()];
    pod.bare_istio_iptables(&packet)
        .run()
        .succeeded()
        .output_contains("captured: goes to the proxy's outbound port 15001, but nothing listens there");
    let _proxy = pod.proxy_listens();
    let all = listeners(&pod);
    assert!(all.iter().all(|[.., problem]| problem.is_empty()), "{all:?}");
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    let _app = pod.app().serve("app", &[Listen::Tcp(15001)]);
    let local = at(Family::V4.loopback(), 15006);
    let _proxy = pod.proxy().serve("proxy", &[Listen::TcpAt(local)]);
    let wrong = listeners(&pod);
    let problem = |name: &str| {
        let of_name = wrong.iter().find(|[found, family, ..]| found == name && family == "IPv4");
        of_name.map(|[.., problem]| problem.clone()).unwrap_or_default()
    };
    assert!(problem("outbound").contains("runs as uid"), "{wrong:?}");
    assert!(problem("inbound").contains("takes packets for 127.0.0.1 only"), "{wrong:?}");
    // What the families do not share is named with its family.
    let said = overview(&pod)["problems"].to_string();
    assert!(said.contains("inbound port 15006 (IPv6): nothing listens there"), "{said}");
    assert!(said.contains("outbound port 15001: the listener there runs as uid"), "{said}");
}

fn a_listener_that_is_not_transparent_is_named_with_tproxy(fixture: Fixture) {
    for (mode, listen, problem) in [
        ("TPROXY", Listen::Tcp(15006), "is not transparent"),
        ("TPROXY", Listen::TcpTransparent(15006), ""),
        ("REDIRECT", Listen::Tcp(15006), ""),
    ] {
        let pod = fixture.pod();
        pod.apply(&["-b", "*", "-m", mode]);
        let _proxy = pod.proxy().serve("proxy", &[listen]);
        let found = listeners(&pod);
        let inbound: Vec<_> = found.iter().filter(|[name, ..]| name == "inbound").collect();
        assert_eq!(inbound.len(), fixture.families().len(), "{found:?}");
        for [.., said] in inbound {
            assert!(
                said.contains(problem) && said.is_empty() == problem.is_empty(),
                "{mode} {listen:?}: {said}"
            );
        }
    }
}

/// A process of its own in the pod, which waits for the end of its input.
pub(crate) fn start(pod: &Pod, program: &str, listener: Option<&TcpListener>) -> Child {
    let words: Vec<&str> = program.split(' ').collect();
    pod.namespace.run(|| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::piped());
        // A duplicate, as its standard output, is the process's own.
        if let Some(listener) = listener {
            let own: OwnedFd = listener.as_fd().try_clone_to_owned().expect("a duplicate");
            command.stdout(own);
        }
        command.spawn().expect("start a process")
    })
}

pub(crate) fn stop(mut process: Child) {
    drop(process.stdin.take());
    process.wait().expect("the process ends");
}

fn processes_with_the_proxys_ids_are_named(fixture: Fixture) {
    const AS_PROXY: &str = "setpriv --reuid=1337 --regid=1337 --clear-groups cat";
    const IN_GROUP: &str = "unshare -m setpriv --reuid=1000 --regid=1337 --clear-groups cat";
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    assert_eq!(overview(&pod)["exempt_processes"], serde_json::json!([]));
    let (one, other) = (start(&pod, "cat", None), start(&pod, IN_GROUP, None));
    // Both are under way: setpriv has replaced itself when the program's name is known.
    let named = |pod: &Pod| -> Vec<(u64, Value)> {
        let said = overview(pod);
        let all = said["exempt_processes"].as_array().unwrap_or_else(|| panic!("{said:#}")).clone();
        all.iter()
            .map(|found| (found["pid"].as_u64().unwrap(), found["in_container_of_proxy"].clone()))
            .collect()
    };
    let wait_for = |count: usize| {
        let mut found = named(&pod);
        while found.len() != count {
            std::thread::yield_now();
            found = named(&pod);
        }
        found
    };
    assert_eq!(wait_for(1), [(u64::from(other.id()), Value::Null)]);
    let listener = pod.proxy().run(|| TcpListener::bind("0.0.0.0:15001").expect("a listener"));
    let proxy = start(&pod, AS_PROXY, Some(&listener));
    // The proxy itself is not named.
    let mut found = named(&pod);
    while found != [(u64::from(other.id()), Value::Bool(false))] {
        std::thread::yield_now();
        found = named(&pod);
    }
    let problems = overview(&pod)["problems"].to_string();
    assert!(problems.contains("is not captured: it runs as uid 1000, gid 1337"), "{problems}");
    [one, other, proxy].into_iter().for_each(stop);
}

/// The owner and the port of the app decide where rules ask for them.
fn questions_are_about_the_app_that_runs(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&["-i", "*", "-b", "*"]);
    let app = pod.namespace.run(|| TcpListener::bind("0.0.0.0:9090").expect("a listener"));
    let program = "setpriv --reuid=5000 --regid=6000 --clear-groups cat";
    let process = start(&pod, program, Some(&app));
    let _proxy = pod.proxy_listens();
    let packet = |sender: &[&str]| {
        let to = at(fixture.families()[0].service(), 80).to_string();
        let words = [&["explain", "--live", "--to", &to, "--output", "json"], sender].concat();
        let said = pod.bare_istio_iptables(&words).run().succeeded().stdout();
        let said: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
        said["packet"].as_str().unwrap_or_default().to_owned()
    };
    // Until setpriv has replaced itself it is another process.
    while !packet(&[]).contains("from the app with uid 5000, gid 6000 ") {
        assert!(!packet(&[]).contains("uid 1000"), "{}", packet(&[]));
        std::thread::yield_now();
    }
    assert!(packet(&["--from", "uid:7000"]).contains("from a process with uid 7000, gid 7000 "));
    let kinds = overview(&pod)["traffic"].to_string();
    assert!(kinds.contains("client to the app, port 9090"), "{kinds}");
    assert!(!kinds.contains("client to the app, port 8080"), "{kinds}");
    stop(process);
}

/// As in an ephemeral container of `kubectl debug` without `--target`: the processes of the pod's other
/// containers are in PID namespaces of their own.
fn hidden_processes_are_noted(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&["-i", "*", "-b", "*"]);
    let app = pod.app().run(|| TcpListener::bind("0.0.0.0:9090").expect("a listener"));
    let process = start(&pod, "cat", Some(&app));
    let _proxy = pod.proxy_listens();
    let notices = |under: &[&str]| {
        let words = [under, &[&**BUILT, "explain", "--live", "--output", "json"]].concat();
        let said = pod.namespace.run(|| tool(words[0], &words[1..], ""));
        let said: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
        said["notices"].to_string()
    };
    let inside = notices(&["unshare", "--pid", "--fork", "--mount-proc"]);
    let note = "listen on TCP ports 9090, 15001, 15006, 15008, 15053 are in another PID namespace";
    assert!(inside.contains(note), "{inside}");
    assert!(!notices(&["env"]).contains("PID namespace"), "{}", notices(&["env"]));
    stop(process);
}

/// What a shell in the pod prints, as JSON.
fn said_in(pod: &Pod, under: &str, script: &str) -> Value {
    let words: Vec<&str> = under.split(' ').chain(["sh", "-c", script]).collect();
    let said = pod.namespace.run(|| tool(words[0], &words[1..], ""));
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// As with `kubectl debug --target=APP`, which shows the processes of that container alone.
fn a_visible_process_is_in_another_container_than_a_hidden_proxy(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&["-i", "*", "-b", "*"]);
    let _proxy = pod.proxy_listens_without_dns();
    let script = format!(
        "setpriv --reuid=1337 --regid=1337 --clear-groups sleep 600 & app=$!
         until [ \"$(cat /proc/$app/comm)\" = sleep ]; do :; done
         {} explain --live --output json; kill $app",
        &**BUILT
    );
    let said = said_in(&pod, "unshare --pid --fork --mount-proc", &script);
    assert_eq!(said["exempt_processes"][0]["in_container_of_proxy"], Value::Bool(false), "{said:#}");
    assert_eq!(said["problems"][0]["id"], "app-as-proxy", "{said:#}");
}

/// As in a container with the proxy's image, which has its user.
fn a_shell_of_the_report_is_no_app(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&["-i", "*", "-b", "*"]);
    let outbound = pod.proxy().run(|| TcpListener::bind("0.0.0.0:15001").expect("a listener"));
    let proxy = start(&pod, "setpriv --reuid=1337 --regid=1337 --clear-groups cat", Some(&outbound));
    let script = format!("{} explain --live --output json; true", &**BUILT);
    let said = said_in(&pod, "unshare -m setpriv --regid=1337 --clear-groups", &script);
    assert_eq!(said["exempt_processes"], serde_json::json!([]), "{said:#}");
    assert!(!said["problems"].to_string().contains("app-as-proxy"), "{said:#}");
    stop(proxy);
}

fn a_listener_of_another_container_on_a_proxys_port_is_not_the_proxy(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&["-i", "*", "-b", "*", "--redirect-dns", "--capture-all-dns"]);
    let bind = |at: &str| pod.namespace.run(|| TcpListener::bind(at).expect("a listener"));
    let (resolver, outbound) = (bind("127.0.0.1:15053"), bind("0.0.0.0:15001"));
    let other =
        start(&pod, "unshare -m setpriv --reuid=1000 --regid=1000 --clear-groups cat", Some(&resolver));
    let proxy = start(&pod, "setpriv --reuid=1337 --regid=1337 --clear-groups cat", Some(&outbound));
    for process in [&other, &proxy] {
        let name = || std::fs::read_to_string(format!("/proc/{}/comm", process.id()));
        while name().is_ok_and(|name| name != "cat\n") {
            std::thread::yield_now();
        }
    }
    let said = overview(&pod);
    assert_eq!(said["exempt_processes"], serde_json::json!([]), "{said:#}");
    assert!(!said["problems"].to_string().contains("app-as-proxy"), "{said:#}");
    [other, proxy].into_iter().for_each(stop);
}

fn connections_that_began_before_capture_are_named(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80, 443]));
    for &family in fixture.families() {
        let (service, own) = (at(family.service(), 80), at(family.pod(), 8080));
        let older = [pod.app().connect(service), pod.proxy().connect(service), pod.outside().connect(own)];
        let older = older.map(|connection| connection.expect("a connection"));
        pod.apply(&["-i", "*", "-b", "*", "-o", "443"]);
        let newer = [
            pod.app().connect(service),
            pod.app().connect(at(family.service(), 443)),
            pod.outside().connect(own),
        ];
        let newer = newer.map(|connection| connection.expect("a connection"));
        let said = overview(&pod);
        let all = said["older_connections"].as_array().unwrap_or_else(|| panic!("{said:#}"));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let ends: Vec<(String, String)> =
            all.iter().map(|found| (text(&found["local"]), text(&found["remote"]))).collect();
        let outbound = ends.iter().filter(|(_, remote)| *remote == service.to_string()).count();
        let inbound = ends.iter().filter(|(local, _)| *local == own.to_string()).count();
        assert_eq!((ends.len(), outbound, inbound), (2, 1, 1), "{said:#}");
        let problems = said["problems"].to_string();
        assert!(problems.contains("2 open connections began before capture"), "{said:#}");
        drop((older, newer));
        pod.bare_istio_iptables(&["cleanup"]).run().succeeded();
    }
}

/// The conntrack entry of a half-closed connection ends before it, and the kernel lists sockets without their
/// group.
fn connections_of_which_that_is_not_known_are_not_named(fixture: Fixture) {
    let none = |pod: &Pod| {
        let said = overview(pod);
        assert_eq!(said["older_connections"].as_array().map_or(0, Vec::len), 0, "{said:#}");
        assert!(!said["problems"].to_string().contains("began before capture"), "{said:#}");
    };
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    pod.apply(&["-i", "*", "-b", "*"]);
    for &family in fixture.families() {
        let captured = pod.app().connect(at(family.service(), 80)).expect("a connection");
        let _half_closed = captured.closed_by_server();
        pod.namespace.run(|| {
            for family in ["ipv4", "ipv6"] {
                let _ = Command::new("conntrack").args(["-D", "-p", "tcp", "-f", family]).output();
            }
        });
        none(&pod);
    }
    // Of its own sockets that the proxy has closed, the kernel keeps neither user nor inode.
    for &family in fixture.families() {
        let upstream = at(family.service(), 81);
        let server = pod.outside().run(|| socket::listen(upstream).expect("a listener"));
        let connect = || socket::connect_tcp(upstream, Binding::default(), Duration::from_secs(30));
        let client = pod.proxy().run(|| connect().expect("a connection"));
        let accepted = server.accept().expect("a connection");
        drop(client);
        let is_in = |state: &str| {
            let list = ["-Htan", "state", state, "dport", "=", "81"];
            pod.namespace.run(|| !tool("ss", &list, "").trim().is_empty())
        };
        while !is_in("fin-wait-2") {
            std::thread::yield_now();
        }
        none(&pod);
        drop(accepted);
        while !is_in("time-wait") {
            std::thread::yield_now();
        }
        none(&pod);
    }
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    let service = at(fixture.families()[0].service(), 80);
    let _excluded = pod.app().connect(service).expect("a connection");
    let excluding = pod.istio_iptables(&["-i", "*", "-b", "*"]);
    excluding.env("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "1000").run().succeeded();
    none(&pod);
}

fn inbound_connections_are_named_beside_exempt_owners(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    let exempt = start(&pod, "setpriv --reuid=1000 --regid=1337 --clear-groups cat", None);
    let _older = pod.outside().connect(at(fixture.families()[0].pod(), 8080)).expect("a connection");
    pod.apply(&["-i", "*", "-b", "*"]);
    while overview(&pod)["exempt_processes"].as_array().is_none_or(Vec::is_empty) {
        std::thread::yield_now();
    }
    let said = overview(&pod);
    assert_eq!(said["older_connections"].as_array().map_or(0, Vec::len), 1, "{said:#}");
    stop(exempt);
}
