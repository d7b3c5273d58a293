//! Random option changes under traffic: nothing is leaked, refused or lost, and no foreign rule is changed.
//!
//! `CHAOS_SECONDS` and `CHAOS_SEED` choose how long and which; a failure names its episode, which
//! `CHAOS_EPISODE` repeats alone. With `CHAOS_TRACE`, every run is printed. An episode is one pod: its
//! traffic starts before the first run and ends after the last cleanup.

mod connections;
mod dns;
mod flows;
mod foreign;
mod options;
pub(crate) mod random;
mod runs;
mod timeline;
mod verdict;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use connections::Connections;
use dns::Queries;
use foreign::{Agent, Difference, IdenticalRule, Shapes};
use options::Options;
use random::Random;
use runs::{Action, Goal, Step};
use timeline::Timeline;
use verdict::{History, Kind, Report};

use netlab::NoRetransmission;

use crate::lab::program::tool;
use crate::lab::server::{Listen, Server};
use crate::lab::{Backend, Fixture, Pod, Stack, Topology};

/// Steps of an episode, and of one in the suite.
const STEPS: usize = 24;
const STEPS_IN_SUITE: usize = 10;
/// How long the traffic flows between two steps, beyond the time of grace.
const PAUSE: Duration = Duration::from_millis(150);

/// Seeds of the suite; another one comes from the clock.
const SEEDS: [u64; 2] = [1, 3];

#[test]
fn random_option_changes_leak_and_lose_nothing() {
    if let Some(seed) = variable("CHAOS_SEED") {
        let distinct = std::env::var("CHAOS_SHAPES").is_ok_and(|shapes| shapes == "Distinct");
        let shapes = if distinct { Shapes::Distinct } else { Shapes::All };
        return run(seed, variable("CHAOS_SECONDS").unwrap_or(30), STEPS, shapes);
    }
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    for seed in SEEDS.into_iter().chain([clock.as_secs()]) {
        run(seed, 0, STEPS_IN_SUITE, Shapes::Distinct);
    }
}

/// One pod after the other, for some seconds; at least one.
fn run(seed: u64, seconds: u64, last_step: usize, shapes: Shapes) {
    let first = variable("CHAOS_EPISODE").map(|episode| usize::try_from(episode).unwrap());
    eprintln!("CHAOS_SEED={seed} CHAOS_SECONDS={seconds} {shapes:?}");
    let mut report = Report::default();
    let begin = Instant::now();
    for episode in first.unwrap_or(0).. {
        run_episode(seed, episode, last_step, shapes, &mut report);
        report.count("pods", 1);
        if first.is_some() || begin.elapsed() >= Duration::from_secs(seconds) {
            break;
        }
    }
    eprintln!("{report}");
    assert!(
        report.is_good(),
        "repeat with `CHAOS_SHAPES={shapes:?} make chaos CHAOS_SEED={seed} CHAOS_EPISODE=<episode>`"
    );
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|e| panic!("{name}={text}: a number is needed: {e}")))
}

/// One pod, from before the first run until after the last.
fn run_episode(seed: u64, episode: usize, last_step: usize, shapes: Shapes, report: &mut Report) {
    let number = u64::try_from(episode).unwrap() * 2;
    let mut random = Random::new(seed, number);
    let fixture = Fixture { backend: Backend::IptablesNft, stack: Stack::Dual };
    let pod = fixture.pod_in(Topology::SecondNic);
    let _lossless = show_every_loss(&pod);
    let _servers = servers(&pod);
    let (timeline, connections, queries) = (Timeline::new(), Connections::default(), Queries::default());
    let agent = Agent::new(&pod, Random::new(seed, number + 1), shapes);
    let mut steps = Vec::new();
    // The documented limit of iptables-nft: a foreign rule identical to one of ours, added while a run is at
    // work, may be deleted in its place.
    let mut swapped: Vec<String> = Vec::new();
    under_traffic(&pod, &timeline, &connections, &queries, &agent, || {
        thread::sleep(2 * PAUSE);
        let mut last = Options::random(&mut random);
        for number in 1..=last_step {
            let action = match number {
                1 => Action::Whole(Goal::Rules(Arc::new(last.clone()))),
                _ if number == last_step => Action::Whole(Goal::Cleanup),
                _ => Action::random(&mut random, &last),
            };
            if let Some(options) = action.options() {
                last = (*options).clone();
            }
            steps.push(Step::run(number, action, &pod, &timeline));
            connections.step.fetch_add(1, Ordering::Relaxed);
            let history = History { episode, timeline: &timeline, steps: &steps };
            let step = steps.last().unwrap();
            if std::env::var_os("CHAOS_TRACE").is_some() {
                eprintln!("episode {episode}, step {number}: {}", step.report());
            }
            report.judge_step(&history, step);
            for difference in agent.differences(&pod, false) {
                let at_work =
                    |identical: &IdenticalRule| step.start <= identical.added && identical.added <= step.end;
                match difference.identical.filter(at_work) {
                    Some(identical) => swapped.push(identical.words),
                    None => {
                        report.fail(Kind::ForeignChanged, "rules", &history, step.end, &difference.text);
                    }
                }
            }
            thread::sleep(PAUSE);
        }
    });
    let history = History { episode, timeline: &timeline, steps: &steps };
    report.count("foreign rules swapped with identical ones of ours, as documented", swapped.len());
    for Difference { text, identical: _ } in agent.differences(&pod, true) {
        if steps.iter().any(|step| step.announces_kept(&text)) {
            report.count("ambiguous rules kept, as announced", 1);
        } else if let Some(at) = swapped.iter().position(|words| text.ends_with(words)) {
            swapped.remove(at);
        } else {
            report.fail(Kind::NotCleanedUp, "rules", &history, Instant::now(), &text);
        }
    }
    report.count("changes of foreign rules", agent.changes());
    report.judge_connections(&history, &connections);
    report.judge_passed_on(&history, &connections);
    report.judge_queries(&history, &queries);
}

/// Does `work` while every flow is at work and the node agent too. The name servers outlive their clients.
fn under_traffic(
    pod: &Pod,
    timeline: &Timeline,
    connections: &Connections,
    queries: &Queries,
    agent: &Agent,
    work: impl FnOnce(),
) {
    thread::scope(|servers| {
        queries.start_servers(servers, pod);
        let ended = thread::scope(|clients| {
            connections.start(clients, pod, timeline);
            queries.start(clients, pod);
            clients.spawn(|| agent.act_in_a_loop(pod));
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            agent.stop.store(true, Ordering::Relaxed);
            connections.stop.store(true, Ordering::Relaxed);
            queries.stop.store(true, Ordering::Relaxed);
            ended
        });
        queries.stop_servers();
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// A packet that is dropped is a connection that is lost, and nothing but the rules drops or reorders one.
fn show_every_loss(pod: &Pod) -> NoRetransmission {
    let outside = pod.outside();
    outside.namespace().run(let_handshakes_take_a_while);
    for namespace in [&pod.namespace, outside.namespace()] {
        namespace.run(keep_order);
    }
    NoRetransmission::within(&[&pod.namespace, outside.namespace()])
}

/// One processor takes all packets in, so that they arrive in the order in which they were sent: an
/// acknowledgement behind a reset makes the other side reset, too.
fn keep_order() {
    const STEER: &str = "mount -t sysfs sysfs /mnt && echo 1 | tee /mnt/class/net/*/queues/rx-0/rps_cpus";
    tool("unshare", &["-m", "sh", "-c", STEER], "");
}

/// The network outside sends segments with a SYN at a rate below the one at which they come, so that at any
/// moment some handshakes are under way.
fn let_handshakes_take_a_while() {
    const PACE: &str = "add table inet pace
        add chain inet pace out { type filter hook postrouting priority 0; }
        add rule inet pace out tcp flags & syn == syn meta priority set 1:10\n";
    tool("nft", &["-f", "-"], PACE);
    for link in ["eth0", "eth1"] {
        tool("tc", &["qdisc", "add", "dev", link, "root", "handle", "1:", "htb"], "");
        let class = ["class", "add", "dev", link, "parent", "1:", "classid", "1:10"];
        tool("tc", &[&class[..], &["htb", "rate", "400kbit", "burst", "1"]].concat(), "");
    }
}

/// The proxy on its two sets of ports, the app and the services.
///
/// Its listeners are transparent in REDIRECT mode too. For those the kernel may find a socket by early
/// demultiplexing before it translates the source port (two connections from one client port), and keeps it
/// afterwards: early demultiplexing is off.
fn servers(pod: &Pod) -> Vec<Server> {
    pod.namespace.run(|| {
        std::fs::write("/proc/sys/net/ipv4/tcp_early_demux", "0").expect("switch early demultiplexing off");
    });
    let mut dns: Vec<_> =
        pod.fixture.families().iter().map(|family| Listen::TcpAt(dns_capture(*family))).collect();
    dns.extend([15001, 15006, 16001, 16006].map(Listen::TcpTransparent));
    vec![
        pod.proxy().serve("proxy", &dns),
        pod.app().serve("app", &[8080, 9090, 15020].map(Listen::Tcp)),
        pod.outside().serve("outside", &[53, 80, 443].map(Listen::Tcp)),
    ]
}

fn dns_capture(family: crate::lab::Family) -> std::net::SocketAddr {
    crate::lab::fixture::at(family.loopback(), crate::lab::pod::DNS_CAPTURE)
}
