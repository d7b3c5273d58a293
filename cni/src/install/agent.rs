//! `install-cni`: installs the program and the entry, and maintains them until it is stopped.

use std::path::PathBuf;
use std::sync::Arc;

use istio_iptables::kernel::process::SystemHost;
use istio_iptables::text::path_shown;

use super::error::InstallError;
use super::events::Events;
use super::metrics::Metrics;
use super::node_object::NodeObject;
use super::options::{Install, PodsOptions};
use super::pods::Pods;
use super::probes::Readiness;
use super::reconcile::Installed;
use super::{Program, files, foreign, guard, plugin_log, pods, probes, repair, unexamined, uninstall};

/// Runs until SIGTERM or SIGINT; with `once`, until it is installed.
///
/// # Errors
/// With `once`: what keeps it from being installed. Otherwise only what makes running impossible.
pub fn run(options: &Install, host: &SystemHost, program: &Program) -> Result<(), InstallError> {
    if options.once {
        return Installed::default().reconcile(options, host, program).map(drop);
    }
    // Before any thread starts, as each inherits the mask: the kernel hands a signal to any thread that does
    // not block it.
    let events = Events::new()?;
    let mut options = options.clone();
    let pods = options.pods.as_ref().map(|wanted| connect(wanted, program)).transpose()?;
    let mut installed = Installed::default();
    let mut node = NodeObject::new(pods.clone());
    let readiness = Readiness::default();
    files::create_dir(&options.dirs.run)?;
    plugin_log::serve(&options.dirs.run, &installed.metrics)?;
    watch_pods(&options, host, program, (&installed.metrics, pods.as_ref()))?;
    if let Some(pods) = pods {
        pods::serve(&options.dirs.run, Arc::clone(&pods), &installed.metrics)?;
        if options.repair.is_none() {
            let counted = Arc::clone(&pods);
            installed.metrics.count_uncaptured(move || counted.uncaptured().len());
        }
        let run_dir = options.dirs.run.clone();
        readiness.also(Arc::new(move || pods::problem(&run_dir, pods.as_ref())));
    }
    if let Some(address) = options.listen {
        let bound = probes::serve(address, &readiness, &installed.metrics)
            .map_err(|error| InstallError::new(format!("--listen: {address}: {error}")))?;
        log::info!(address:% = bound; "serving /healthz, /readyz and /metrics");
    }
    loop {
        // Before anything is read: what changes meanwhile is an event.
        events.discard();
        options.mode = node.mode(&options);
        let longest = events.watch(&options);
        let ended = match installed.reconcile(&options, host, program) {
            Ok(wait) => {
                readiness.set(installed.waiting(wait));
                let wait = match wait {
                    None if options.pods.as_ref().is_some_and(|pods| pods.remove_taint) => {
                        node.untaint().min(longest)
                    }
                    wait => wait.unwrap_or(longest),
                };
                events.wait(wait)?
            }
            Err(error) => {
                readiness.set(Some(error.to_string()));
                node.untaint_again();
                installed.failed(&error.to_string(), &events, longest)?
            }
        };
        if ended {
            break;
        }
    }
    finish(&options)
}

/// Begins to guard captured pods, and to repair those without capture.
fn watch_pods(
    options: &Install,
    host: &SystemHost,
    program: &Program,
    (metrics, pods): (&Arc<Metrics>, Option<&Arc<dyn Pods>>),
) -> Result<(), InstallError> {
    let events = options.pods.as_ref().is_some_and(|pods| pods.events);
    if let Some(wanted) = &options.guard {
        let reported = pods.filter(|_| events).cloned();
        guard::start(&options.dirs.run, wanted, host, (metrics, reported))?;
    }
    let Some(wanted) = &options.repair else { return Ok(()) };
    repair::start(repair::Context {
        dirs: options.dirs.clone(),
        options: wanted.clone(),
        host: host.clone(),
        plugin: program.plugin.clone(),
        metrics: Arc::clone(metrics),
        pods: pods.cloned(),
        events,
        resets: options.guard.as_ref().is_some_and(|guard| guard.reset_escaped),
    })
}

fn connect(wanted: &PodsOptions, program: &Program) -> Result<Arc<dyn Pods>, InstallError> {
    let connect = program.pods.ok_or_else(|| {
        InstallError::new("--node-name: not supported by this program, which has no client of the API server; run install-cni")
    })?;
    connect(wanted)
}

fn finish(options: &Install) -> Result<(), InstallError> {
    if !options.uninstall {
        log::info!("stopped; program, entry and state stay, so that pods are captured without the agent");
        return Ok(());
    }
    let changed = uninstall::entry_and_state(&options.dirs)?;
    for one in unexamined::find(&options.dirs.net)? {
        log::warn!("{}: {one}", one.outcome());
    }
    for foreign in foreign::find(&options.dirs)? {
        log::warn!("left: {foreign}");
    }
    log::info!(files = shown(&changed); "uninstalled; the program stays until `istio-cni uninstall --binary`");
    Ok(())
}

fn shown(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path_shown(path)).collect::<Vec<_>>().join(" ")
}
