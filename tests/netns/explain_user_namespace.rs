//! A pod with a user namespace of its own (`hostUsers: false`): `explain --live` from the node has the uids
//! of the rules, as inside.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};

use netlab::{Holder, Kinds, Listen, Namespace, User};
use serde_json::Value;

use crate::lab::fixture::at;
use crate::lab::pod::{APP, PROXY};
use crate::lab::program::{BUILT, Program};
use crate::lab::{Family, Fixture, Pod, Topology, for_each_backend_and_native, verdict};

for_each_backend_and_native!(reports_from_the_node_are_those_inside);

/// The pod's first user, as the node has it.
const FIRST: u32 = 100_000;

/// What the program says inside, as root of the pod.
fn inside(holder: &Holder, args: &[&str]) -> String {
    let command = holder.enter().arg(&*BUILT).args(args).output();
    let output = command.expect("start istio-iptables");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, log) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{args:?}: {said}{log}");
    said
}

fn overview(pod: &Pod) -> Value {
    let question = ["explain", "--live", "--output", "json"];
    let said = pod.bare_istio_iptables(&question).run().succeeded().stdout();
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// A process in the network namespace with this user of the node, which waits for the end of its input.
fn started(pod: &Pod, uid: u32) -> Child {
    let ids = [format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".to_owned()];
    pod.namespace.run(|| {
        let mut command = Command::new("setpriv");
        command.args(ids).args(["sh", "-c", "echo; exec cat"]);
        let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = process.expect("start a process");
        // It has its user once it writes a line.
        process.stdout.as_mut().expect("a pipe").read_exact(&mut [0]).expect("a line");
        process
    })
}

fn reports_from_the_node_are_those_inside(fixture: Fixture) {
    let none: [(&str, &str); 0] = [];
    let holder = Holder::new(Kinds { user: true, net: true, mount: false }, "true", none);
    let pod = Pod::with(Namespace::of_process(holder.pid()), fixture, Topology::Plain);
    let user = |uid: u32| User::new(&pod.namespace, uid, uid);
    let [app, proxy] = [APP, PROXY].map(|uid| user(FIRST + uid));
    let _servers =
        (proxy.serve("proxy", &[Listen::Tcp(15001), Listen::Tcp(15006)]), pod.outside_listens(&[80]));
    let backend = fixture.backend.flag();
    inside(&holder, &["-i", "*", "-b", "*", "--dual-stack", "--backend", backend]);
    // What the pod's root may not read is no difference.
    let check = inside(&holder, &["check", "--backend", backend]);
    assert!(check.starts_with("equal: ") && check.contains("note: BPF programs of tcx"), "{check}");
    // One with the proxy's users of the pod, and one with those of the node.
    let [exempt, other] = [FIRST + PROXY, PROXY].map(|uid| started(&pod, uid));
    for &family in fixture.families() {
        let family = if family == Family::V4 { "-4" } else { "-6" };
        let rule = ["ip", family, "rule", "add", "uidrange", "2000-2000", "prohibit"];
        assert!(holder.enter().args(rule).status().expect("start ip").success());
    }
    for &family in fixture.families() {
        let to = at(family.service(), 80);
        app.call(to).captured(15001, to);
        proxy.call(to).served_by("outside");
        user(PROXY).call(to).captured(15001, to);
        assert!(user(FIRST + 2000).connect(to).is_err());
        for (from, first) in [
            ("app", "captured: goes to the proxy's outbound port 15001"),
            ("proxy", "not captured: the proxy's own traffic"),
            ("uid:2000,gid:2000", "dropped: "),
        ] {
            let question = ["explain", "--live", "--from", from, "--to", &to.to_string()];
            let said = pod.bare_istio_iptables(&question).run().succeeded().stdout();
            let line = verdict(&said);
            assert!(line.starts_with(first) && !line.contains(", but"), "{from}: {said}");
            // What cannot be read inside is in a note.
            let report = inside(&holder, &[&question[..], &["--backend", backend]].concat());
            let lines = |text: &str| -> Vec<String> {
                let is_note = |line: &&str| line.starts_with("  note ");
                text.lines().filter(|line| !is_note(line)).map(str::to_owned).collect()
            };
            assert_eq!(lines(&said), lines(&report), "{from}");
        }
    }
    let said = overview(&pod);
    let found = said["exempt_processes"].as_array().unwrap_or_else(|| panic!("{said:#}"));
    let found: Vec<_> =
        found.iter().map(|process| (process["pid"].as_u64(), process["uid"].as_u64())).collect();
    assert_eq!(found, [(Some(exempt.id().into()), Some(PROXY.into()))], "{said:#}");
    let problems = said["problems"].as_array().unwrap_or_else(|| panic!("{said:#}"));
    let is_of_user =
        |problem: &Value| problem["cause"].as_str().is_some_and(|words| words.starts_with("uid 2000 to "));
    assert!(!problems.is_empty() && problems.iter().all(is_of_user), "{said:#}");
    let bundle = pod.bare_istio_iptables(&["bundle"]).run().succeeded().stdout();
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), bundle).expect("write it");
    let path = file.path().to_string_lossy();
    let bundled = Program::anywhere(&["explain", "--bundle", &path, "--output", "json"]).run().succeeded();
    assert_eq!(serde_json::from_str::<Value>(&bundled.stdout()).expect("JSON"), said);
    for mut process in [exempt, other] {
        drop(process.stdin.take());
        process.wait().expect("it ends");
    }
}
