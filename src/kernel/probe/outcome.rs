//! The outcome of a probe, and its message.

use std::fmt;
use std::io;

use nix::errno::Errno;

use crate::model::{Family, Port};
use crate::text::count;

/// The outcome of a probe.
#[derive(Debug)]
pub enum Outcome {
    /// The probe arrived at the proxy's port in every family.
    Captured(Vec<Arrival>),
    /// The probe did not arrive at the proxy's port, in these families.
    NotCaptured(Vec<UncapturedProbe>),
    /// A port of the proxy cannot be listened on.
    CannotListen {
        /// The family.
        family: Family,
        /// The port.
        port: Port,
        /// Why not.
        error: io::Error,
    },
    /// The probe cannot be sent under the proxy's uid, so that it would prove nothing.
    Unable {
        /// The uid wanted.
        uid: u32,
    },
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Captured(arrivals) => {
                f.write_str("the probe was captured")?;
                joined(f, arrivals.iter())
            }
            Self::NotCaptured(not_captured) => {
                f.write_str("the probe was not captured")?;
                joined(f, not_captured.iter())
            }
            Self::CannotListen { family, port, error } => {
                write!(f, "cannot listen on port {port} ({family}) for the probe: {error}")
            }
            Self::Unable { uid } => {
                write!(f, "cannot send the probe under the proxy's uid {uid}: missing capability SETUID")
            }
        }
    }
}

fn joined<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: impl Iterator<Item = T>) -> fmt::Result {
    for (index, item) in items.enumerate() {
        write!(f, "{} {item}", if index == 0 { ":" } else { ";" })?;
    }
    Ok(())
}

/// A captured probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The family.
    pub family: Family,
    /// The port at which it arrived.
    pub at: Port,
}

impl fmt::Display for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} arrived at port {}", self.family, self.at)
    }
}

/// A probe that was not captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UncapturedProbe {
    /// The family.
    pub family: Family,
    /// Where it went.
    pub port: Port,
    /// How often it was sent.
    pub attempts: usize,
    /// The last event.
    pub last: Event,
}

impl fmt::Display for UncapturedProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { family, port, attempts, last } = self;
        let target = match family {
            Family::V4 => "127.0.0.6",
            Family::V6 => "[::6]",
        };
        let attempts = count(*attempts, "attempt");
        write!(f, "{family}, {attempts} from loopback to {target}:{port}, at last {last}")?;
        match (family, last) {
            (Family::V6, Event::Failed(Errno::ENETUNREACH | Errno::EHOSTUNREACH)) => {
                f.write_str(" (is ::6/128 on lo?)")
            }
            _ => Ok(()),
        }
    }
}

/// The event of a probe that was not captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// No reply.
    Silence,
    /// The connection failed; most often refused, because nothing listens at its destination.
    Failed(Errno),
    /// Another process accepted it.
    AcceptedElsewhere,
    /// A connection arrived at this port of ours, but not redirected from the probe's port.
    ArrivedOtherwise(Port),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silence => f.write_str("no reply: packets are dropped on the way"),
            Self::Failed(Errno::ECONNREFUSED) => f.write_str("connection refused: no rule redirected it"),
            Self::Failed(errno) => write!(f, "{}", errno.desc()),
            Self::AcceptedElsewhere => f.write_str("accepted by another process"),
            Self::ArrivedOtherwise(port) => {
                write!(f, "a connection to port {port} that was not redirected from the probe's port")
            }
        }
    }
}
