//! Lists of ranges while options change: connections to an included range are captured, and connections to an
//! excluded one are direct, at every moment of a change.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::lab::fixture::at;
use crate::lab::{Fixture, Pod, for_each_backend_and_native};

for_each_backend_and_native!(
    included_ranges_are_captured_while_other_options_change,
    included_ranges_are_captured_while_the_list_changes,
    included_ranges_of_a_long_list_are_captured_while_it_changes,
    excluded_ranges_are_not_captured_while_options_change,
    excluded_ranges_are_not_captured_by_the_first_run,
);

/// Threads that connect without a pause, for each family.
const CALLERS: usize = 2;
/// Changes of options. A set of ranges that is created together with its rule misses connections in one of 2
/// to 10.
const CHANGES: usize = 50;
/// Ranges of both families with the services of the lab in them.
const RANGES: &str = "192.0.2.0/24,203.0.113.0/25,2001:db8:2::/48,2001:db8:7::/48";

/// An included destination, in calls without a pause: nothing listens on the proxy's port, so that a captured
/// call is refused, and a direct one reaches the server outside.
fn included_ranges_are_captured_while_other_options_change(fixture: Fixture) {
    let options: [&[&str]; 2] = [&["-b", "*", "-i", RANGES], &["-b", "*", "-i", RANGES, "-o", "9999"]];
    included(fixture, &options);
    let tproxy: [&[&str]; 2] = [&["-b", "*", "-i", RANGES], &["-b", "*", "-i", RANGES, "-m", "TPROXY"]];
    included(fixture, &tproxy);
}

fn included_ranges_are_captured_while_the_list_changes(fixture: Fixture) {
    let longer = format!("{RANGES},198.18.0.0/15,2001:db8:8::/48");
    let other = "192.0.2.0/24,10.77.0.0/16,2001:db8:2::/48,2001:db8:9::/48";
    included(fixture, &[&["-b", "*", "-i", RANGES], &["-b", "*", "-i", &longer], &["-b", "*", "-i", other]]);
}

fn included_ranges_of_a_long_list_are_captured_while_it_changes(fixture: Fixture) {
    let list = |from: u8| {
        let more = (from..from + 30).map(|net| format!(",10.{net}.0.0/17,2001:db8:{net}00::/48"));
        more.fold(RANGES.to_owned(), |list, net| list + &net)
    };
    let (one, other) = (list(10), list(20));
    included(fixture, &[&["-b", "*", "-i", &one], &["-b", "*", "-i", &other]]);
}

fn included(fixture: Fixture, options: &[&[&str]]) {
    let pod = fixture.pod();
    let _server = pod.outside_listens(&[80]);
    pod.apply(&["-b", "*", "-i", "10.88.0.0/16,10.99.0.0/16"]);
    assert!(targets(fixture).iter().all(|target| reaches_a_listener(&pod, *target)), "a direct call is seen");
    pod.apply(options[0]);
    during(&pod, |change| {
        pod.apply(options[change % options.len()]);
    });
}

/// Nothing listens outside, so that a direct call is refused, and a captured one reaches the proxy.
fn excluded_ranges_are_not_captured_while_options_change(fixture: Fixture) {
    let longer = format!("{RANGES},198.18.0.0/15,2001:db8:8::/48");
    let options: [&[&str]; 4] = [
        &["-b", "*", "-i", "*", "-x", RANGES],
        &["-b", "*", "-i", "*", "-x", RANGES, "-o", "9999"],
        &["-b", "*", "-i", "*", "-x", &longer],
        &["-b", "*", "-i", "*", "-x", RANGES, "-m", "TPROXY"],
    ];
    let pod = fixture.pod();
    let _proxy = pod.proxy_listens();
    pod.apply(&["-b", "*", "-i", "*"]);
    assert!(
        targets(fixture).iter().all(|target| reaches_a_listener(&pod, *target)),
        "a captured call is seen"
    );
    pod.apply(options[0]);
    during(&pod, |change| {
        pod.apply(options[change % options.len()]);
    });
}

fn excluded_ranges_are_not_captured_by_the_first_run(fixture: Fixture) {
    let pod = fixture.pod();
    let _proxy = pod.proxy_listens();
    during(&pod, |change| {
        match change % 2 {
            0 => pod.apply(&["--cleanup-only"]),
            _ => pod.apply(&["-b", "*", "-i", "*", "-x", RANGES]),
        };
    });
}

fn targets(fixture: Fixture) -> Vec<SocketAddr> {
    fixture.families().iter().map(|family| at(family.service(), 80)).collect()
}

fn reaches_a_listener(pod: &Pod, target: SocketAddr) -> bool {
    pod.app().run(|| TcpStream::connect(target).is_ok())
}

/// Makes the changes while the app calls: each call has to be refused.
#[track_caller]
fn during(pod: &Pod, change: impl Fn(usize)) {
    let (stop, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    let strays: Vec<String> = thread::scope(|scope| {
        let targets = targets(pod.fixture).into_iter().flat_map(|target| [target; CALLERS]);
        let callers: Vec<_> = targets
            .map(|target| {
                let (stop, made, app) = (&stop, &made, pod.app());
                scope.spawn(move || {
                    app.switch_thread();
                    call_until(target, stop, made)
                })
            })
            .collect();
        let changes = std::panic::AssertUnwindSafe(|| (1..=CHANGES).for_each(change));
        let ended = std::panic::catch_unwind(changes);
        stop.store(true, Ordering::Relaxed);
        let strays = callers.into_iter().flat_map(|caller| caller.join().expect("no caller panics"));
        let strays = strays.collect();
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        strays
    });
    let made = made.load(Ordering::Relaxed);
    assert!(made > CHANGES, "{made} calls during {CHANGES} changes");
    let shown = strays.iter().take(5).collect::<Vec<_>>();
    assert!(strays.is_empty(), "{} of {made} calls: {shown:?} ...", strays.len());
}

/// Calls, and returns what else happened than that a call was refused.
fn call_until(target: SocketAddr, stop: &AtomicBool, made: &AtomicUsize) -> Vec<String> {
    let mut strays = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        match TcpStream::connect(target) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => strays.push(format!("{target}: {error}")),
            Ok(stream) => {
                strays.push(format!("{target}: reaches a listener"));
                netlab::socket::reset(&stream);
            }
        }
        made.fetch_add(1, Ordering::Relaxed);
    }
    strays
}
