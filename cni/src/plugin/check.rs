//! CHECK: compares a pod's live rules with those that it needs.

use istio_iptables::apply::differences::Differences;
use istio_iptables::config::Output;
use istio_iptables::diff::RuleDifference;
use istio_iptables::{format, run};

use super::Context;
use super::add::{self, Decided};
use crate::capture::CaptureOptions;
use crate::environment::Attachment;
use crate::error::{CniError, Code};
use crate::namespace;
use crate::state::{State, StateDir};

/// Compares the rules with the options of the state file, or, without one, with those that ADD would find now.
pub(super) fn check(context: &Context<'_>, attachment: &Attachment) -> Result<(), CniError> {
    let conf = context.conf;
    if conf.prev_result()?.is_none() && !conf.standalone()? {
        return Err(CniError::new(Code::InvalidConfig, "no prevResult: CHECK needs the result of ADD"));
    }
    let Some(pod) = &attachment.pod else { return Ok(()) };
    if conf.excludes(pod)?.is_some() {
        return Ok(());
    }
    let settings = conf.settings()?;
    let state = StateDir::new(&conf.run_dir()?).read(&attachment.id)?;
    let options = match state.as_ref().and_then(State::options) {
        Some(values) => CaptureOptions::of_values(values),
        None => match add::options(context, &settings, pod)? {
            Decided::Capture(options) => options,
            Decided::NotCaptured(_) | Decided::Unknown(_) => return Ok(()),
        },
    };
    // Whatever holds them: pods keep their rules when the option of the node changes.
    let resolved = options.resolve(None).map_err(|problem| CniError::new(Code::InvalidConfig, problem))?;
    let machine = context.machine.clone();
    let compared = namespace::run(&attachment.netns, context.watch, move || {
        run::check(&machine, resolved).map_err(|failure| CniError::of_rules(&failure, Code::RulesRefused))
    });
    let (differences, _) = compared?;
    for notice in &differences.notices.others {
        log::info!(pod:% = pod; "{notice}");
    }
    first(&differences).map_or(Ok(()), |first| {
        let details = format::check(&differences, Output::Text);
        Err(CniError::new(Code::RulesDiffer, first).details(details))
    })
}

/// The first difference; without any, the first foreign rule that decides before ours.
fn first(differences: &Differences) -> Option<String> {
    let rule = differences.chains.iter().find_map(|(backend, chain)| {
        let RuleDifference { is_missing, place, rule } = chain.rules.first()?;
        let what = if *is_missing { "missing" } else { "unexpected" };
        Some(format!("{} {} ({backend}), rule {place} is {what}: {rule}", chain.table.name(), chain.chain))
    });
    let difference = rule.or_else(|| differences.others.first().cloned());
    difference
        .map(|difference| format!("the live rules differ: {difference}"))
        .or_else(|| differences.notices.deciding.first().cloned())
}
