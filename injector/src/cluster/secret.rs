//! The self-signed bundle in a Secret that the replicas share.
//!
//! Whoever is first makes or renews it; the API server's resource versions see to it that only one succeeds, and the
//! others take what the winner wrote.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::watch;

use super::MANAGER;
use super::backoff::Backoff;
use super::client::{CONFLICT, ask};
use super::follow::{Seen, follow};
use super::status::{Board, Part};
use crate::certs::{Bundle, CertError, Names, Publisher};

const TYPE: &str = "kubernetes.io/tls";
const OWNER: &str = "app.kubernetes.io/managed-by";
/// How often a lost race is run again at once.
const ROUNDS: usize = 5;
/// The longest sleep: clocks are set.
const NAP: Duration = Duration::from_secs(60 * 60);

/// The Secret, and whom the certificate in it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSecret {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whom the certificate is for.
    pub names: Names,
}

impl SharedSecret {
    /// The Secret that belongs to a Service: `NAME-tls`, beside it.
    #[must_use]
    pub fn of_service(name: &str, namespace: &str) -> Self {
        let names = Names::service(name, namespace);
        Self { namespace: namespace.to_owned(), name: format!("{name}-tls"), names }
    }

    pub(super) fn api(&self, client: Client) -> Api<Secret> {
        Api::namespaced(client, &self.namespace)
    }

    /// The bundle in it.
    pub(super) fn read(&self, secret: &Secret) -> Result<Bundle, Unusable> {
        let labels = secret.metadata.labels.as_ref();
        let owner = labels.and_then(|labels| labels.get(OWNER)).map(String::as_str);
        let found = secret.type_.as_deref().unwrap_or("Opaque");
        if found != TYPE || owner != Some(MANAGER) {
            let owner = owner.unwrap_or("nobody");
            return Err(Unusable::Foreign(format!(
                "Secret {}/{} is somebody else's: type {found}, {OWNER} {owner}; expected type {TYPE} and {OWNER} \
                 {MANAGER}: rename or delete it",
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

/// Why there is no bundle in a Secret.
#[derive(Debug)]
pub(super) enum Unusable {
    /// It is not ours, and left alone.
    Foreign(String),
    /// It is ours, and written anew.
    Damaged(CertError),
}

/// Keeps the Secret in order and publishes what is in it.
pub(super) async fn run(client: Client, wanted: &SharedSecret, publisher: &Publisher, board: &Board) {
    let secrets = watch::Sender::new(Seen::nothing());
    let seen = secrets.subscribe();
    let api = wanted.api(client);
    let keeper = Keeper { api: api.clone(), wanted, board };
    tokio::select! {
        never = follow(api, Some(&wanted.name), |secret| secret, &secrets) => match never {},
        () = keeper.reconcile(seen, publisher) => {}
    }
}

struct Keeper<'a> {
    api: Api<Secret>,
    wanted: &'a SharedSecret,
    board: &'a Board,
}

/// What came of one look at the Secret.
enum Look {
    Settled(Box<Bundle>),
    /// Somebody else wrote meanwhile: look again.
    Raced,
}

impl Keeper<'_> {
    async fn reconcile(&self, mut seen: watch::Receiver<Seen<Secret>>, publisher: &Publisher) {
        let (mut last, mut published) = (None, None);
        let mut backoff = Backoff::new();
        loop {
            let now = seen.borrow_and_update().clone();
            let mut problem = now.problem.clone();
            let mut wait = NAP;
            if let Some(stored) = now.only() {
                match self.settle(stored.cloned(), last.as_ref()).await {
                    Ok(bundle) => last = Some(bundle),
                    Err(refused) => problem = Some(refused),
                }
                if published != last
                    && let Some(bundle) = &last
                {
                    match publisher.publish(bundle).await {
                        Ok(()) => published = last.clone(),
                        Err(error) => problem = Some(error.to_string()),
                    }
                }
                wait = match (&last, problem == now.problem) {
                    (Some(bundle), true) => {
                        backoff.reset();
                        bundle.due().duration_since(SystemTime::now()).unwrap_or_default().min(NAP)
                    }
                    _ => backoff.wait(),
                };
            }
            let there = published.is_some();
            self.board.note("certificate", |status| &mut status.certificate, &Part::of(there, problem));
            tokio::select! {
                changed = seen.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn settle(&self, mut stored: Option<Secret>, last: Option<&Bundle>) -> Result<Bundle, String> {
        for _ in 0..ROUNDS {
            if let Look::Settled(bundle) = self.look(stored, last).await? {
                return Ok(*bundle);
            }
            let again = ask(self.api.get_opt(&self.wanted.name)).await;
            stored = again.map_err(|refused| refused.problem)?;
        }
        Err(format!("others keep writing Secret {}/{}", self.wanted.namespace, self.wanted.name))
    }

    /// Takes what is stored, or writes what should be.
    ///
    /// A Secret that somebody deleted is a request for another CA: it is announced, and the old one goes on serving
    /// until callers know the new one. What was damaged is put back as it was.
    async fn look(&self, stored: Option<Secret>, last: Option<&Bundle>) -> Result<Look, String> {
        let now = SystemTime::now();
        let text = |error: CertError| error.to_string();
        let known = || last.cloned().map_or_else(|| Bundle::fresh(&self.wanted.names, now), Ok);
        let (bundle, why) = match (&stored, last) {
            (None, None) => (known().map_err(text)?, "a CA and a certificate were made".to_owned()),
            (None, Some(last)) => (
                last.rotated(now).map_err(text)?,
                "it was deleted: the CA is replaced step by step".to_owned(),
            ),
            (Some(secret), _) => match self.wanted.read(secret) {
                Err(Unusable::Foreign(problem)) => return Err(problem),
                Err(Unusable::Damaged(error)) => {
                    self.board.warn("certificate", format!("{}: {error}", self.title()));
                    (known().map_err(text)?, "it was damaged and is written anew".to_owned())
                }
                Ok(bundle) => match bundle.renewed(now).map_err(text)? {
                    None => return Ok(Look::Settled(Box::new(bundle))),
                    Some(renewed) => {
                        let why = format!("renewed: {}", renewed.phase());
                        (renewed, why)
                    }
                },
            },
        };
        self.write(stored, bundle, &why).await
    }

    async fn write(&self, stored: Option<Secret>, bundle: Bundle, why: &str) -> Result<Look, String> {
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
                self.board.info("certificate", format!("{}: {why}", self.title()));
                Ok(Look::Settled(Box::new(bundle)))
            }
            // 404: it was deleted before it could be replaced.
            Err(refused) if refused.code == CONFLICT || (exists && refused.code == 404) => Ok(Look::Raced),
            Err(refused) => Err(format!("{}: {}", self.title(), refused.problem)),
        }
    }

    fn title(&self) -> String {
        format!("Secret {}/{}", self.wanted.namespace, self.wanted.name)
    }
}
