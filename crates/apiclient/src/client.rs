//! The client of the API server, with its rate limit.

use std::path::Path;
use std::time::Duration;

use hyper_util::client::proxy::matcher::Intercept;
use kube::api::{ApiResource, DynamicObject, GetParams};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::Request;
use kube::{Client, Config, Resource as _};
use serde_json::Value;
use tower::limit::RateLimitLayer;

use crate::proxy;

const CONNECT: Duration = Duration::from_secs(5);
/// For a request that is not a watch.
const RESPONSE: Duration = Duration::from_secs(15);

/// The rate limit: five requests per second, the default of Kubernetes' own client (`rest.Config.QPS`),
/// counted over [`RATE_PERIOD`] so that a start, or `doctor`, waits for nothing. It bounds what the client
/// cannot pace itself: a watch that the API server ends without an error is restarted at once.
const RATE_LIMIT: u64 = 50;
const RATE_PERIOD: Duration = Duration::from_secs(10);

/// Why no client could be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{subject}: {problem}")]
pub struct ClientError {
    /// The kubeconfig, or what else was tried.
    pub subject: String,
    /// What was found and what is accepted.
    pub problem: String,
}

/// A client for the cluster of that kubeconfig; without one for the cluster that this runs in, and outside of
/// any for the one that kubectl would use. It does not connect yet. Needs a tokio runtime.
///
/// # Errors
///
/// What is missing or cannot be read.
pub async fn client(kubeconfig: Option<&Path>) -> Result<Client, ClientError> {
    Ok(connect(kubeconfig, None).await?.client)
}

/// A client, and what it connects to.
pub struct Connection {
    /// The client.
    pub client: Client,
    /// Kubeconfig, context and URL, for messages.
    pub target: String,
}

/// [`client`] for one of the kubeconfig's contexts, else for its current one.
///
/// # Errors
///
/// What is missing or cannot be read.
pub async fn connect(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Connection, ClientError> {
    connect_with_rate(kubeconfig, context, RATE_LIMIT).await
}

/// [`connect`] with so many requests in 10 s at most.
///
/// # Errors
///
/// What is missing or cannot be read.
pub async fn connect_with_rate(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
    rate: u64,
) -> Result<Connection, ClientError> {
    // The client's TLS takes the process's provider; one that is installed already is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let Target { mut config, source, proxy } = match kubeconfig {
        Some(path) => of_file(path, context).await?,
        None => found(context).await?,
    };
    config.connect_timeout = Some(CONNECT);
    let server = config.cluster_url.to_string();
    let mut target = format!("{source}, {server}");
    let rate = RateLimitLayer::new(rate, RATE_PERIOD);
    if let Some(proxy) = &proxy {
        target = format!("{target}, by proxy {}", proxy::shown(proxy));
    }
    let client = proxy::client(&config, proxy.as_ref(), &rate)
        .map_err(|error| ClientError { subject: server, problem: describe(&error) })?;
    Ok(Connection { client, target })
}

/// How an API server is reached.
struct Target {
    config: Config,
    /// The source of the configuration, for messages.
    source: String,
    proxy: Option<Intercept>,
}

async fn of_file(path: &Path, context: Option<&str>) -> Result<Target, ClientError> {
    let source = format!("kubeconfig {}", path.display());
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| {
        let problem =
            if let KubeconfigError::ReadConfig(cause, _) = &error { chain(cause) } else { chain(&error) };
        ClientError { subject: source.clone(), problem }
    })?;
    of_kubeconfig(kubeconfig, &source, context).await
}

async fn found(context: Option<&str>) -> Result<Target, ClientError> {
    let inside = match Config::incluster() {
        Ok(config) if context.is_none() => {
            // A pod reaches the API server's Service without one.
            return Ok(Target { config, source: "service account".to_owned(), proxy: None });
        }
        Ok(_) => "--context needs a kubeconfig".to_owned(),
        Err(error) => chain(&error),
    };
    let kubeconfig = Kubeconfig::read().map_err(|error| {
        let found = if let KubeconfigError::ReadConfig(cause, path) = &error {
            format!("{}: {}", path.display(), chain(cause))
        } else {
            chain(&error)
        };
        ClientError {
            subject: "no cluster".to_owned(),
            problem: format!(
                "not inside one ({inside}), and no kubeconfig in KUBECONFIG or ~/.kube/config ({found}): run in a pod with \
                 a service account, or give --kubeconfig FILE"
            ),
        }
    })?;
    of_kubeconfig(kubeconfig, "kubeconfig", context).await
}

async fn of_kubeconfig(
    kubeconfig: Kubeconfig,
    source: &str,
    context: Option<&str>,
) -> Result<Target, ClientError> {
    let name = context.map(str::to_owned).or_else(|| kubeconfig.current_context.clone()).unwrap_or_default();
    let source = format!("{source}, context {name}");
    let known: Vec<&str> = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
    if context.is_some_and(|context| !known.contains(&context)) {
        let problem = format!("there is no such context, expected one of: {}", known.join(", "));
        return Err(ClientError { subject: source, problem });
    }
    let bad = |problem: String| ClientError { subject: source.clone(), problem };
    let mut contexts = kubeconfig.contexts.iter().filter(|one| one.name == name);
    let cluster = contexts.find_map(|one| Some(one.context.as_ref()?.cluster.clone()));
    let mut clusters = kubeconfig.clusters.iter().filter(|one| Some(&one.name) == cluster.as_ref());
    let has_proxy = |url: &Option<String>| url.as_ref().is_some_and(|url| !url.is_empty());
    let given = clusters.any(|one| one.cluster.as_ref().is_some_and(|one| has_proxy(&one.proxy_url)));
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let mut config =
        Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| bad(chain(&error)))?;
    // The client takes it for granted that there is a scheme.
    let server = &config.cluster_url;
    if !matches!(server.scheme_str(), Some("https" | "http")) || server.host().is_none() {
        return Err(bad(format!("server {server} is not a URL, expected https://HOST:PORT")));
    }
    let proxy = proxy::find(&mut config, given).map_err(bad)?;
    Ok(Target { config, source, proxy })
}

/// An error of the API as a sentence.
#[expect(clippy::wildcard_enum_match_arm, reason = "most errors are alike")]
#[must_use]
pub fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            format!("forbidden: {} (a role must allow it)", beginning(&status.message))
        }
        kube::Error::Api(status) => {
            format!("the API server responded {}: {}", status.code, beginning(&status.message))
        }
        kube::Error::SerdeError(cause) => unreadable(cause),
        kube::Error::FromUtf8(cause) => unreadable(cause),
        kube::Error::Service(cause) if is_not_http(&**cause) => unreadable(&**cause),
        kube::Error::Service(cause) => format!("the API server is unreachable: {}", chain(&**cause)),
        other => format!("the API server is unreachable: {}", chain(other)),
    }
}

fn unreadable(cause: &dyn std::error::Error) -> String {
    format!("the response is not that of an API server: {}; expected JSON over HTTP", chain(cause))
}

fn is_not_http(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source())
        .filter_map(|error| error.downcast_ref::<hyper::Error>())
        .any(hyper::Error::is_parse)
}

/// Another server's page of an error is long, and has many lines.
fn beginning(message: &str) -> String {
    const LONGEST: usize = 500;
    message.lines().next().unwrap_or_default().chars().take(LONGEST).collect()
}

/// An error and what caused it, each once; of either the first line, as the others quote the file, keys and
/// all.
fn chain(error: &dyn std::error::Error) -> String {
    let first = |error: &dyn std::error::Error| {
        error.to_string().lines().next().unwrap_or_default().trim_end().to_owned()
    };
    let mut text = first(error);
    let mut source = error.source();
    while let Some(cause) = source {
        let more = first(cause);
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}

/// The response to a request.
///
/// # Errors
///
/// Why there is none within some seconds.
pub async fn ask<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, RequestFailed> {
    match tokio::time::timeout(RESPONSE, request).await {
        Err(_) => Err(RequestFailed {
            code: 0,
            problem: format!("no response from the API server within {} s", RESPONSE.as_secs()),
        }),
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => {
            let code = if let kube::Error::Api(status) = &error { status.code } else { 0 };
            Err(RequestFailed { code, problem: describe(&error) })
        }
    }
}

/// One object, of any kind; `namespace` is nothing for an object without one.
///
/// # Errors
///
/// As [`ask()`].
pub async fn get(
    client: &Client,
    kind: &ApiResource,
    namespace: Option<&str>,
    name: &str,
) -> Result<Value, RequestFailed> {
    let request = Request::new(DynamicObject::url_path(kind, namespace)).get(name, &GetParams::default());
    ask(async { client.request(request.map_err(kube::Error::BuildRequest)?).await }).await
}

/// A request that failed.
#[derive(Debug)]
pub struct RequestFailed {
    /// HTTP status; 0 when there was none.
    pub code: u16,
    /// As a sentence.
    pub problem: String,
}

/// HTTP status of a write that lost a race.
pub const CONFLICT: u16 = 409;
