//! Connections that began while the rules of a pod were gone: they stay outside the mesh until they end.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use istio_iptables::commands::{older_connections, reset_connections};
use istio_iptables::config::Resolved;
use istio_iptables::explain::Connection;
use istio_iptables::kernel::process::SystemHost;
use istio_iptables::text::count;

use super::super::metrics::Metrics;

/// Connections that are named at a time.
const NAMED: usize = 5;

/// The escaped connections of a pod that are known, by their ends.
#[derive(Debug, Default)]
pub(in crate::install) struct Escaped(BTreeSet<(SocketAddr, SocketAddr)>);

impl Escaped {
    /// Looks for new ones in this thread's network namespace, and resets them if that is asked for. Returns
    /// them in words.
    pub(in crate::install) fn look(
        &mut self,
        host: &SystemHost,
        options: Resolved,
        (pod, resets): (&str, bool),
        metrics: &Metrics,
    ) -> Option<String> {
        let open = match older_connections(host, options) {
            Ok(open) => open,
            Err(failure) => {
                log::warn!(pod; "connections that began without rules are not known: {failure}");
                return None;
            }
        };
        let ends = |found: &Connection| (found.local, found.remote);
        self.0.retain(|known| open.iter().any(|found| ends(found) == *known));
        let new: Vec<_> = open.into_iter().filter(|found| self.0.insert(ends(found))).collect();
        if new.is_empty() {
            return None;
        }
        let shown = new.iter().take(NAMED).map(|found| format!("{} - {}", found.local, found.remote));
        let more = new.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let named = format!("{}{more}", shown.collect::<Vec<_>>().join(", "));
        let connections = count(new.len(), "connection");
        let words = if resets {
            match reset_connections(&new) {
                Ok(done) => {
                    metrics.escaped(new.len(), done);
                    format!("{connections} outside the mesh, {done} of them reset: {named}")
                }
                Err(error) => {
                    metrics.escaped(new.len(), 0);
                    format!("{connections} outside the mesh until they end, not reset ({error}): {named}")
                }
            }
        } else {
            metrics.escaped(new.len(), 0);
            format!("{connections} outside the mesh until they end: {named}")
        };
        log::warn!(pod, connections = new.len(); "escaped: {words}");
        Some(words)
    }
}
