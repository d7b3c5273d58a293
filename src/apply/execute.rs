//! Executes the steps of a plan.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use super::{execute_native, from_kernel, needed, network, preconditions, tool_error};
use crate::config::RunOptions;
use crate::connections::conntrack::Step as ConntrackStep;
use crate::connections::execute::Table as ConntrackTable;
use crate::connections::new_entries;
use crate::exit::Exit;
use crate::kernel::process::Host;
use crate::kernel::rules_file::{self, RulesFile};
use crate::kernel::{hooks, netns, observe, restore, xtables_lock};
use crate::model::{Backend, Family, Hook, NATIVE_MANGLE, Table, Tools, Variant};
use crate::plan::{DeleteByHandle, ReplaceNative, Restore, Step};
use crate::report::Failure;
use crate::routing;
use crate::text::count;

/// What earlier parts of a run have written.
#[derive(Debug, Default)]
pub(super) struct RunProgress {
    /// The file of `--rules-file` keeps these too, in order.
    rules: BTreeMap<(Variant, Family), String>,
    /// Whether any step was begun.
    pub(super) is_begun: bool,
}

impl RunProgress {
    fn before(&self, step: &Restore) -> &str {
        self.rules.get(&(step.variant, step.family())).map_or("", String::as_str)
    }

    fn add(&mut self, steps: &[Step]) {
        for step in restores(steps) {
            *self.rules.entry((step.variant, step.family())).or_default() += &step.text();
        }
    }
}

/// Carries out the steps in order. `main` is what holds our rules from now on.
///
/// All tools are found and all rules files are written before the first one is read: what can be known
/// beforehand leaves the kernel as it was.
///
/// `locked` says that the caller holds the lock of iptables-legacy: the tools must not wait for it. `written`
/// is what earlier parts of the run wrote; these rules are added.
///
/// # Errors
/// The first step that fails. The next run continues from the state at that point.
pub(super) fn execute(
    host: &impl Host,
    steps: &[Step],
    main: Backend,
    run: &RunOptions,
    locked: bool,
    written: &mut RunProgress,
) -> Result<(), Failure> {
    let mut prepared = Vec::new();
    for step in restores(steps) {
        let tools = needed(host, step.variant, step.family(), "rules are written with them")?;
        let text = step.text();
        let file = rules_file((step, &text), steps, (main, run), written.before(step))?;
        prepared.push(Prepared { step, text, tools, file });
    }
    execute_native::keep_file(steps, run)?;
    written.add(steps);
    let lock = lock_file(run, &prepared, locked)?;
    written.is_begun = true;
    let mut prepared = prepared.into_iter();
    let mut table = ConntrackTable::default();
    let mut rest = steps;
    loop {
        let following: Vec<_> = rest.iter().map_while(of_conntrack).collect();
        table.execute(&following);
        let Some((step, later)) = rest.get(following.len()..).and_then(<[Step]>::split_first) else { break };
        rest = later;
        match step {
            // Those that follow each other are carried out together.
            Step::Conntrack(_) => {}
            Step::Network(step) => network_step(*step)?,
            Step::LimitNative => {
                let limited =
                    observe::limit_save_mark(NATIVE_MANGLE).map_err(|error| refused(step, &error))?;
                log::info!("{step} ({})", count(limited, "rule"));
            }
            Step::AwaitPackets => hooks::await_packets(),
            Step::TrackConnections(families) => new_entries::create(families),
            // Without a record nothing breaks at once: later runs leave what they cannot distinguish from
            // foreign rules.
            Step::Record(alias) => {
                log::debug!("{step}");
                if let Err(error) = observe::set_alias(alias) {
                    log::debug!("the alias of lo cannot be set: {error}");
                }
            }
            Step::DeleteByHandle(DeleteByHandle { family, table, by_handle }) => {
                log::info!("{step}");
                let rules: Vec<_> = by_handle.iter().map(|rule| (rule.hook, rule.handle)).collect();
                delete_by_handle(*family, *table, &rules).map_err(|error| refused(step, &error))?;
            }
            Step::ReplaceNative(ReplaceNative { tables, delete }) => {
                log::info!("{step}");
                execute_native::replace(step, tables, delete)?;
            }
            Step::DeleteNative(tables) => {
                log::info!("{step}");
                observe::delete_native_tables(tables).map_err(|error| refused(step, &error))?;
            }
            Step::Restore(_) => {
                let Some(Prepared { step, text, tools, file }) = prepared.next() else {
                    continue;
                };
                announce(step, &text, &file.place);
                let lock = lock.as_ref().map(|(_, path)| path.as_path());
                restore::restore(host, step.variant, &tools, file.file, lock)
                    .map_err(|error| tool_error::of_restore(&error, step, &text))?;
            }
        }
    }
    Ok(())
}

const fn of_conntrack(step: &Step) -> Option<&ConntrackStep> {
    match step {
        Step::Conntrack(step) => Some(step),
        Step::LimitNative
        | Step::DeleteNative(_)
        | Step::ReplaceNative(_)
        | Step::Network(_)
        | Step::Restore(_)
        | Step::AwaitPackets
        | Step::TrackConnections(_)
        | Step::DeleteByHandle(_)
        | Step::Record(_) => None,
    }
}

/// All at once, or, if another program has deleted some of them meanwhile, those that are left.
fn delete_by_handle(family: Family, table: Table, rules: &[(Hook, u64)]) -> io::Result<()> {
    let gone =
        |done: &io::Result<()>| done.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ENOENT));
    let done = observe::delete_rules(family, table, rules);
    if !gone(&done) {
        return done;
    }
    let one_by_one = rules.chunks(1).map(|rule| observe::delete_rules(family, table, rule));
    one_by_one.filter(|done| !gone(done)).collect()
}

fn restores(steps: &[Step]) -> impl Iterator<Item = &Restore> {
    steps.iter().filter_map(|step| match step {
        Step::Restore(restore) => Some(restore),
        Step::LimitNative
        | Step::DeleteNative(_)
        | Step::ReplaceNative(_)
        | Step::Network(_)
        | Step::Conntrack(_)
        | Step::AwaitPackets
        | Step::TrackConnections(_)
        | Step::DeleteByHandle(_)
        | Step::Record(_) => None,
    })
}

/// Logs the written rules in Istio's format: operators search the init container's log for it.
fn announce(step: &Restore, text: &str, place: &str) {
    let (family, variant) = (step.family(), step.variant);
    log::info!(
        "Writing following contents to rules file: {place} ({family}, {variant})\n{}",
        text.trim_end()
    );
}

/// The file that the tool reads. With `--rules-file` it is kept; where a family of the main variant is
/// written more than once, the kept file holds everything in order, `before` first, and the tool reads
/// another one.
fn rules_file(
    (step, text): (&Restore, &str),
    steps: &[Step],
    (main, run): (Backend, &RunOptions),
    before: &str,
) -> Result<RulesFile, Failure> {
    if let Some(path) = run.rules_file.as_ref().filter(|_| Backend::Iptables(step.variant) == main) {
        let texts = restores(steps)
            .filter(|other| (other.variant, other.family()) == (step.variant, step.family()))
            .map(Restore::text);
        let whole: String = std::iter::once(before.to_owned()).chain(texts).collect();
        let kept = {
            let path = rules_file::path_of(path, step.family());
            rules_file::keep(&path, &whole)
                .map_err(|error| tool_error::cannot_write("--rules-file", &path, &error))?
        };
        if whole == text {
            return Ok(kept);
        }
    }
    rules_file::temporary(text).map_err(|error| tool_error::no_temporary_file(&error))
}

/// A step with what its tool needs.
struct Prepared<'a> {
    step: &'a Restore,
    text: String,
    tools: Tools,
    file: RulesFile,
}

/// Legacy tools take a lock, since each replaces a whole table. The shared lock file is used where possible;
/// in CNI mode it belongs to the host and not to the pod. Our own runs exclude each other by another lock.
fn lock_file(
    run: &RunOptions,
    prepared: &[Prepared<'_>],
    locked: bool,
) -> Result<Option<(netns::LockFile, PathBuf)>, Failure> {
    let locks = prepared.iter().any(|prepared| prepared.step.variant == Variant::Legacy);
    if !locks || (!locked && !run.cni_mode && xtables_lock::is_usable()) {
        return Ok(None);
    }
    log::debug!("/run/xtables.lock is not used; this namespace is locked by itself");
    let file = netns::lock_file().map_err(|error| Failure {
        exit: Exit::CannotCreate,
        ..from_kernel(format!("cannot create a lock file: {error}"), &error)
    })?;
    let path = file.path();
    Ok(Some((file, path)))
}

fn network_step(step: routing::Step) -> Result<(), Failure> {
    log::info!("{step}");
    network::execute(step).map_err(|error| {
        // Not a missing privilege: the kernel's error for a link without IPv6.
        let is_without_ipv6 = step == routing::Step::AddAddress && error.raw_os_error() == Some(libc::EACCES);
        if is_without_ipv6 { preconditions::ipv6_is_off() } else { refused(&Step::Network(step), &error) }
    })
}

pub(super) fn refused(step: &Step, error: &io::Error) -> Failure {
    from_kernel(format!("the kernel refuses `{step}`: {error}"), error)
}
