//! CHECK: compares a pod's live rules with those that it needs.

use istio_iptables::commands::check_report;
use istio_iptables::config::Output;
use istio_iptables::report::Failure;

use super::Context;
use super::add::{self, Decided};
use crate::capture::CaptureOptions;
use crate::compare::{Compared, Expected, first_difference};
use crate::environment::Attachment;
use crate::error::{CniError, Code};
use crate::namespace;
use crate::state::{State, StateDir};

/// Compares the rules with the options of the state file, or, without one, with those that ADD would find
/// now.
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
    let of_node = settings.and_then(|settings| settings.backend);
    let of_add = state.as_ref().and_then(State::backend).or(of_node);
    let expected = Expected::new(&options, &attachment.id.interface, of_add)
        .map_err(|problem| CniError::new(Code::InvalidConfig, problem))?;
    let machine = context.machine.clone();
    let compared = namespace::run(&attachment.netns, context.deadline, move |_| {
        let failed = |failure: Failure| CniError::of_rules(&failure, Code::RulesRefused);
        let compared = expected.compare(&machine, state.as_ref()).map_err(failed)?;
        let is_equal = compared.differences.is_none_of_rules() || compared.packets.is_ok();
        let unreachable = if is_equal { expected.unreachable(&machine).map_err(failed)? } else { None };
        Ok((compared, unreachable))
    });
    let ((Compared { differences, packets, .. }, unreachable), _) = compared?;
    let container = attachment.id.container.as_str();
    let others = differences.notices.others.iter().map(ToString::to_string);
    for notice in others.chain(differences.notices.unread.iter().cloned()) {
        log::info!(container; "{notice}");
    }
    // CNI: a plugin that knows of a condition in which the container is unreachable reports it.
    if let Some(finding) = unreachable {
        return Err(CniError::new(Code::RulesDiffer, finding.to_string()).details(finding.fix()));
    }
    let first = first_difference(&differences).map(|first| format!("the live rules differ: {first}"));
    let first = first.or_else(|| Some(differences.notices.deciding.first()?.to_string()));
    let Some(first) = first else { return Ok(()) };
    let comparison = match packets {
        Ok(()) => {
            log::info!(container; "the live rules differ in form from this version's, and are equal for all packets");
            return Ok(());
        }
        Err(comparison) => comparison,
    };
    let details = check_report(&differences, None, Output::Text) + &comparison;
    Err(CniError::new(Code::RulesDiffer, first).details(details))
}
