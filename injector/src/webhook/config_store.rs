//! The config and the state of the cluster, on which reviews depend. Hot reload replaces them as a whole
//! while serving.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::cluster::ClusterState;
use crate::config::{ConfigError, Sources};
use crate::inject::{Injector, Options, validate};
use gotemplate::Functions;

/// The active config.
#[derive(Debug)]
pub struct ActiveConfig {
    /// The injector with this config.
    pub injector: Injector,
    /// Number of configs that have become active, from 1; 0 is the placeholder before the first one.
    pub generation: u64,
}

/// The result of loading.
#[derive(Clone, Debug, Default)]
pub struct ReloadMetrics {
    /// Rejected configs.
    pub errors: Counter,
    /// The active generation.
    pub generation: Gauge,
    /// When a config was last accepted, in seconds since 1970.
    pub success: Gauge,
    /// 1 while the newest config is rejected and an older one is active.
    pub stale: Gauge,
}

/// The last loaded content: loading it again is neither a new generation nor a new error.
#[derive(Debug, Default)]
struct LastLoads {
    accepted: Option<Sources>,
    rejected: Option<(Sources, Vec<ConfigError>)>,
}

/// The active config and the state of the cluster.
#[derive(Debug)]
pub struct ConfigStore {
    active: ArcSwap<ActiveConfig>,
    cluster_state: ArcSwap<ClusterState>,
    last_loads: Mutex<LastLoads>,
    metrics: ReloadMetrics,
}

impl ConfigStore {
    /// Starts with a config.
    #[must_use]
    pub fn new(injector: Injector, cluster_state: ClusterState) -> Self {
        let store = Self::with(ActiveConfig { injector, generation: 1 }, cluster_state);
        store.metrics.generation.set(1);
        store
    }

    /// Starts without a config: the built-in one is a placeholder with which no pod is reviewed.
    /// Errors: when the built-in config cannot be read, which a test excludes.
    pub(crate) fn unconfigured(options: Options, functions: &Functions) -> Result<Self, Vec<ConfigError>> {
        let injector = Injector::new(Sources::default().load(functions)?, options);
        Ok(Self::with(ActiveConfig { injector, generation: 0 }, ClusterState::default()))
    }

    fn with(active: ActiveConfig, cluster_state: ClusterState) -> Self {
        Self {
            active: ArcSwap::from_pointee(active),
            cluster_state: ArcSwap::from_pointee(cluster_state),
            last_loads: Mutex::default(),
            metrics: ReloadMetrics::default(),
        }
    }

    /// The active config.
    #[must_use]
    pub fn active(&self) -> Arc<ActiveConfig> {
        self.active.load_full()
    }

    /// Whether there is a config to review with.
    pub(crate) fn is_configured(&self) -> bool {
        self.active.load().generation > 0
    }

    /// The state of the cluster.
    #[must_use]
    pub fn cluster_state(&self) -> Arc<ClusterState> {
        self.cluster_state.load_full()
    }

    /// The result of loading.
    #[must_use]
    pub const fn metrics(&self) -> &ReloadMetrics {
        &self.metrics
    }

    /// Replaces the config, without validation; its generation.
    pub fn replace(&self, injector: Injector) -> u64 {
        let _one_at_a_time = self.last_loads.lock().unwrap_or_else(PoisonError::into_inner);
        self.swap(injector)
    }

    fn swap(&self, injector: Injector) -> u64 {
        let generation = self.active.load().generation + 1;
        self.active.store(Arc::new(ActiveConfig { injector, generation }));
        self.metrics.generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
        generation
    }

    /// Replaces the state of the cluster.
    pub fn set_cluster_state(&self, cluster_state: ClusterState) {
        self.cluster_state.store(Arc::new(cluster_state));
    }

    /// Replaces the config by a valid one: it can be read, and a sample pod can be injected with it. An
    /// invalid one is logged and counted, and the last valid one stays active. The active generation.
    ///
    /// # Errors
    ///
    /// Every problem of the config.
    pub fn configure(&self, sources: &Sources, functions: &Functions) -> Result<u64, Vec<ConfigError>> {
        let mut last = self.last_loads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((rejected, problems)) = &last.rejected
            && rejected == sources
        {
            return Err(problems.clone());
        }
        if last.accepted.as_ref() == Some(sources) {
            let generation = self.active.load().generation;
            if last.rejected.take().is_some() || self.metrics.stale.get() != 0 {
                log::info!(generation; "config reverted to the active one");
            }
            self.succeeded();
            return Ok(generation);
        }
        match self.read(sources, functions) {
            Ok(injector) => {
                let generation = self.swap(injector);
                *last = LastLoads { accepted: Some(sources.clone()), rejected: None };
                self.succeeded();
                log::info!(generation; "config loaded");
                Ok(generation)
            }
            Err(problems) => {
                last.rejected = Some((sources.clone(), problems.clone()));
                self.failed(&problems);
                Err(problems)
            }
        }
    }

    /// Records that the config cannot be read: the last valid one stays active.
    pub(crate) fn unreadable(&self, problems: &[ConfigError]) {
        let mut last = self.last_loads.lock().unwrap_or_else(PoisonError::into_inner);
        last.rejected = None; // the next one is new in any case
        self.failed(problems);
    }

    fn read(&self, sources: &Sources, functions: &Functions) -> Result<Injector, Vec<ConfigError>> {
        let settings = sources.load(functions)?;
        let name = sources.config.as_ref().map_or("built-in config", |source| &source.name);
        let unusable = |problem: String| ConfigError::unusable(name, problem);
        for warning in &settings.warnings {
            log::warn!(detail = warning.as_str(); "config warning");
        }
        let mut problems = Vec::new();
        if let Some(problem) = validate::policy(&settings.injector.rules.policy) {
            log::error!(detail = problem.as_str(); "config injects no pod");
            // It never replaces one that injects; at the start there is none to keep.
            if self.is_configured() {
                problems.push(unusable(problem));
            }
        }
        let injector = Injector::new(settings, self.active.load().injector.options.clone());
        problems.extend(validate::inject(&injector).into_iter().map(unusable));
        if problems.is_empty() { Ok(injector) } else { Err(problems) }
    }

    fn succeeded(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.metrics.success.set(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        self.metrics.stale.set(0);
    }

    fn failed(&self, problems: &[ConfigError]) {
        self.metrics.errors.inc();
        let generation = self.active.load().generation;
        self.metrics.stale.set(i64::from(generation > 0));
        // At the start, the caller reports them.
        for problem in problems.iter().filter(|_| generation > 0) {
            log::error!(detail = problem.to_string().as_str(), generation; "config rejected");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{BUILTIN_CONFIG, Source};
    use crate::inject::functions;

    fn sources(text: &str) -> Sources {
        let config = Source { name: "config".to_owned(), text: text.to_owned() };
        Sources { config: Some(config), ..Sources::default() }
    }

    #[test]
    fn invalid_config_never_replaces_a_valid_one() {
        let functions = functions(|_| None);
        let store = ConfigStore::unconfigured(Options::default(), &functions).unwrap();
        assert!(!store.is_configured());
        assert!(store.configure(&sources("templates: {sidecar: '{{ if }}'}"), &functions).is_err());
        assert_eq!(
            (store.is_configured(), store.metrics().stale.get(), store.metrics().errors.get()),
            (false, 0, 1)
        );
        let with_values = |text: &str| Sources {
            values: Some(Source {
                name: "values".to_owned(),
                text: crate::config::BUILTIN_VALUES.to_owned(),
            }),
            ..sources(text)
        };
        let good = with_values(BUILTIN_CONFIG);
        assert_eq!(store.configure(&good, &functions), Ok(1));
        assert_eq!(store.configure(&good, &functions), Ok(1), "the same again");
        let cut_off = BUILTIN_CONFIG.split_once("      initContainers:").unwrap().0;
        for bad in
            ["policy: enable", "templates: {sidecar: '{{ if }}'}", "policy: [", "no config at all", cut_off]
        {
            let before = store.metrics().errors.get();
            let problems = store.configure(&with_values(bad), &functions).unwrap_err();
            assert_eq!(store.configure(&with_values(bad), &functions), Err(problems), "the same again");
            assert_eq!(store.metrics().errors.get(), before + 1, "{bad}");
            assert_eq!((store.active().generation, store.metrics().stale.get()), (1, 1), "{bad}");
        }
        assert_eq!(store.configure(&good, &functions), Ok(1));
        assert_eq!(store.metrics().stale.get(), 0);
        assert_eq!(store.configure(&with_values(&format!("{BUILTIN_CONFIG}\n")), &functions), Ok(2));
    }

    #[test]
    fn unknown_policy_is_loaded_without_an_earlier_config() {
        let functions = functions(|_| None);
        let store = ConfigStore::unconfigured(Options::default(), &functions).unwrap();
        let text = BUILTIN_CONFIG.replace("policy: enabled", "policy: enable");
        let mut config = sources(&text);
        config.values =
            Some(Source { name: "values".to_owned(), text: crate::config::BUILTIN_VALUES.to_owned() });
        assert_eq!(store.configure(&config, &functions), Ok(1));
    }
}
