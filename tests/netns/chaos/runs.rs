//! Runs of the program: whole ones, stopped ones, ones with a failing tool, two at once.

use std::fmt::{self, Write as _};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::options::Options;
use super::random::Random;
use super::timeline::{InForce, Timeline};
use crate::lab::kill::When;
use crate::lab::program::{Ended, Program};
use crate::lab::{Family, Pod};

/// A run sends about so many messages to the kernel at most.
const MOST_SENDS: usize = 24;

/// What a run is to reach.
#[derive(Clone, Debug)]
pub(super) enum Goal {
    /// The rules of these options.
    Rules(Arc<Options>),
    /// `--cleanup-only`.
    Cleanup,
    /// `--cleanup-only --keep-connections`.
    KeepingCleanup,
}

impl Goal {
    fn in_force(&self) -> InForce {
        match self {
            Self::Rules(options) => Some(Arc::clone(options)),
            Self::Cleanup | Self::KeepingCleanup => None,
        }
    }

    fn program(&self, pod: &Pod) -> Program {
        let options = match self {
            Self::Rules(options) => options,
            Self::Cleanup => return pod.plain_istio_iptables(&["--cleanup-only"]),
            Self::KeepingCleanup => {
                return pod.plain_istio_iptables(&["--cleanup-only", "--keep-connections"]);
            }
        };
        let program = pod.plain_istio_iptables(&options.args()).file("/etc/resolv.conf", Options::resolver());
        options.env().iter().fold(program, |program, (name, value)| program.env(name, value))
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rules(options) => options.fmt(f),
            Self::Cleanup => f.write_str("istio-iptables --cleanup-only"),
            Self::KeepingCleanup => f.write_str("istio-iptables --cleanup-only --keep-connections"),
        }
    }
}

/// What happens in one step.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// A run to its end.
    Whole(Goal),
    /// A run that is killed after a while, with all its children.
    Kill(Goal, Duration),
    /// A run that is killed at its n-th message to the kernel.
    KillAtSend(Goal, usize, When),
    /// A run in which something happens at its n-th call of a tool.
    Interfere(Goal, usize, Interference),
    /// Two runs that start at once.
    Two(Goal, Goal),
}

/// What happens at a call of a tool.
#[derive(Clone, Copy, Debug)]
pub(super) enum Interference {
    /// The call fails.
    Fail,
    /// The run is killed before the tool starts.
    KillBefore,
    /// The run is killed after the tool has ended.
    KillAfter,
}

impl Action {
    /// What follows `last`, the options of the last whole run.
    pub(super) fn random(random: &mut Random, last: &Options) -> Self {
        let next = last.changed(random);
        let cleanup = random.pick(&[Goal::Cleanup, Goal::KeepingCleanup, Goal::KeepingCleanup]);
        let rules = |options: Options| Goal::Rules(Arc::new(options));
        let stopped = if random.chance(20) { cleanup.clone() } else { rules(next.clone()) };
        match random.below(100) {
            0..58 => Self::Whole(rules(next)),
            58..62 => Self::Whole(rules(last.clone())),
            62..70 => {
                Self::Kill(stopped, Duration::from_micros(u64::try_from(random.below(60_000)).unwrap()))
            }
            70..78 => {
                let when = random.pick(&[When::Before, When::After]);
                Self::KillAtSend(stopped, 1 + random.below(MOST_SENDS), when)
            }
            78..86 => {
                let how = [Interference::Fail, Interference::KillBefore, Interference::KillAfter];
                Self::Interfere(stopped, 1 + random.below(5), random.pick(&how))
            }
            86..91 => Self::Two(rules(next.clone()), rules(next.changed(random))),
            _ => Self::Whole(cleanup),
        }
    }

    /// The options that the next step starts from.
    pub(super) fn options(&self) -> Option<Arc<Options>> {
        let (Self::Whole(goal)
        | Self::Two(_, goal)
        | Self::Kill(goal, _)
        | Self::KillAtSend(goal, _, _)
        | Self::Interfere(goal, _, _)) = self;
        goal.in_force()
    }
}

/// A step that was carried out.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) number: usize,
    pub(super) action: Action,
    pub(super) start: Instant,
    pub(super) end: Instant,
    /// Exit codes, -1 after a signal, and output.
    pub(super) ended: Vec<(i32, String)>,
}

impl Step {
    /// Carries it out, and notes in the timeline what is in force.
    pub(super) fn run(number: usize, action: Action, pod: &Pod, timeline: &Timeline) -> Self {
        let start = Instant::now();
        let ended = match &action {
            Action::Whole(goal) => whole(&[goal], timeline, || vec![goal.program(pod).run()]),
            Action::Two(one, other) => {
                let both = [one, other];
                whole(&both, timeline, || {
                    thread::scope(|scope| {
                        let runs = both.map(|goal| scope.spawn(|| goal.program(pod).run()));
                        runs.into_iter().map(|run| run.join().expect("the run was started")).collect()
                    })
                })
            }
            Action::Kill(goal, delay) => {
                whole(&[goal], timeline, || vec![goal.program(pod).run_and_kill_after(*delay)])
            }
            Action::KillAtSend(goal, number, when) => {
                whole(&[goal], timeline, || vec![goal.program(pod).run_and_kill_at_send(*number, *when)])
            }
            Action::Interfere(goal, call, how) => {
                let directory = tools_that_interfere(*call, *how);
                let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", directory.path().display());
                whole(&[goal], timeline, || vec![goal.program(pod).env("PATH", &path).run()])
            }
        };
        let ended = ended.iter().map(|ended| (ended.code(), ended.output())).collect();
        Self { number, action, start, end: Instant::now(), ended }
    }

    /// Whether every exit code is one that this step may have.
    pub(super) fn ended_as_expected(&self) -> bool {
        let panicked = self.ended.iter().any(|(_, output)| output.contains("panicked"));
        let stopped =
            matches!(self.action, Action::Kill(..) | Action::KillAtSend(..) | Action::Interfere(..));
        !panicked && (stopped || self.ended.iter().all(|(code, _)| *code == 0))
    }

    /// Whether the output says that connections are reset.
    pub(super) fn announces_resets(&self) -> bool {
        self.says(|line| line.contains("resets") && line.contains("proxied"))
    }

    /// Whether the output says that entries of captured queries were deleted, with which waiting responses
    /// are lost.
    pub(super) fn announces_lost_responses(&self) -> bool {
        self.says(|line| {
            let line = line.replace("not captured before", "");
            let Some((count, entries)) = line.split_once(" deleted: conntrack entries of UDP to port 53")
            else {
                return false;
            };
            let captured = entries.contains("captured before") || entries.contains("captured or not");
            captured && !count.ends_with("\t0")
        })
    }

    /// Whether the output names the rule of `difference` as one that is kept because it may be foreign.
    pub(super) fn announces_kept(&self, difference: &str) -> bool {
        let Some((table, rule)) = difference.strip_prefix("left: ").and_then(|left| left.split_once(' '))
        else {
            return false;
        };
        let rule = rule.split_once("-A ").map_or(rule, |(_, words)| words);
        let named = format!("`{table} {rule}`");
        self.says(|line| line.contains("ambiguous rules kept (ours or foreign)") && line.contains(&named))
    }

    /// Whether the output names a rule that may be foreign, decides before the rules of this family, and has
    /// these words.
    pub(super) fn announces_foreign(&self, family: Family, words: &str) -> bool {
        let family = match family {
            Family::V4 => "(IPv4, ",
            Family::V6 => "(IPv6, ",
        };
        let named = format!("{words}`");
        self.says(|line| {
            let warned = line.contains("a foreign rule decides before ours")
                || line.contains("ambiguous rules kept (ours or foreign)");
            warned && line.contains(family) && line.contains(&named)
        })
    }

    fn says(&self, what: impl Fn(&str) -> bool) -> bool {
        self.ended.iter().any(|(_, output)| output.lines().any(&what))
    }

    /// The command lines, exit codes and output.
    pub(super) fn report(&self) -> String {
        let mut text = match &self.action {
            Action::Whole(goal) => goal.to_string(),
            Action::Kill(goal, delay) => format!("{goal}, killed after {delay:?}"),
            Action::KillAtSend(goal, number, when) => format!("{goal}, killed {when:?} message {number}"),
            Action::Interfere(goal, call, how) => format!("{goal}, {how:?} at tool call {call}"),
            Action::Two(one, other) => format!("{one}\n      and at once {other}"),
        };
        for (code, output) in &self.ended {
            let _ = write!(text, "\n      exit {code}");
            // Not the rules files, and not the options again; all of an error.
            let mut in_error = false;
            for line in output.lines() {
                in_error |= line.contains("\terror\t");
                if in_error || (line.contains('\t') && !line.contains("\toptions: ")) {
                    let _ =
                        write!(text, "\n        {}", line.split_once('\t').map_or(line, |(_, rest)| rest));
                }
            }
        }
        text
    }
}

/// Runs, and notes what may be in force meanwhile, and afterwards if all ended well.
fn whole(goals: &[&Goal], timeline: &Timeline, run: impl FnOnce() -> Vec<Ended>) -> Vec<Ended> {
    let next: Vec<InForce> = goals.iter().map(|goal| goal.in_force()).collect();
    timeline.begins(&next);
    let ended = run();
    if ended.iter().all(|ended| ended.code() == 0) {
        timeline.ended(&next);
    }
    ended
}

/// A directory with the tools of both variants, one call of which does not do what it should.
fn tools_that_interfere(call: usize, how: Interference) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for tool in ["iptables", "ip6tables"] {
        for rest in ["nft-save", "nft-restore", "legacy-save", "legacy-restore"] {
            let real = format!("/usr/sbin/{tool}-{rest}");
            let then = match how {
                Interference::Fail => "echo 'this call fails on purpose' >&2; exit 1".to_owned(),
                Interference::KillBefore => "kill -9 $PPID; exit 1".to_owned(),
                Interference::KillAfter => format!("{real} \"$@\"; kill -9 $PPID; exit 0"),
            };
            let script = format!(
                "#!/bin/sh\necho >> ${{0%/*}}/calls\n\
                 if [ \"$(wc -l < ${{0%/*}}/calls)\" -eq {call} ]; then {then}; fi\nexec {real} \"$@\"\n"
            );
            let path = directory.path().join(format!("{tool}-{rest}"));
            fs::write(&path, script).expect("write a script");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("make it executable");
        }
    }
    directory
}
