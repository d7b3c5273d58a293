//! Parses options and the pod's files into typed settings, with all errors at once.

use std::fmt;
use std::net::IpAddr;

use crate::cli::{Heading, Key, Kind, Origin, RawOptions, SubCommand};
use crate::facts::{self, Files};
use crate::model::Family;
use crate::text::one_line;

use super::Traffic;
use super::capture_annotation::is_about_traffic;
use super::error::{ConfigError, Expected, Warning};
use super::intent::{DnsChoice, FamilyChoice, Intent};
use super::packet_query::{self, PacketQuery};
use super::question::{self, Color, DiffQuery, GuardOptions, ObserveOptions, Question};
use super::reader::Reader;
use super::run::{LogFormat, LogOptions, RunOptions};
use super::{ports, run_options, traffic, values};

/// All resolved options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Run options.
    pub run: RunOptions,
    /// Logging.
    pub log: LogOptions,
    /// The packet that is to be explained; `None` in a run.
    pub query: Option<PacketQuery>,
    /// A question about the live rules; `None` in a run, and for `explain`.
    pub question: Option<Question>,
    /// The rule sets that are to be compared; `None` in a run.
    pub diff: Option<DiffQuery>,
    /// How the live rules are to be guarded; `None` but for `guard`.
    pub guard: Option<GuardOptions>,
    /// Which connections are to be reported; `None` but for `observe`.
    pub observe: Option<ObserveOptions>,
    /// Whether the report has colours.
    pub color: Color,
    /// Whether neither a sub-command nor any option is given.
    pub is_bare: bool,
    /// Whether lines of the report are never wrapped.
    pub wide: bool,
    /// Which traffic is captured, as far as it follows from options.
    pub intent: Intent,
    /// Warnings about options.
    pub warnings: Vec<Warning>,
    /// The options that differ from their defaults.
    pub given: Vec<GivenOption>,
    /// What the given options are about, also those with their defaults.
    pub scope: OptionScope,
}

/// What the given options are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionScope {
    /// Not about traffic.
    Nothing,
    /// Which families get rules, and nothing else about traffic.
    Families,
    /// Which traffic is captured.
    Traffic,
}

fn scope_of(raw: &RawOptions) -> OptionScope {
    let keys = || raw.iter().map(|(key, _)| key).filter(|key| is_about_traffic(*key));
    if keys().any(|key| key.spec().heading != Heading::Families) {
        OptionScope::Traffic
    } else if keys().next().is_some() {
        OptionScope::Families
    } else {
        OptionScope::Nothing
    }
}

/// An option that differs from its default, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenOption {
    /// The option.
    pub key: Key,
    /// The text of the option.
    pub text: String,
    /// The source of the text.
    pub origin: Origin,
}

impl GivenOption {
    /// Whether it says that only this family is to be captured.
    #[must_use]
    pub fn is_only(&self, family: Family) -> bool {
        let choice = match family {
            Family::V4 => FamilyChoice::Ipv4,
            Family::V6 => FamilyChoice::Ipv6,
        };
        self.key == Key::IpFamily && family_choice(&self.text) == Ok(choice)
    }
}

/// `istio-inbound-ports=*`, with the variable or file it comes from if it is not a flag.
impl fmt::Display for GivenOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, text) = (self.key.spec().name, one_line(&self.text));
        match &self.origin {
            Origin::Flag(_) | Origin::Packet(_) => write!(f, "{name}={text}"),
            Origin::Document(_) => write!(f, "{name}={text} (config file)"),
            Origin::Variable(variable) if variable == name => write!(f, "{name}={text}"),
            Origin::Variable(variable) => write!(f, "{name}={text} ({variable})"),
        }
    }
}

/// The logging options alone, so that everything else, errors too, can be written as asked for. What does not
/// parse counts as not given; [`resolve`] reports it.
#[must_use]
pub fn log_options(raw: &RawOptions) -> LogOptions {
    read_log(&mut Reader::new(raw))
}

/// What [`log_options`] takes for not given, the first of it.
#[must_use]
pub fn log_problem(raw: &RawOptions) -> Option<ConfigError> {
    let mut reader = Reader::new(raw);
    read_log(&mut reader);
    reader.errors.into_iter().next()
}

/// Reads every option.
///
/// # Errors
///
/// All values and combinations that cannot be followed.
pub fn resolve(raw: &RawOptions, files: &Files) -> Result<Resolved, Vec<ConfigError>> {
    let mut reader = Reader::new(raw);
    let log = read_log(&mut reader);
    // The file of the caller says nothing of another network namespace.
    let resolv_conf =
        files.resolv_conf.as_ref().ok().filter(|_| reader.given(Key::NetworkNamespace).is_none());
    let name_servers = resolv_conf.map(|text| facts::name_servers(text)).unwrap_or_default();
    let local_resolver = name_servers.loopback();
    let run = run_options::run(&mut reader, name_servers);
    let intent = read_intent(&mut reader, files, local_resolver);
    let is_question = raw.command == SubCommand::Explain;
    let query = is_question.then(|| packet_query::read(raw, &mut reader.errors)).flatten();
    let question = question::read(raw, files, &mut reader.errors);
    question::conflicts_with_bundle(raw, &mut reader.errors);
    let is_diff = raw.command == SubCommand::Diff;
    let diff = is_diff.then(|| question::read_diff(raw, files, &mut reader.errors)).flatten();
    let is_guard = raw.command == SubCommand::Guard;
    let guard = is_guard.then(|| question::read_guard(raw, &mut reader.errors)).flatten();
    let is_observer = raw.command == SubCommand::Observe;
    let observe = is_observer.then(|| question::read_observe(raw, &mut reader.errors)).flatten();
    let color = question::read_color(raw, &mut reader.errors);
    match (run, intent) {
        (Some(run), Some(intent)) if reader.errors.is_empty() => {
            ports::warn(&mut reader, &intent.traffic.ports, &intent.dns, run.validation);
            Ok(Resolved {
                run,
                log,
                query,
                question,
                diff,
                guard,
                observe,
                color,
                is_bare: !raw.is_named && raw.iter().next().is_none(),
                wide: question::is_wide(raw),
                intent,
                warnings: reader.warnings,
                given: differing(raw),
                scope: scope_of(raw),
            })
        }
        _ => Err(reader.errors),
    }
}

fn read_log(reader: &mut Reader<'_>) -> LogOptions {
    let level = reader.value(Key::LogOutputLevel, values::log_level).flatten();
    let as_json = reader.boolean(Key::LogAsJson);
    let format = reader.optional(Key::LogFormat, values::log_format);
    LogOptions {
        level: level.unwrap_or(log::LevelFilter::Info),
        format: format.unwrap_or(if as_json { LogFormat::Json } else { LogFormat::Text }),
    }
}

fn read_intent(reader: &mut Reader<'_>, files: &Files, local_resolver: Option<IpAddr>) -> Option<Intent> {
    let family = family(reader);
    let ports = ports::read(reader);
    let proxy = traffic::proxy(reader, files);
    let mode = traffic::mode(reader);
    let inbound = traffic::inbound(reader);
    let outbound = traffic::outbound(reader, files);
    let dns = dns(reader, files, local_resolver);
    let drop_invalid = reader.boolean(Key::DropInvalid);
    let interfaces = |reader: &mut Reader<'_>, key| reader.list(key, |_, item| values::interface(item));
    let excluded_interfaces = interfaces(reader, Key::ExcludeInterfaces);
    let virtual_interfaces = interfaces(reader, Key::KubeVirtInterfaces);
    let loopback_v4 = traffic::loopback(reader);
    let traffic = Traffic {
        ports: ports?,
        proxy,
        mode: mode?,
        inbound,
        outbound,
        drop_invalid,
        excluded_interfaces,
        virtual_interfaces,
        loopback_v4: loopback_v4?,
    };
    Some(Intent { family: family?, dns, traffic })
}

fn family_choice(text: &str) -> Result<FamilyChoice, Expected> {
    let expected = Expected::new("auto, ipv4, ipv6 or dual");
    match text {
        "auto" => Ok(FamilyChoice::Auto),
        "dual" => Ok(FamilyChoice::Dual),
        "ipv4" => Ok(FamilyChoice::Ipv4),
        "ipv6" => Ok(FamilyChoice::Ipv6),
        "4" | "v4" | "IPv4" => Err(expected.hint("did you mean ipv4?")),
        "6" | "v6" | "IPv6" => Err(expected.hint("did you mean ipv6?")),
        _ => Err(expected),
    }
}

fn family(reader: &mut Reader<'_>) -> Option<FamilyChoice> {
    let dual_stack = reader.boolean(Key::DualStack);
    let choice = reader.value(Key::IpFamily, family_choice)?;
    if dual_stack && matches!(choice, FamilyChoice::Ipv4 | FamilyChoice::Ipv6) {
        let reason = "one asks for both families, the other for a single one; keep one of them";
        reader.conflict(Key::DualStack, Key::IpFamily, reason);
    }
    Some(if dual_stack && choice == FamilyChoice::Auto { FamilyChoice::DualStack } else { choice })
}

fn dns(reader: &mut Reader<'_>, files: &Files, local_resolver: Option<IpAddr>) -> DnsChoice {
    let redirect = reader.boolean(Key::RedirectDns);
    let all = reader.boolean(Key::CaptureAllDns);
    reader.no_effect_if(!redirect, Key::CaptureAllDns, "DNS is captured with --redirect-dns only");
    match (redirect, all, &files.resolv_conf) {
        (false, _, _) => DnsChoice::Off,
        (true, true, _) => {
            let local = local_resolver.filter(|_| run_options::makes_rules(reader));
            if let Some((server, origin)) = local.zip(reader.given(Key::CaptureAllDns)) {
                reader.warnings.push(Warning::LocalResolver { origin, server });
            }
            DnsChoice::All
        }
        (true, false, Ok(text)) => {
            let makes_rules = run_options::makes_rules(reader);
            if let Some(origin) = reader.given(Key::NetworkNamespace).filter(|_| makes_rules) {
                reader.warnings.push(Warning::NameServersOfCaller { origin });
            }
            DnsChoice::Servers(facts::name_servers(text))
        }
        // A run that makes no rules has no use for the servers.
        (true, false, Err(_)) if !run_options::makes_rules(reader) => DnsChoice::Off,
        (true, false, Err(reason)) => {
            reader.errors.push(ConfigError::Unreadable {
                file: "/etc/resolv.conf",
                reason: reason.clone(),
                needed: "--redirect-dns needs the name servers in it; --capture-all-dns does without",
            });
            DnsChoice::Off
        }
    }
}

fn differing(raw: &RawOptions) -> Vec<GivenOption> {
    raw.iter()
        .filter(|(key, given)| {
            let spec = key.spec();
            match (spec.kind, given.text.trim()) {
                (_, "") => false,
                (Kind::Boolean, text) => values::boolean(text) == Ok(true),
                (Kind::List | Kind::Number | Kind::Text, text) => text != spec.default,
            }
        })
        .map(|(key, given)| GivenOption {
            key,
            text: given.text.trim().to_owned(),
            origin: given.origin.clone(),
        })
        .collect()
}
