//! The HTTP proxy for connections to an API server.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryFutureExt as _;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::{Request, Response, Uri};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};
use tokio::net::TcpStream;
use tower::limit::RateLimitLayer;
use tower::retry::RetryLayer;
use tower::{BoxError, Service, ServiceBuilder};
use tower_http::timeout::{TimeoutBody, TimeoutError};

/// The proxy for this API server, as Kubernetes' own client finds it: `given` by the kubeconfig, or that of
/// `HTTPS_PROXY`, unless `NO_PROXY` covers the server or it is on this machine.
///
/// # Errors
///
/// A proxy of another kind.
pub(super) fn find(config: &mut Config, given: bool) -> Result<Option<Intercept>, String> {
    let Some(proxy) = config.proxy_url.take() else { return Ok(None) };
    let server = &config.cluster_url;
    let text = proxy.to_string();
    let matcher = if given {
        Matcher::builder().http(text.clone()).https(text)
    } else if is_local(server.host().unwrap_or_default()) {
        return Ok(None);
    } else {
        Matcher::builder().https(text).no(no_proxy())
    };
    let Some(found) = matcher.build().intercept(server) else { return Ok(None) };
    match found.uri().scheme_str() {
        Some("http") => Ok(Some(found)),
        _ => Err(format!("proxy {} is not accepted, expected http://HOST:PORT", shown(&found))),
    }
}

/// kube reads `HTTPS_PROXY` and `KUBECONFIG`, and leaves this one to its users.
#[allow(clippy::disallowed_methods, reason = "the variable belongs to one that kube reads itself")]
fn no_proxy() -> String {
    let value = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    value("NO_PROXY").or_else(|| value("no_proxy")).unwrap_or_default()
}

fn is_local(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// The URL of the proxy without user and password.
pub(super) fn shown(proxy: &Intercept) -> String {
    let uri = proxy.uri();
    let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", uri.scheme_str().unwrap_or_default(), uri.host().unwrap_or_default())
}

/// For the head of a response, that of a watch included: the API server sends it at once. hyper's client can
/// lose a request that it assigns to a connection just as the server closes it, and a watcher that awaits its
/// response would miss every later change. For each further part of a list, too.
const RESPONSE: Duration = Duration::from_secs(30);

/// A client whose connections the proxy, if there is one, tunnels. It has the layers of kube's own but for
/// its traces.
pub(super) fn client(
    config: &Config,
    proxy: Option<&Intercept>,
    rate: &RateLimitLayer,
) -> kube::Result<Client> {
    let mut connector =
        TimeoutConnector::new(config.rustls_https_connector_with_connector(Route::by(proxy))?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .service_fn(move |request| exchange(http.clone(), request));
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).with_layer(rate).build())
}

/// Sends a request. A watch is silent for as long as nothing changes: `kube::runtime` restarts one that is so
/// for 295 s.
async fn exchange<C>(
    http: HttpClient<C, Body>,
    request: Request<Body>,
) -> Result<Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let is_watch = request.uri().query().unwrap_or_default().split('&').any(|pair| pair == "watch=true");
    let limit = RESPONSE.as_secs();
    let response = tokio::time::timeout(RESPONSE, http.request(request)).await;
    let response = response.map_err(|_| format!("no response within {limit} s"))??;
    Ok(response.map(|body| {
        if is_watch {
            return body.map_err(BoxError::from).boxed_unsync();
        }
        let stops = move |error: BoxError| {
            let stopped = error.is::<TimeoutError>();
            if stopped { BoxError::from(format!("its response stops: no data for {limit} s")) } else { error }
        };
        TimeoutBody::new(RESPONSE, body).map_err(stops).boxed_unsync()
    }))
}

/// How a connection is made. One type for both, since the code of a client is there once for each.
#[derive(Clone)]
enum Route {
    Direct(HttpConnector),
    Tunnel(Tunnel<HttpConnector>),
}

impl Route {
    fn by(proxy: Option<&Intercept>) -> Self {
        let mut direct = HttpConnector::new();
        let Some(proxy) = proxy else {
            direct.enforce_http(false); // TLS is above it
            return Self::Direct(direct);
        };
        let tunnel = Tunnel::new(proxy.uri().clone(), direct);
        Self::Tunnel(match proxy.basic_auth() {
            Some(credentials) => tunnel.with_auth(credentials.clone()),
            None => tunnel,
        })
    }
}

impl Service<Uri> for Route {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Self::Direct(connector) => connector.poll_ready(context).map_err(BoxError::from),
            Self::Tunnel(connector) => connector.poll_ready(context).map_err(BoxError::from),
        }
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        match self {
            Self::Direct(connector) => Box::pin(connector.call(server).map_err(BoxError::from)),
            Self::Tunnel(connector) => Box::pin(connector.call(server).map_err(BoxError::from)),
        }
    }
}
