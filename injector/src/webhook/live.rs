//! What answers depend on, besides the request: config, and what the cluster says. Swapped as a whole, while serving.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::inject::Injector;
use crate::pod::ids::Ids;

/// A config in force.
#[derive(Debug)]
pub struct Active {
    /// The engine with this config.
    pub injector: Injector,
    /// Counts the configs that were in force, from 1.
    pub generation: u64,
}

/// What the cluster says about where pods run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Whether proxies are native sidecars, where the pod does not say.
    pub native_sidecars: bool,
    /// By namespace: what it prescribes, or why that cannot be read. A namespace that is not here prescribes nothing.
    pub namespaces: HashMap<String, Result<Ids, String>>,
}

/// Config and surroundings, as they are now.
#[derive(Debug)]
pub struct Live {
    active: ArcSwap<Active>,
    surroundings: ArcSwap<Surroundings>,
}

impl Live {
    /// Starts with a config.
    #[must_use]
    pub fn new(injector: Injector, surroundings: Surroundings) -> Self {
        let active = Active { injector, generation: 1 };
        Self { active: ArcSwap::from_pointee(active), surroundings: ArcSwap::from_pointee(surroundings) }
    }

    /// The config in force.
    #[must_use]
    pub fn active(&self) -> Arc<Active> {
        self.active.load_full()
    }

    /// Where pods run.
    #[must_use]
    pub fn surroundings(&self) -> Arc<Surroundings> {
        self.surroundings.load_full()
    }

    /// Puts another config in force.
    pub fn replace(&self, injector: Injector) {
        let generation = self.active.load().generation + 1;
        self.active.store(Arc::new(Active { injector, generation }));
    }

    /// Notes what the cluster says now.
    pub fn surround(&self, surroundings: Surroundings) {
        self.surroundings.store(Arc::new(surroundings));
    }
}
