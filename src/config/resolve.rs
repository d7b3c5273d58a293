//! Options as text, and the pod's files, into typed settings: every error at once.

use std::fmt;

use crate::cli::{Key, Kind, Origin, RawOptions, SubCommand};
use crate::facts::{self, Files};

use super::error::{ConfigError, Expected, Warning};
use super::intent::{DnsChoice, FamilyChoice, Intent};
use super::reader::Reader;
use super::run::{Action, BackendChoice, LogFormat, LogOptions, RunOptions, Validation};
use super::{traffic, values};

/// Everything the options say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// What the run does.
    pub run: RunOptions,
    /// Logging.
    pub log: LogOptions,
    /// Which traffic is captured, as far as options can tell.
    pub intent: Intent,
    /// What is odd about the options.
    pub warnings: Vec<Warning>,
    /// The options that differ from their defaults.
    pub given: Vec<GivenOption>,
}

/// An option that differs from its default, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenOption {
    /// The option.
    pub key: Key,
    /// Its text.
    pub text: String,
    /// Where the text comes from.
    pub origin: Origin,
}

/// `istio-inbound-ports=*`, with the variable or file it comes from if it is no flag.
impl fmt::Display for GivenOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.key.spec().name;
        match &self.origin {
            Origin::Flag(_) => write!(f, "{name}={}", self.text),
            Origin::Document(_) => write!(f, "{name}={} (config file)", self.text),
            Origin::Variable(variable) if variable == name => write!(f, "{name}={}", self.text),
            Origin::Variable(variable) => write!(f, "{name}={} ({variable})", self.text),
        }
    }
}

/// The logging options alone, so that everything else, errors too, can be written as asked for. What does not parse
/// counts as not given; [`resolve`] reports it.
#[must_use]
pub fn log_options(raw: &RawOptions) -> LogOptions {
    read_log(&mut Reader::new(raw))
}

/// Reads every option.
///
/// # Errors
///
/// All values and combinations that cannot be followed.
pub fn resolve(raw: &RawOptions, files: &Files) -> Result<Resolved, Vec<ConfigError>> {
    let mut reader = Reader::new(raw);
    let log = read_log(&mut reader);
    let run = read_run(&mut reader);
    let intent = read_intent(&mut reader, files);
    match (run, intent) {
        (Some(run), Some(intent)) if reader.errors.is_empty() => Ok(Resolved {
            run,
            log,
            intent,
            warnings: reader.warnings,
            given: differing(raw),
        }),
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

fn read_run(reader: &mut Reader<'_>) -> Option<RunOptions> {
    let clean = reader.boolean(Key::CleanupOnly) || reader.raw.command == SubCommand::Cleanup;
    let dry_run = reader.boolean(Key::DryRun);
    let skip_rule_apply = reader.boolean(Key::SkipRuleApply);
    let run = RunOptions {
        action: if clean { Action::Cleanup } else { Action::Apply },
        backend: backend(reader),
        dry_run,
        dry_run_file: reader.optional(Key::DryRunFilePath, values::path),
        rules_file: reader.optional(Key::RulesFile, values::path),
        skip_rule_apply,
        validation: None,
        force_apply: reader.boolean(Key::ForceApply),
        verify: reader.boolean(Key::Verify),
        network_namespace: reader.optional(Key::NetworkNamespace, values::path),
        cni_mode: reader.boolean(Key::CniMode),
    };
    // Istio converges only when told so; here it is what every run does.
    reader.boolean(Key::Reconcile);
    let validation = validation(reader);
    useless(reader, &run);
    Some(RunOptions {
        validation: validation?.filter(|_| !dry_run && !clean),
        ..run
    })
}

/// The probe, if it is asked for; `None` on the outside after an error.
#[allow(
    clippy::option_option,
    reason = "the two levels mean different things, said above"
)]
fn validation(reader: &mut Reader<'_>) -> Option<Option<Validation>> {
    let wanted = reader.boolean(Key::RunValidation);
    let port = reader.value(Key::IptablesProbePort, values::port);
    let timeout = reader.value(Key::ProbeTimeout, values::duration);
    for key in [Key::IptablesProbePort, Key::ProbeTimeout] {
        let differs = reader.text(key) != key.spec().default;
        reader.no_effect_if(differs && !wanted, key, "it is for the probe of --run-validation");
    }
    let (port, timeout) = (port?, timeout?);
    Some(wanted.then_some(Validation { port, timeout }))
}

/// Warns of options that do nothing in this kind of run.
fn useless(reader: &mut Reader<'_>, run: &RunOptions) {
    const SKIPPED: &str = "no rule is touched (--skip-rule-apply)";
    const DRY: &str = "nothing is changed in a dry run";
    const CLEAN: &str = "this run only removes rules";
    let is_cleanup = run.action == Action::Cleanup;
    reader.no_effect_if(
        !run.dry_run,
        Key::DryRunFilePath,
        "it is for a dry run (--dry-run) only",
    );
    for key in [
        Key::Verify,
        Key::ForceApply,
        Key::RulesFile,
        Key::CleanupOnly,
        Key::DryRun,
    ] {
        reader.no_effect_if(run.skip_rule_apply, key, SKIPPED);
    }
    if run.skip_rule_apply {
        return;
    }
    if is_cleanup {
        for key in [Key::ForceApply, Key::RunValidation] {
            reader.no_effect_if(true, key, CLEAN);
        }
    } else {
        reader.no_effect_if(run.dry_run, Key::RunValidation, DRY);
    }
    reader.no_effect_if(run.dry_run, Key::Verify, DRY);
}

fn backend(reader: &mut Reader<'_>) -> BackendChoice {
    const NATIVE: &str = "native nftables is not available in this version; iptables-nft programs the same kernel \
                          subsystem (--backend iptables-nft, or auto)";
    let asked = reader.value(Key::Backend, |text| {
        Ok(match text {
            "auto" => Some(BackendChoice::Auto),
            "iptables" => Some(BackendChoice::Iptables),
            "iptables-legacy" => Some(BackendChoice::IptablesLegacy),
            "iptables-nft" => Some(BackendChoice::IptablesNft),
            "nftables" => None,
            _ => return Err(Expected::new("auto, iptables, iptables-nft or iptables-legacy")),
        })
    });
    let native_backend = asked == Some(None);
    let forced = reader.optional(Key::ForceIptablesBinary, |text| match text {
        "legacy" => Ok(BackendChoice::IptablesLegacy),
        "nft" => Ok(BackendChoice::IptablesNft),
        _ => Err(Expected::new("legacy or nft")),
    });
    let native_flag = reader.boolean(Key::NativeNftables);
    for (wanted, key) in [(native_backend, Key::Backend), (native_flag, Key::NativeNftables)] {
        if wanted {
            let origin = reader.origin(key);
            reader.errors.push(ConfigError::Unavailable {
                origin,
                reason: NATIVE,
            });
        }
    }
    let asked = asked.flatten().unwrap_or(BackendChoice::Auto);
    let iptables = matches!(
        asked,
        BackendChoice::Iptables | BackendChoice::IptablesLegacy | BackendChoice::IptablesNft
    );
    let open = matches!(asked, BackendChoice::Auto | BackendChoice::Iptables);
    for (contradiction, one, other) in [
        (
            forced.is_some() && native_flag,
            Key::ForceIptablesBinary,
            Key::NativeNftables,
        ),
        (iptables && native_flag, Key::Backend, Key::NativeNftables),
        (
            forced.is_some() && native_backend,
            Key::Backend,
            Key::ForceIptablesBinary,
        ),
        (
            forced.is_some_and(|forced| !open && forced != asked),
            Key::Backend,
            Key::ForceIptablesBinary,
        ),
    ] {
        if contradiction {
            contradict(
                reader,
                one,
                other,
                "they ask for different backends; keep one of them",
            );
        }
    }
    forced.filter(|_| open).unwrap_or(asked)
}

fn contradict(reader: &mut Reader<'_>, one: Key, other: Key, reason: &'static str) {
    let options = vec![reader.origin(one), reader.origin(other)];
    reader.errors.push(ConfigError::Contradiction { options, reason });
}

fn read_intent(reader: &mut Reader<'_>, files: &Files) -> Option<Intent> {
    let family = family(reader);
    let ports = traffic::ports(reader);
    let proxy = traffic::proxy(reader, files);
    let mode = traffic::mode(reader);
    let inbound = traffic::inbound(reader);
    let outbound = traffic::outbound(reader, files);
    let dns = dns(reader, files);
    let drop_invalid = reader.boolean(Key::DropInvalid);
    let interfaces = |reader: &mut Reader<'_>, key| reader.list(key, |_, item| values::interface(item));
    let excluded_interfaces = interfaces(reader, Key::ExcludeInterfaces);
    let virtual_interfaces = interfaces(reader, Key::KubeVirtInterfaces);
    let loopback_v4 = traffic::loopback(reader);
    Some(Intent {
        family: family?,
        ports: ports?,
        proxy,
        mode: mode?,
        inbound,
        outbound,
        dns,
        drop_invalid,
        excluded_interfaces,
        virtual_interfaces,
        loopback_v4: loopback_v4?,
    })
}

fn family(reader: &mut Reader<'_>) -> Option<FamilyChoice> {
    let dual_stack = reader.boolean(Key::DualStack);
    let choice = reader.value(Key::IpFamily, |text| match text {
        "auto" => Ok(FamilyChoice::Auto),
        "dual" => Ok(FamilyChoice::Dual),
        "ipv4" => Ok(FamilyChoice::Ipv4),
        "ipv6" => Ok(FamilyChoice::Ipv6),
        _ => Err(Expected::new("auto, ipv4, ipv6 or dual")),
    });
    match choice? {
        FamilyChoice::Auto | FamilyChoice::DualStack if dual_stack => Some(FamilyChoice::DualStack),
        FamilyChoice::Ipv4 | FamilyChoice::Ipv6 if dual_stack => {
            contradict(
                reader,
                Key::DualStack,
                Key::IpFamily,
                "one asks for both families, the other for a single one",
            );
            None
        }
        choice => Some(choice),
    }
}

fn dns(reader: &mut Reader<'_>, files: &Files) -> DnsChoice {
    let redirect = reader.boolean(Key::RedirectDns);
    let all = reader.boolean(Key::CaptureAllDns);
    reader.no_effect_if(
        !redirect,
        Key::CaptureAllDns,
        "DNS is captured with --redirect-dns only",
    );
    // A run that makes no rules has no use for the servers.
    let clean = reader.raw.command == SubCommand::Cleanup
        || [Key::CleanupOnly, Key::SkipRuleApply]
            .into_iter()
            .any(|key| values::boolean(reader.text(key)) == Ok(true));
    match (redirect, all, &files.resolv_conf) {
        (false, _, _) => DnsChoice::Off,
        (true, true, _) => DnsChoice::All,
        (true, false, Ok(text)) => DnsChoice::Servers(facts::name_servers(text)),
        (true, false, Err(_)) if clean => DnsChoice::Off,
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
