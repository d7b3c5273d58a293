//! `guard` from outside of the pod, with few capabilities, and without any tool.

use std::process::{Command, Stdio};

use netlab::Namespace;

use crate::foreign_preserved::EVERYTHING;
use crate::guard::{Guard, checked, is_captured, removals};
use crate::lab::program::{BUILT, tool};
use crate::lab::{Backend, Fixture, Pod, for_each_backend_and_native, for_these_fixtures};

for_each_backend_and_native!(rules_of_a_namespace_that_a_path_names_are_repaired);
for_these_fixtures!(only_native: Native Dual; [
    native_rules_need_few_capabilities_and_no_tool,
    a_missing_capability_is_named,
]);

/// A program that starts another one with these capabilities, and without tools in its path.
fn with_capabilities(list: &str) -> [String; 5] {
    let own = |text: &str| text.to_owned();
    [
        own("setpriv"),
        format!("--bounding-set=-all{list}"),
        own("--inh-caps=-all"),
        own("env"),
        own("PATH=/nonexistent"),
    ]
}

fn remove_and_await_repair(pod: &Pod, guard: &Guard) {
    let (program, command) = removals(pod.fixture.backend).remove(0);
    pod.namespace.run(|| tool(program, &command[1..], ""));
    guard.until("drift");
    guard.until("repaired");
    assert!(checked(pod).starts_with("equal"), "{}", checked(pod));
    is_captured(pod);
}

/// The namespace in which it starts stays as it is.
fn rules_of_a_namespace_that_a_path_names_are_repaired(fixture: Fixture) {
    let (pod, outside) = (fixture.pod(), Namespace::new());
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&EVERYTHING);
    let path = pod.namespace.path();
    let args = ["--network-namespace", &path, "--action", "repair", "--audit", "1"];
    let guard = Guard::start_in(&outside, fixture.backend, &[], &args);
    remove_and_await_repair(&pod, &guard);
    guard.end();
    assert_eq!(outside.run(|| tool("nft", &["list", "ruleset"], "")), "");
}

/// In a container beside the proxy: NET_ADMIN; from the node SYS_ADMIN, too, to enter the namespace, and
/// SYS_PTRACE where the path is that of another process.
fn native_rules_need_few_capabilities_and_no_tool(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&EVERYTHING);
    let start = |namespace: &Namespace, list: &str, more: &[&str]| {
        let by = with_capabilities(list);
        let by: Vec<&str> = by.iter().map(String::as_str).collect();
        // What no notice announces is left out.
        let args = [&["--action", "repair", "--audit", "3600"], more].concat();
        Guard::start_in(namespace, fixture.backend, &by, &args)
    };
    let guard = start(&pod.namespace, ",+net_admin", &[]);
    remove_and_await_repair(&pod, &guard);
    guard.end();
    let path = pod.namespace.path();
    let guard =
        start(&Namespace::new(), ",+net_admin,+sys_admin,+sys_ptrace", &["--network-namespace", &path]);
    remove_and_await_repair(&pod, &guard);
    guard.end();
}

/// How `guard` ends without a capability that it needs: its exit code and what it reports.
fn refused(namespace: &Namespace, list: &str, args: &[&str]) -> (Option<i32>, String) {
    let by = with_capabilities(list);
    namespace.run(|| {
        let mut command = Command::new(&by[0]);
        command.args(&by[1..]).arg(BUILT.as_str()).arg("guard").args(args).stdin(Stdio::null());
        let output = command.output().expect("start istio-iptables");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    })
}

fn a_missing_capability_is_named(fixture: Fixture) {
    assert_eq!(fixture.backend, Backend::Native);
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    let (code, text) = refused(&pod.namespace, "", &[]);
    assert!(code == Some(77) && text.contains("missing capability NET_ADMIN"), "{code:?} {text}");
    let path = pod.namespace.path();
    let (code, text) = refused(&Namespace::new(), ",+net_admin", &["--network-namespace", &path]);
    assert!(code == Some(77) && text.contains("CAP_SYS_ADMIN is needed"), "{code:?} {text}");
}
