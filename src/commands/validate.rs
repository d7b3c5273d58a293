//! `--run-validation`: a probe must arrive at the proxy's port, and the live rules must be those of the
//! options.

use crate::apply;
use crate::config::{CaptureConfig, RunOptions, Validation};
use crate::exit::Exit;
use crate::explain;
use crate::kernel::process::Host;
use crate::kernel::{probe, sock_diag};
use crate::model::Port;
use crate::plan::{self, DesiredState};
use crate::report::Failure;

/// Compares the live rules with those of the options. Returns further notes about them.
fn compare(host: &impl Host, desired: &DesiredState, run: &RunOptions) -> Result<Vec<String>, Failure> {
    // A run that put rules in may look into the tables that it wrote.
    let access = if run.skip_rule_apply { apply::Access::Question } else { apply::Access::MayCreateTables };
    let inspection = apply::inspect(host, run.backend, access)?;
    // An earlier run may have left what keeps connections of a family without rules open.
    let desired = &desired.clone().accepting_kept_translation(&inspection.current);
    apply::preconditions::require_active_tables(desired, &inspection.current)?;
    apply::check::rules(host, desired, inspection.decision.backend)?;
    Ok(plan::notices(desired, &inspection.current).all())
}

/// The likely cause: missing rules, or an exemption of the probe although the rules are live.
fn why_not_captured(host: &impl Host, desired: &DesiredState, run: &RunOptions) -> &'static str {
    if compare(host, desired, run).is_ok() {
        "the rules match these options, so the probe is exempt: by an option (does -o, -e, -c lo or \
         ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR cover it? --iptables-probe-port takes another port), or by a foreign rule \
         before ours (`iptables-save`)"
    } else {
        "no rule seems to redirect the proxy's traffic in this pod: did istio-init run, or was the CNI plugin ready before \
         the pod started? delete the pod to have it set up again; as root, `--dry-run` shows what is missing"
    }
}

/// A connection to the probe's port is made and has to arrive at the proxy's.
pub(super) fn validate(
    host: &impl Host,
    config: &CaptureConfig,
    desired: &DesiredState,
    run: &RunOptions,
    validation: Validation,
) -> Result<(), Failure> {
    let first = |ids: &[u32]| ids.first().copied().unwrap_or_default();
    let outcome = probe::probe(&probe::Probe {
        families: config.families,
        capture_ports: [config.traffic.ports.outbound, config.traffic.ports.inbound],
        port: validation.port,
        uid: first(&config.traffic.proxy.uids),
        gid: first(&config.traffic.proxy.gids),
        timeout: validation.timeout,
    });
    let failed =
        |hint: &str| Failure::new(Exit::ValidationFailed, format!("validation failed: {outcome}")).hint(hint);
    match &outcome {
        probe::Outcome::Captured(_) => {
            match validate_rules(host, desired, run) {
                // The validation container may not read rules.
                Err(failure) if matches!(failure.exit, Exit::NoPermission | Exit::Unavailable) => {
                    log::info!(
                        "the live rules are not compared, since they cannot be read: {}",
                        failure.what
                    );
                }
                compared => compared?,
            }
            log::info!("validation passed: {outcome}");
            Ok(())
        }
        probe::Outcome::NotCaptured(_) => {
            let dormant =
                apply::inspect(host, run.backend, apply::Access::Question).ok().and_then(|inspection| {
                    apply::preconditions::require_active_tables(desired, &inspection.current).err()
                });
            Err(dormant.map_or_else(
                || failed(why_not_captured(host, desired, run)),
                |dormant| failed(&dormant.hint.unwrap_or_default()).detail(dormant.what),
            ))
        }
        probe::Outcome::CannotListen { port, .. } => {
            let failure = failed(
                "the proxy's ports must be free while the probe runs: is the proxy running already, or do -p and -z name \
                 a port of the app?",
            );
            Err(match takes_mptcp(*port) {
                true => failure.detail(format!("port {port}: {}", explain::TAKES_MPTCP)),
                false => failure,
            })
        }
        probe::Outcome::Unable { .. } => {
            log::info!("{outcome}: the rules are compared instead");
            validate_rules(host, desired, run).map_err(validation_failed)?;
            log::info!("validation passed: the live rules match the options");
            Ok(())
        }
    }
}

/// Whether a socket of MPTCP listens on a port.
fn takes_mptcp(port: Port) -> bool {
    let listeners = sock_diag::tcp_sockets(&[sock_diag::State::Listen]).unwrap_or_default();
    listeners.iter().any(|found| found.is_mptcp && found.local.port() == port.number())
}

/// The probe goes one way only: the rules of both directions are compared too.
fn validate_rules(host: &impl Host, desired: &DesiredState, run: &RunOptions) -> Result<(), Failure> {
    let notices = compare(host, desired, run).map_err(|failure| {
        if failure.exit == Exit::Refused { validation_failed(failure) } else { failure }
    })?;
    // An applying run has reported it already.
    for notice in notices.iter().filter(|_| run.skip_rule_apply) {
        log::warn!("{notice}");
    }
    Ok(())
}

/// Gives a failure the exit code that reports missing capture.
fn validation_failed(failure: Failure) -> Failure {
    if failure.exit == Exit::ValidationFailed {
        return failure;
    }
    let what = format!("validation failed: {}", failure.what);
    Failure { exit: Exit::ValidationFailed, what, ..failure }
}
