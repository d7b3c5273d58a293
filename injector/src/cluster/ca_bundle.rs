//! Patches the caBundle of webhook configurations: the CAs that API servers trust.
//!
//! `webhooks[*].clientConfig.caBundle` is written with a JSON patch and no other field. It tests the
//! `resourceVersion` and the names that were read: nothing is created, nothing newer is overwritten, and only
//! one of several replicas succeeds. It is no server-side apply: a field manager that applies the `name` of a
//! list item owns the item too, and an installer that uses server-side apply (Helm 4, kubectl, GitOps) could
//! not remove the webhook any more. The entry that earlier versions of this program have left in
//! `managedFields` is removed.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::CONTENT_TYPE;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::runtime::utils::Backoff as _;
use kube::runtime::watcher::DefaultBackoff;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::MANAGER;
use super::conflict_backoff::ConflictBackoff;
use super::secret::{SharedSecret, Unusable};
use super::status::{Part, StatusReporter};
use crate::certs::self_signed::Trusted;
use apiclient::{CONFLICT, ask};
use apiclient::{Cached, watch as watch_objects};

const COLLECTION: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
/// Unprocessable Entity.
const INVALID: u16 = 422;

/// Where only a change is waited for.
const LONG: Duration = Duration::from_secs(60 * 60);

/// The CAs to trust.
pub(super) struct Trust<'a> {
    /// Known to this replica.
    pub(super) known: Trusted,
    /// Shared by the replicas; what this one knows may be older than what another one has written already.
    pub(super) shared: Option<&'a SharedSecret>,
}

impl Trust<'_> {
    /// What the replicas agree on now.
    async fn agreed(&self, client: &Client, known: &str) -> Result<String, String> {
        let Some(shared) = self.shared else {
            return Ok(known.to_owned());
        };
        let secret =
            ask(shared.api(client.clone()).get(&shared.name)).await.map_err(|failed| failed.problem)?;
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
    /// The field manager, besides this program, of a caBundle; if there is none, that of the last change
    /// since this program's own.
    changed_by: Option<String>,
    /// The index of our entry in `managedFields` that is from a server-side apply.
    applied: Option<usize>,
}

impl Hooks {
    fn of(configuration: MutatingWebhookConfiguration) -> Self {
        let metadata = configuration.metadata;
        let managers = metadata.managed_fields.unwrap_or_default();
        let is_ours = |entry: &ManagedFieldsEntry| {
            entry.manager.as_deref() == Some(MANAGER) && entry.operation.as_deref() == Some("Apply")
        };
        let applied = managers.iter().position(is_ours);
        let changed_by = changed_by(managers);
        let bundle = |bytes: Option<k8s_openapi::ByteString>| bytes.map(|bytes| bytes.0).unwrap_or_default();
        let hooks = configuration.webhooks.unwrap_or_default().into_iter();
        Self {
            uid: metadata.uid.unwrap_or_default(),
            version: metadata.resource_version.unwrap_or_default(),
            bundles: hooks.map(|hook| (hook.name, bundle(hook.client_config.ca_bundle))).collect(),
            changed_by,
            applied,
        }
    }

    /// Whether there is nothing to write.
    fn have(&self, trusted: &str) -> bool {
        self.applied.is_none() && self.bundles.iter().all(|(_, bundle)| bundle == trusted.as_bytes())
    }

    /// The JSON patch.
    fn patch(&self, trusted: &str) -> Value {
        let bundle = STANDARD.encode(trusted);
        let test = |path: &str, value: &str| json!({"op": "test", "path": path, "value": value});
        let mut patch =
            vec![test("/metadata/uid", &self.uid), test("/metadata/resourceVersion", &self.version)];
        for (at, (name, old)) in self.bundles.iter().enumerate() {
            patch.push(test(&format!("/webhooks/{at}/name"), name));
            if old != trusted.as_bytes() {
                let path = format!("/webhooks/{at}/clientConfig/caBundle");
                patch.push(json!({"op": "add", "path": path, "value": bundle}));
            }
        }
        if let Some(at) = self.applied {
            patch.push(test(&format!("/metadata/managedFields/{at}/manager"), MANAGER));
            patch.push(test(&format!("/metadata/managedFields/{at}/operation"), "Apply"));
            patch.push(json!({"op": "remove", "path": format!("/metadata/managedFields/{at}")}));
        }
        Value::Array(patch)
    }
}

/// The field manager, besides this program, that has changed a caBundle.
fn changed_by(managers: Vec<ManagedFieldsEntry>) -> Option<String> {
    let has_bundle = |entry: &ManagedFieldsEntry| {
        let webhooks = entry.fields_v1.as_ref().and_then(|fields| fields.0.get("f:webhooks")?.as_object());
        webhooks
            .into_iter()
            .flatten()
            .any(|(_, fields)| fields.pointer("/f:clientConfig/f:caBundle").is_some())
    };
    let is_own = |entry: &ManagedFieldsEntry| entry.manager.as_deref() == Some(MANAGER);
    let own = managers.iter().filter(|entry| is_own(entry)).filter_map(|entry| entry.time.clone()).max();
    let others = managers.into_iter().filter(|entry| !is_own(entry));
    // A manager that has removed the field does not have it.
    let changes = others
        .map(|entry| (has_bundle(&entry), entry.time, entry.manager))
        .filter(|(has_bundle, time, _)| *has_bundle || *time >= own);
    changes.max().and_then(|(_, _, manager)| manager)
}

/// Keeps the caBundles of one configuration as they should be.
pub(super) async fn run(client: Client, name: &str, mut trust: Trust<'_>, reporter: &StatusReporter) {
    let configurations = watch::Sender::new(Cached::empty());
    let mut cached = configurations.subscribe();
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let reconcile = async {
        let mut reconciler = Reconciler::new(client, name, reporter);
        loop {
            let known = trust.known.borrow_and_update().clone();
            let hooks = cached.borrow_and_update().clone();
            let (part, wait) = reconciler.reconcile(&trust, known.as_deref(), &hooks).await;
            reporter.report(
                "caBundle",
                |status| status.ca_bundles.entry(name.to_owned()).or_default(),
                &part,
            );
            tokio::select! {
                () = changed(&mut trust.known) => {}
                () = changed(&mut cached) => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    };
    tokio::select! {
        never = watch_objects(api, Some(name), Hooks::of, &configurations) => match never {},
        () = reconcile => {}
    }
}

/// Waits for a change; forever, if the sender is gone.
async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Webhooks and the CAs that they had when they were last read or written: when one of them has others,
/// another writer changed it.
#[derive(Clone, Debug)]
struct Settled {
    uid: String,
    trusted: String,
    webhooks: Vec<String>,
}

impl Settled {
    fn of(hooks: &Hooks, trusted: &str) -> Self {
        let webhooks = hooks.bundles.iter().map(|(name, _)| name.clone()).collect();
        Self { uid: hooks.uid.clone(), trusted: trusted.to_owned(), webhooks }
    }

    /// Whether another writer changed a caBundle. A webhook that was added since has none yet.
    fn is_undone(&self, hooks: &Hooks, known: &str) -> bool {
        let is_changed = |(name, bundle): &(String, Vec<u8>)| {
            self.webhooks.contains(name) && bundle != self.trusted.as_bytes()
        };
        self.uid == hooks.uid && self.trusted == known && hooks.bundles.iter().any(is_changed)
    }
}

struct Reconciler<'a> {
    client: Client,
    name: &'a str,
    reporter: &'a StatusReporter,
    backoff: DefaultBackoff,
    conflicts: ConflictBackoff,
    settled: Option<Settled>,
    /// The version before our last write; the watch may still return it.
    replaced: Option<String>,
    delayed_until: Option<Instant>,
}

impl<'a> Reconciler<'a> {
    fn new(client: Client, name: &'a str, reporter: &'a StatusReporter) -> Self {
        let (backoff, conflicts) = (DefaultBackoff::default(), ConflictBackoff::default());
        Self {
            client,
            name,
            reporter,
            backoff,
            conflicts,
            settled: None,
            replaced: None,
            delayed_until: None,
        }
    }

    /// Repairs the configuration; its status, and when to reconcile again at the latest.
    async fn reconcile(
        &mut self,
        trust: &Trust<'_>,
        known: Option<&str>,
        cached: &Cached<Hooks>,
    ) -> (Part, Duration) {
        let Some(known) = known else {
            // With a Secret, the status of the certificate has the reason.
            let unknown = trust.shared.is_none().then(|| {
                format!(
                    "the CA for MutatingWebhookConfiguration {} is unknown: a certificate from files comes without one: \
                     use --ca-managed-externally",
                    self.name
                )
            });
            return (Part::Waiting(unknown), LONG);
        };
        let hooks = match cached.only() {
            None => return (Part::Waiting(cached.problem.clone()), LONG),
            Some(None) => {
                let missing = format!("MutatingWebhookConfiguration {} does not exist", self.name);
                return (Part::Waiting(Some(missing)), LONG);
            }
            Some(Some(hooks)) => hooks,
        };
        if hooks.have(known) {
            self.settled = Some(Settled::of(hooks, known));
            return (Part::of(true, cached.problem.clone()), LONG);
        }
        if self.replaced.as_ref() == Some(&hooks.version) {
            return (Part::of(true, cached.problem.clone()), LONG);
        }
        if let Some(wait) = self.delay(hooks, known) {
            let by = hooks.changed_by.as_deref().unwrap_or("an unknown manager");
            let problem = format!(
                "another writer keeps changing the caBundle of MutatingWebhookConfiguration {} (last {by}): repairs are \
                 delayed by up to 10 minutes: let one of the two manage it (--ca-managed-externally)",
                self.name
            );
            return (Part::Waiting(Some(problem)), wait);
        }
        match self.write(trust, known, hooks).await {
            Ok(()) => (Part::of(true, cached.problem.clone()), LONG),
            Err(None) => (Part::Waiting(None), self.backoff.next().unwrap_or_default()),
            Err(Some(problem)) => (Part::Waiting(Some(problem)), self.backoff.next().unwrap_or_default()),
        }
    }

    /// The delay before a repair.
    fn delay(&mut self, hooks: &Hooks, known: &str) -> Option<Duration> {
        let now = Instant::now();
        if self.settled.take().is_some_and(|settled| settled.is_undone(hooks, known)) {
            let wait = self.conflicts.next_delay(now);
            self.delayed_until = Some(now + wait);
            if !wait.is_zero() {
                self.reporter.count(|status| &mut status.ca_bundle_conflicts);
            }
        }
        self.delayed_until.and_then(|until| until.checked_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// `Err(None)`: another writer was faster.
    async fn write(&mut self, trust: &Trust<'_>, known: &str, hooks: &Hooks) -> Result<(), Option<String>> {
        let agreed = trust.agreed(&self.client, known).await.map_err(Some)?;
        if !hooks.have(&agreed) {
            self.send(&hooks.patch(&agreed), hooks).await?;
            self.reporter.count(|status| &mut status.ca_bundle_writes);
            let detail = format!("MutatingWebhookConfiguration {}", self.name);
            self.reporter.info("caBundle", "caBundle written", detail);
            self.replaced = Some(hooks.version.clone());
        }
        self.backoff.reset();
        self.settled = Some(Settled::of(hooks, &agreed));
        Ok(())
    }
}

impl Reconciler<'_> {
    /// `Err(None)`: another writer was faster.
    async fn send(&self, patch: &Value, hooks: &Hooks) -> Result<(), Option<String>> {
        let url = format!("{COLLECTION}/{}?fieldManager={MANAGER}", self.name);
        let request = hyper::Request::patch(url).header(CONTENT_TYPE, "application/json-patch+json");
        let request =
            request.body(patch.to_string().into_bytes()).map_err(|error| Some(error.to_string()))?;
        let Err(failed) = ask(self.client.request::<MutatingWebhookConfiguration>(request)).await else {
            return Ok(());
        };
        // A test that fails is an invalid request to API servers, like an object that is not valid: the
        // version tells.
        if failed.code == INVALID {
            let api: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
            let now = ask(api.get_metadata(self.name)).await.map_err(|failed| Some(failed.problem))?;
            let is_newer = now.metadata.resource_version.as_deref() != Some(hooks.version.as_str());
            return Err((!is_newer).then_some(failed.problem));
        }
        Err((failed.code != CONFLICT).then_some(failed.problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_foreign_manager_of_the_ca_bundle_is_reported() {
        let field = |field: &str| json!({"f:webhooks": {"k:{\"name\":\"a.istio.io\"}": {"f:clientConfig": {field: {}}}}});
        let entry = |manager: &str, time: &str, fields: &Value| json!({"manager": manager, "time": time, "operation": "Update", "fieldsV1": fields});
        let (bundle, service) = (field("f:caBundle"), field("f:service"));
        for (managers, expected) in [
            (
                vec![
                    entry("helm", "2026-01-03T00:00:00Z", &bundle),
                    entry(MANAGER, "2026-01-02T00:00:00Z", &bundle),
                    entry("kubectl-client-side-apply", "2026-01-05T00:00:00Z", &service),
                ],
                Some("helm"),
            ),
            // The field is removed: by a change since the last write.
            (
                vec![
                    entry("helm", "2026-01-03T00:00:00Z", &service),
                    entry(MANAGER, "2026-01-02T00:00:00Z", &service),
                ],
                Some("helm"),
            ),
            (
                vec![
                    entry("helm", "2026-01-03T00:00:00Z", &service),
                    entry(MANAGER, "2026-01-05T00:00:00Z", &bundle),
                ],
                None,
            ),
        ] {
            let configuration =
                json!({"metadata": {"uid": "u", "resourceVersion": "7", "managedFields": managers}});
            let hooks = Hooks::of(serde_json::from_value(configuration).expect("a configuration"));
            assert_eq!(hooks.changed_by.as_deref(), expected, "{managers:?}");
            assert!(hooks.have("anything"), "a configuration without webhooks needs nothing");
        }
    }

    #[test]
    fn entry_of_an_earlier_apply_is_removed() {
        let hook = json!({"name": "a.istio.io", "clientConfig": {"caBundle": STANDARD.encode("pem")}, "sideEffects": "None", "admissionReviewVersions": ["v1"]});
        let configuration = json!({"webhooks": [hook], "metadata": {"uid": "u", "resourceVersion": "7", "managedFields": [
            {"manager": "helm", "operation": "Update"}, {"manager": MANAGER, "operation": "Update"},
            {"manager": MANAGER, "operation": "Apply"},
        ]}});
        let mut hooks = Hooks::of(serde_json::from_value(configuration).expect("a configuration"));
        assert!(!hooks.have("pem"));
        let patch = hooks.patch("pem");
        assert_eq!(patch[5], json!({"op": "remove", "path": "/metadata/managedFields/2"}));
        assert!(!patch.to_string().contains("caBundle"), "{patch}");
        hooks.applied = None;
        assert!(hooks.have("pem"));
    }

    /// The watch returns a write a little later, and the old state until then: this must not count as another
    /// change.
    #[tokio::test]
    async fn the_version_before_our_write_is_not_repaired() {
        let config = kube::Config::new("http://127.0.0.1:1".parse().expect("an address"));
        let client = Client::try_from(config).expect("a client");
        let reporter = StatusReporter::new(watch::Sender::default(), std::sync::Arc::new(|_| ()));
        let mut reconciler = Reconciler::new(client, "x", &reporter);
        let trust = Trust { known: watch::Sender::new(None).subscribe(), shared: None };
        let hooks = |version: &str| Hooks {
            version: version.to_owned(),
            bundles: vec![("a.istio.io".to_owned(), Vec::new())],
            ..Hooks::default()
        };
        let cached =
            |version| Cached { objects: Some([("x".to_owned(), hooks(version))].into()), problem: None };
        reconciler.replaced = Some("7".to_owned());
        assert_eq!(reconciler.reconcile(&trust, Some("pem"), &cached("7")).await.0, Part::Good);
        let (part, _) = reconciler.reconcile(&trust, Some("pem"), &cached("8")).await;
        assert!(part.problem().is_some_and(|problem| problem.contains("is unreachable")), "{part:?}");
    }

    /// GitOps and Helm add and drop webhooks as values change: each of them gets its caBundle at once.
    #[tokio::test]
    async fn a_webhook_that_is_added_is_no_conflict() {
        let config = kube::Config::new("http://127.0.0.1:1".parse().expect("an address"));
        let client = Client::try_from(config).expect("a client");
        let reporter = StatusReporter::new(watch::Sender::default(), std::sync::Arc::new(|_| ()));
        let mut reconciler = Reconciler::new(client, "x", &reporter);
        let hooks = |bundles: &[(&str, &str)]| Hooks {
            bundles: bundles
                .iter()
                .map(|(name, pem)| ((*name).to_owned(), pem.as_bytes().to_vec()))
                .collect(),
            ..Hooks::default()
        };
        let settled = Settled::of(&hooks(&[("a.istio.io", "pem")]), "pem");
        let mut is_delayed = |bundles: &[(&str, &str)]| {
            reconciler.settled = Some(settled.clone());
            reconciler.delay(&hooks(bundles), "pem").is_some()
        };
        for _ in 0..10 {
            assert!(!is_delayed(&[("a.istio.io", "pem"), ("b.istio.io", "")]));
        }
        let delayed = [(); 4].map(|()| is_delayed(&[("a.istio.io", "")]));
        assert_eq!(delayed, [false, false, false, true]);
    }
}
