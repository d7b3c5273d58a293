//! From a node into a pod with a user namespace of its own (`hostUsers: false`): the kernel refuses iptables'
//! match of users there.

use netlab::{Holder, Kinds, Listen, Namespace, User};

use crate::lab::fixture::at;
use crate::lab::pod::{APP, PROXY};
use crate::lab::program::BUILT;
use crate::lab::{Fixture, Pod, Topology, for_each_backend, for_these_fixtures};

for_these_fixtures!(auto: Native Dual; [auto_takes_native_nftables]);
for_each_backend!(iptables_is_refused_with_the_cause_before_anything_is_written);

/// The pod's first user, as the node has it.
const FIRST: u32 = 100_000;

fn pod_with_users(fixture: Fixture) -> (Holder, Pod) {
    let none: [(&str, &str); 0] = [];
    let holder = Holder::new(Kinds { user: true, net: true, mount: false }, "true", none);
    let pod = Pod::with(Namespace::of_process(holder.pid()), fixture, Topology::Plain);
    (holder, pod)
}

fn auto_takes_native_nftables(fixture: Fixture) {
    let (_holder, pod) = pod_with_users(fixture);
    let user = |uid: u32| User::new(&pod.namespace, FIRST + uid, FIRST + uid);
    let _servers =
        (user(PROXY).serve("proxy", &[Listen::Tcp(15001), Listen::Tcp(15006)]), pod.outside_listens(&[80]));
    for args in
        [&["-i", "*", "-b", "*", "--dual-stack", "--dry-run"][..], &["-i", "*", "-b", "*", "--dual-stack"]]
    {
        pod.bare_istio_iptables(args).run().succeeded().output_contains("backend nftables");
    }
    for &family in fixture.families() {
        let to = at(family.service(), 80);
        user(APP).call(to).captured(15001, to);
        user(PROXY).call(to).served_by("outside");
    }
    pod.bare_istio_iptables(&["--cleanup-only"]).run().succeeded();
    for &family in fixture.families() {
        user(APP).call(at(family.service(), 80)).served_by("outside");
    }
}

fn iptables_is_refused_with_the_cause_before_anything_is_written(fixture: Fixture) {
    let (holder, pod) = pod_with_users(fixture);
    let options = ["-i", "*", "-b", "*", "--dual-stack", "--backend", fixture.backend.flag()];
    let inside = |args: &[&str]| {
        let command = holder.enter().arg(&*BUILT).args(args).output();
        assert!(command.expect("start istio-iptables").status.success(), "{args:?}");
    };
    let refused = |args: &[&str]| {
        let before = pod.state();
        pod.bare_istio_iptables(args).run().ended_with(70).output_contains("xt_owner");
        assert_eq!(pod.state(), before, "{args:?}");
    };
    refused(&options);
    refused(&[&options[..], &["--dry-run"]].concat());
    inside(&options);
    // What is there stays where it is, if nothing changes.
    pod.bare_istio_iptables(&["-i", "*", "-b", "*", "--dual-stack"])
        .run()
        .succeeded()
        .output_contains("already converged");
    let other = ["-i", "*", "-b", "*", "--dual-stack", "-u", "1500"];
    refused(&other);
    inside(&[&other[..], &["--backend", fixture.backend.flag()]].concat());
    pod.bare_istio_iptables(&["--cleanup-only"]).run().succeeded().output_contains("no rules in place");
}
