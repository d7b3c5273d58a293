//! CHECK: compares a pod's live rules with those that it needs.

use istio_iptables::run;

use super::{Context, add};
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
            Some(options) => options,
            None => return Ok(()),
        },
    };
    let resolved = options
        .resolve(settings.backend.as_ref())
        .map_err(|problem| CniError::new(Code::InvalidConfig, problem))?;
    let machine = context.machine.clone();
    let compared = namespace::run(&attachment.netns, context.watch, move || {
        run::check(&machine, resolved).map_err(|failure| CniError::of_rules(&failure, Code::RulesDiffer))
    });
    compared.map(drop)
}
