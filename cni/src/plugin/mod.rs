//! The commands.

mod add;
mod check;

use std::io;
use std::path::Path;

use istio_iptables::cli::{Given, Key, Origin, RawOptions};
use istio_iptables::kernel::process::SystemHost;
use istio_iptables::{config, logging};
use serde::Serialize;

use crate::environment::{AttachmentId, PodName, Request};
use crate::error::{CniError, Code};
use crate::netconf::{NetConf, Settings};
use crate::state::StateDir;
use crate::version::Version;
use crate::watch::Watch;

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
    watch: &'a Watch,
    machine: &'a SystemHost,
}

/// Runs a command.
#[must_use]
pub fn run(request: &Request, input: io::Result<Vec<u8>>, watch: &Watch, machine: &SystemHost) -> Outcome {
    let input = input.map_err(|error| {
        let code = if error.kind() == io::ErrorKind::TimedOut { Code::TryAgainLater } else { Code::Io };
        CniError::new(code, format!("standard input: {error}"))
    });
    let conf = input.as_ref().map_err(Clone::clone).and_then(|bytes| NetConf::parse(bytes));
    let conf = match (request, conf) {
        (Request::Version, conf) => {
            let asked = conf.ok().and_then(|conf| conf.version_text());
            return Outcome { version: Version::NEWEST, result: Ok(versions(asked.as_deref())) };
        }
        (Request::Del(id), conf) => {
            start_log(conf.as_ref().ok());
            del(id.as_ref(), conf.ok().as_ref());
            return Outcome { version: Version::NEWEST, result: Ok(String::new()) };
        }
        (Request::Add(_) | Request::Check(_) | Request::Gc | Request::Status, Ok(conf)) => conf,
        (Request::Add(_) | Request::Check(_) | Request::Gc | Request::Status, Err(error)) => {
            return Outcome::early(error);
        }
    };
    start_log(Some(&conf));
    match conf.version() {
        Ok(version) => {
            Outcome { version, result: dispatch(request, &Context { conf: &conf, version, watch, machine }) }
        }
        Err(error) => Outcome::early(error),
    }
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
    context.watch.limit(conf.deadline()?);
    for key in conf.unknown_keys() {
        log::warn!(key; "unknown configuration key, ignored");
    }
    let done = match request {
        Request::Add(attachment) => {
            return add::add(context, attachment).map_err(CniError::with_details_logged);
        }
        Request::Check(attachment) => check::check(context, attachment),
        Request::Gc => gc(conf),
        Request::Status => status(conf).map(drop),
        Request::Del(_) | Request::Version => Ok(()),
    };
    done.map(|()| String::new())
}

/// Log lines go to standard error, as JSON.
fn start_log(conf: Option<&NetConf<'_>>) {
    let format = Given { text: "json".to_owned(), origin: Origin::Document(Key::LogFormat) };
    let level = conf.and_then(NetConf::log_level).map(|level| (Key::LogOutputLevel, level));
    let raw = RawOptions::of([(Key::LogFormat, format)].into_iter().chain(level));
    logging::init(config::log_options(&raw));
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

/// Forgets an attachment. The rules go with the network namespace; nothing that is wrong here keeps a pod from being deleted.
fn del(id: Option<&AttachmentId>, conf: Option<&NetConf<'_>>) {
    let Some(id) = id else {
        log::warn!("DEL without a valid CNI_CONTAINERID and CNI_IFNAME: nothing to remove");
        return;
    };
    let configured = conf.and_then(|conf| conf.run_dir().ok());
    let run_dir = configured.unwrap_or_else(|| Path::new(crate::netconf::RUN_DIR).to_owned());
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

/// What would make every ADD of a captured pod fail.
fn status(conf: &NetConf<'_>) -> Result<Settings, CniError> {
    conf.name()?;
    StateDir::new(&conf.run_dir()?).writable()?;
    conf.settings()
}

/// Logs a pod that is not captured.
fn passed(pod: &PodName, reason: &dyn std::fmt::Display) {
    log::info!(pod:% = pod, reason:% = reason; "not captured");
}
