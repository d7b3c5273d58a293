//! An informer: a cache of objects of one kind, kept up to date by `kube::runtime`'s watcher (as its
//! reflector does).
//!
//! After an error the watcher restarts with a list, with exponential backoff: so the cache is current as soon
//! as the API server responds again. The watched objects are few.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Debug;
use std::pin::pin;

use futures_util::StreamExt as _;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::runtime::watcher::{self, DefaultBackoff, Event, watcher};
use kube::{Api, Resource, ResourceExt as _};
use tokio::sync::watch;

use crate::client::describe;

/// Nodes are large: a page of them should not be.
const PAGE_SIZE: u32 = 100;

/// Known facts about the objects.
#[derive(Clone, Debug)]
pub struct Cached<V> {
    /// By namespace and name; nothing until they were listed once.
    pub objects: Option<BTreeMap<String, V>>,
    /// Why this may be outdated.
    pub problem: Option<String>,
}

impl<V> Cached<V> {
    /// Before anything was listed.
    #[must_use]
    pub const fn empty() -> Self {
        Self { objects: None, problem: None }
    }

    /// The only object, once they were listed; and the object, if it exists.
    #[must_use]
    pub fn only(&self) -> Option<Option<&V>> {
        self.objects.as_ref().map(|objects| objects.values().next())
    }
}

/// Watches the object of that name, or all; keeps of each what `keep` returns.
pub async fn watch<K, V>(
    api: Api<K>,
    name: Option<&str>,
    keep: impl Fn(K) -> V,
    cache: &watch::Sender<Cached<V>>,
) -> Infallible
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    V: PartialEq,
{
    let fields = name.map(|name| format!("metadata.name={name}"));
    watch_selected(api, fields.as_deref(), keep, cache).await
}

/// Watches the objects that match a field selector, or all.
pub async fn watch_selected<K, V>(
    api: Api<K>,
    fields: Option<&str>,
    keep: impl Fn(K) -> V,
    cache: &watch::Sender<Cached<V>>,
) -> Infallible
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    V: PartialEq,
{
    let mut config = watcher::Config::default().page_size(PAGE_SIZE);
    if let Some(fields) = fields {
        config = config.fields(fields);
    }
    let mut backoff = DefaultBackoff::default();
    loop {
        let problem = watch_until_error(watcher(api.clone(), config.clone()), &keep, cache).await;
        cache.send_modify(|cached| match problem {
            Some(problem) => cached.problem = Some(problem),
            None => *cached = Cached { objects: Some(BTreeMap::new()), problem: None },
        });
        tokio::time::sleep(backoff.next().unwrap_or_default()).await;
    }
}

/// The problem; nothing where the cluster does not have this kind of objects.
async fn watch_until_error<K, V>(
    events: impl futures_util::Stream<Item = watcher::Result<Event<K>>>,
    keep: &impl Fn(K) -> V,
    cache: &watch::Sender<Cached<V>>,
) -> Option<String>
where
    K: Resource,
    V: PartialEq,
{
    let mut events = pin!(events);
    let mut listed = BTreeMap::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => {
                listed.insert(key(&object), keep(object));
            }
            Ok(Event::InitDone) => {
                let objects = Some(std::mem::take(&mut listed));
                cache.send_replace(Cached { objects, problem: None });
            }
            Ok(Event::Apply(object)) => update(cache, key(&object), Some(keep(object))),
            Ok(Event::Delete(object)) => update(cache, key(&object), None),
            Err(error) => return problem(&error),
        }
    }
    Some("the watch ended".to_owned())
}

/// `NAMESPACE/NAME`, or the name of an object without a namespace.
fn key(object: &impl Resource) -> String {
    let name = object.name_any();
    object.namespace().map_or_else(|| name.clone(), |namespace| format!("{namespace}/{name}"))
}

fn problem(error: &watcher::Error) -> Option<String> {
    Some(match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404 => return None,
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => describe(error),
        watcher::Error::WatchError(status) => {
            format!("the API server ended the watch with {}: {}", status.code, status.message)
        }
        watcher::Error::NoResourceVersion => "the API server's list has no resourceVersion".to_owned(),
    })
}

/// Does not notify when the kept value stays the same: nodes change all the time, their versions do not.
fn update<V: PartialEq>(cache: &watch::Sender<Cached<V>>, name: String, value: Option<V>) {
    cache.send_if_modified(|cached| {
        let objects = cached.objects.get_or_insert_default();
        let changed = objects.get(&name) != value.as_ref();
        match value {
            Some(value) => objects.insert(name, value),
            None => objects.remove(&name),
        };
        changed
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_notify() {
        let sender = watch::Sender::new(Cached { objects: None, problem: None });
        let mut receiver = sender.subscribe();
        let mut notifies = |value: Option<u8>| {
            update(&sender, "a".to_owned(), value);
            let changed = receiver.has_changed().expect("a sender");
            receiver.mark_unchanged();
            changed
        };
        assert!(notifies(Some(1)) && !notifies(Some(1)) && notifies(Some(2)));
        assert!(notifies(None) && !notifies(None));
    }
}
