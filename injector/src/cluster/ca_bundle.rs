//! The CAs that API servers trust, in webhook configurations.
//!
//! `webhooks[*].clientConfig.caBundle` is applied server-side, under a name of our own and nothing beside it: the list is
//! a map by `name`, so nobody else's field is owned or changed. What is applied carries `uid` and `resourceVersion` of the
//! object that was looked at: nothing is created, nothing newer is overwritten, and of several replicas one writes.
//! `force` takes that one field over from whoever held it.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::MANAGER;
use super::backoff::Backoff;
use super::client::{CONFLICT, ask};
use super::follow::{Seen, follow};
use super::peace::Peace;
use super::secret::{SharedSecret, Unusable};
use super::status::{Board, Part};
use crate::certs::self_signed::Trusted;

/// Longer than anything is waited for without being woken.
const LONG: Duration = Duration::from_secs(60 * 60);

/// Which CAs are to be trusted.
pub(super) struct Trust<'a> {
    /// As far as this replica knows.
    pub(super) known: Trusted,
    /// Where the replicas agree on it; what this one knows may be older than what another has written already.
    pub(super) shared: Option<&'a SharedSecret>,
}

impl Trust<'_> {
    /// What the replicas agree on at this moment.
    async fn agreed(&self, client: &Client, known: &str) -> Result<String, String> {
        let Some(shared) = self.shared else {
            return Ok(known.to_owned());
        };
        let secret =
            ask(shared.api(client.clone()).get(&shared.name)).await.map_err(|refused| refused.problem)?;
        match shared.read(&secret) {
            Ok(bundle) => Ok(bundle.trusted_pem()),
            Err(Unusable::Foreign(problem)) => Err(problem),
            Err(Unusable::Damaged(error)) => Err(error.to_string()),
        }
    }
}

/// All that is kept of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Hooks {
    uid: String,
    version: String,
    /// By name of the webhook.
    bundles: Vec<(String, Vec<u8>)>,
    /// Who besides this program changed it last.
    changed_by: Option<String>,
}

impl Hooks {
    fn of(configuration: MutatingWebhookConfiguration) -> Self {
        let metadata = configuration.metadata;
        let others = metadata.managed_fields.unwrap_or_default().into_iter();
        let changes = others.filter_map(|entry| Some((entry.time?, entry.manager?)));
        let last = changes.filter(|(_, manager)| manager != MANAGER).max();
        let bundle = |bytes: Option<k8s_openapi::ByteString>| bytes.map(|bytes| bytes.0).unwrap_or_default();
        let hooks = configuration.webhooks.unwrap_or_default().into_iter();
        Self {
            uid: metadata.uid.unwrap_or_default(),
            version: metadata.resource_version.unwrap_or_default(),
            bundles: hooks.map(|hook| (hook.name, bundle(hook.client_config.ca_bundle))).collect(),
            changed_by: last.map(|(_, manager)| manager),
        }
    }

    fn have(&self, trusted: &str) -> bool {
        self.bundles.iter().all(|(_, bundle)| bundle == trusted.as_bytes())
    }

    /// What is applied.
    fn applied(&self, name: &str, trusted: &str) -> Value {
        let bundle = STANDARD.encode(trusted);
        let hook =
            |(name, _): &(String, Vec<u8>)| json!({"name": name, "clientConfig": {"caBundle": bundle}});
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name, "uid": self.uid, "resourceVersion": self.version},
            "webhooks": self.bundles.iter().map(hook).collect::<Vec<_>>(),
        })
    }
}

/// Keeps the caBundles of one configuration as they should be.
pub(super) async fn run(client: Client, name: &str, mut trust: Trust<'_>, board: &Board) {
    let configurations = watch::Sender::new(Seen::nothing());
    let mut seen = configurations.subscribe();
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let reconcile = async {
        let mut keeper = Keeper::new(client, name, board);
        loop {
            let known = trust.known.borrow_and_update().clone();
            let hooks = seen.borrow_and_update().clone();
            let (part, wait) = keeper.look(&trust, known.as_deref(), &hooks).await;
            board.note("caBundle", |status| status.ca_bundles.entry(name.to_owned()).or_default(), &part);
            tokio::select! {
                () = changed(&mut trust.known) => {}
                () = changed(&mut seen) => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    };
    tokio::select! {
        never = follow(api, Some(name), Hooks::of, &configurations) => match never {},
        () = reconcile => {}
    }
}

/// A change; never, when nobody is left who could make one.
async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

struct Keeper<'a> {
    client: Client,
    name: &'a str,
    board: &'a Board,
    backoff: Backoff,
    peace: Peace,
    /// The object and the CAs that were seen together, or written: if they are parted, somebody else did it.
    settled: Option<(String, String)>,
    /// The version that was replaced by what was written; it may be seen a little longer.
    replaced: Option<String>,
    held_until: Option<Instant>,
}

impl<'a> Keeper<'a> {
    fn new(client: Client, name: &'a str, board: &'a Board) -> Self {
        let (backoff, peace) = (Backoff::new(), Peace::default());
        Self { client, name, board, backoff, peace, settled: None, replaced: None, held_until: None }
    }

    /// Looks at the configuration and repairs it; says how it stands and when to look again at the latest.
    async fn look(&mut self, trust: &Trust<'_>, known: Option<&str>, seen: &Seen<Hooks>) -> (Part, Duration) {
        let Some(known) = known else {
            // Where there is a Secret, the certificate's own part says why.
            let unknown = trust.shared.is_none().then(|| {
                format!(
                    "the CA for MutatingWebhookConfiguration {} is not known: a certificate from files comes without \
                     one; leave it to others (--ca-managed-externally)",
                    self.name
                )
            });
            return (Part::Waiting(unknown), LONG);
        };
        let hooks = match seen.only() {
            None => return (Part::Waiting(seen.problem.clone()), LONG),
            Some(None) => {
                let missing = format!("MutatingWebhookConfiguration {} does not exist", self.name);
                return (Part::Waiting(Some(missing)), LONG);
            }
            Some(Some(hooks)) => hooks,
        };
        if hooks.have(known) {
            self.settled = Some((hooks.uid.clone(), known.to_owned()));
            return (Part::of(true, seen.problem.clone()), LONG);
        }
        if self.replaced.as_ref() == Some(&hooks.version) {
            return (Part::of(true, seen.problem.clone()), LONG);
        }
        if let Some(wait) = self.hold(hooks, known) {
            let by = hooks.changed_by.as_deref().unwrap_or("somebody");
            let problem = format!(
                "the caBundle of MutatingWebhookConfiguration {} is changed again and again (last by {by}): repaired \
                 in pauses of up to 10 minutes; let one of the two manage it (--ca-managed-externally)",
                self.name
            );
            return (Part::Waiting(Some(problem)), wait);
        }
        match self.write(trust, known, hooks).await {
            Ok(()) => (Part::of(true, seen.problem.clone()), LONG),
            Err(None) => (Part::Waiting(None), self.backoff.wait()),
            Err(Some(problem)) => (Part::Waiting(Some(problem)), self.backoff.wait()),
        }
    }

    /// How long a repair has to wait.
    fn hold(&mut self, hooks: &Hooks, known: &str) -> Option<Duration> {
        let now = Instant::now();
        if self.settled.take().is_some_and(|(uid, trusted)| uid == hooks.uid && trusted == known) {
            let wait = self.peace.disturbed(now);
            self.held_until = Some(now + wait);
            if !wait.is_zero() {
                self.board.count(|status| &mut status.ca_bundle_disputes);
            }
        }
        self.held_until.and_then(|until| until.checked_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// Nothing as error means that somebody else wrote meanwhile.
    async fn write(&mut self, trust: &Trust<'_>, known: &str, hooks: &Hooks) -> Result<(), Option<String>> {
        let agreed = trust.agreed(&self.client, known).await.map_err(Some)?;
        if !hooks.have(&agreed) {
            let api: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
            let patch = Patch::Apply(hooks.applied(self.name, &agreed));
            let written = ask(api.patch(self.name, &PatchParams::apply(MANAGER).force(), &patch)).await;
            written.map_err(|refused| (refused.code != CONFLICT).then_some(refused.problem))?;
            self.board.count(|status| &mut status.ca_bundle_writes);
            let message = format!("the caBundle of MutatingWebhookConfiguration {} was written", self.name);
            self.board.info("caBundle", message);
            self.replaced = Some(hooks.version.clone());
        }
        self.backoff.reset();
        self.settled = Some((hooks.uid.clone(), agreed));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_applied_is_nothing_but_the_bundle() {
        let hooks = Hooks {
            uid: "u".to_owned(),
            version: "7".to_owned(),
            bundles: vec![("a.istio.io".to_owned(), Vec::new()), ("b.istio.io".to_owned(), b"pem".to_vec())],
            changed_by: None,
        };
        assert!(!hooks.have("pem"));
        let applied = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "x", "uid": "u", "resourceVersion": "7"},
            "webhooks": [
                {"name": "a.istio.io", "clientConfig": {"caBundle": "cGVt"}},
                {"name": "b.istio.io", "clientConfig": {"caBundle": "cGVt"}},
            ],
        });
        assert_eq!(hooks.applied("x", "pem"), applied);
    }

    #[test]
    fn who_changed_it_last() {
        let entry =
            |manager: &str, time: &str| json!({"manager": manager, "time": time, "operation": "Update"});
        let configuration = json!({"metadata": {"uid": "u", "resourceVersion": "7", "managedFields": [
            entry("kubectl", "2026-01-01T00:00:00Z"),
            entry("helm", "2026-01-03T00:00:00Z"),
            entry(MANAGER, "2026-01-05T00:00:00Z"),
        ]}});
        let hooks = Hooks::of(serde_json::from_value(configuration).expect("a configuration"));
        assert_eq!(hooks.changed_by.as_deref(), Some("helm"));
        assert!(hooks.have("anything"), "a configuration without webhooks needs nothing");
    }

    /// What was written is seen a little later than it was written, and the old state until then: no reason to write it
    /// again, or to think that somebody took it back.
    #[tokio::test]
    async fn what_was_replaced_is_not_replaced_again() {
        let config = kube::Config::new("http://127.0.0.1:1".parse().expect("an address"));
        let client = Client::try_from(config).expect("a client");
        let board = Board::new(watch::Sender::default(), std::sync::Arc::new(|_| ()));
        let mut keeper = Keeper::new(client, "x", &board);
        let trust = Trust { known: watch::Sender::new(None).subscribe(), shared: None };
        let hooks = |version: &str| Hooks {
            version: version.to_owned(),
            bundles: vec![("a.istio.io".to_owned(), Vec::new())],
            ..Hooks::default()
        };
        let seen = |version| Seen { objects: Some([("x".to_owned(), hooks(version))].into()), problem: None };
        keeper.replaced = Some("7".to_owned());
        assert_eq!(keeper.look(&trust, Some("pem"), &seen("7")).await.0, Part::Good);
        let (part, _) = keeper.look(&trust, Some("pem"), &seen("8")).await;
        assert!(part.problem().is_some_and(|problem| problem.contains("cannot be asked")), "{part:?}");
    }
}
