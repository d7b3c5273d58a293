//! The HTTP proxy on the way to an API server.

use http_body_util::BodyExt as _;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config};
use tower::limit::RateLimitLayer;
use tower::{BoxError, ServiceBuilder};

/// The proxy for this API server, as Kubernetes' own client finds it: `given` by the kubeconfig, or that of `HTTPS_PROXY`, unless
/// `NO_PROXY` covers the server or it is on this machine.
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

/// Its URL without user and password.
pub(super) fn shown(proxy: &Intercept) -> String {
    let uri = proxy.uri();
    let port = uri.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", uri.scheme_str().unwrap_or_default(), uri.host().unwrap_or_default())
}

/// A client whose connections the proxy tunnels.
pub(super) fn client(config: &Config, proxy: &Intercept, rate: &RateLimitLayer) -> kube::Result<Client> {
    let mut tunnel = Tunnel::new(proxy.uri().clone(), HttpConnector::new());
    if let Some(credentials) = proxy.basic_auth() {
        tunnel = tunnel.with_auth(credentials.clone());
    }
    // As kube wraps its own: connections are of the same type, whose code is there once.
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tunnel)?);
    connector.set_connect_timeout(config.connect_timeout);
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_response(|response: hyper::Response<hyper::body::Incoming>| {
            response.map(|body| body.map_err(BoxError::from))
        })
        .map_err(BoxError::from)
        .service(http);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).with_layer(rate).build())
}
