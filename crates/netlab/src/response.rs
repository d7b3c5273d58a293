//! The response to a call, and assertions about it.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// A server's account of the connection or datagram that it got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The name of the server: `proxy`, `app`, `outside`, ...
    pub server: String,
    /// The port that the server listens on.
    pub port: u16,
    /// Where the caller wanted to go, as the kernel reports it to the server.
    pub original: SocketAddr,
    /// The caller's address, as the server sees it.
    pub source: SocketAddr,
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.server, self.port, self.original, self.source)
    }
}

impl Response {
    /// Reads what `Display` wrote.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let response = Self {
            server: words.next()?.to_owned(),
            port: words.next()?.parse().ok()?,
            original: words.next()?.parse().ok()?,
            source: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(response)
    }
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// By a server's response.
    Responded(Response),
    /// By a refusal: a reset, or a port that is closed.
    Refused,
    /// Without any reply within the limit.
    TimedOut,
    /// By another error, in its words.
    Failed(String),
}

impl Outcome {
    /// The outcome of a call that met an error.
    #[must_use]
    pub fn of_error(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ECONNREFUSED) => Self::Refused,
            // A time limit on connect() shows as "in progress", one on recv() as "try again".
            Some(libc::ETIMEDOUT | libc::EAGAIN | libc::EINPROGRESS) => Self::TimedOut,
            _ => Self::Failed(error.to_string()),
        }
    }

    /// The response; there must be one.
    #[track_caller]
    pub fn response(&self) -> &Response {
        match self {
            Self::Responded(response) => response,
            Self::Refused | Self::TimedOut | Self::Failed(_) => panic!("expected a response, got {self:?}"),
        }
    }

    /// The call must have ended at the proxy's `port`, which knew where it was meant to go.
    #[track_caller]
    pub fn captured(&self, port: u16, original: SocketAddr) -> &Self {
        let expected = format!("captured to {port}, original destination {original}");
        let response = match self {
            Self::Responded(response) => response,
            Self::Refused | Self::TimedOut | Self::Failed(_) => panic!("expected {expected}, got {self:?}"),
        };
        assert!(
            (response.server.as_str(), response.port, response.original) == ("proxy", port, original),
            "expected {expected}, got {response:?}"
        );
        self
    }

    /// The call must have reached the server of this name itself.
    #[track_caller]
    pub fn served_by(&self, server: &str) -> &Self {
        match self {
            Self::Responded(response) if response.server == server => self,
            Self::Responded(_) | Self::Refused | Self::TimedOut | Self::Failed(_) => {
                panic!("expected to reach {server} itself, got {self:?}")
            }
        }
    }

    /// The server must have seen the call come from `address`.
    #[track_caller]
    pub fn coming_from(&self, address: IpAddr) -> &Self {
        assert_eq!(self.response().source.ip(), address, "source address as the server sees it, in {self:?}");
        self
    }
}
