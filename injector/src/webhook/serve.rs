//! The webhook as a process: from options to its end.

use std::fmt;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::time::Instant;

use super::admit::Admission;
use super::background::{self, Tasks};
use super::config_files::ConfigFiles;
use super::error::ServeError;
use super::health::Health;
use super::live::Live;
use super::log_queue;
use super::metrics::Metrics;
use super::monitoring::{self, Monitoring};
use super::options::{Certificates, ConfigFrom, Listen, ServeOptions};
use super::probe::Probe;
use super::progress::Progress;
use super::server::{self, Door};
use super::shutdown::{Ending, Shutdown, Stage};
use super::signals::Signals;
use crate::certs::files::{PairFiles, WatchedPair};
use crate::certs::{CertError, Serving};
use crate::config::{ConfigError, Sources};
use crate::files;
use crate::inject::functions;
use gotemplate::Functions;

fn runtime(error: impl fmt::Display) -> Vec<ServeError> {
    vec![ServeError::Runtime(error.to_string())]
}

/// Serves until a signal says that it is enough.
///
/// # Errors
///
/// Every reason not to start; the ports are open only when there is none.
pub async fn serve(options: ServeOptions) -> Result<(), Vec<ServeError>> {
    tell_of_panics();
    let mut signals = Signals::new().await.map_err(runtime)?;
    let shutdown = Shutdown::default();
    let ending = shutdown.listen();
    let prepared = tokio::select! {
        prepared = Prepared::new(options, &ending) => prepared?,
        () = signals.next() => {
            log::warn!("asked to end before everything was read");
            return Ok(());
        }
    };
    let ports = Ports::open(&prepared.tasks.options)?;
    let running = prepared.run(ports).map_err(runtime)?;
    signals.next().await;
    running.end(&shutdown, &mut signals).await;
    Ok(())
}

/// Everything that was read and found good.
struct Prepared {
    tasks: Tasks,
    from_files: FromFiles,
    progress: Progress,
}

impl Prepared {
    async fn new(options: ServeOptions, ending: &Ending) -> Result<Self, Vec<ServeError>> {
        let options = Arc::new(options);
        let functions = Arc::new(functions(variables(&options)));
        let live = Live::waiting(options.injection.clone(), &functions)
            .map_err(|problems| problems.into_iter().map(ServeError::Config).collect::<Vec<_>>())?;
        let ending = ending.clone();
        let tasks = Tasks { options, live: Arc::new(live), serving: Arc::default(), functions, ending };
        let reading = tasks.clone();
        // A file system may hang: a signal is heard all the same.
        let read = tokio::task::spawn_blocking(move || read(&reading)).await;
        let from_files = read.map_err(runtime)??;
        let progress = background::start(tasks.clone()).await?;
        Ok(Self { tasks, from_files, progress })
    }

    fn run(self, ports: Ports) -> Result<Running, Box<dyn std::error::Error>> {
        let Tasks { options, live, serving, functions, ending } = self.tasks;
        let interval = options.times.watch_interval;
        let (config, pair) = self.from_files;
        if let Some((files, known)) = config {
            tokio::spawn(files.watch(known, interval, Arc::clone(&live), functions, ending.clone()));
        }
        if let Some(pair) = pair {
            tokio::spawn(pair.watch(interval, ending.clone()));
        }
        let metrics = Arc::new(Metrics::new(&live, &serving, &self.progress));
        let (https, port) = (ports.https.local_addr()?, ports.monitoring.local_addr()?);
        let probe = Probe::new(https, Arc::clone(&serving));
        let health =
            Health::new(Arc::clone(&live), Arc::clone(&serving), probe, self.progress, ending.clone());
        let monitoring = Arc::new(Monitoring { health, metrics: Arc::clone(&metrics) });
        tokio::spawn(monitoring::serve(ports.monitoring, monitoring));
        let tls = server::acceptor(serving)?;
        let admission = Admission::new(Arc::clone(&live), options.cache_bytes);
        let door = Arc::new(Door::new(admission, live, metrics, options.limits.requests));
        let connections = options.limits.connections;
        let server = tokio::spawn(server::serve(ports.https, tls, door, connections, ending));
        let (https, port) = (https.to_string(), port.to_string());
        log::info!(https = https.as_str(), monitoring = port.as_str(); "listening");
        Ok(Running { server, options })
    }
}

/// The environment, as templates see it: an empty variable is like none.
fn variables(options: &ServeOptions) -> impl Fn(&str) -> Option<String> + Send + Sync + 'static {
    let variables = options.environment.clone();
    move |name| {
        let found = variables.iter().find(|(key, value)| key == name && !value.is_empty());
        found.map(|(_, value)| value.clone())
    }
}

/// What files hold, if config and certificate come from files.
type FromFiles = (Option<(ConfigFiles, Sources)>, Option<WatchedPair>);

fn read(tasks: &Tasks) -> Result<FromFiles, Vec<ServeError>> {
    let mut problems = unreadable(&tasks.options);
    if !problems.is_empty() {
        return Err(problems);
    }
    let config = read_config(&tasks.options, &tasks.live, &tasks.functions).unwrap_or_else(|errors| {
        problems.extend(errors.into_iter().map(ServeError::Config));
        None
    });
    let pair = read_pair(&tasks.options, &tasks.serving).unwrap_or_else(|error| {
        problems.push(ServeError::Certificate(error));
        None
    });
    if problems.is_empty() { Ok((config, pair)) } else { Err(problems) }
}

/// Files that cannot be opened, by the flags that name them.
fn unreadable(options: &ServeOptions) -> Vec<ServeError> {
    let (cert, key) = match &options.certificates {
        Certificates::Files { cert, key } => (Some(cert), Some(key)),
        Certificates::SelfSigned { .. } => (None, None),
    };
    let (config, values, mesh) = match &options.config {
        ConfigFrom::Files { config, values, mesh } => (config.as_ref(), values.as_ref(), mesh.as_ref()),
        ConfigFrom::ConfigMap(_) => (None, None, None),
    };
    let kubeconfig = options.kubeconfig.as_ref().map(|path| path.to_string_lossy().into_owned());
    let named = [
        ("--tls-cert", cert),
        ("--tls-key", key),
        ("--inject-config", config),
        ("--values", values),
        ("--mesh-config", mesh),
        ("--kubeconfig", kubeconfig.as_ref()),
    ];
    let problem = |(flag, file): (&'static str, Option<&String>)| {
        let file = file?.clone();
        let error = files::readable(&file).err()?;
        Some(ServeError::Unreadable { flag, file, error })
    };
    named.into_iter().filter_map(problem).collect()
}

fn read_config(
    options: &ServeOptions,
    live: &Live,
    functions: &Functions,
) -> Result<Option<(ConfigFiles, Sources)>, Vec<ConfigError>> {
    let Some(files) = ConfigFiles::of(&options.config) else { return Ok(None) };
    let sources = files.read()?;
    live.configure(&sources, functions)?;
    Ok(Some((files, sources)))
}

fn read_pair(options: &ServeOptions, serving: &Arc<Serving>) -> Result<Option<WatchedPair>, CertError> {
    match &options.certificates {
        Certificates::Files { cert, key } => {
            let files = PairFiles { cert: cert.clone(), key: key.clone() };
            files.open(Arc::clone(serving)).map(Some)
        }
        Certificates::SelfSigned { .. } => Ok(None),
    }
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
    /// Lets others notice, then finishes what was begun; in bounded time, and at once when asked again.
    async fn end(self, shutdown: &Shutdown, signals: &mut Signals) {
        let deadline = Instant::now() + self.options.times.grace;
        log::info!("asked to end: not ready any more");
        shutdown.advance(Stage::Draining);
        let delay = tokio::time::sleep(self.options.times.drain_delay);
        let end = async {
            delay.await;
            log::info!("accepting no more, finishing what was begun");
            shutdown.advance(Stage::Stopping);
            tokio::time::timeout_at(deadline, self.server).await.is_ok()
        };
        tokio::select! {
            finished = end => if finished {
                log::info!("everything is finished");
            } else {
                log::warn!("time is up: what is still open is cut off");
            },
            () = signals.next() => log::warn!("asked again: what is still open is cut off"),
        }
    }
}

/// A panic is a log line like any other.
fn tell_of_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let text = panic.payload().downcast_ref::<&str>().map(ToString::to_string);
        let message = text.or_else(|| panic.payload().downcast_ref::<String>().cloned()).unwrap_or_default();
        log::error!(place = place.as_str(), detail = message.as_str(); "the program failed");
        // Where panics unwind, others go on, and do not wait here for somebody to read the log.
        if cfg!(panic = "abort") {
            log_queue::settle();
        }
    }));
}
