//! The config in ConfigMaps.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::sync::watch;

use super::status::{Part, StatusReporter};
use crate::config::{ConfigError, Source, Sources};
use crate::manifests::{NameError, Namespace, Subdomain};
use apiclient::ask;
use apiclient::{Cached, watch};

/// The ConfigMap of the default revision; those of others have `-REVISION` behind it.
const INJECTOR: &str = "istio-sidecar-injector";

/// A ConfigMap, by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMapName {
    /// The namespace of the ConfigMap.
    pub namespace: String,
    /// The name of the ConfigMap.
    pub name: String,
}

impl ConfigMapName {
    /// The ConfigMap with the mesh config, beside it: `istio`, and the revision at its end that this one's
    /// name has.
    #[must_use]
    pub fn mesh(&self) -> String {
        let revision = self.name.strip_prefix("istio-sidecar-injector-");
        revision.map_or_else(|| "istio".to_owned(), |revision| format!("istio-{revision}"))
    }
}

impl FromStr for ConfigMapName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (namespace, name) = text.split_once('/').ok_or_else(|| "expected NAMESPACE/NAME".to_owned())?;
        let bad = |error: NameError| format!("expected NAMESPACE/NAME: {error}");
        Ok(Self {
            namespace: namespace.parse::<Namespace>().map_err(bad)?.as_str().to_owned(),
            name: name.parse::<Subdomain>().map_err(bad)?.as_str().to_owned(),
        })
    }
}

impl fmt::Display for ConfigMapName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

type Data = BTreeMap<String, String>;

/// Config, values and mesh config of an installation, read once.
///
/// # Errors
///
/// The ConfigMap that does not exist or cannot be read.
pub async fn sources(client: &Client, config: &ConfigMapName) -> Result<Sources, String> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &config.namespace);
    let read = async |name: &str| {
        let title = format!("ConfigMap {}/{name}", config.namespace);
        match ask(api.get_opt(name)).await {
            Ok(Some(map)) => Ok(Source::of_config_map(&config.namespace, name, map.data.unwrap_or_default())),
            Ok(None) => Err(format!(
                "{title} does not exist, expected that of an installation: give --istio-namespace or --revision{}",
                installed(&api).await
            )),
            Err(failed) => Err(format!("{title}: {}", failed.problem)),
        }
    };
    Ok(Sources::of_cluster(read(&config.name).await?, Some(read(&config.mesh()).await?)))
}

/// The revisions that are installed, as an addition to a message; empty, if there are none or they cannot be
/// read.
async fn installed(api: &Api<ConfigMap>) -> String {
    let all = ask(api.list_metadata(&ListParams::default())).await.map(|list| list.items).unwrap_or_default();
    let suffixes = all.iter().filter_map(|map| map.metadata.name.as_deref()?.strip_prefix(INJECTOR));
    let revisions = suffixes.filter_map(|suffix| match suffix {
        "" => Some("default"),
        _ => suffix.strip_prefix('-'),
    });
    let revisions: Vec<&str> = revisions.collect();
    if revisions.is_empty() { String::new() } else { format!("; installed: {}", revisions.join(", ")) }
}

/// Loads the config, now and after every change.
pub(super) async fn run(
    client: Client,
    wanted: &ConfigMapName,
    configure: impl FnMut(Sources) -> Result<u64, Vec<ConfigError>>,
    reporter: &StatusReporter,
) {
    let api: Api<ConfigMap> = Api::namespaced(client, &wanted.namespace);
    let config = watch::Sender::new(Cached::empty());
    let mesh = watch::Sender::new(Cached::empty());
    let mesh_name = wanted.mesh();
    let data = |map: ConfigMap| map.data.unwrap_or_default();
    let (configs, meshes) = (config.subscribe(), mesh.subscribe());
    tokio::select! {
        never = watch(api.clone(), Some(&wanted.name), data, &config) => match never {},
        never = watch(api, Some(&mesh_name), data, &mesh) => match never {},
        () = reconcile(wanted, configs, meshes, configure, reporter) => {}
    }
}

async fn reconcile(
    wanted: &ConfigMapName,
    mut config: watch::Receiver<Cached<Data>>,
    mut mesh: watch::Receiver<Cached<Data>>,
    mut configure: impl FnMut(Sources) -> Result<u64, Vec<ConfigError>>,
    reporter: &StatusReporter,
) {
    let mut loader = Loader::new(wanted.clone());
    loop {
        let sources = loader.next_sources(&config.borrow_and_update(), &mesh.borrow_and_update());
        if let Some(sources) = sources {
            let result = configure(sources);
            if let Ok(generation) = &result {
                let detail = format!("ConfigMap {wanted}, generation {generation}");
                reporter.info("config", "ConfigMap loaded", detail);
            }
            loader.record(result);
        }
        reporter.report("config", |status| &mut status.config, &loader.part());
        tokio::select! {
            changed = config.changed() => if changed.is_err() { return },
            changed = mesh.changed() => if changed.is_err() { return },
        }
    }
}

/// What was loaded last, and the result.
struct Loader {
    wanted: ConfigMapName,
    last: Option<Sources>,
    mesh: Option<Source>,
    /// Whether a config was ever loaded.
    loaded: bool,
    /// The problem of the last load.
    rejected: Option<String>,
    /// The problem of what is watched.
    unavailable: Option<String>,
}

impl Loader {
    const fn new(wanted: ConfigMapName) -> Self {
        Self { wanted, last: None, mesh: None, loaded: false, rejected: None, unavailable: None }
    }

    /// The sources to load, if they differ from the last ones.
    fn next_sources(&mut self, config: &Cached<Data>, mesh: &Cached<Data>) -> Option<Sources> {
        self.unavailable = config.problem.clone().or_else(|| mesh.problem.clone());
        let (Some(config), Some(mesh)) = (config.only(), mesh.only()) else {
            return None;
        };
        let (namespace, mesh_name) = (&self.wanted.namespace, self.wanted.mesh());
        match (mesh, &self.mesh) {
            (Some(data), _) => self.mesh = Some(Source::of_config_map(namespace, &mesh_name, data.clone())),
            (None, Some(_)) => {
                self.unavailable = Some(format!("ConfigMap {namespace}/{mesh_name} was deleted"))
            }
            (None, None) => {} // the built-in one
        }
        let Some(data) = config else {
            let was = if self.last.is_some() { "was deleted" } else { "does not exist" };
            self.unavailable = Some(format!("ConfigMap {} {was}", self.wanted));
            return None;
        };
        let config = Source::of_config_map(namespace, &self.wanted.name, data.clone());
        let sources = Sources::of_cluster(config, self.mesh.clone());
        if self.last.as_ref() == Some(&sources) {
            return None;
        }
        self.last = Some(sources.clone());
        Some(sources)
    }

    fn record(&mut self, result: Result<u64, Vec<ConfigError>>) {
        match result {
            Ok(_) => (self.loaded, self.rejected) = (true, None),
            Err(errors) => {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                self.rejected = Some(errors.join("; "));
            }
        }
    }

    fn part(&self) -> Part {
        Part::of(self.loaded, self.rejected.clone().or_else(|| self.unavailable.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cached(text: Option<&str>) -> Cached<Data> {
        let data = |text: &str| Data::from([("config".to_owned(), text.to_owned())]);
        let objects = text.map(|text| BTreeMap::from([("x".to_owned(), data(text))]));
        Cached { objects: Some(objects.unwrap_or_default()), problem: None }
    }

    #[test]
    fn every_config_is_loaded_once() {
        let mut loader = Loader::new("ns/x".parse().expect("a name"));
        assert_eq!(loader.next_sources(&Cached::empty(), &cached(None)), None);
        assert_eq!(loader.part(), Part::Waiting(None));
        assert_eq!(loader.next_sources(&cached(None), &cached(None)), None);
        assert_eq!(loader.part(), Part::Waiting(Some("ConfigMap ns/x does not exist".to_owned())));
        assert!(loader.next_sources(&cached(Some("a")), &cached(None)).is_some());
        loader.record(Ok(1));
        assert_eq!(loader.part(), Part::Good);
        assert_eq!(loader.next_sources(&cached(Some("a")), &cached(None)), None);
        assert!(
            loader.next_sources(&cached(Some("a")), &cached(Some("mesh"))).is_some(),
            "the mesh config counts too"
        );
        loader.record(Ok(2));
        assert_eq!(
            loader.next_sources(&cached(Some("a")), &cached(None)),
            None,
            "and stays when it is deleted"
        );
        assert_eq!(loader.part(), Part::Stale("ConfigMap ns/istio was deleted".to_owned()));
        assert_eq!(loader.next_sources(&cached(None), &cached(Some("mesh"))), None);
        assert_eq!(loader.part(), Part::Stale("ConfigMap ns/x was deleted".to_owned()));
    }
}
