//! `observe`: new connections are reported with process, verdict, rule and option.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::lab::fixture::at;
use crate::lab::program::{BUILT, tool};
use crate::lab::{Fixture, Pod, for_each_backend_and_native, for_these_fixtures};

for_each_backend_and_native!(
    verdict_rule_and_option_are_those_of_the_kernel_and_of_explain,
    connections_to_tproxy_are_captured,
    process_of_a_connection_is_named,
    process_that_has_started_another_program_has_its_name_and_ids,
);
for_these_fixtures!(only_nft: IptablesNft Dual; [
    rules_that_change_meanwhile_are_read_again,
    filters_and_limits_are_heeded,
    announcements_that_are_disabled_are_reported,
]);
for_these_fixtures!(only_native: Native Dual; [
    lost_notices_are_counted,
    a_pod_without_rules_is_reported,
    it_ends_with_the_process,
]);

/// Longer than a line takes to come, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

const OPTIONS: [&str; 7] = ["--dual-stack", "-i", "*", "-b", "*", "-o", "9090"];

/// A running `observe` with `--output json`.
pub(crate) struct Observer {
    child: Child,
    lines: Receiver<Value>,
}

impl Observer {
    pub(crate) fn start(pod: &Pod, args: &[&str]) -> Self {
        let flag = pod.fixture.backend.flag();
        let mut child = pod.namespace.run(|| {
            let mut command = Command::new(&*BUILT);
            command.args(["observe", "-o", "json", "--backend", flag]).args(args);
            command.stdout(Stdio::piped()).spawn().expect("start istio-iptables")
        });
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let (sender, received) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.send(serde_json::from_str(&line).expect("JSON")).is_err() {
                    break;
                }
            }
        });
        let observer = Self { child, lines: received };
        observer.next("observing");
        observer
    }

    /// The next line, which is of this kind.
    fn next(&self, event: &str) -> Value {
        let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{event}: no line"));
        assert_eq!(line["event"], event, "{line}");
        line
    }

    /// The next connection to this end, after any others.
    pub(crate) fn to(&self, to: SocketAddr) -> Value {
        let to = to.to_string();
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{to}: no connection"));
            if line["to"] == to.as_str() {
                return line;
            }
        }
    }

    /// Ends it by a signal. Returns the summary.
    pub(crate) fn end(mut self) -> Value {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), Signal::SIGINT).expect("send a signal");
        self.has_ended()
    }

    fn has_ended(&mut self) -> Value {
        let summary = loop {
            let line = self.lines.recv_timeout(PATIENCE).expect("a summary");
            if line["event"] == "summary" {
                break line;
            }
        };
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0));
        summary
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        // It has ended, but for a test that fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn verdict_rule_and_option_are_those_of_the_kernel_and_of_explain(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80, 9090, 5353]), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    let observer = Observer::start(&pod, &[]);
    for family in fixture.families() {
        let (service, excluded) = (at(family.service(), 80), at(family.service(), 9090));
        // Open until it is reported: of a connection that has ended no owner is known.
        let open = pod.app().connect(service).expect("a connection");
        let line = observer.to(service);
        drop(open);
        assert_eq!(line["verdict"], "captured", "{line}");
        let known = (&line["port"], &line["uid"], &line["of_proxy"], &line["explained"], &line["direction"]);
        let expected = (15001.into(), 1000.into(), false.into(), true.into(), "outbound".into());
        assert_eq!(known, (&expected.0, &expected.1, &expected.2, &expected.3, &expected.4), "{line}");
        assert_eq!(line["protocol"], "tcp");

        pod.app().call(excluded).response();
        let line = observer.to(excluded);
        assert_eq!((&line["verdict"], &line["explained"]), (&"not-captured".into(), &true.into()), "{line}");
        assert_eq!(line["option"]["name"], "istio-local-outbound-ports-exclude", "{line}");
        assert_eq!(line["rule"]["why"], "excluded-outbound-port", "{line}");

        let open = pod.proxy().connect(service).expect("a connection");
        let line = observer.to(service);
        drop(open);
        assert_eq!((&line["verdict"], &line["of_proxy"]), (&"not-captured".into(), &true.into()), "{line}");
        assert_eq!(line["option"]["name"], "proxy-uid", "{line}");

        let inbound = at(family.pod(), 8080);
        pod.outside().call(inbound).captured(15006, inbound);
        let line = observer.to(inbound);
        assert_eq!((&line["verdict"], &line["port"]), (&"captured".into(), &15006.into()), "{line}");
        assert_eq!((&line["direction"], &line["explained"]), (&"inbound".into(), &true.into()), "{line}");

        let query = at(family.service(), 5353);
        let socket = pod.app().run(|| UdpSocket::bind(at(family.unspecified(), 0)).expect("a socket"));
        socket.send_to(b"x", query).expect("send");
        let line = observer.to(query);
        assert_eq!((&line["protocol"], &line["verdict"]), (&"udp".into(), &"not-captured".into()), "{line}");
        assert_eq!((&line["uid"], &line["explained"]), (&1000.into(), &true.into()), "{line}");
    }
    let summary = observer.end();
    let families = fixture.families().len() as u64;
    assert_eq!(summary["lost"], 0, "{summary}");
    assert!(summary["captured"].as_u64() >= Some(2 * families), "{summary}");
    assert!(summary["not_captured"].as_u64() >= Some(2 * families), "{summary}");
    let groups = summary["by"].as_array().expect("groups");
    let total: u64 = groups.iter().filter_map(|group| group["connections"].as_u64()).sum();
    assert_eq!(Some(total), summary["connections"].as_u64(), "{summary}");
}

fn connections_to_tproxy_are_captured(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080, 9090]));
    pod.apply(&["--dual-stack", "-b", "8080", "-i", "*", "-m", "TPROXY"]);
    let observer = Observer::start(&pod, &[]);
    for family in fixture.families() {
        let (taken, other) = (at(family.pod(), 8080), at(family.pod(), 9090));
        pod.outside().call(taken).captured(15006, taken);
        let line = observer.to(taken);
        assert_eq!((&line["verdict"], &line["port"]), (&"captured".into(), &15006.into()), "{line}");
        assert_eq!(line["explained"], true, "{line}");
        pod.outside().call(other).served_by("app");
        let line = observer.to(other);
        assert_eq!((&line["verdict"], &line["explained"]), (&"not-captured".into(), &true.into()), "{line}");
    }
    observer.end();
}

fn process_of_a_connection_is_named(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&OPTIONS);
    let observer = Observer::start(&pod, &[]);
    for family in fixture.families() {
        let service = at(family.service(), 80);
        let script = format!("exec 3<>/dev/tcp/{}/80; echo $$; read", family.service());
        let mut app = pod.namespace.run(|| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "bash", "-c", &script]);
            command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("start bash")
        });
        let line = observer.to(service);
        app.kill().expect("end it");
        app.wait().expect("it ends");
        let process = &line["process"];
        assert_eq!((&process["name"], &process["uid"]), (&"bash".into(), &1000.into()), "{line}");
        assert_eq!(process["pid"], app.id(), "{line}");
    }
    observer.end();
}

/// One process: as root in bash, then as another user in a program of another name.
fn process_that_has_started_another_program_has_its_name_and_ids(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&OPTIONS);
    let dir = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::symlink("/bin/bash", dir.path().join("another")).expect("a link");
    let another = dir.path().join("another");
    let observer = Observer::start(&pod, &[]);
    for family in fixture.families() {
        let service = at(family.service(), 80);
        let connects = format!("exec 3<>/dev/tcp/{}/80; read", family.service());
        let ids = "setpriv --reuid 1000 --regid 1000 --clear-groups";
        let script = format!("{connects}; exec {ids} {} -c '{connects}; true'", another.display());
        let mut app = pod.namespace.run(|| {
            let mut command = Command::new("bash");
            command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::null());
            command.spawn().expect("start bash")
        });
        let before = observer.to(service);
        writeln!(app.stdin.as_mut().expect("its input")).expect("let it go on");
        let after = observer.to(service);
        app.kill().expect("end it");
        app.wait().expect("it ends");
        for (line, name, id) in [(before, "bash", 0), (after, "another", 1000)] {
            let process = &line["process"];
            assert_eq!((&process["pid"], &process["name"]), (&app.id().into(), &name.into()), "{line}");
            assert_eq!((&process["uid"], &process["gid"]), (&id.into(), &id.into()), "{line}");
        }
    }
    observer.end();
}

fn announcements_that_are_disabled_are_reported(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&OPTIONS);
    let set = |value: &str| {
        pod.namespace.run(|| {
            std::fs::write("/proc/sys/net/netfilter/nf_conntrack_events", value).expect("a setting");
        });
    };
    let observer = Observer::start(&pod, &[]);
    let service = at(fixture.families()[0].service(), 80);
    set("0");
    pod.app().call(service).captured(15001, service);
    let lost = observer.next("lost");
    assert!(lost["cause"].as_str().expect("a cause").contains("nf_conntrack_events is 0"), "{lost}");
    assert!(lost["number"].is_null(), "{lost}");
    set("1");
    pod.app().call(service).captured(15001, service);
    observer.next("observing");
    assert_eq!(observer.to(service)["verdict"], "captured");
    // Nothing but the end finds out.
    set("0");
    let summary = observer.end();
    assert!(summary["lost"].is_null(), "{summary}");
    let refused = pod.bare_istio_iptables(&["observe", "--for", "1ms"]).run().ended_with(69);
    refused.output_contains("nf_conntrack_events is 0").output_contains("nf_conntrack_events=1");
}

fn rules_that_change_meanwhile_are_read_again(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&OPTIONS);
    let observer = Observer::start(&pod, &[]);
    for family in fixture.families() {
        let service = at(family.service(), 80);
        pod.app().call(service).captured(15001, service);
        assert_eq!(observer.to(service)["verdict"], "captured");
        let program = if service.is_ipv4() { "iptables-nft" } else { "ip6tables-nft" };
        pod.namespace.run(|| {
            tool(program, &["-t", "nat", "-I", "OUTPUT", "-p", "tcp", "--dport", "80", "-j", "ACCEPT"], "")
        });
        pod.app().call(service).response();
        let line = observer.to(service);
        assert_eq!((&line["verdict"], &line["explained"]), (&"not-captured".into(), &true.into()), "{line}");
        assert_eq!(line["rule"]["foreign"], true, "{line}");
    }
    observer.end();
}

fn filters_and_limits_are_heeded(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80, 9090]));
    pod.apply(&OPTIONS);
    let (first, second) = (fixture.families()[0], fixture.families()[1]);
    let range = format!("{}/{}", second.service(), second.host_prefix());
    let mut all = [
        Observer::start(&pod, &["--uncaptured", "--count", "2"]),
        Observer::start(&pod, &["--port", "9090", "--count", "2"]),
        Observer::start(&pod, &["--to", &range, "--count", "3"]),
    ];
    for family in [first, second] {
        let (service, excluded) = (at(family.service(), 80), at(family.service(), 9090));
        pod.app().call(service).captured(15001, service);
        pod.proxy().call(service).response();
        pod.app().call(excluded).response();
    }
    let expected = [
        [at(first.service(), 9090), at(second.service(), 9090)].to_vec(),
        [at(first.service(), 9090), at(second.service(), 9090)].to_vec(),
        [at(second.service(), 80), at(second.service(), 80), at(second.service(), 9090)].to_vec(),
    ];
    for (observer, expected) in all.iter_mut().zip(expected) {
        for to in &expected {
            assert_eq!(observer.next("connection")["to"], to.to_string());
        }
        assert_eq!(observer.has_ended()["connections"], expected.len());
    }
    let mut short = Observer::start(&pod, &["--for", "100ms"]);
    assert_eq!(short.has_ended()["connections"], 0);
}

fn lost_notices_are_counted(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&OPTIONS);
    let observer = Observer::start(&pod, &["--port", "1"]);
    let pid = Pid::from_raw(observer.child.id().try_into().unwrap());
    kill(pid, Signal::SIGSTOP).expect("stop it");
    let to = fixture.families()[0].service();
    pod.app().run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        for port in 2..=30_000 {
            // An error that an earlier packet met is no matter.
            let _ = socket.send_to(b"x", at(to, port));
        }
    });
    kill(pid, Signal::SIGCONT).expect("let it go on");
    let lost = observer.next("lost");
    assert!((1..30_000).contains(&lost["number"].as_u64().expect("a number")), "{lost}");
    let summary = observer.end();
    assert_eq!((&summary["lost"], &summary["connections"]), (&lost["number"], &0.into()), "{summary}");
}

fn a_pod_without_rules_is_reported(fixture: Fixture) {
    let pod = fixture.pod();
    let output = pod.bare_istio_iptables(&["observe", "--for", "1ms"]).run().succeeded().output();
    assert!(output.contains("no capture rule is live"), "{output}");
    assert!(output.contains("0 connections: 0 captured"), "{output}");
}

fn it_ends_with_the_process(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&OPTIONS);
    let mut app = pod.namespace.run(|| Command::new("sleep").arg("1000").spawn().expect("start sleep"));
    let mut child = Command::new(&*BUILT);
    child.args(["observe", "-o", "json", "--pid", &app.id().to_string()]).stdout(Stdio::piped());
    let mut child = child.spawn().expect("start istio-iptables");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    assert!(lines.next().expect("a line").expect("text").contains("observing"));
    app.kill().expect("end it");
    app.wait().expect("it ends");
    assert!(lines.next().expect("a line").expect("text").contains("summary"));
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}
