//! Connections that began while no rule captured them: which they are, and how they end.

use std::io;

use super::namespace::network;
use crate::apply;
use crate::config::Resolved;
use crate::explain::{Connection, LiveState, older_than_capture};
use crate::kernel::conntrack::{Conntrack, ConntrackError, Filter};
use crate::kernel::process::Host;
use crate::kernel::sock_diag::SocketLookup;
use crate::report::Failure;

/// The open connections of this thread's network namespace that the live rules would capture if they began
/// now.
///
/// # Errors
/// The live state cannot be read.
pub fn older_connections(host: &impl Host, resolved: Resolved) -> Result<Vec<Connection>, Failure> {
    let Resolved { run, intent, .. } = resolved;
    let network = network()?;
    let (config, _) = intent.decide(&network);
    let own = apply::live_inspection::rules(host, run.backend)?;
    let (runtime, unread) = apply::pod_runtime::runtime(&own.rules, &config, &network);
    unread.iter().for_each(|problem| log::debug!("{problem}"));
    let live = LiveState { runtime, ..own.live };
    Ok(older_than_capture(&live, &config, &network).into_iter().copied().collect())
}

/// Ends connections: the kernel destroys their sockets. One that cannot do that forgets their conntrack
/// entries: the next packet meets the rules, and the proxy resets it. Returns how many were open.
///
/// # Errors
/// The kernel refuses both.
pub fn reset_connections(connections: &[Connection]) -> io::Result<usize> {
    let mut sockets = SocketLookup::open()?;
    let mut done = 0;
    for Connection { local, remote, .. } in connections {
        match sockets.destroy(*local, *remote) {
            Ok(was_open) => done += usize::from(was_open),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                return forget_connections(connections).map_err(|error| io::Error::other(error.to_string()));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Deletes the conntrack entries of connections. Returns how many there were.
///
/// # Errors
/// See [`ConntrackError`].
pub fn forget_connections(connections: &[Connection]) -> Result<usize, ConntrackError> {
    let mut table = Conntrack::open()?;
    let mut done = 0;
    for entry in table.dump(Filter::All)? {
        let (one, other) = (entry.original.source, entry.original.destination);
        let has_ends = |found: &Connection| {
            let ends = (found.local, found.remote);
            ends == (one, other) || ends == (other, one)
        };
        if connections.iter().any(has_ends) {
            done += usize::from(table.delete(&entry)?);
        }
    }
    Ok(done)
}
