//! ADD: captures a pod, or says why it must not start.

use istio_iptables::run;

use super::{Context, passed};
use crate::capture::CaptureOptions;
use crate::decide::{Decision, Refusal, decide};
use crate::environment::{Attachment, PodName};
use crate::error::{CniError, Code};
use crate::namespace;
use crate::netconf::{OnUnknown, Settings};
use crate::source;
use crate::state::{State, StateDir};

/// Sets up a pod; returns the result of the plugins before, byte for byte.
///
/// Rules that are in place when something fails later stay: the runtime deletes the sandbox, and until then nothing bypasses
/// the proxy.
pub(super) fn add(context: &Context<'_>, attachment: &Attachment) -> Result<String, CniError> {
    let conf = context.conf;
    let result = match conf.prev_result()? {
        Some(text) => text.to_owned(),
        None if conf.standalone()? => format!("{{\"cniVersion\":\"{}\"}}", context.version.name()),
        None => {
            let problem = "no prevResult: istio-cni must be chained after the plugin that makes the interface; \
                           multus needs \"standalone\": true";
            return Err(CniError::new(Code::InvalidConfig, problem));
        }
    };
    // What is not captured does not depend on anything that can fail.
    let Some(pod) = &attachment.pod else {
        log::info!(container = attachment.id.container; "not captured: CNI_ARGS name no pod of Kubernetes");
        return Ok(result);
    };
    if let Some(reason) = conf.excludes(pod)? {
        passed(pod, &reason);
        return Ok(result);
    }
    let settings = conf.settings()?;
    let Some(options) = options(context, &settings, pod)? else { return Ok(result) };
    capture(context, attachment, pod, &settings, &options)?;
    Ok(result)
}

/// The options of a pod that is to be captured; `None` if it is not.
pub(super) fn options(
    context: &Context<'_>,
    settings: &Settings,
    pod: &PodName,
) -> Result<Option<CaptureOptions>, CniError> {
    let mut unknown = Vec::new();
    for kind in &settings.sources {
        let facts = match source::pod(context.conf, *kind)? {
            Ok(facts) => facts,
            Err(problem) => {
                unknown.push(problem);
                continue;
            }
        };
        match decide(&facts, &settings.defaults) {
            Decision::Capture(options) => return Ok(Some(options)),
            Decision::Pass(reason) => {
                passed(pod, &reason);
                return Ok(None);
            }
            Decision::Refuse(Refusal::BadAnnotation(problem)) => {
                return Err(CniError::new(Code::InvalidConfig, problem));
            }
            Decision::Refuse(Refusal::Unknown(problem)) => unknown.push(problem),
        }
    }
    let problem = unknown.join("; ");
    match settings.on_unknown {
        OnUnknown::Fail => Err(CniError::new(
            Code::TryAgainLater,
            format!("unknown whether pod {pod} is captured: {problem}"),
        )),
        OnUnknown::Pass => {
            log::warn!(pod:% = pod, reason = problem; "NOT captured: no source knows the pod, and on_unknown is pass");
            Ok(None)
        }
    }
}

fn capture(
    context: &Context<'_>,
    attachment: &Attachment,
    pod: &PodName,
    settings: &Settings,
    options: &CaptureOptions,
) -> Result<(), CniError> {
    let mut resolved = options
        .resolve(settings.backend.as_ref())
        .map_err(|problem| CniError::new(Code::InvalidConfig, problem))?;
    for warning in std::mem::take(&mut resolved.warnings) {
        log::debug!("{}", warning.calling(&|origin| options.name(origin)));
    }
    resolved.given.clear(); // they are in the state file
    // Before rules are written: what is wrong with these is known then.
    let (network, run_dir) = (context.conf.name()?, context.conf.run_dir()?);
    let decided = context.watch.elapsed();
    let machine = context.machine.clone();
    let ((), netns) = namespace::run(&attachment.netns, context.watch, move || {
        let written = run::run(&machine, resolved);
        written.map(drop).map_err(|failure| CniError::of_rules(&failure, Code::RulesRefused))
    })?;
    let captured = context.watch.elapsed();
    let state = State::new(network, &attachment.id, pod.to_string(), pod.uid.clone(), netns.inode)
        .with_options(options.values());
    StateDir::new(&run_dir).write(&attachment.id, &state)?;
    let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    log::info!(
        pod:% = pod,
        decide_us = micros(decided),
        rules_us = micros(captured.saturating_sub(decided)),
        total_us = micros(context.watch.elapsed());
        "captured"
    );
    Ok(())
}
