//! Objects of one kind, as they are now: listed, then watched, listed again after every failure.
//!
//! A watch that fails is not resumed but started anew with a list, after a pause that grows: this is right after a
//! restart of the API server, an expired resource version (410, as an event or as an answer) and a lost connection alike,
//! and what is followed here is small.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Debug;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Resource, ResourceExt as _};
use tokio::sync::watch;

use super::backoff::Backoff;
use super::client::{ask, describe};

/// Nodes are large: a page of them should not be.
const PAGE: u32 = 100;
/// The server ends a watch after this many seconds, and bookmarks come every minute; silence beyond means that the
/// connection is dead.
const WATCH: u32 = 290;
const SILENCE: Duration = Duration::from_secs(300);
/// A watch that ends sooner is a failure, lest it be repeated without pause.
const SHORT: Duration = Duration::from_secs(1);

/// What is known of the objects.
#[derive(Clone, Debug)]
pub(super) struct Seen<V> {
    /// By name; nothing until they were listed once.
    pub(super) objects: Option<BTreeMap<String, V>>,
    /// Why this may be old.
    pub(super) problem: Option<String>,
}

impl<V> Seen<V> {
    pub(super) const fn nothing() -> Self {
        Self { objects: None, problem: None }
    }

    /// The only object, if they were listed; and the object, if it is there.
    pub(super) fn only(&self) -> Option<Option<&V>> {
        self.objects.as_ref().map(|objects| objects.values().next())
    }
}

/// Follows the object of that name, or all; keeps of each what `keep` makes of it.
pub(super) async fn follow<K, V>(
    api: Api<K>,
    name: Option<&str>,
    keep: impl Fn(K) -> V,
    seen: &watch::Sender<Seen<V>>,
) -> Infallible
where
    K: Resource + Clone + DeserializeOwned + Debug,
    V: PartialEq,
{
    let only = name.map(|name| format!("metadata.name={name}"));
    let mut backoff = Backoff::new();
    loop {
        let problem = follow_once(&api, only.as_deref(), &keep, seen, &mut backoff).await;
        seen.send_modify(|seen| seen.problem = Some(problem));
        tokio::time::sleep(backoff.wait()).await;
    }
}

async fn follow_once<K, V>(
    api: &Api<K>,
    only: Option<&str>,
    keep: &impl Fn(K) -> V,
    seen: &watch::Sender<Seen<V>>,
    backoff: &mut Backoff,
) -> String
where
    K: Resource + Clone + DeserializeOwned + Debug,
    V: PartialEq,
{
    let (objects, mut version) = match list(api, only, keep).await {
        Ok(listed) => listed,
        Err(problem) => return problem,
    };
    seen.send_replace(Seen { objects: Some(objects), problem: None });
    loop {
        let start = Instant::now();
        match watch(api, only, &mut version, keep, seen).await {
            Err(problem) => {
                if start.elapsed() > SHORT {
                    backoff.reset();
                }
                return problem;
            }
            Ok(()) if start.elapsed() < SHORT => return "the API server ends the watch at once".to_owned(),
            Ok(()) => backoff.reset(),
        }
    }
}

async fn list<K, V>(
    api: &Api<K>,
    only: Option<&str>,
    keep: &impl Fn(K) -> V,
) -> Result<(BTreeMap<String, V>, String), String>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let mut objects = BTreeMap::new();
    let mut params =
        ListParams { limit: Some(PAGE), field_selector: only.map(str::to_owned), ..ListParams::default() };
    loop {
        let page = ask(api.list(&params)).await.map_err(|refused| refused.problem)?;
        objects.extend(page.items.into_iter().map(|object| (object.name_any(), keep(object))));
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            let version = page.metadata.resource_version.filter(|version| !version.is_empty());
            return Ok((objects, version.ok_or("the API server's list has no resourceVersion")?));
        }
    }
}

/// Takes changes until the server ends the watch.
async fn watch<K, V>(
    api: &Api<K>,
    only: Option<&str>,
    version: &mut String,
    keep: &impl Fn(K) -> V,
    seen: &watch::Sender<Seen<V>>,
) -> Result<(), String>
where
    K: Resource + Clone + DeserializeOwned + Debug,
    V: PartialEq,
{
    let params = WatchParams {
        timeout: Some(WATCH),
        field_selector: only.map(str::to_owned),
        ..WatchParams::default()
    };
    let events = ask(api.watch(&params, version)).await.map_err(|refused| refused.problem)?;
    let mut events = pin!(events);
    loop {
        let event = tokio::time::timeout(SILENCE, events.next())
            .await
            .map_err(|_| format!("the API server was silent for {} s", SILENCE.as_secs()))?;
        let Some(event) = event else { return Ok(()) };
        match event.map_err(|error| describe(&error))? {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                *version = object.resource_version().unwrap_or_default();
                change(seen, object.name_any(), Some(keep(object)));
            }
            WatchEvent::Deleted(object) => {
                *version = object.resource_version().unwrap_or_default();
                change(seen, object.name_any(), None);
            }
            WatchEvent::Bookmark(bookmark) => *version = bookmark.metadata.resource_version,
            WatchEvent::Error(status) => {
                return Err(format!(
                    "the API server ends the watch with {}: {}",
                    status.code, status.message
                ));
            }
        }
    }
}

/// Wakes nobody when what is kept stays the same: nodes change all the time, their versions do not.
fn change<V: PartialEq>(seen: &watch::Sender<Seen<V>>, name: String, now: Option<V>) {
    seen.send_if_modified(|seen| {
        let objects = seen.objects.get_or_insert_default();
        let changed = objects.get(&name) != now.as_ref();
        match now {
            Some(kept) => objects.insert(name, kept),
            None => objects.remove(&name),
        };
        changed
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_wake() {
        let sender = watch::Sender::new(Seen { objects: None, problem: None });
        let mut seen = sender.subscribe();
        let mut wakes = |now: Option<u8>| {
            change(&sender, "a".to_owned(), now);
            let woken = seen.has_changed().expect("there is a sender");
            seen.mark_unchanged();
            woken
        };
        assert!(wakes(Some(1)) && !wakes(Some(1)) && wakes(Some(2)) && wakes(None) && !wakes(None));
    }
}
