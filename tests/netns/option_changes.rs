//! Options change under traffic: connections that are captured before and after a change are captured during
//! it, too.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::lab::fixture::at;
use crate::lab::socket::Binding;
use crate::lab::user::call_here;
use crate::lab::{Backend, Family, Fixture, Outcome, Pod, User, for_each_backend_and_native};

/// Time between two calls of one caller: 200 calls a second.
const PAUSE: Duration = Duration::from_millis(5);
/// Calls that each caller makes before the first, between two, and after the last change.
const CALLS: usize = 60;

for_each_backend_and_native!(
    from_a_list_of_ports_to_all_and_back,
    from_redirect_to_tproxy_and_back,
    dns_capture_on_and_off,
    other_exclusions,
    other_proxy_users,
    other_proxy_ports,
    interfaces_and_invalid_packets,
    from_one_backend_to_another_and_back,
);

const EVERYTHING: [&str; 4] = ["-b", "*", "-i", "*"];

fn from_a_list_of_ports_to_all_and_back(fixture: Fixture) {
    let ranges = "192.0.2.0/24,2001:db8:2::/48";
    through(fixture, &[&["-b", "8080,8081", "-i", ranges], &EVERYTHING, &["-b", "8080", "-q", "80"]]);
}

fn from_redirect_to_tproxy_and_back(fixture: Fixture) {
    let tproxy = ["-b", "*", "-i", "*", "-m", "TPROXY"];
    let tproxy_list = ["-b", "8080", "-i", "*", "-m", "TPROXY"];
    through(fixture, &[&EVERYTHING, &tproxy, &EVERYTHING, &tproxy_list, &tproxy, &["-b", "8080", "-i", "*"]]);
}

fn dns_capture_on_and_off(fixture: Fixture) {
    let dns = ["-b", "*", "-i", "*", "--redirect-dns", "--capture-all-dns"];
    through(fixture, &[&EVERYTHING, &dns, &EVERYTHING]);
}

fn other_exclusions(fixture: Fixture) {
    through(
        fixture,
        &[
            &["-b", "*", "-i", "*", "-d", "15020", "-o", "5432", "-x", "10.9.0.0/16"],
            &["-b", "*", "-i", "*", "-d", "15090,15021", "-o", "25,3306", "-x", "10.9.0.0/16,fd00:99::/32"],
            &EVERYTHING,
        ],
    );
}

fn other_proxy_users(fixture: Fixture) {
    let more = ["-b", "*", "-i", "*", "-u", "1337,1500", "-g", "2000"];
    through(fixture, &[&EVERYTHING, &more, &EVERYTHING]);
}

/// The old listener and the new one run side by side.
fn other_proxy_ports(fixture: Fixture) {
    let elsewhere = ["-b", "*", "-i", "*", "-p", "16001", "-z", "16006"];
    through(fixture, &[&EVERYTHING, &elsewhere, &EVERYTHING]);
}

fn interfaces_and_invalid_packets(fixture: Fixture) {
    let more = ["-b", "*", "-i", "*", "-c", "eth1", "-k", "br0", "--drop-invalid"];
    through(fixture, &[&EVERYTHING, &more, &EVERYTHING]);
}

fn from_one_backend_to_another_and_back(fixture: Fixture) {
    let (here, there) = match fixture.backend {
        Backend::IptablesNft => ("iptables-nft", "iptables-legacy"),
        Backend::IptablesLegacy => ("iptables-legacy", "nftables"),
        Backend::Native => ("nftables", "iptables-nft"),
    };
    let on = |backend| ["-b", "*", "-i", "*", "--backend", backend];
    through_with(fixture, &[on(here), on(there), on(here)], |pod, args| {
        pod.plain_istio_iptables(args).arg("--dual-stack").run().succeeded();
    });
}

/// Goes through the option sets, one after the other, under load.
fn through(fixture: Fixture, sets: &[&[&str]]) {
    through_with(fixture, sets, |pod, args| {
        pod.apply(args);
    });
}

fn through_with<'a, A: AsRef<[&'a str]> + Debug>(
    fixture: Fixture,
    sets: &[A],
    apply: impl Fn(&Pod, &[&str]),
) {
    let pod = fixture.pod();
    let _servers = (
        pod.proxy_listens(),
        pod.proxy_also_listens(&[16001, 16006]),
        pod.app_listens(&[8080]),
        pod.outside_listens(&[80]),
    );
    let mut sets = sets.iter();
    apply(&pod, sets.next().expect("a first option set").as_ref());
    let callers: Vec<_> =
        [Family::V4, Family::V6].into_iter().flat_map(|family| Caller::both(&pod, family)).collect();
    let mut open: Vec<_> = callers.iter().map(|c| c.user.connect(c.target).expect("a first call")).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for caller in &callers {
            scope.spawn(|| caller.call_until(&stop));
        }
        let changes = std::panic::AssertUnwindSafe(|| {
            for set in sets {
                wait_for_calls(&callers);
                apply(&pod, set.as_ref());
                for (conversation, caller) in open.iter_mut().zip(&callers) {
                    conversation
                        .echo("still there")
                        .unwrap_or_else(|e| panic!("{}, {set:?}: {e}", caller.name));
                }
            }
            wait_for_calls(&callers);
        });
        let ended = std::panic::catch_unwind(changes);
        stop.store(true, Ordering::Relaxed);
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    for caller in &callers {
        let strays = caller.strays.lock().expect("no caller panics");
        let made = caller.made.load(Ordering::Relaxed);
        assert!(
            strays.is_empty(),
            "{}: {} of {made} calls went astray: {strays:?}",
            caller.name,
            strays.len()
        );
    }
}

fn wait_for_calls(callers: &[Caller]) {
    let made = |c: &Caller| c.made.load(Ordering::Relaxed);
    let goals: Vec<_> = callers.iter().map(|c| made(c) + CALLS).collect();
    while callers.iter().zip(&goals).any(|(caller, target)| made(caller) < *target) {
        thread::sleep(PAUSE);
    }
}

/// A client that calls the same target in a loop, and records each call that the proxy did not get.
struct Caller {
    name: String,
    user: User,
    target: SocketAddr,
    made: AtomicUsize,
    strays: std::sync::Mutex<Vec<Outcome>>,
}

impl Caller {
    /// One caller from outside, and the app.
    fn both(pod: &Pod, family: Family) -> [Self; 2] {
        let new = |name: &str, user, target| Self {
            name: format!("{name} {family:?}"),
            user,
            target,
            made: AtomicUsize::new(0),
            strays: std::sync::Mutex::default(),
        };
        [
            new("inbound", pod.outside(), at(family.pod(), 8080)),
            new("outbound", pod.app(), at(family.service(), 80)),
        ]
    }

    fn call_until(&self, stop: &AtomicBool) {
        self.user.switch_thread();
        while !stop.load(Ordering::Relaxed) {
            let outcome = call_here(self.target, Binding::default());
            let captured =
                matches!(&outcome, Outcome::Responded(a) if a.server == "proxy" && a.original == self.target);
            if !captured {
                self.strays.lock().expect("no caller panics").push(outcome);
            }
            self.made.fetch_add(1, Ordering::Relaxed);
            thread::sleep(PAUSE);
        }
    }
}
