//! Slow clients.

use std::time::Duration;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::client::{assert_client_is_logged, request, review, tls, whole};
use super::memory::limit;
use super::server::Server;

/// Longer than the time between two requests, of which a slow second head is a part.
const LONG: Duration = Duration::from_secs(150);

/// Reads until the server closes; what it sent before.
async fn until_closed(mut stream: impl AsyncRead + Unpin) -> String {
    let mut output = Vec::new();
    // A reset ends the connection, too.
    let _ = timeout(LONG, stream.read_to_end(&mut output)).await.expect("the server closes the connection");
    String::from_utf8_lossy(&output).into_owned()
}

/// Sends a byte now and then until the server closes.
async fn trickle(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) {
    for byte in bytes.iter().cycle() {
        if stream.write_all(&[*byte]).await.is_err() || stream.flush().await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

const HEAD: &str = "POST /inject HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";

async fn silent(server: &Server) {
    until_closed(TcpStream::connect(server.https).await.unwrap()).await;
}

async fn silent_after_handshake(server: &Server, protocol: &'static [u8]) {
    until_closed(tls(server.https, &server.ca, &[protocol]).await.unwrap()).await;
}

async fn endless_head(stream: impl AsyncRead + AsyncWrite) {
    let (read, mut write) = tokio::io::split(stream);
    write.write_all(HEAD.as_bytes()).await.unwrap();
    tokio::select! {
        _ = until_closed(read) => {}
        () = trickle(&mut write, b"x-slow: yes\r\n") => {}
    }
}

async fn slow_head(server: &Server) {
    endless_head(tls(server.https, &server.ca, &[]).await.unwrap()).await;
}

async fn slow_second_head(server: &Server) {
    let mut stream = tls(server.https, &server.ca, &[]).await.unwrap();
    stream.write_all(format!("{HEAD}content-length: 0\r\n\r\n").as_bytes()).await.unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 400");
    endless_head(stream).await;
}

async fn slow_body(server: &Server, query: &str, expected: &str) {
    let mut stream = tls(server.https, &server.ca, &[]).await.unwrap();
    let head = HEAD.replace("/inject", &format!("/inject{query}"));
    stream.write_all(format!("{head}content-length: 1000\r\n\r\n{{").as_bytes()).await.unwrap();
    let output = until_closed(stream).await;
    assert!(output.starts_with(expected), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_are_disconnected_and_delay_no_other() {
    let server = Server::start(&[]);
    let others = async {
        for _ in 0..20 {
            assert!(server.http1().await.inject("h1").await.is_injection());
            assert!(server.http2().await.inject("h2").await.is_injection());
            assert_eq!(server.ask("/readyz").await.0, 200);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::join!(
        silent(&server),
        silent_after_handshake(&server, b"http/1.1"),
        silent_after_handshake(&server, b"h2"),
        slow_head(&server),
        slow_second_head(&server),
        slow_body(&server, "?timeout=30s", "HTTP/1.1 408"),
        slow_body(&server, "?timeout=1s", "HTTP/1.1 504"),
        others,
    );
    server.wait_for_metric("sidecar_injector_tls_handshake_failures_total", |count| count >= 1.0).await;
    server.wait_for_metric("sidecar_injector_connections", |count| count <= 1.0).await;
    server.wait_for_metric("sidecar_injector_requests_in_flight", |count| count == 0.0).await;
}

/// Bodies that lack their last bytes: so many, of so many bytes each.
async fn held_open(server: &Server, count: usize, length: usize) -> Vec<impl Sized + use<>> {
    let mut all = Vec::new();
    let head = HEAD.replace("/inject", "/inject?timeout=30s");
    for _ in 0..count {
        let mut stream = tls(server.https, &server.ca, &[]).await.unwrap();
        let head = format!("{head}content-length: {}\r\n\r\n", length + 1);
        stream.write_all(head.as_bytes()).await.unwrap();
        // A connection that is closed early does not take the rest.
        let _ = stream.write_all(&vec![b' '; length]).await;
        all.push(stream);
    }
    all
}

/// Injects a pod, as soon as there is room for it again.
async fn inject_eventually(server: &Server, body: &str) {
    let inject = async {
        loop {
            let answer = server.http2().await.post("/inject?timeout=10s", body.to_owned()).await;
            if answer.is_ok_and(|answer| answer.status == 200 && answer.is_injection()) {
                return;
            }
        }
    };
    timeout(LONG, inject).await.expect("served again");
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_bodies_time_out_and_others_are_served_within_the_memory_limit() {
    let server = Server::start(&[]);
    let large = held_open(&server, 10, (6 << 20) - 2048).await;
    let small = held_open(&server, 50, 250 << 10).await;
    for size in [0, 20_000, 300_000, 1_000_000] {
        inject_eventually(&server, &(review("in between") + &" ".repeat(size))).await;
    }
    let peak = server.peak_memory();
    assert!(peak < limit(), "{} MiB", peak >> 20);
    drop((large, small));
}

/// A client that sends as many requests as one connection may have, and reads one byte of each response:
/// until it is closed.
async fn asks_and_reads_nothing(server: &Server) -> impl Future<Output = ()> + use<> {
    // A connection whose client was too late itself, on a busy machine, is made again.
    let handshake = async {
        loop {
            let stream = TokioIo::new(tls(server.https, &server.ca, &[b"h2"]).await.unwrap());
            let mut builder = http2::Builder::new(TokioExecutor::new());
            if let Ok(made) = builder.initial_stream_window_size(1).handshake(stream).await {
                return made;
            }
        }
    };
    let (sender, connection) = timeout(LONG, handshake).await.expect("a connection");
    let connection = tokio::spawn(connection);
    let mut answers = JoinSet::new();
    for number in 0..100 {
        let mut sender = sender.clone();
        answers.spawn(async move {
            let uri = "https://localhost/inject?timeout=30s";
            let review = review(&format!("unread {number}"));
            // A request whose connection is closed has no response.
            sender.send_request(request("POST", uri, "application/json", whole(review))).await.ok()
        });
    }
    async move {
        // A reset ends the connection, too.
        let _ = connection.await.expect("no panic");
        // Without a sender the client would end the connection itself, as soon as the head of each response
        // is there.
        drop((answers, sender));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_do_not_read_are_closed_and_others_are_served() {
    let server = Server::start(&[]);
    let mut unread = JoinSet::new();
    for _ in 0..30 {
        unread.spawn(asks_and_reads_nothing(&server).await);
    }
    inject_eventually(&server, &review("read")).await;
    timeout(LONG, unread.join_all()).await.expect("each of them is closed");
    let reason = "does not read its responses";
    let closed =
        |line: &&serde_json::Value| line["msg"].as_str().is_some_and(|message| message.contains(reason));
    let lines = server.lines();
    assert!(lines.iter().any(|line| closed(&line)), "{lines:?}");
    lines.iter().filter(closed).for_each(assert_client_is_logged);
    server.wait_for_metric("sidecar_injector_requests_in_flight", |count| count == 0.0).await;
    let peak = server.peak_memory();
    assert!(peak < limit(), "{} MiB", peak >> 20);
}
