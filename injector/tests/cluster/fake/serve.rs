//! HTTP.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::store::Refusal;
use super::{Received, STALLED, State, lock};

type Body = UnsyncBoxBody<Bytes, Infallible>;

pub(super) async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, state: Arc<State>) {
    match tls {
        None => talk(stream, state).await,
        Some(tls) => {
            if let Ok(stream) = tls.accept(stream).await {
                talk(stream, state).await;
            }
        }
    }
}

async fn talk(stream: impl AsyncRead + AsyncWrite + Unpin, state: Arc<State>) {
    let service = service_fn(move |request| {
        let state = Arc::clone(&state);
        async move { Ok::<_, Infallible>(answer(request, state).await) }
    });
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// A request's target in the terms of the store.
struct Target {
    collection: String,
    name: Option<String>,
    query: BTreeMap<String, String>,
}

impl Target {
    fn of(path: &str, query: &str) -> Self {
        let mut parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        parts.drain(..if parts[0] == "api" { 2 } else { 3 });
        let namespaced = parts[0] == "namespaces" && parts.len() > 2;
        let length = if namespaced { 3 } else { 1 };
        let collection = parts[..length].join("/");
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (key.to_owned(), unescaped(value))
        };
        let query = query.split('&').map(pair).collect();
        Self { collection, name: parts.get(length).map(|name| (*name).to_owned()), query }
    }

    fn key(&self) -> String {
        format!("{}/{}", self.collection, self.name.as_deref().unwrap_or_default())
    }

    fn parameter(&self, key: &str) -> &str {
        self.query.get(key).map_or("", String::as_str)
    }

    fn selects(&self, object: &Value) -> bool {
        let fits = |selector: &str, labels: bool| {
            selector.split_once('=').is_none_or(|(key, value)| {
                let found = if labels {
                    object["metadata"]["labels"][key].as_str()
                } else {
                    object.pointer(&format!("/{}", key.replace('.', "/"))).and_then(Value::as_str)
                };
                found == Some(value)
            })
        };
        fits(self.parameter("fieldSelector"), false) && fits(self.parameter("labelSelector"), true)
    }
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let hex: String = rest.by_ref().take(2).map(char::from).collect();
                u8::from_str_radix(&hex, 16).expect("two digits")
            }
            other => other,
        });
    }
    String::from_utf8(bytes).expect("text")
}

async fn answer(request: Request<Incoming>, state: Arc<State>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let method = parts.method.to_string();
    let path = parts.uri.to_string();
    let content_type = parts.headers.get("content-type").and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default().to_owned();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let target = Target::of(parts.uri.path(), parts.uri.query().unwrap_or_default());
    state.pass_gate(&method, &path).await;
    let note = |status| {
        state.note(Received {
            method: method.clone(),
            path: path.clone(),
            content_type: content_type.clone(),
            status,
        })
    };
    if let Some(status) = state.failure(&method, &path) {
        note(status);
        // A success that is not the store's is a response that ends at once.
        let empty = || Response::new(Full::new(Bytes::new()).boxed_unsync());
        return match status {
            200 => empty(),
            STALLED => stalled(),
            _ => refused((status, "made to fail".to_owned())),
        };
    }
    if method == "GET" && target.parameter("watch") == "true" {
        note(200);
        return watch(target, Arc::clone(&state));
    }
    let result = stored(&method, &target, &content_type, &body, &state);
    match result {
        Ok((status, value)) => {
            note(status);
            whole(status, &value)
        }
        Err(refusal) => {
            note(refusal.0);
            refused(refusal)
        }
    }
}

fn stored(
    method: &str,
    target: &Target,
    content_type: &str,
    body: &[u8],
    state: &State,
) -> Result<(u16, Value), Refusal> {
    let mut store = lock(&state.store);
    let parsed = || serde_json::from_slice::<Value>(body).map_err(|error| (400, error.to_string()));
    let manager = target.parameter("fieldManager");
    let missing = || (404, format!("{:?} not found", target.key()));
    let result = match (method, &target.name) {
        ("GET", Some(_)) => {
            store.object(&target.key()).cloned().map(|object| (200, object)).ok_or_else(missing)
        }
        ("GET", None) => Ok((200, page(&store, target))),
        ("POST", None) => store.create(&target.collection, parsed()?, manager).map(|object| (201, object)),
        ("PUT", Some(_)) => store.replace(&target.key(), parsed()?, manager).map(|object| (200, object)),
        ("PATCH", Some(_)) if content_type == "application/apply-patch+yaml" => {
            let force = target.parameter("force") == "true";
            store.apply(&target.key(), &parsed()?, manager, force).map(|object| (200, object))
        }
        ("PATCH", Some(_)) if content_type == "application/json-patch+json" => {
            store.patch(&target.key(), parsed()?, manager).map(|object| (200, object))
        }
        ("PATCH", Some(_)) => Err((415, format!("{content_type:?} is not supported"))),
        ("DELETE", Some(_)) => store.delete(&target.key()).map(|object| (200, object)).ok_or_else(missing),
        _ => Err((405, "no such thing".to_owned())),
    };
    state.changed.send_replace(store.version());
    result
}

/// A list, or a part of one: `continue` is the number of the first item.
fn page(store: &super::Store, target: &Target) -> Value {
    let start: usize = target.parameter("continue").parse().unwrap_or(0);
    let limit: usize = target.parameter("limit").parse().unwrap_or(usize::MAX);
    let all: Vec<&Value> = store.list(&target.collection).filter(|object| target.selects(object)).collect();
    let mut items: Vec<Value> = all.iter().skip(start).take(limit).map(|object| (*object).clone()).collect();
    for item in &mut items {
        let map = item.as_object_mut().expect("an object");
        map.remove("apiVersion");
        map.remove("kind");
    }
    let more = start.saturating_add(limit) < all.len();
    let next = if more { (start + limit).to_string() } else { String::new() };
    let metadata = json!({"resourceVersion": store.version().to_string(), "continue": next});
    json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items})
}

fn whole(status: u16, value: &Value) -> Response<Body> {
    let body = Full::new(Bytes::from(value.to_string())).boxed_unsync();
    let response = Response::builder().status(status).header("content-type", "application/json");
    response.body(body).expect("a response")
}

fn stalled() -> Response<Body> {
    let beginning = stream::iter([Ok(Frame::data(Bytes::from_static(b"{\"kind\":")))]);
    let body = StreamBody::new(futures_util::StreamExt::chain(beginning, stream::pending()));
    Response::new(body.boxed_unsync())
}

fn refused((status, message): Refusal) -> Response<Body> {
    whole(status, &status_object(status, &message))
}

fn status_object(code: u16, message: &str) -> Value {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 if message.contains("already exists") => "AlreadyExists",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        _ => "InternalError",
    };
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code})
}

/// Events, one line and one chunk each, until the client goes away; or one error when the version is expired.
fn watch(target: Target, state: Arc<State>) -> Response<Body> {
    let version = target.parameter("resourceVersion").parse().unwrap_or(0);
    let changed = state.changed.subscribe();
    let events = stream::unfold(Some((target, state, changed, version)), |following| async {
        let (target, state, mut changed, mut version) = following?;
        loop {
            changed.borrow_and_update();
            let (events, now) = {
                let store = lock(&state.store);
                (store.since(version, &target.collection), store.version())
            };
            let Some(events) = events else {
                let error =
                    json!({"type": "ERROR", "object": status_object(410, "too old resource version")});
                return Some((format!("{error}\n"), None));
            };
            version = now;
            let lines = events.iter().filter(|event| target.selects(&event.object));
            let text: String = lines
                .map(|event| format!("{}\n", json!({"type": event.kind, "object": event.object})))
                .collect();
            if !text.is_empty() {
                return Some((text, Some((target, state, changed, version))));
            }
            changed.changed().await.ok()?;
        }
    });
    let frames = futures_util::StreamExt::map(events, |text| Ok(Frame::data(Bytes::from(text))));
    let response = Response::builder().status(200).header("content-type", "application/json");
    response.body(StreamBody::new(frames).boxed_unsync()).expect("a response")
}
