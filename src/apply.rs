//! From a goal to a kernel that holds it: looks, plans, does, and looks again.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::backend::{self, Decision, Findings, Tools, Variant};
use crate::config::{BackendChoice, RunOptions};
use crate::diff::Change;
use crate::exit::Exit;
use crate::kernel::process::Host;
use crate::kernel::rules_file::{self, RulesFile};
use crate::kernel::{netns, observe, restore, routes, tools};
use crate::model::{Chain, Family, FamilyRules, Table};
use crate::parse::{self, Observed};
use crate::plan::{self, Goal, Restore, Situation, Step};
use crate::render;
use crate::report::Failure;
use crate::routing;

/// What was found before anything was done.
#[derive(Debug)]
pub struct Outlook {
    /// The backend, and why.
    pub decision: Decision,
    /// What stands.
    pub situation: Situation,
}

/// Looks at the kernel: which backend, and what of ours stands where.
///
/// # Errors
/// No backend can be used, or what stands cannot be read.
pub fn look(host: &impl Host, choice: BackendChoice) -> Result<Outlook, Failure> {
    let findings =
        observe::findings(host).map_err(|error| unreadable("the kernel's packet filter", &error))?;
    log::debug!("{findings}");
    let decision = backend::decide(choice, &findings)
        .map_err(|none| Failure::new(Exit::Unavailable, none.what).hint(none.hint))?;
    let mut rules = BTreeMap::new();
    for variant in Variant::ALL {
        for family in Family::ALL {
            if stands(variant, family)? {
                rules.insert((variant, family), read_back(host, variant, family, &findings)?);
            }
        }
    }
    let native_tables = observe::native_tables().map_err(|error| unreadable("nftables", &error))?;
    let network = observe::routing().map_err(|error| unreadable("routes", &error))?;
    Ok(Outlook {
        decision,
        situation: Situation {
            variant: decision.variant,
            rules,
            native_tables,
            network,
        },
    })
}

fn stands(variant: Variant, family: Family) -> Result<bool, Failure> {
    observe::stands(variant, family)
        .map_err(|error| unreadable(&format!("the {family} chains of {variant}"), &error))
}

/// Reads what stands, by the tool of the variant that holds it.
fn read_back(
    host: &impl Host,
    variant: Variant,
    family: Family,
    findings: &Findings,
) -> Result<Observed, Failure> {
    let tools = needed(
        host,
        variant,
        family,
        "rules of ours stand there already",
        &findings.to_string(),
    )?;
    let text = restore::save(host, variant, family, &tools)?;
    log::debug!("{family} rules of {variant} before:\n{}", text.trim_end());
    Ok(parse::iptables_save(family, &text))
}

fn needed(
    host: &impl Host,
    variant: Variant,
    family: Family,
    why: &str,
    found: &str,
) -> Result<Tools, Failure> {
    tools::tools(host, variant, family).ok_or_else(|| {
        let ip = match family {
            Family::V4 => "iptables",
            Family::V6 => "ip6tables",
        };
        let word = variant.word();
        let failure = Failure::new(
            Exit::Unavailable,
            format!("{ip}-{word}-restore and {ip}-{word}-save are needed ({why}) and are not both in PATH"),
        );
        let hint = match family {
            Family::V4 => format!("put the tools of {variant} into the image"),
            Family::V6 => format!("put {ip} into the image, or leave IPv6 alone with --ip-family ipv4"),
        };
        failure.detail(found).hint(hint)
    })
}

fn unreadable(what: &str, error: &io::Error) -> Failure {
    from_kernel(format!("cannot read {what}: {error}"), error)
}

/// A refusal of the kernel; a missing privilege is told apart, with what to do.
fn from_kernel(what: String, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::PermissionDenied {
        Failure::new(Exit::NoPermission, what).hint(
            "the container needs the capability NET_ADMIN (securityContext.capabilities.add) and must run as root",
        )
    } else {
        Failure::new(Exit::Refused, what)
    }
}

/// Carries out the steps. All rules files are written before the first one is read: a file that cannot be written
/// leaves the kernel as it was.
///
/// # Errors
/// The first step that fails. The next run goes on from what stands then.
pub fn execute(host: &impl Host, steps: &[Step], outlook: &Outlook, run: &RunOptions) -> Result<(), Failure> {
    let mut prepared = Vec::new();
    for step in steps {
        if let Step::Restore(step) = step {
            let tools = needed(host, step.variant, step.family, "rules are written with them", "")?;
            prepared.push((step, tools, rules_file(step, outlook.decision.variant, run)?));
        }
    }
    let lock = lock_file(run, &prepared)?;
    let mut prepared = prepared.into_iter();
    for step in steps {
        match step {
            Step::Network(step) => network_step(*step)?,
            Step::DeleteNative(tables) => {
                log::info!("{step}");
                observe::delete_native_tables(tables).map_err(|error| refused(step, &error))?;
            }
            Step::Restore(_) => {
                let Some((step, tools, rules)) = prepared.next() else {
                    continue;
                };
                announce(step, &rules.place);
                let of = restore::Run {
                    variant: step.variant,
                    family: step.family,
                    tools: &tools,
                    text: &step.text,
                };
                restore::restore(
                    host,
                    &of,
                    rules.file,
                    lock.as_ref().map(|(_, path)| path.as_path()),
                )?;
            }
        }
    }
    Ok(())
}

/// What is written, as Istio logs it: people look for it in the log of the init container.
fn announce(step: &Restore, place: &str) {
    let Restore {
        variant,
        family,
        text,
        tables: _,
    } = step;
    log::info!(
        "Writing following contents to rules file: {place} ({family}, {variant})\n{}",
        text.trim_end()
    );
}

fn rules_file(step: &Restore, main: Variant, run: &RunOptions) -> Result<RulesFile, Failure> {
    match &run.rules_file {
        Some(path) if step.variant == main => rules_file::keep(
            "--rules-file",
            &rules_file::path_of(path, step.family),
            &step.text,
        ),
        Some(_) | None => rules_file::temporary(step.family, &step.text),
    }
}

type Prepared<'a> = (&'a Restore, Tools, RulesFile);

/// Legacy tools lock, to keep each other from overwriting a table. The shared lock file is used where it can be; in
/// CNI mode it belongs to the host and says nothing about the pod. Our own runs are kept apart in any case.
fn lock_file(
    run: &RunOptions,
    prepared: &[Prepared<'_>],
) -> Result<Option<(netns::LockFile, PathBuf)>, Failure> {
    let locks = prepared.iter().any(|(step, ..)| step.variant == Variant::Legacy);
    if !locks || (!run.cni_mode && rules_file::shared_lock_usable()) {
        return Ok(None);
    }
    log::debug!("/run/xtables.lock is not used; this namespace is locked by itself");
    let file = netns::lock_file()
        .map_err(|error| Failure::new(Exit::CannotCreate, format!("cannot make a lock file: {error}")))?;
    let path = file.path();
    Ok(Some((file, path)))
}

fn network_step(step: routing::Step) -> Result<(), Failure> {
    log::info!("{step}");
    routes::execute(step).map_err(|error| {
        let failure = refused(&Step::Network(step), &error);
        match (step, error.kind()) {
            (routing::Step::AddRoute(_, table), io::ErrorKind::AlreadyExists) => failure.hint(format!(
                "table {table} has a default route of somebody else: choose a free table with \
                 --istio-inbound-tproxy-route-table (-r)"
            )),
            (routing::Step::AddAddress, _) => {
                failure.hint("is IPv6 switched off on lo (net.ipv6.conf.lo.disable_ipv6)?")
            }
            _ => failure,
        }
    })
}

fn refused(step: &Step, error: &io::Error) -> Failure {
    from_kernel(format!("the kernel refuses `{step}`: {error}"), error)
}

/// Looks again, without another process: every chain of ours is there, with as many rules as it should have.
///
/// # Errors
/// Something is missing, or too much.
pub fn check_counts(goal: &Goal, variant: Variant) -> Result<(), Failure> {
    for (family, rules) in &goal.rules {
        let counts =
            observe::counts(variant, *family).map_err(|error| unreadable("the rules back", &error))?;
        let differences = count_differences(rules, &counts);
        if !differences.is_empty() {
            return Err(Failure::new(Exit::Refused, format!("the {family} rules are not what was written"))
                .detail(differences.join("\n"))
                .hint("does something else change the rules at the same time? run again, with --verify for the details"));
        }
    }
    Ok(())
}

fn count_differences(rules: &FamilyRules, counts: &observe::Counts) -> Vec<String> {
    let mut differences = Vec::new();
    for table in Table::ALL {
        let (wanted, none) = (rules.tables.get(&table), BTreeMap::new());
        let standing = counts.get(&table).unwrap_or(&none);
        for chain in Chain::ALL {
            let wanted = wanted.and_then(|wanted| wanted.chains.get(&chain)).map(Vec::len);
            let standing = standing.get(chain.name()).copied();
            // A chain that somebody else still jumps to stays, empty.
            let kept = (wanted, standing) == (None, Some(0));
            if wanted != standing && !kept {
                differences.push(format!(
                    "{} {}: {} rules, not {}",
                    table.name(),
                    chain.name(),
                    number(standing),
                    number(wanted)
                ));
            }
        }
        for (hook, wanted) in wanted.iter().flat_map(|wanted| &wanted.hooks) {
            let wanted = wanted.iter().count();
            let standing = standing.get(hook.name()).copied().unwrap_or(0);
            if standing < wanted {
                differences.push(format!(
                    "{} {}: {standing} rules, fewer than our {wanted}",
                    table.name(),
                    hook.name()
                ));
            }
        }
    }
    differences
}

fn number(rules: Option<usize>) -> String {
    rules.map_or_else(|| "no chain".to_owned(), |rules| rules.to_string())
}

/// Reads everything back and compares it rule by rule: one more process per family.
///
/// # Errors
/// The differences, as the rules file that would mend them.
pub fn verify(host: &impl Host, goal: &Goal, variant: Variant) -> Result<(), Failure> {
    for (family, rules) in &goal.rules {
        let observed = if rules.count() > 0 || stands(variant, *family)? {
            let tools = needed(host, variant, *family, "rules are read back with them", "")?;
            parse::iptables_save(*family, &restore::save(host, variant, *family, &tools)?)
        } else {
            Observed::nothing(*family)
        };
        let change = Change::between(rules, &observed, false);
        if !change.is_empty() {
            return Err(Failure::new(
                Exit::Refused,
                format!("the {family} rules are not what the options ask for; to mend them:"),
            )
            .detail(render::restore(&change)));
        }
    }
    Ok(())
}

/// Applies a goal, whole.
///
/// # Errors
/// See [`look`], [`execute`], [`check_counts`], [`verify`].
pub fn apply(host: &impl Host, goal: &Goal, run: &RunOptions) -> Result<(), Failure> {
    let start = Instant::now();
    let outlook = look(host, run.backend)?;
    let Decision { variant, why } = outlook.decision;
    log::info!("backend {variant}: {why}");
    let steps = plan::plan(goal, &outlook.situation);
    execute(host, &steps, &outlook, run)?;
    check_counts(goal, variant)?;
    if run.verify {
        verify(host, goal, variant)?;
    }
    if log::log_enabled!(log::Level::Debug) {
        log_final_state(host, goal, variant);
    }
    let took = humantime::format_duration(std::time::Duration::from_micros(
        u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX),
    ));
    if steps.is_empty() {
        log::info!(
            "already converged, nothing written: {} in place ({took})",
            goal.counts()
        );
    } else {
        log::info!("done: {} in place ({took})", goal.counts());
    }
    Ok(())
}

/// What stands at the end, for whoever asked for every detail. A tool that fails here has done its work before.
fn log_final_state(host: &impl Host, goal: &Goal, variant: Variant) {
    for rules in goal.rules.values().filter(|rules| rules.count() > 0) {
        let family = rules.family;
        let saved = needed(host, variant, family, "the final state is logged", "")
            .and_then(|tools| restore::save(host, variant, family, &tools));
        if let Ok(text) = saved {
            log::debug!("{family} rules of {variant} at the end:\n{}", text.trim_end());
        }
    }
}

/// What a real run would do, printed; nothing is changed.
///
/// # Errors
/// `DRY_RUN_FILE_PATH` cannot be written.
pub fn dry_run(host: &impl Host, goal: &Goal, run: &RunOptions) -> Result<String, Failure> {
    let (variant, situation, remark) = match look(host, run.backend) {
        Ok(Outlook {
            decision: Decision { variant, why },
            situation,
        }) => (variant, Some(situation), format!("backend {variant}: {why}")),
        Err(failure) => {
            let variant = match run.backend {
                BackendChoice::IptablesLegacy => Variant::Legacy,
                BackendChoice::Auto | BackendChoice::Iptables | BackendChoice::IptablesNft => Variant::Nft,
            };
            (
                variant,
                None,
                format!(
                    "the live state cannot be read ({}): this is the plan for an empty namespace",
                    failure.what
                ),
            )
        }
    };
    let situation = situation.unwrap_or_else(|| Situation {
        variant,
        rules: BTreeMap::new(),
        native_tables: Vec::new(),
        network: routing::Observed::default(),
    });
    let steps = plan::plan(goal, &situation);
    if let Some(path) = &run.dry_run_file {
        for rules in goal.rules.values().filter(|rules| rules.count() > 0) {
            let path: &Path = &rules_file::path_of(path, rules.family);
            rules_file::keep("DRY_RUN_FILE_PATH", path, &render::fresh(rules))?;
        }
    }
    Ok(describe(&remark, &steps, goal))
}

fn describe(remark: &str, steps: &[Step], goal: &Goal) -> String {
    let mut text = format!("# dry run: nothing is changed\n# {remark}\n");
    if steps.is_empty() {
        text += &format!("# already converged: {}, nothing to do\n", goal.counts());
    }
    for (number, step) in steps.iter().enumerate() {
        text += &format!("# step {} of {}: {step}\n", number + 1, steps.len());
        if let Step::Restore(restore) = step {
            text += &restore.text;
        }
    }
    text
}
