//! The webhook as a process: start, serving, shutdown.

use std::fmt;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use super::admission::Admission;
use super::background::{self, Tasks};
use super::config_store::ConfigStore;
use super::error::ServeError;
use super::health::Health;
use super::metrics::Metrics;
use super::monitoring::{self, Monitoring};
use super::options::{Certificates, ConfigFrom, Listen, ServeOptions};
use super::probe::Probe;
use super::server::{self, AdmissionService, Workers};
use super::shutdown::{Shutdown, Signals};
use super::{config_files, log_queue};
use crate::certs::files::{CertFiles, WatchedCert};
use crate::certs::{CertError, CertResolver};
use crate::cluster::Status;
use crate::config::{ConfigError, ConfigFiles, Sources};
use crate::files;
use crate::inject::functions;
use gotemplate::Functions;

fn runtime(error: impl fmt::Display) -> Vec<ServeError> {
    vec![ServeError::Runtime(error.to_string())]
}

/// Serves until a signal.
/// Errors: every reason not to start; the ports are only opened when there is none.
pub(crate) async fn serve(options: ServeOptions) -> Result<(), Vec<ServeError>> {
    log_panics();
    let mut signals = Signals::new().map_err(runtime)?;
    let shutdown = Shutdown::default();
    let prepared = tokio::select! {
        prepared = Prepared::new(options, shutdown.clone()) => prepared?,
        () = signals.next() => {
            log::warn!("shutdown requested during startup");
            return Ok(());
        }
    };
    let ports = Ports::open(&prepared.tasks.options)?;
    let running = prepared.run(ports).map_err(runtime)?;
    signals.next().await;
    running.shut_down(&shutdown, &mut signals).await;
    Ok(())
}

/// Everything that was read and is valid.
struct Prepared {
    tasks: Tasks,
    from_files: FromFiles,
    cluster: Option<watch::Receiver<Status>>,
    shutdown: Shutdown,
}

impl Prepared {
    async fn new(options: ServeOptions, shutdown: Shutdown) -> Result<Self, Vec<ServeError>> {
        let options = Arc::new(options);
        let functions = Arc::new(functions(variables(&options)));
        let config = ConfigStore::unconfigured(options.injection.clone(), &functions)
            .map_err(|problems| problems.into_iter().map(ServeError::Config).collect::<Vec<_>>())?;
        let stopping = shutdown.stopping.clone();
        let tasks = Tasks { options, config: Arc::new(config), serving: Arc::default(), functions, stopping };
        let reading = tasks.clone();
        // A file system may be unresponsive: signals are received all the same.
        let read = tokio::task::spawn_blocking(move || read(&reading)).await;
        let from_files = read.map_err(runtime)??;
        let cluster = background::start(tasks.clone()).await?;
        Ok(Self { tasks, from_files, cluster, shutdown })
    }

    fn run(self, ports: Ports) -> Result<Running, Box<dyn std::error::Error>> {
        let Self { tasks, from_files: (files, pair), cluster, shutdown } = self;
        let Tasks { options, config, serving, functions, stopping } = tasks;
        let interval = options.limits.watch_interval;
        if let Some((files, loaded)) = files {
            let store = Arc::clone(&config);
            tokio::spawn(config_files::watch(files, loaded, interval, store, functions, stopping.clone()));
        }
        if let Some(pair) = pair {
            tokio::spawn(pair.watch(interval, stopping));
        }
        let metrics = Arc::new(Metrics::new(&config, &serving, cluster.as_ref()));
        let (https, port) = (ports.https.local_addr()?, ports.monitoring.local_addr()?);
        let health = Health {
            config: Arc::clone(&config),
            serving: Arc::clone(&serving),
            probe: Probe::new(https, Arc::clone(&serving)),
            cluster,
            draining: shutdown.draining.clone(),
            last_probe: Mutex::default(),
        };
        let monitoring = Arc::new(Monitoring { health, metrics: Arc::clone(&metrics) });
        tokio::spawn(monitoring::serve(ports.monitoring, monitoring));
        let tls = server::tls_acceptor(serving)?;
        let limits = options.limits;
        let requests = limits.max_requests as usize;
        let service = AdmissionService::new(Admission::new(config), metrics, shutdown.clone(), requests);
        let connections = limits.max_connections as usize;
        let workers = Workers::start()?;
        let server = server::serve(ports.https, tls, Arc::new(service), connections, workers, shutdown);
        let server = tokio::spawn(server);
        let (https, port) = (https.to_string(), port.to_string());
        log::info!(https = https.as_str(), monitoring = port.as_str(); "listening");
        Ok(Running { server, options })
    }
}

/// The environment, as templates see it: an empty variable counts as unset.
fn variables(options: &ServeOptions) -> impl Fn(&str) -> Option<String> + Send + Sync + 'static {
    let variables = options.environment.clone();
    move |name| {
        let found = variables.iter().find(|(key, value)| key == name && !value.is_empty());
        found.map(|(_, value)| value.clone())
    }
}

/// The content of the files, if config and certificate come from files.
type FromFiles = (Option<(ConfigFiles, Sources)>, Option<WatchedCert>);

fn read(tasks: &Tasks) -> Result<FromFiles, Vec<ServeError>> {
    let mut problems = unreadable(&tasks.options);
    if !problems.is_empty() {
        return Err(problems);
    }
    let config = read_config(&tasks.options, &tasks.config, &tasks.functions).unwrap_or_else(|errors| {
        problems.extend(errors.into_iter().map(ServeError::Config));
        None
    });
    let pair = read_pair(&tasks.options, &tasks.serving).unwrap_or_else(|error| {
        problems.push(ServeError::Certificate(error));
        None
    });
    if problems.is_empty() { Ok((config, pair)) } else { Err(problems) }
}

/// Files that cannot be opened, by their flags.
fn unreadable(options: &ServeOptions) -> Vec<ServeError> {
    let mut named: Vec<(&'static str, String)> = Vec::new();
    if let Certificates::Files(CertFiles { cert, key }) = &options.certificates {
        named.extend([("--tls-cert", cert.clone()), ("--tls-key", key.clone())]);
    }
    if let ConfigFrom::Files(files) = &options.config {
        named.extend(files.given().map(|(kind, file)| (kind.flag(), file.to_owned())));
    }
    named.extend(options.kubeconfig.iter().map(|path| ("--kubeconfig", path.to_string_lossy().into_owned())));
    let problem = |(flag, file): (&'static str, String)| {
        let error = files::readable(&file).err()?;
        Some(ServeError::Unreadable { flag, file, error })
    };
    named.into_iter().filter_map(problem).collect()
}

fn read_config(
    options: &ServeOptions,
    config: &ConfigStore,
    functions: &Functions,
) -> Result<Option<(ConfigFiles, Sources)>, Vec<ConfigError>> {
    let ConfigFrom::Files(files) = &options.config else { return Ok(None) };
    let sources = config_files::read(files)?;
    config.configure(&sources, functions)?;
    Ok(Some((files.clone(), sources)))
}

fn read_pair(options: &ServeOptions, serving: &Arc<CertResolver>) -> Result<Option<WatchedCert>, CertError> {
    let Certificates::Files(files) = &options.certificates else { return Ok(None) };
    files.clone().open(Arc::clone(serving)).map(Some)
}

/// The two ports, open.
struct Ports {
    https: TcpListener,
    monitoring: TcpListener,
}

impl Ports {
    fn open(options: &ServeOptions) -> Result<Self, Vec<ServeError>> {
        let bind = |flag: &'static str, listen: Listen| {
            server::bind(listen).map_err(|error| ServeError::Bind { flag, listen, error })
        };
        match (bind("--https-addr", options.https), bind("--monitoring-addr", options.monitoring)) {
            (Ok(https), Ok(monitoring)) => Ok(Self { https, monitoring }),
            (https, monitoring) => Err([https.err(), monitoring.err()].into_iter().flatten().collect()),
        }
    }
}

/// A webhook that serves.
struct Running {
    server: tokio::task::JoinHandle<()>,
    options: Arc<ServeOptions>,
}

impl Running {
    /// Drains, then finishes what was begun: in bounded time, and at once after another signal.
    async fn shut_down(self, shutdown: &Shutdown, signals: &mut Signals) {
        let deadline = Instant::now() + self.options.limits.grace;
        log::info!("shutdown: draining, not ready any more");
        shutdown.draining.cancel();
        let delay = tokio::time::sleep(self.options.limits.drain_delay);
        let end = async {
            delay.await;
            log::info!("shutdown: finishing open requests, accepting no connections");
            shutdown.stopping.cancel();
            tokio::time::timeout_at(deadline, self.server).await.is_ok()
        };
        tokio::select! {
            finished = end => if finished {
                log::info!("shutdown complete");
            } else {
                log::warn!("shutdown timed out: closing open connections");
            },
            () = signals.next() => log::warn!("second signal: closing open connections"),
        }
    }
}

/// Logs panics like other errors.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        let text = panic.payload().downcast_ref::<&str>().map(ToString::to_string);
        let message = text.or_else(|| panic.payload().downcast_ref::<String>().cloned()).unwrap_or_default();
        log::error!(location = location.as_str(), detail = message.as_str(); "panic");
        // Where panics unwind, the other threads go on and do not wait here for the log.
        if cfg!(panic = "abort") {
            log_queue::flush();
        }
    }));
}
