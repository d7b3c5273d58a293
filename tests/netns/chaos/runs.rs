//! Runs of the program: whole ones, stopped ones, ones with a failing tool, two at once.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::options::Options;
use super::random::Random;
use super::timeline::{InForce, Timeline};
use crate::lab::Pod;
use crate::lab::program::{Ended, Program};

/// What happens in one step.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// A run to its end.
    Apply(Arc<Options>),
    /// A run that is killed after a while, with all its children.
    Kill(InForce, Duration),
    /// A run in which something happens at its n-th call of a tool.
    Interfere(InForce, usize, Interference),
    /// Two runs that start at once.
    Two(Arc<Options>, Arc<Options>),
    /// `--cleanup-only`.
    Cleanup,
}

/// What happens at a call of a tool.
#[derive(Clone, Copy, Debug)]
pub(super) enum Interference {
    /// It fails.
    Fail,
    /// The run is killed before the tool starts.
    KillBefore,
    /// The run is killed after the tool has ended.
    KillAfter,
}

impl Action {
    /// What follows `last`, the options of the last whole run.
    pub(super) fn random(random: &mut Random, last: &Options) -> Self {
        let next = Arc::new(last.changed(random));
        let stopped = if random.chance(15) { None } else { Some(Arc::clone(&next)) };
        match random.below(100) {
            0..60 => Self::Apply(next),
            60..64 => Self::Apply(Arc::new(last.clone())),
            64..76 => {
                Self::Kill(stopped, Duration::from_micros(u64::try_from(random.below(60_000)).unwrap()))
            }
            76..90 => {
                let how = [Interference::Fail, Interference::KillBefore, Interference::KillAfter];
                Self::Interfere(stopped, 1 + random.below(5), random.pick(&how))
            }
            90..95 => Self::Two(Arc::clone(&next), Arc::new(next.changed(random))),
            _ => Self::Cleanup,
        }
    }

    /// The options that the next step starts from.
    pub(super) fn options(&self) -> Option<Arc<Options>> {
        match self {
            Self::Apply(options) | Self::Two(_, options) => Some(Arc::clone(options)),
            Self::Kill(options, _) | Self::Interfere(options, _, _) => options.clone(),
            Self::Cleanup => None,
        }
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
            Action::Apply(options) => whole(&[Some(Arc::clone(options))], timeline, || {
                vec![program(pod, &Some(Arc::clone(options))).run()]
            }),
            Action::Cleanup => whole(&[None], timeline, || vec![program(pod, &None).run()]),
            Action::Two(one, other) => {
                let both = [Some(Arc::clone(one)), Some(Arc::clone(other))];
                whole(&both, timeline, || {
                    thread::scope(|scope| {
                        let runs = both.each_ref().map(|options| scope.spawn(|| program(pod, options).run()));
                        runs.into_iter().map(|run| run.join().expect("the run was started")).collect()
                    })
                })
            }
            Action::Kill(options, delay) => whole(std::slice::from_ref(options), timeline, || {
                vec![program(pod, options).run_and_kill_after(*delay)]
            }),
            Action::Interfere(options, call, how) => {
                let directory = tools_that_interfere(*call, *how);
                let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", directory.path().display());
                whole(std::slice::from_ref(options), timeline, || {
                    vec![program(pod, options).env("PATH", &path).run()]
                })
            }
        };
        let ended = ended.iter().map(|ended| (ended.code(), ended.output())).collect();
        Self { number, action, start, end: Instant::now(), ended }
    }

    /// Whether every exit code is one that this step may have.
    pub(super) fn ended_as_expected(&self) -> bool {
        let panicked = self.ended.iter().any(|(_, said)| said.contains("panicked"));
        let stopped = matches!(self.action, Action::Kill(..) | Action::Interfere(..));
        !panicked && (stopped || self.ended.iter().all(|(code, _)| *code == 0))
    }

    /// Whether the output says that connections are reset.
    pub(super) fn announces_resets(&self) -> bool {
        self.says(|line| line.contains("resets") && line.contains("proxied"))
    }

    /// Whether the output says that entries of captured queries were deleted, with which waiting answers are lost.
    pub(super) fn announces_lost_answers(&self) -> bool {
        self.says(|line| line.contains("UDP to port 53, captured") && !line.ends_with(": 0 deleted"))
    }

    /// Whether the output names the rule of `difference` as one that is kept because it may be foreign.
    pub(super) fn announces_kept(&self, difference: &str) -> bool {
        let Some((table, rule)) = difference.strip_prefix("left: ").and_then(|left| left.split_once(' '))
        else {
            return false;
        };
        let rule = rule.split_once("-A ").map_or(rule, |(_, words)| words);
        let named = format!("`{table} {rule}`");
        self.says(|line| line.contains("rules that may be ours or foreign stay") && line.contains(&named))
    }

    fn says(&self, what: impl Fn(&str) -> bool) -> bool {
        self.ended.iter().any(|(_, said)| said.lines().any(&what))
    }

    /// The command lines, exit codes and output.
    pub(super) fn report(&self) -> String {
        let options = |options: &InForce| {
            options.as_ref().map_or_else(|| "istio-iptables --cleanup-only".to_owned(), |o| o.to_string())
        };
        let mut text = match &self.action {
            Action::Apply(applied) => applied.to_string(),
            Action::Kill(killed, delay) => format!("{}, killed after {delay:?}", options(killed)),
            Action::Interfere(met, call, how) => format!("{}, {how:?} at tool call {call}", options(met)),
            Action::Two(one, other) => format!("{one}\n      and at once {other}"),
            Action::Cleanup => options(&None),
        };
        for (code, said) in &self.ended {
            let _ = write!(text, "\n      exit {code}");
            // Not the rules files, and not the options again; all of an error.
            let mut in_error = false;
            for line in said.lines() {
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
fn whole(next: &[InForce], timeline: &Timeline, run: impl FnOnce() -> Vec<Ended>) -> Vec<Ended> {
    timeline.begins(next);
    let ended = run();
    if ended.iter().all(|ended| ended.code() == 0) {
        timeline.ended(next);
    }
    ended
}

fn program(pod: &Pod, options: &InForce) -> Program {
    let Some(options) = options else {
        return pod.plain_istio_iptables(&["--cleanup-only"]);
    };
    let program = pod.plain_istio_iptables(&options.args()).file("/etc/resolv.conf", Options::resolver());
    options.env().iter().fold(program, |program, (name, value)| program.env(name, value))
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
