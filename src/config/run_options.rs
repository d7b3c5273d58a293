//! The options that decide what a run does, apart from the rules.

use crate::cli::{Key, RawOptions, SubCommand};
use crate::facts::NameServers;

use super::reader::Reader;
use super::run::{Action, NetworkNamespace, RunOptions, Validation};
use super::{backend, values};

pub(super) fn run(reader: &mut Reader<'_>, name_servers: NameServers) -> Option<RunOptions> {
    let clean = reader.boolean(Key::CleanupOnly) || reader.raw.command == SubCommand::Cleanup;
    let dry_run = reader.boolean(Key::DryRun);
    let skip_rule_apply = reader.boolean(Key::SkipRuleApply);
    let run = RunOptions {
        action: if clean { Action::Cleanup } else { Action::Apply },
        backend: backend::choice(reader),
        dry_run,
        dry_run_file: reader.optional(Key::DryRunFilePath, values::path),
        rules_file: reader.required(Key::RulesFile, values::path),
        skip_rule_apply,
        validation: None,
        force_apply: reader.boolean(Key::ForceApply),
        keep_connections: reader.boolean(Key::KeepConnections),
        verify: reader.boolean(Key::Verify),
        network_namespace: network_namespace(reader),
        cni_mode: reader.boolean(Key::CniMode),
        pod_interface: None,
        name_servers,
    };
    // The parser of the command line has read it.
    reader.required(Key::Config, values::config_file);
    // Istio reconciles only with this option; here every run does.
    reader.boolean(Key::Reconcile);
    let validation = validation(reader);
    if clean && skip_rule_apply {
        let reason = "one removes rules, the other does not change them; keep one of them";
        reader.conflict(Key::CleanupOnly, Key::SkipRuleApply, reason);
    }
    useless(reader, &run);
    Some(RunOptions { validation: validation?.filter(|_| skip_rule_apply || !(dry_run || clean)), ..run })
}

/// The process in whose network namespace the run is, where a valid one is named.
#[must_use]
pub fn target_pid(raw: &RawOptions) -> Option<u32> {
    values::pid(raw.given(Key::Pid)?.text.trim()).ok()
}

fn network_namespace(reader: &mut Reader<'_>) -> Option<NetworkNamespace> {
    // Given as nothing, for instance by a variable that is unset in a script, they would mean this network
    // namespace, which on a node is the node's own.
    let path = reader.required(Key::NetworkNamespace, values::network_namespace);
    let pid = reader.required(Key::Pid, values::pid);
    if path.is_some() && pid.is_some() {
        reader.conflict(Key::NetworkNamespace, Key::Pid, "each names a network namespace; keep one of them");
    }
    path.map(NetworkNamespace::Path).or(pid.map(NetworkNamespace::Pid))
}

/// The probe, if requested; the outer `None` means an error.
#[allow(clippy::option_option, reason = "the two levels differ, as documented above")]
fn validation(reader: &mut Reader<'_>) -> Option<Option<Validation>> {
    let wanted = reader.boolean(Key::RunValidation);
    let port = reader.value(Key::IptablesProbePort, values::probe_port);
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
    const SKIPPED: &str = "rules are not changed (--skip-rule-apply)";
    const DRY: &str = "nothing is changed in a dry run";
    const CLEAN: &str = "this run only removes rules";
    const APPLY: &str = "it is for --cleanup-only: all other runs keep open connections";
    let is_cleanup = run.action == Action::Cleanup;
    reader.no_effect_if(!run.dry_run, Key::DryRunFilePath, "it is for a dry run (--dry-run) only");
    for key in
        [Key::Verify, Key::ForceApply, Key::RulesFile, Key::CleanupOnly, Key::KeepConnections, Key::DryRun]
    {
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
        reader.no_effect_if(true, Key::KeepConnections, APPLY);
    }
    reader.no_effect_if(run.dry_run, Key::Verify, DRY);
}

/// Whether the run writes rules: it neither only removes them nor leaves them unchanged.
pub(super) fn makes_rules(reader: &Reader<'_>) -> bool {
    let is_true = |key| values::boolean(reader.text(key)) == Ok(true);
    reader.raw.command != SubCommand::Cleanup && !is_true(Key::CleanupOnly) && !is_true(Key::SkipRuleApply)
}
