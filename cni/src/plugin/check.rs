//! CHECK: compares a pod's live rules with those that it needs.

use istio_iptables::apply::differences::Differences;
use istio_iptables::cli::{Key, OptionValue};
use istio_iptables::config::Output;
use istio_iptables::reconcile::RuleDifference;
use istio_iptables::report::Failure;
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
    let pod = add::included(conf, attachment)?.ok();
    if pod.is_none() && attachment.pod.is_some() {
        return Ok(());
    }
    let settings = pod.map(|_| conf.settings()).transpose()?;
    let state = StateDir::new(&conf.run_dir()?).read(&attachment.id)?;
    let options = match (state.as_ref().and_then(State::options), pod.zip(settings.as_ref())) {
        (Some(values), _) => CaptureOptions::of_values(values),
        (None, None) => return Ok(()),
        (None, Some((pod, settings))) => match add::options(context, settings, pod)? {
            Decided::Capture(options) => options,
            Decided::NotCaptured(_) | Decided::Unknown(_) => return Ok(()),
        },
    };
    // Whatever holds them: pods keep their rules when the option of the node changes.
    let resolve = |backend: Option<&(Key, OptionValue)>| {
        let mut resolved = options.resolve(backend)?;
        resolved.run.pod_interface = Some(attachment.id.interface.clone());
        Ok(resolved)
    };
    let resolved = resolve(None).map_err(|problem: String| CniError::new(Code::InvalidConfig, problem))?;
    let of_node = settings.and_then(|settings| settings.backend);
    let of_add = state.as_ref().and_then(State::backend).or(of_node);
    let of_add = of_add.and_then(|backend| resolve(Some(&backend)).ok());
    let machine = context.machine.clone();
    let compared = namespace::run(&attachment.netns, context.deadline, move |_| {
        let failed = |failure: Failure| CniError::of_rules(&failure, Code::RulesRefused);
        let (mut differences, digest) = run::check(&machine, resolved.clone()).map_err(failed)?;
        // Where nothing holds rules any more, they are missing where ADD wrote them.
        if first(&differences).is_some()
            && let Some(Ok((of_add, _))) = of_add.map(|resolved| run::check(&machine, resolved))
        {
            differences = of_add;
        }
        // Of the rules that ADD wrote, every difference is a change by another program. Another version may have written others.
        let is_of_add = state.is_some_and(|state| state.has_rules(digest));
        if is_of_add || first(&differences).is_none() || !differences.is_of_rules_only() {
            return Ok((differences, Err(String::new())));
        }
        let packets = run::check_packets(&machine, resolved, differences.backend).map_err(failed)?;
        Ok((differences, packets))
    });
    let ((differences, packets), _) = compared?;
    let container = attachment.id.container.as_str();
    let others = differences.notices.others.iter().map(ToString::to_string);
    for notice in others.chain(differences.notices.unread.iter().cloned()) {
        log::info!(container; "{notice}");
    }
    let Some(first) = first(&differences) else { return Ok(()) };
    let comparison = match packets {
        Ok(()) => {
            log::info!(container; "the live rules differ in form from this version's, and are equal for all packets");
            return Ok(());
        }
        Err(comparison) => comparison,
    };
    let details = format::check(&differences, None, Output::Text) + &comparison;
    Err(CniError::new(Code::RulesDiffer, first).details(details))
}

/// The first difference; without any, the first foreign rule that decides before ours.
fn first(differences: &Differences) -> Option<String> {
    let rule = differences.chains.iter().find_map(|(backend, chain)| {
        let RuleDifference { is_missing, place, rule } = chain.rules.first()?;
        let what = if *is_missing { "missing" } else { "unexpected" };
        Some(format!("{} {} ({backend}), rule {place} is {what}: {rule}", chain.table.name(), chain.chain))
    });
    let mut others = differences.others.iter().chain(&differences.forms);
    let difference = rule.or_else(|| others.next().cloned());
    difference
        .map(|difference| format!("the live rules differ: {difference}"))
        .or_else(|| Some(differences.notices.deciding.first()?.to_string()))
}
