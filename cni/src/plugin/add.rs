//! ADD: captures a pod, or says why it must not start.

use istio_iptables::commands::capture::{self, AppliedState};
use istio_iptables::config::{BackendChoice, Resolved, RunOptions};
use istio_iptables::exit::Exit;
use istio_iptables::kernel::netns::Namespace;
use istio_iptables::kernel::process::SystemHost;
use istio_iptables::report::Failure;
use istio_iptables::text::one_line;

use super::{Context, NOT_CAPTURED, log_not_captured};
use crate::capture::CaptureOptions;
use crate::decide::{Decision, Refusal, decide};
use crate::environment::{Attachment, PodName};
use crate::error::{CniError, Code, LONGEST_MESSAGE, shortened};
use crate::netconf::{Defaults, KEY, NetConf, OnUnknown, Settings, SourceKind};
use crate::source;
use crate::state::{State, StateDir};
use crate::{loopback, namespace};

/// Sets up a pod; returns the result of the plugins before, byte for byte.
///
/// Rules that are in place when something fails later stay: the runtime deletes the sandbox, and until then
/// nothing bypasses the proxy.
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
    let pod = match included(conf, attachment)? {
        Ok(pod) => pod,
        Err(reason) => {
            log_excluded(attachment, &reason);
            return Ok(result);
        }
    };
    let settings = conf.settings()?;
    match options(context, &settings, pod)? {
        Decided::Capture(options) => capture(context, attachment, pod, &settings, &options)?,
        Decided::NotCaptured(reason) => log_not_captured(pod, &reason),
        Decided::Unknown(reason) => {
            log::warn!(pod:% = pod, reason, outcome = NOT_CAPTURED; "NOT captured: no source knows the pod, and on_unknown is pass");
        }
    }
    Ok(result)
}

/// The pod; `Err`: why this is not captured, whatever sources say of it: it is not a pod of Kubernetes, or
/// excluded.
pub(super) fn included<'a>(
    conf: &NetConf<'_>,
    attachment: &'a Attachment,
) -> Result<Result<&'a PodName, String>, CniError> {
    let Some(pod) = &attachment.pod else { return unnamed(conf).map(Err) };
    Ok(conf.excludes(pod)?.map_or(Ok(pod), |reason| Err(reason.to_owned())))
}

/// Why what `CNI_ARGS` do not name is not captured. Annotations are those of a pod of Kubernetes, whatever
/// `CNI_ARGS` lack: without its namespace and name it may start only if they say that it is not captured.
fn unnamed(conf: &NetConf<'_>) -> Result<String, CniError> {
    if conf.pod_annotations()?.is_none() {
        return Ok("CNI_ARGS name no pod of Kubernetes".to_owned());
    }
    let known = source::annotations(conf)?.map(|pod| decide(&pod, &Defaults::default()));
    let whose = match known {
        Ok(Decision::NotCaptured(reason)) => return Ok(reason.to_string()),
        Ok(Decision::Capture(_)) => "an injected pod".to_owned(),
        Ok(Decision::Refuse(Refusal::BadAnnotation(problem) | Refusal::Unknown(problem))) | Err(problem) => {
            format!("a pod that may be injected: {problem}")
        }
    };
    let problem = "CNI_ARGS: missing K8S_POD_NAMESPACE or K8S_POD_NAME, expected both";
    Err(CniError::new(
        Code::InvalidEnvironment,
        format!("{problem}: the runtime hands over the annotations of {whose}"),
    ))
}

/// Logs why ADD does not capture.
fn log_excluded(attachment: &Attachment, reason: &str) {
    match &attachment.pod {
        Some(pod) => log_not_captured(pod, &reason),
        None => {
            log::info!(container = attachment.id.container, reason, outcome = NOT_CAPTURED; "not captured");
        }
    }
}

/// The result for what is not captured, where the version is not supported: the one of the plugins before is
/// of that version. The agent takes its entry out of such a list; its own pod has to start for that.
pub(super) fn excluded_in_any_version(conf: &NetConf<'_>, attachment: &Attachment) -> Option<String> {
    let result = conf.prev_result().ok()??;
    let reason = included(conf, attachment).ok()?.err()?;
    log_excluded(attachment, &reason);
    Some(result.to_owned())
}

/// What becomes of a pod that may start.
pub(super) enum Decided {
    /// The pod is captured.
    Capture(CaptureOptions),
    /// The pod is not captured: why.
    NotCaptured(String),
    /// No source knows it, and the configuration allows that: why.
    Unknown(String),
}

/// Asks the sources.
pub(super) fn options(
    context: &Context<'_>,
    settings: &Settings,
    pod: &PodName,
) -> Result<Decided, CniError> {
    let mut unknown = Unknown::default();
    for kind in &settings.sources {
        let facts = match source::pod(context.conf, *kind, pod, context.deadline)? {
            Ok(facts) => facts,
            Err(problem) => {
                unknown.push(*kind, problem);
                continue;
            }
        };
        match decide(&facts, &settings.defaults) {
            Decision::Capture(options) => return Ok(Decided::Capture(options)),
            Decision::NotCaptured(reason) => return Ok(Decided::NotCaptured(reason.to_string())),
            Decision::Refuse(Refusal::BadAnnotation(problem)) => {
                return Err(invalid_option(&problem));
            }
            Decision::Refuse(Refusal::Unknown(problem)) => unknown.push(*kind, problem),
        }
    }
    match settings.on_unknown {
        OnUnknown::Fail => Err(unknown.error(pod)),
        OnUnknown::Pass => Ok(Decided::Unknown(unknown.reasons().join("; "))),
    }
}

/// The message is the pod's event, which is all that its owner sees. For an error in the list, annotations
/// are no remedy.
fn invalid_option(problem: &str) -> CniError {
    const MORE: &str = "; `sidecar-injector check -f pod.yaml` lists all problems";
    if problem.starts_with(KEY) {
        return CniError::new(Code::InvalidConfig, problem);
    }
    let room = LONGEST_MESSAGE - MORE.len();
    CniError::new(Code::InvalidConfig, shortened(&one_line(problem), room) + MORE)
}

/// Why each source knows nothing of a pod.
#[derive(Debug, Default)]
struct Unknown(Vec<(String, String)>);

impl Unknown {
    /// Sources that fail alike one after the other are named together.
    fn push(&mut self, kind: SourceKind, problem: String) {
        match self.0.last_mut() {
            Some((names, same)) if *same == problem => names.push_str(&format!(", {}", kind.name())),
            Some(_) | None => self.0.push((kind.name().to_owned(), problem)),
        }
    }

    fn reasons(&self) -> Vec<String> {
        self.0.iter().map(|(names, problem)| format!("{names}: {problem}")).collect()
    }

    /// Each reason gets its part of the message; the details have all of each.
    fn error(&self, pod: &PodName) -> CniError {
        const NAME: usize = 80;
        const MORE: &str = "; on the node: `istio-cni status`";
        let head = format!("unknown whether pod {} is captured", shortened(&pod.to_string(), NAME));
        let mut left = LONGEST_MESSAGE.saturating_sub(head.chars().count() + MORE.len());
        let mut reasons = self.reasons();
        let full = reasons.join("; ");
        // The shortest first: what they do not need is for the others.
        let mut order: Vec<&mut String> = reasons.iter_mut().collect();
        order.sort_by_key(|reason| reason.chars().count());
        let mut count = order.len();
        for reason in order {
            let part = (left / count).saturating_sub(SEPARATOR);
            *reason = shortened(reason, part);
            left = left.saturating_sub(reason.chars().count() + SEPARATOR);
            count -= 1;
        }
        let shown = reasons.join("; ");
        let is_whole = shown == full;
        let error = CniError::new(Code::TryAgainLater, format!("{head}: {shown}{MORE}"));
        if is_whole { error } else { error.details(full) }
    }
}

/// Between two reasons.
const SEPARATOR: usize = 2;

fn capture(
    context: &Context<'_>,
    attachment: &Attachment,
    pod: &PodName,
    settings: &Settings,
    options: &CaptureOptions,
) -> Result<(), CniError> {
    let mut resolved =
        options.resolve(settings.backend.as_ref()).map_err(|problem| invalid_option(&problem))?;
    for warning in std::mem::take(&mut resolved.warnings) {
        log::debug!("{}", warning.calling(&|origin| options.name(origin)));
    }
    resolved.run.pod_interface = Some(attachment.id.interface.clone());
    // Before rules are written: what is wrong with these is known then.
    let (network, run_dir) = (context.conf.name()?, context.conf.run_dir()?);
    let decided = context.deadline.elapsed();
    let machine = context.machine.clone();
    // The other half is for the rules.
    let patience = (context.deadline.remaining() / 2).min(loopback::LONGEST);
    let container = attachment.id.container.clone();
    let states = StateDir::new(&run_dir);
    // The rules of an earlier ADD are not to be guarded any more. Where this fails, so does the write below.
    let _ = states.forget(&attachment.id);
    let (written, netns) = namespace::run(&attachment.netns, context.deadline, move |namespace| {
        loopback::wait_until_set_up(&container, patience);
        let written = write(&machine, resolved, namespace);
        written.map_err(|failure| CniError::of_rules(&failure, Code::RulesRefused))
    })?;
    let captured = context.deadline.elapsed();
    let mut state = State::new(network, &attachment.id, pod.to_string(), pod.uid.clone(), netns.inode)
        .with_options(options.values())
        .with_rules(Some(written.desired.digest()), written.backend);
    state.late_netns.clone_from(&attachment.late_netns);
    states.write(&attachment.id, &state)?;
    let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    log::info!(
        pod:% = pod,
        backend:% = written.backend,
        rules:% = written.desired.counts(),
        decide_us = micros(decided),
        rules_us = micros(captured.saturating_sub(decided)),
        total_us = micros(context.deadline.elapsed()),
        outcome = "captured";
        "captured"
    );
    Ok(())
}

/// Writes the rules, natively where the pod has a user namespace of its own (`hostUsers: false`): the kernel
/// refuses iptables' match of users and groups to processes of another one, as the plugin is.
fn write(machine: &SystemHost, resolved: Resolved, namespace: &Namespace) -> Result<AppliedState, Failure> {
    let Resolved { intent, run, .. } = resolved;
    if namespace.is_of_own_user_namespace() {
        return capture::write(machine, intent, &run);
    }
    log::info!("the pod has a user namespace of its own: native nftables");
    let native = RunOptions { backend: BackendChoice::Nftables, ..run.clone() };
    match capture::write(machine, intent.clone(), &native) {
        Err(failure) if failure.exit == Exit::Unavailable => {
            log::warn!("native nftables, which a pod in a user namespace needs, cannot be used: {failure}");
            capture::write(machine, intent, &run)
        }
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> PodName {
        PodName { namespace: "default".to_owned(), name: name.to_owned(), uid: String::new() }
    }

    #[test]
    fn every_source_is_in_the_message_whatever_its_length() {
        let mut unknown = Unknown::default();
        unknown.push(SourceKind::Annotations, "x".repeat(1000));
        unknown.push(SourceKind::Agent, "short".to_owned());
        unknown.push(SourceKind::Api, "y".repeat(400));
        let error = unknown.error(&pod(&"p".repeat(253)));
        assert_eq!(error.code, Code::TryAgainLater);
        assert!(error.msg.chars().count() <= LONGEST_MESSAGE, "{}", error.msg);
        for part in ["pod default/ppp", "annotations: xxx", "agent: short", "api: yyy", "`istio-cni status`"]
        {
            assert!(error.msg.contains(part), "{part}: {}", error.msg);
        }
        assert!(error.details.contains(&"x".repeat(1000)) && error.details.contains(&"y".repeat(400)));
    }

    #[test]
    fn message_about_an_annotation_ends_with_the_command_that_lists_all() {
        for problem in ["short".to_owned(), "x\n".repeat(1000)] {
            let error = invalid_option(&problem);
            assert!(error.msg.chars().count() <= LONGEST_MESSAGE, "{}", error.msg);
            assert!(
                error.msg.ends_with("; `sidecar-injector check -f pod.yaml` lists all problems"),
                "{}",
                error.msg
            );
        }
    }

    #[test]
    fn sources_that_fail_alike_are_reported_together() {
        let mut unknown = Unknown::default();
        unknown.push(SourceKind::Annotations, "none".to_owned());
        unknown.push(SourceKind::Agent, "no socket".to_owned());
        unknown.push(SourceKind::Api, "no socket".to_owned());
        let error = unknown.error(&pod("a"));
        assert_eq!(error.details, "");
        let wanted = "unknown whether pod default/a is captured: annotations: none; agent, api: no socket; \
                      on the node: `istio-cni status`";
        assert_eq!(error.msg, wanted);
    }
}
