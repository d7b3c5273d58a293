//! The network namespace of a run: whether it may be changed, and entering it.

use crate::apply;
use crate::config::{BackendChoice, NetworkNamespace, RunOptions};
use crate::exit::Exit;
use crate::kernel::capabilities::{self, Capabilities};
use crate::kernel::watch::{self, Watch};
use crate::kernel::{netns, recording, rtnetlink};
use crate::model::Network;
use crate::report::Failure;
use crate::text::{one_line, path_shown};

/// Without NET_ADMIN nothing can be read or written: reported before anything is tried.
pub(super) fn require_net_admin() -> Result<(), Failure> {
    if recording::is_replayed() {
        return Ok(());
    }
    // If the kernel does not say, the first request reports it.
    let has = Capabilities::current().map_or(true, |capabilities| capabilities.net_admin);
    if has {
        return Ok(());
    }
    let failure = Failure::new(Exit::NoPermission, "missing capability NET_ADMIN");
    Err(failure.hint(format!("{}; --dry-run needs neither", capabilities::GRANT)))
}

/// A name that is typed to see its usage captures no machine.
pub(super) fn require_intention() -> Result<(), Failure> {
    if !netns::is_first_of_machine() {
        return Ok(());
    }
    let what = "no option is given, and this is the first network namespace of the machine: the rules would apply to all its traffic";
    Err(Failure::new(Exit::Usage, what)
        .detail("usage: istio-iptables [SUBCOMMAND] [OPTIONS]; `istio-iptables --help` lists them")
        .hint("name a pod with --pid PID, or write the rules of the defaults here by `istio-iptables apply`"))
}

/// A pod with `hostNetwork: true` has the network namespace of its node: rules for it would capture
/// everything there.
pub(super) fn require_other_namespace(run: &RunOptions) -> Result<(), Failure> {
    let Some(namespace) = &run.network_namespace else { return Ok(()) };
    let path = namespace.path();
    // What cannot be opened is reported when it is entered.
    let named = netns::Namespace::open(&path).ok().and_then(|opened| opened.id().ok());
    if named.is_none() || named != netns::NamespaceId::of_thread().ok() {
        return Ok(());
    }
    let option = namespace.option().spec().name;
    let what = format!(
        "--{option}: {} is the network namespace of this process: rules for it would capture all traffic of this machine",
        path_shown(&path)
    );
    Err(Failure::new(Exit::Usage, what).hint(format!(
        "a pod with hostNetwork has no network namespace of its own and cannot be captured: name a process of another pod; to \
         capture this machine, leave --{option} out"
    )))
}

/// A note below a report with fixes: where their commands act. Empty where that is the network namespace in
/// which they are typed.
pub(super) fn of_fixes(run: &RunOptions) -> String {
    let entered = match &run.network_namespace {
        None => return String::new(),
        Some(NetworkNamespace::Pid(pid)) => format!("--target {pid} --net"),
        Some(NetworkNamespace::Path(path)) => format!("--net={}", path_shown(path)),
    };
    format!("\nnote: fixes are for that network namespace, not for this one: `nsenter {entered} COMMAND`\n")
}

pub(super) fn enter(run: &RunOptions) -> Result<(), Failure> {
    if let Some(namespace) = &run.network_namespace {
        netns::enter(&namespace.path()).map_err(|error| {
            let exit = match error {
                netns::EnterError::NoPermission(_) => Exit::NoPermission,
                netns::EnterError::Missing(_)
                | netns::EnterError::NotANamespace(_)
                | netns::EnterError::Other(..) => Exit::Usage,
            };
            let option = namespace.option().spec().name;
            Failure::new(exit, format!("--{option}: {error}")).hint(
                "give the process with --pid, or a path such as /proc/<pid>/ns/net or /var/run/netns/<name>, and run as \
                 root on the host",
            )
        })?;
    }
    // Native nftables runs no tool, and copying the mounts of a busy node takes longer than its rules.
    if run.cni_mode
        && !run.dry_run
        && run.backend != BackendChoice::Nftables
        && let Err(error) = netns::private_mounts_without_nss()
    {
        log::warn!("cannot isolate the tools from the host's name service (nsswitch.conf): {error}");
    }
    Ok(())
}

/// Enters the network namespace and waits until IPv6 addresses can be used, for an answer that holds a second
/// later, too.
pub(super) fn enter_settled(run: &RunOptions) -> Result<(), Failure> {
    enter(run)?;
    // What cannot be read is reported by the inspection.
    if let Ok(Some(own)) = rtnetlink::await_addresses() {
        log::warn!(
            "duplicate address detection of {} on {} has not ended: what is reported of IPv6 may change",
            own.address,
            one_line(&own.interface)
        );
    }
    Ok(())
}

/// Enters the network namespace of a run, and watches it and the process that names it, if one does.
pub(super) fn watch_namespace(run: &RunOptions) -> Result<Watch, Failure> {
    let process = match run.network_namespace {
        Some(NetworkNamespace::Pid(pid)) => Some(watch::process(pid).map_err(|error| {
            Failure::new(Exit::Usage, format!("--pid: process {pid} cannot be watched: {error}"))
        })?),
        Some(NetworkNamespace::Path(_)) | None => None,
    };
    enter(run)?;
    Watch::new(process).map_err(|error| {
        apply::from_kernel(format!("changes of the rules cannot be watched: {error}"), &error)
    })
}

pub(super) fn network() -> Result<Network, Failure> {
    rtnetlink::network()
        .map_err(|error| apply::from_kernel(format!("cannot read the pod's addresses: {error}"), &error))
}
