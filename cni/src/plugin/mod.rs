//! The commands.

mod add;
mod check;
pub(crate) mod late;

use std::io;
use std::time::Duration;

use istio_iptables::cli::{Key, OptionValue, Origin, RawOptions};
use istio_iptables::kernel::process::SystemHost;
use istio_iptables::{config, logging};
use serde::Serialize;

use crate::capture;
use crate::deadline::Deadline;
use crate::environment::{Attachment, AttachmentId, PodName, Request};
use crate::error::{CniError, Code};
use crate::log_sink::{self, LogSink};
use crate::lookup;
use crate::netconf::{KEY, LOG_LEVEL, NetConf, OnUnknown, POD_ANNOTATIONS, RUN_DIR, Settings, SourceKind};
use crate::pod::Pod;
use crate::state::StateDir;
use crate::version::Version;

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The version that an error is written for.
    pub version: Version,
    /// What is printed.
    pub result: Result<String, CniError>,
}

impl Outcome {
    /// An error before the version is known.
    #[must_use]
    pub const fn early(error: CniError) -> Self {
        Self { version: Version::NEWEST, result: Err(error) }
    }
}

/// What commands about one attachment need.
struct Context<'a> {
    conf: &'a NetConf<'a>,
    version: Version,
    deadline: &'a Deadline,
    machine: &'a SystemHost,
}

/// How long commands that need no input wait for its end.
const OPTIONAL_INPUT: Duration = Duration::from_secs(1);

/// VERSION and DEL succeed without input: they do not wait for it as long as the others.
pub fn limit_input(request: &Request, deadline: &Deadline) {
    match request {
        Request::Version | Request::Del(_) => deadline.set(OPTIONAL_INPUT),
        Request::Add(_) | Request::Check(_) | Request::Gc | Request::Status => {}
    }
}

/// Runs a command. The input is what was read, and whether that was all.
#[must_use]
pub fn run(
    request: &Request,
    (input, ended): (Vec<u8>, io::Result<()>),
    deadline: &Deadline,
    machine: &SystemHost,
) -> Outcome {
    let ended = ended.map_err(|error| {
        let codes =
            [(io::ErrorKind::TimedOut, Code::TryAgainLater), (io::ErrorKind::FileTooLarge, Code::Decoding)];
        let code =
            codes.into_iter().find(|(kind, _)| *kind == error.kind()).map_or(Code::Io, |(_, code)| code);
        CniError::new(code, format!("standard input: {error}"))
    });
    let needs_all = !matches!(request, Request::Version | Request::Del(_));
    let conf = match ended {
        Err(error) if needs_all => Err(error),
        // Of input that did not end, what came is used if it is a whole document.
        Ok(()) | Err(_) => NetConf::parse(&input),
    };
    let conf = match (request, conf) {
        (Request::Version, conf) => {
            let asked = conf.ok().and_then(|conf| conf.version_text());
            return Outcome { version: Version::NEWEST, result: Ok(versions(asked.as_deref())) };
        }
        (Request::Del(id), conf) => {
            start_log(conf.as_ref().ok(), None);
            del(id.as_ref(), conf.ok().as_ref());
            return Outcome { version: Version::NEWEST, result: Ok(String::new()) };
        }
        (Request::Add(_) | Request::Check(_) | Request::Gc | Request::Status, Ok(conf)) => conf,
        (Request::Add(_) | Request::Check(_) | Request::Gc | Request::Status, Err(error)) => {
            return Outcome::early(error);
        }
    };
    start_log(Some(&conf), pod(request));
    match conf.version() {
        Ok(version) => {
            let result = dispatch(request, &Context { conf: &conf, version, deadline, machine });
            let result = result.map_err(|error| {
                log_error(request, &error);
                if let Request::Add(_) = request { error.without_details() } else { error }
            });
            Outcome { version, result }
        }
        Err(error) => {
            if let Request::Add(attachment) = request
                && let Some(result) = add::excluded_in_any_version(&conf, attachment)
            {
                return Outcome { version: Version::NEWEST, result: Ok(result) };
            }
            log_error(request, &error);
            Outcome::early(error)
        }
    }
}

const fn attachment(request: &Request) -> Option<&Attachment> {
    match request {
        Request::Add(attachment) | Request::Check(attachment) => Some(attachment),
        Request::Del(_) | Request::Gc | Request::Status | Request::Version => None,
    }
}

fn pod(request: &Request) -> Option<&PodName> {
    attachment(request)?.pod.as_ref()
}

/// The runtime shows the error to some users; the log to others.
fn log_error(request: &Request, error: &CniError) {
    let container = attachment(request).map(|attachment| attachment.id.container.as_str());
    let (pod, container) =
        (pod(request).map(PodName::to_string).unwrap_or_default(), container.unwrap_or_default());
    let (code, details) = (error.code as u16, error.details.as_str());
    log::error!(command:% = request.name(), pod, container, code, details; "{}", error.msg);
}

fn dispatch(request: &Request, context: &Context<'_>) -> Result<String, CniError> {
    let conf = context.conf;
    let since = match request {
        Request::Check(_) => Version::V0_4_0,
        Request::Gc | Request::Status => Version::V1_1_0,
        Request::Add(_) | Request::Del(_) | Request::Version => Version::V0_3_0,
    };
    if context.version < since {
        let (given, least) = (context.version.name(), since.name());
        let problem =
            format!("cniVersion: {given:?} does not have this command, expected {least:?} or later");
        return Err(CniError::new(Code::IncompatibleVersion, problem));
    }
    context.deadline.set(conf.deadline()?);
    for key in conf.unknown_keys() {
        log::warn!(key; "unknown configuration key, ignored");
    }
    let done = match request {
        Request::Add(attachment) => return add::add(context, attachment),
        Request::Check(attachment) => check::check(context, attachment),
        Request::Gc => gc(conf),
        Request::Status => status(conf, context.deadline).map(drop),
        Request::Del(_) | Request::Version => Ok(()),
    };
    done.map(|()| String::new())
}

/// Log lines are JSON, and name the pod: the agent's log has those of many. Where they go besides standard
/// error depends on the run directory.
fn start_log(conf: Option<&NetConf<'_>>, pod: Option<&PodName>) {
    let run_dir = conf.and_then(|conf| conf.run_dir().ok());
    log_sink::set_run_dir(run_dir.unwrap_or_else(|| RUN_DIR.into()));
    let format = OptionValue { text: "json".to_owned(), origin: Origin::Document(Key::LogFormat) };
    let level = conf.and_then(NetConf::log_level).map(|level| (Key::LogOutputLevel, level));
    let raw = RawOptions::of([(Key::LogFormat, format)].into_iter().chain(level));
    let fields = pod.map(|pod| ("pod".to_owned(), pod.to_string().into()));
    logging::init_to(config::log_options(&raw), Box::new(LogSink), fields.into_iter().collect());
    // An invalid log level does not prevent a pod from starting.
    if let Some(problem) = config::log_problem(&raw) {
        log::warn!("{}; using info", problem.calling(&|_| format!("{KEY}{LOG_LEVEL}")));
    }
}

/// The versions; the one that is asked for is echoed, as the specification wants it.
fn versions(asked: Option<&str>) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Versions<'a> {
        cni_version: &'a str,
        supported_versions: [&'static str; Version::ALL.len()],
    }
    let is_version =
        |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let versions = Versions {
        cni_version: asked.filter(is_version).unwrap_or(Version::NEWEST.name()),
        supported_versions: Version::ALL.map(Version::name),
    };
    // Strings only: this cannot fail.
    serde_json::to_string(&versions).unwrap_or_default()
}

/// Forgets an attachment. The rules go with the network namespace; nothing that is wrong here keeps a pod
/// from being deleted.
fn del(id: Option<&AttachmentId>, conf: Option<&NetConf<'_>>) {
    let Some(id) = id else {
        log::warn!("DEL without a valid CNI_CONTAINERID and CNI_IFNAME: nothing to remove");
        return;
    };
    let configured = conf.and_then(|conf| conf.run_dir().ok());
    let run_dir = configured.unwrap_or_else(|| RUN_DIR.into());
    match StateDir::new(&run_dir).remove(id) {
        Ok(()) => log::info!(container = id.container, interface = id.interface; "state removed"),
        Err(error) => log::warn!(container = id.container, interface = id.interface; "{}", error.msg),
    }
}

fn gc(conf: &NetConf<'_>) -> Result<(), CniError> {
    let network = conf.name()?;
    let removed = StateDir::new(&conf.run_dir()?).collect(&network, &conf.valid_attachments()?)?;
    log::info!(network, removed; "state of attachments that do not exist any more removed");
    Ok(())
}

/// The settings of a configuration with which pods are captured.
///
/// # Errors
/// Code 7: what ADD of a captured pod would refuse, whatever its annotations are.
pub fn validated(conf: &NetConf<'_>) -> Result<Settings, CniError> {
    conf.deadline()?;
    conf.run_dir()?;
    conf.excludes(&PodName::default())?;
    let settings = conf.settings()?;
    let options = capture::of_istio_annotations(&Pod::default(), &settings.defaults);
    let resolved = options.and_then(|options| options.resolve(settings.backend.as_ref()));
    resolved.map_err(|problem| CniError::new(Code::InvalidConfig, problem))?;
    Ok(settings)
}

/// What would make every ADD of a captured pod fail.
fn status(conf: &NetConf<'_>, deadline: &Deadline) -> Result<Settings, CniError> {
    conf.name()?;
    let run_dir = conf.run_dir()?;
    StateDir::new(&run_dir).writable()?;
    let settings = validated(conf)?;
    let of_runtime = settings.sources.contains(&SourceKind::Annotations) && conf.wants_annotations()?;
    if !of_runtime && settings.on_unknown == OnUnknown::Fail {
        let named = settings.sources.iter().any(|kind| *kind != SourceKind::Annotations);
        let found = if named {
            lookup::connects(&run_dir, deadline)
        } else {
            Err("source is annotations alone".to_owned())
        };
        found.map_err(|problem| {
            CniError::new(
                Code::NotAvailable,
                format!(
                    "nothing reports pods: the runtime hands over no annotations (capabilities has no \
                     {POD_ANNOTATIONS:?}), and no agent responds: {problem}"
                ),
            )
        })?;
    }
    Ok(settings)
}

/// The outcome of ADD for a pod that starts without capture, as a field of its log line.
const NOT_CAPTURED: &str = "not_captured";

/// Logs a pod that is not captured.
fn log_not_captured(pod: &PodName, reason: &dyn std::fmt::Display) {
    log::info!(pod:% = pod, reason:% = reason, outcome = NOT_CAPTURED; "not captured");
}
