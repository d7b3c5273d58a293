//! What answers depend on, besides the request: config, and what the cluster says. Swapped as a whole, while serving.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::config::{ConfigError, Problem, Sources};
use crate::inject::validate;
use crate::inject::{Injector, Options};
use crate::pod::ids::Ids;
use gotemplate::Functions;

/// A config in force.
#[derive(Debug)]
pub struct Active {
    /// The engine with this config.
    pub injector: Injector,
    /// Counts the configs that were in force, from 1; 0 is the placeholder before the first one.
    pub generation: u64,
}

/// What the cluster says about where pods run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Whether proxies are native sidecars, where the pod does not say.
    pub native_sidecars: bool,
    /// By namespace: what it prescribes, or why that cannot be read.
    pub namespaces: HashMap<String, Result<Ids, String>>,
    /// Whether every namespace prescribes something, as on OpenShift: one that is not in the list has not been heard of yet.
    pub prescribed: bool,
}

/// How loading went, for metrics.
#[derive(Clone, Debug, Default)]
pub struct Loads {
    /// Configs that were refused.
    pub errors: Counter,
    /// The generation in force.
    pub generation: Gauge,
    /// When a config was last found good, in seconds since 1970.
    pub success: Gauge,
    /// 1 while the newest config is refused and an older one is in force.
    pub stale: Gauge,
}

/// What was tried last, so that the same again is neither a new generation nor a new error.
#[derive(Debug, Default)]
struct Tried {
    good: Option<Sources>,
    bad: Option<(Sources, Vec<ConfigError>)>,
}

/// Config and surroundings, as they are now.
#[derive(Debug)]
pub struct Live {
    active: ArcSwap<Active>,
    surroundings: ArcSwap<Surroundings>,
    tried: Mutex<Tried>,
    loads: Loads,
}

impl Live {
    /// Starts with a config.
    #[must_use]
    pub fn new(injector: Injector, surroundings: Surroundings) -> Self {
        let live = Self::holding(Active { injector, generation: 1 }, surroundings);
        live.loads.generation.set(1);
        live
    }

    /// Starts without a config: the built-in one is a placeholder that nobody is answered with.
    ///
    /// # Errors
    ///
    /// When the built-in config cannot be read, which a test excludes.
    pub fn waiting(options: Options, functions: &Functions) -> Result<Self, Vec<ConfigError>> {
        let injector = Injector::new(Sources::default().load(functions)?, options);
        Ok(Self::holding(Active { injector, generation: 0 }, Surroundings::default()))
    }

    fn holding(active: Active, surroundings: Surroundings) -> Self {
        Self {
            active: ArcSwap::from_pointee(active),
            surroundings: ArcSwap::from_pointee(surroundings),
            tried: Mutex::default(),
            loads: Loads::default(),
        }
    }

    /// The config in force.
    #[must_use]
    pub fn active(&self) -> Arc<Active> {
        self.active.load_full()
    }

    /// Whether there is a config to answer with.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        self.active.load().generation > 0
    }

    /// Where pods run.
    #[must_use]
    pub fn surroundings(&self) -> Arc<Surroundings> {
        self.surroundings.load_full()
    }

    /// How loading went.
    #[must_use]
    pub const fn loads(&self) -> &Loads {
        &self.loads
    }

    /// Puts another config in force, whatever it is; its generation.
    pub fn replace(&self, injector: Injector) -> u64 {
        let _one_at_a_time = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        self.swap(injector)
    }

    fn swap(&self, injector: Injector) -> u64 {
        let generation = self.active.load().generation + 1;
        self.active.store(Arc::new(Active { injector, generation }));
        self.loads.generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
        generation
    }

    /// Notes what the cluster says now.
    pub fn surround(&self, surroundings: Surroundings) {
        self.surroundings.store(Arc::new(surroundings));
    }

    /// Puts a config in force, if it is good: one that can be read, and with which a sample pod can be injected. If it
    /// is not, what is in force stays, and that is logged and counted. The generation in force.
    ///
    /// # Errors
    ///
    /// Every problem of the config.
    pub fn configure(&self, sources: &Sources, functions: &Functions) -> Result<u64, Vec<ConfigError>> {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((bad, problems)) = &tried.bad
            && bad == sources
        {
            return Err(problems.clone());
        }
        if tried.good.as_ref() == Some(sources) {
            let generation = self.active.load().generation;
            if tried.bad.take().is_some() || self.loads.stale.get() != 0 {
                log::info!(generation; "the config is again the one in force");
            }
            self.succeeded();
            return Ok(generation);
        }
        match self.read(sources, functions) {
            Ok(injector) => {
                let generation = self.swap(injector);
                *tried = Tried { good: Some(sources.clone()), bad: None };
                self.succeeded();
                log::info!(generation; "config in force");
                Ok(generation)
            }
            Err(problems) => {
                tried.bad = Some((sources.clone(), problems.clone()));
                self.failed(&problems);
                Err(problems)
            }
        }
    }

    /// Notes that there is no config to read where there should be one: what is in force stays.
    pub fn unreadable(&self, problems: &[ConfigError]) {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        tried.bad = None; // whatever comes next is news
        self.failed(problems);
    }

    fn read(&self, sources: &Sources, functions: &Functions) -> Result<Injector, Vec<ConfigError>> {
        let settings = sources.load(functions)?;
        let name = sources.config.as_ref().map_or("built-in config", |source| &source.name);
        let bad = |problem: String| ConfigError {
            source: name.to_owned(),
            place: String::new(),
            problem: Problem::Unusable(problem),
        };
        for warning in &settings.warnings {
            log::warn!(detail = warning.as_str(); "the config is odd");
        }
        let mut problems = Vec::new();
        if let Some(problem) = validate::policy(&settings.injector.rules.policy) {
            log::error!(detail = problem.as_str(); "nobody is injected with this config");
            // It never takes the place of one that injects; at the start there is none to keep.
            if self.is_configured() {
                problems.push(bad(problem));
            }
        }
        let injector = Injector::new(settings, self.active.load().injector.options.clone());
        problems.extend(validate::inject(&injector).into_iter().map(bad));
        if problems.is_empty() { Ok(injector) } else { Err(problems) }
    }

    fn succeeded(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.loads.success.set(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        self.loads.stale.set(0);
    }

    fn failed(&self, problems: &[ConfigError]) {
        self.loads.errors.inc();
        let generation = self.active.load().generation;
        self.loads.stale.set(i64::from(generation > 0));
        // At the start, whoever asked tells what is wrong.
        for problem in problems.iter().filter(|_| generation > 0) {
            log::error!(detail = problem.to_string().as_str(), generation; "config refused");
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
    fn a_bad_config_never_replaces_a_good_one() {
        let functions = functions(|_| None);
        let live = Live::waiting(Options::default(), &functions).unwrap();
        assert!(!live.is_configured());
        assert!(live.configure(&sources("templates: {sidecar: '{{ if }}'}"), &functions).is_err());
        assert_eq!(
            (live.is_configured(), live.loads().stale.get(), live.loads().errors.get()),
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
        assert_eq!(live.configure(&good, &functions), Ok(1));
        assert_eq!(live.configure(&good, &functions), Ok(1), "the same again");
        let cut_off = BUILTIN_CONFIG.split_once("      initContainers:").unwrap().0;
        for bad in
            ["policy: enable", "templates: {sidecar: '{{ if }}'}", "policy: [", "no config at all", cut_off]
        {
            let before = live.loads().errors.get();
            let problems = live.configure(&with_values(bad), &functions).unwrap_err();
            assert_eq!(live.configure(&with_values(bad), &functions), Err(problems), "the same again");
            assert_eq!(live.loads().errors.get(), before + 1, "{bad}");
            assert_eq!((live.active().generation, live.loads().stale.get()), (1, 1), "{bad}");
        }
        assert_eq!(live.configure(&good, &functions), Ok(1));
        assert_eq!(live.loads().stale.get(), 0);
        assert_eq!(live.configure(&with_values(&format!("{BUILTIN_CONFIG}\n")), &functions), Ok(2));
    }

    #[test]
    fn an_unknown_policy_is_in_force_when_there_is_nothing_else() {
        let functions = functions(|_| None);
        let live = Live::waiting(Options::default(), &functions).unwrap();
        let text = BUILTIN_CONFIG.replace("policy: enabled", "policy: enable");
        let mut odd = sources(&text);
        odd.values =
            Some(Source { name: "values".to_owned(), text: crate::config::BUILTIN_VALUES.to_owned() });
        assert_eq!(live.configure(&odd, &functions), Ok(1));
    }
}
