//! The self-signed bundle in a Secret that the replicas share, without leader election.
//!
//! The first replica issues or renews it; because of the API server's resource versions only one write
//! succeeds, and the other replicas use its result.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::utils::Backoff as _;
use kube::runtime::watcher::DefaultBackoff;
use kube::{Api, Client};
use tokio::sync::watch;

use super::MANAGER;
use super::status::{Part, StatusReporter};
use crate::certs::files::timestamp;
use crate::certs::{Bundle, CertError, Names, Publisher};
use crate::manifests::MANAGED_BY as OWNER;
use apiclient::{CONFLICT, ask};
use apiclient::{Cached, watch as watch_objects};

const TYPE: &str = "kubernetes.io/tls";
/// The number of immediate retries of a write that lost a race.
const MAX_ATTEMPTS: usize = 5;
/// The longest sleep: clocks are adjusted.
const MAX_SLEEP: Duration = Duration::from_secs(60 * 60);

/// The Secret, and the names of the certificate in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSecret {
    /// The namespace of the Secret.
    pub namespace: String,
    /// The name of the Secret.
    pub name: String,
    /// The names of the certificate.
    pub names: Names,
}

impl SharedSecret {
    /// The Secret of a Service: `NAME-tls`, in the same namespace.
    #[must_use]
    pub fn of_service(name: &str, namespace: &str) -> Self {
        let names = Names::service(name, namespace);
        Self { namespace: namespace.to_owned(), name: format!("{name}-tls"), names }
    }

    pub(super) fn api(&self, client: Client) -> Api<Secret> {
        Api::namespaced(client, &self.namespace)
    }

    /// The bundle in the Secret.
    pub(super) fn read(&self, secret: &Secret) -> Result<Bundle, Unusable> {
        let labels = secret.metadata.labels.as_ref();
        let owner = labels.and_then(|labels| labels.get(OWNER)).map(String::as_str);
        let found = secret.type_.as_deref().unwrap_or("Opaque");
        if found != TYPE || owner != Some(MANAGER) {
            let owner = owner.unwrap_or_default();
            return Err(Unusable::Foreign(format!(
                "Secret {}/{} is managed by another program: type {found}, {OWNER} {owner:?}: expected type {TYPE} and \
                 {OWNER} {MANAGER:?}: rename or delete it",
                self.namespace, self.name
            )));
        }
        let data = secret.data.iter().flatten().map(|(key, bytes)| (key.clone(), bytes.0.clone())).collect();
        Bundle::from_secret_data(&self.names, &data).map_err(Unusable::Damaged)
    }

    fn new_secret(&self) -> Secret {
        let metadata = ObjectMeta {
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()),
            labels: Some(BTreeMap::from([(OWNER.to_owned(), MANAGER.to_owned())])),
            ..ObjectMeta::default()
        };
        Secret { metadata, type_: Some(TYPE.to_owned()), ..Secret::default() }
    }
}

/// Why a Secret has no usable bundle.
#[derive(Debug)]
pub(super) enum Unusable {
    /// The Secret is managed by another program, and not changed.
    Foreign(String),
    /// The Secret is ours, and rewritten.
    Damaged(CertError),
}

/// Keeps the Secret valid and publishes the bundle in it.
pub(super) async fn run(
    client: Client,
    wanted: &SharedSecret,
    publisher: &Publisher,
    reporter: &StatusReporter,
) {
    let secrets = watch::Sender::new(Cached::empty());
    let seen = secrets.subscribe();
    let api = wanted.api(client);
    let reconciler = Reconciler { api: api.clone(), wanted, reporter };
    tokio::select! {
        never = watch_objects(api, Some(&wanted.name), |secret| secret, &secrets) => match never {},
        () = reconciler.run(seen, publisher) => {}
    }
}

struct Reconciler<'a> {
    api: Api<Secret>,
    wanted: &'a SharedSecret,
    reporter: &'a StatusReporter,
}

impl Reconciler<'_> {
    async fn run(&self, mut seen: watch::Receiver<Cached<Secret>>, publisher: &Publisher) {
        let (mut last, mut published) = (None, None);
        let mut backoff = DefaultBackoff::default();
        loop {
            let now = seen.borrow_and_update().clone();
            let mut problem = now.problem.clone();
            let mut wait = MAX_SLEEP;
            if let Some(stored) = now.only() {
                match self.settle(stored.cloned(), last.as_ref()).await {
                    Ok(bundle) => last = Some(bundle),
                    Err(error) => problem = Some(error),
                }
                if published != last
                    && let Some(bundle) = &last
                {
                    match publisher.publish(bundle).await {
                        Ok(()) => {
                            published = last.clone();
                            let until = timestamp(bundle.leaf().not_after);
                            let detail = format!("{}, valid until {until}", self.title());
                            self.reporter.info("certificate", "certificate served", detail);
                        }
                        Err(error) => problem = Some(error.to_string()),
                    }
                }
                wait = match (&last, problem == now.problem) {
                    (Some(bundle), true) => {
                        backoff.reset();
                        bundle.due().duration_since(SystemTime::now()).unwrap_or_default().min(MAX_SLEEP)
                    }
                    _ => backoff.next().unwrap_or_default(),
                };
            }
            let there = published.is_some();
            self.reporter.report("certificate", |status| &mut status.certificate, &Part::of(there, problem));
            tokio::select! {
                changed = seen.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn settle(&self, mut stored: Option<Secret>, last: Option<&Bundle>) -> Result<Bundle, String> {
        for _ in 0..MAX_ATTEMPTS {
            if let Some(bundle) = self.attempt(stored, last).await? {
                return Ok(bundle);
            }
            let again = ask(self.api.get_opt(&self.wanted.name)).await;
            stored = again.map_err(|failed| failed.problem)?;
        }
        Err(format!("Secret {}/{}: too many conflicting writes", self.wanted.namespace, self.wanted.name))
    }

    /// Uses what is stored, or writes what should be; `None` if another replica wrote meanwhile.
    ///
    /// A deleted Secret is a request for another CA: it is announced, and the old one keeps signing until
    /// clients know the new one. A damaged Secret is restored.
    async fn attempt(&self, stored: Option<Secret>, last: Option<&Bundle>) -> Result<Option<Bundle>, String> {
        let now = SystemTime::now();
        let text = |error: CertError| error.to_string();
        let known = || last.cloned().map_or_else(|| Bundle::fresh(&self.wanted.names, now), Ok);
        let (bundle, why) = match (&stored, last) {
            (None, None) => (known().map_err(text)?, "CA and certificate issued".to_owned()),
            (None, Some(last)) => {
                (last.rotated(now).map_err(text)?, "it was deleted: CA rotation started".to_owned())
            }
            (Some(secret), _) => match self.wanted.read(secret) {
                Err(Unusable::Foreign(problem)) => return Err(problem),
                Err(Unusable::Damaged(error)) => {
                    self.reporter.warn("certificate", "Secret damaged", format!("{}: {error}", self.title()));
                    (known().map_err(text)?, "it was damaged: restored".to_owned())
                }
                Ok(bundle) => match bundle.renewed(now).map_err(text)? {
                    None => return Ok(Some(bundle)),
                    Some(renewed) => {
                        let why = format!("renewed: {}", renewed.phase());
                        (renewed, why)
                    }
                },
            },
        };
        self.write(stored, bundle, &why).await
    }

    async fn write(
        &self,
        stored: Option<Secret>,
        bundle: Bundle,
        why: &str,
    ) -> Result<Option<Bundle>, String> {
        let exists = stored.is_some();
        let mut secret = stored.unwrap_or_else(|| self.wanted.new_secret());
        if secret.immutable == Some(true) {
            return Err(format!("{} is immutable and cannot be renewed: delete it", self.title()));
        }
        let data = bundle.to_secret_data().into_iter().map(|(key, bytes)| (key, ByteString(bytes)));
        secret.data = Some(data.collect());
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let written = if exists {
            ask(self.api.replace(&self.wanted.name, &params, &secret)).await
        } else {
            ask(self.api.create(&params, &secret)).await
        };
        match written {
            Ok(_) => {
                self.reporter.info("certificate", "Secret written", format!("{}: {why}", self.title()));
                Ok(Some(bundle))
            }
            // 404: it was deleted before it could be replaced.
            Err(failed) if failed.code == CONFLICT || (exists && failed.code == 404) => Ok(None),
            Err(failed) => Err(format!("{}: {}", self.title(), failed.problem)),
        }
    }

    fn title(&self) -> String {
        format!("Secret {}/{}", self.wanted.namespace, self.wanted.name)
    }
}
