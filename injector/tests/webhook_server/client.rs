//! Clients over TLS: HTTP/1.1, HTTP/2, and raw bytes.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::header::HeaderMap;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

type Sent = BoxBody<Bytes, Infallible>;

pub(crate) async fn tls(
    address: SocketAddr,
    ca: &CertificateDer<'static>,
    protocols: &[&[u8]],
) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(ca.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let tcp = TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), tcp).await
}

enum Sender {
    Http1(http1::SendRequest<Sent>),
    Http2(http2::SendRequest<Sent>),
}

/// One connection.
pub(crate) struct Client {
    sender: Sender,
    /// The certificate that the server showed.
    pub(crate) certificate: Vec<u8>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    /// Whether the pod was allowed and patched.
    pub(crate) fn is_injection(&self) -> bool {
        let response = &self.json()["response"];
        self.status == 200 && response["allowed"] == true && response["patchType"] == "JSONPatch"
    }
}

impl Client {
    pub(crate) async fn connect(
        address: SocketAddr,
        ca: &CertificateDer<'static>,
        protocols: &[&[u8]],
    ) -> io::Result<Self> {
        let stream = tls(address, ca, protocols).await?;
        let session = stream.get_ref().1;
        let certificate = session.peer_certificates().unwrap()[0].to_vec();
        let http2 = session.alpn_protocol() == Some(b"h2");
        let io = TokioIo::new(stream);
        let sender = if http2 {
            let (sender, connection) =
                http2::handshake(TokioExecutor::new(), io).await.map_err(io::Error::other)?;
            tokio::spawn(connection);
            Sender::Http2(sender)
        } else {
            let (sender, connection) = http1::handshake(io).await.map_err(io::Error::other)?;
            tokio::spawn(connection);
            Sender::Http1(sender)
        };
        Ok(Self { sender, certificate })
    }

    /// Whether the connection takes a request; it does not when the server has ended it.
    pub(crate) async fn is_open(&mut self) -> bool {
        match &mut self.sender {
            Sender::Http1(sender) => sender.ready().await.is_ok(),
            Sender::Http2(sender) => sender.ready().await.is_ok(),
        }
    }

    /// Sends a request; `None` if the server does not process it because it ends the connection.
    pub(crate) async fn try_send(&mut self, request: Request<Sent>) -> hyper::Result<Option<Answer>> {
        if !self.is_open().await {
            return Ok(None);
        }
        let response = match &mut self.sender {
            Sender::Http1(sender) => sender.try_send_request(request).await,
            Sender::Http2(sender) => {
                let (mut head, body) = request.into_parts();
                head.uri = format!("https://localhost{}", head.uri).parse().unwrap();
                sender.try_send_request(Request::from_parts(head, body)).await
            }
        };
        let response: Response<Incoming> = match response {
            Ok(response) => response,
            Err(mut error) => {
                let unsent = error.take_message().is_some();
                let error = error.into_error();
                return if unsent || goes_away(&error) { Ok(None) } else { Err(error) };
            }
        };
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Some(Answer { status: head.status, headers: head.headers, body }))
    }

    pub(crate) async fn send(&mut self, request: Request<Sent>) -> hyper::Result<Answer> {
        self.try_send(request).await.map(|answer| answer.expect("an open connection"))
    }

    pub(crate) async fn post(&mut self, path: &str, body: impl Into<Bytes>) -> hyper::Result<Answer> {
        self.send(request("POST", path, "application/json", whole(body))).await
    }

    /// Has a pod injected.
    pub(crate) async fn inject(&mut self, uid: &str) -> Answer {
        self.post("/inject?timeout=10s", review(uid)).await.unwrap()
    }
}

/// Whether the server ends an HTTP/2 connection and this request is not among those that it still answers.
/// `hyper` ends requests with this error alone where GOAWAY arrives between its check of the connection and
/// the request: as the API server's client does, the caller repeats it on another connection. Which requests
/// a server must answer is tested frame by frame (`shutdown`).
fn goes_away(error: &hyper::Error) -> bool {
    let http2 = std::error::Error::source(error).and_then(|source| source.downcast_ref::<h2::Error>());
    http2.is_some_and(|error| {
        error.is_go_away() && error.is_remote() && error.reason() == Some(h2::Reason::NO_ERROR)
    })
}

pub(crate) fn request(method: &str, path: &str, content_type: &str, body: Sent) -> Request<Sent> {
    let builder = Request::builder().method(method).uri(path).header("host", "localhost");
    builder.header("content-type", content_type).body(body).unwrap()
}

/// A body whose length is announced.
pub(crate) fn whole(body: impl Into<Bytes>) -> Sent {
    http_body_util::Full::new(body.into()).boxed()
}

/// A body whose length is not announced.
pub(crate) fn chunks(chunk: &Bytes, count: usize) -> Sent {
    Chunks(std::iter::repeat_n(chunk.clone(), count).collect()).boxed()
}

struct Chunks(VecDeque<Bytes>);

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|chunk| Ok(Frame::data(chunk))))
    }
}

/// A review of a pod with one container.
pub(crate) fn review(uid: &str) -> String {
    review_of(
        uid,
        json!({
            "metadata": {"generateName": "sample-", "labels": {"app": "sample"}},
            "spec": {"containers": [{"name": "sample", "image": "sample"}]},
        }),
    )
}

pub(crate) fn review_of(uid: &str, pod: Value) -> String {
    let mut pod = pod;
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "demo",
            "operation": "CREATE",
            "userInfo": {},
            "object": pod,
        },
    })
    .to_string()
}

/// A request without TLS: status, head, text.
pub(crate) async fn plain(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), head.to_lowercase(), text.to_owned())
}

/// A log line about a connection has the address of its client.
pub(crate) fn assert_client_is_logged(line: &Value) {
    let client = line["client"].as_str().map(str::parse::<SocketAddr>);
    assert!(client.is_some_and(|address| address.is_ok_and(|address| address.ip().is_loopback())), "{line}");
}
