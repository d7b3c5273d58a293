//! HTTP/2 frame by frame: for what a client library does not let a test order.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::client::{review, tls};
use super::server::Server;

/// Frame types and flags (RFC 9113, 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    flags: u8,
    stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// One connection.
pub(crate) struct Connection(TlsStream<TcpStream>);

impl Connection {
    pub(crate) async fn open(server: &Server) -> Self {
        let mut connection = Self(tls(server.https, &server.ca, &[b"h2"]).await.unwrap());
        let settings = frame(4, 0, 0, &[]);
        connection.send(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &settings].concat()).await;
        connection
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
        self.0.flush().await.unwrap();
    }

    /// The next frame; `None` at the end of the connection.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let [length @ .., kind, flags, a, b, c, d] = head;
        let [x, y, z] = length;
        let mut payload = vec![0; u32::from_be_bytes([0, x, y, z]) as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        Some(Frame { kind, flags, stream: u32::from_be_bytes([a, b, c, d]), payload })
    }

    /// The next frame of this type that is not an acknowledgement.
    pub(crate) async fn next_of(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.next().await.expect("an open connection");
            if frame.kind == kind && frame.flags & ACK == 0 {
                return frame;
            }
        }
    }

    /// Reads until the response of a stream has ended: its text.
    pub(crate) async fn response(&mut self, stream: u32) -> String {
        let mut body = Vec::new();
        loop {
            let frame = self.next().await.expect("an open connection");
            if frame.stream == stream && frame.kind == DATA {
                body.extend(&frame.payload);
                if frame.flags & END_STREAM != 0 {
                    return String::from_utf8(body).unwrap();
                }
            }
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length, [kind, flags].as_slice(), &stream.to_be_bytes(), payload].concat()
}

/// A review on a stream.
pub(crate) fn request(stream: u32, uid: &str) -> Vec<u8> {
    // `:method: POST` and `:scheme: https` of the static table; then names from there with values as they are
    // (RFC 7541).
    let mut head = vec![0x83, 0x87];
    for (name, value) in
        [([4].as_slice(), "/inject?timeout=10s"), (&[1], "localhost"), (&[0x0f, 0x10], "application/json")]
    {
        head.extend(name);
        head.push(u8::try_from(value.len()).unwrap());
        head.extend(value.as_bytes());
    }
    let body = review(uid);
    [frame(HEADERS, END_HEADERS, stream, &head), frame(DATA, END_STREAM, stream, body.as_bytes())].concat()
}

/// The acknowledgement of a PING.
pub(crate) fn pong(ping: &Frame) -> Vec<u8> {
    frame(PING, ACK, 0, &ping.payload)
}

/// The last stream and the error code of a GOAWAY.
pub(crate) fn goaway(frame: &Frame) -> (u32, u32) {
    let word = |at: usize| u32::from_be_bytes(frame.payload[at..at + 4].try_into().unwrap());
    (word(0), word(4))
}
