//! Carries out the steps of [`crate::conntrack`]. The rules are in place already, so a failure is a warning.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;

use crate::conntrack::{APP_TO_PROXY_ZONE, Step};
use crate::kernel::conntrack::{self, Conntrack, ConntrackError, Entry, Filter, TcpState, Zone};
use crate::kernel::sock_diag::{self, State};
use crate::model::{Family, Mark, Transport};

/// The states of a socket that has begun, or got, a connection.
const BEGUN: [State; 10] = [
    State::Established,
    State::SynSent,
    State::SynReceived,
    State::FinWait1,
    State::FinWait2,
    State::TimeWait,
    State::CloseWait,
    State::LastAck,
    State::Closing,
    State::NewSynReceived,
];

/// The connection tracking table, opened by the first step that needs it.
#[derive(Debug, Default)]
pub(super) struct Table {
    open: Option<Conntrack>,
    /// Nothing more is tried, and no second warning is logged.
    failed: bool,
}

impl Table {
    /// Carries out one step.
    pub(super) fn execute(&mut self, step: Step) {
        // An empty table needs no request, which could load a module.
        if self.failed || conntrack::count_in_proc() == Some(0) {
            return;
        }
        match self.try_execute(step) {
            Ok(count) => log::info!("{step} ({count})"),
            Err(error) => {
                self.failed = true;
                log::warn!("{step}: {error}; {}", consequence(step));
            }
        }
    }

    fn try_execute(&mut self, step: Step) -> Result<usize, ConntrackError> {
        let table = match &mut self.open {
            Some(table) => table,
            closed => closed.insert(Conntrack::open()?),
        };
        let count = match step {
            Step::DeleteDnsUdp(family, flows) => {
                let filter = Filter { family, transport: Transport::Udp, destination_port: Some(53) };
                table.delete_if(&filter, |entry| {
                    matches!(entry.zone, Zone::Both(0 | APP_TO_PROXY_ZONE))
                        && flows.contains(entry.status.destination_translated())
                })
            }
            Step::DeleteClosedTcp(family) => {
                let filter = Filter { family, transport: Transport::Tcp, destination_port: None };
                table.delete_if(&filter, |entry| entry.tcp_state == Some(TcpState::Close))
            }
            Step::ClearForeignMark(family, mark) => clear_foreign_mark(table, family, mark),
        };
        Ok(count?)
    }
}

/// What remains if a step fails.
const fn consequence(step: Step) -> &'static str {
    match step {
        Step::DeleteDnsUdp(..) => {
            "sockets that send DNS queries from a fixed port keep their previous way until they pause for 2 minutes"
        }
        Step::DeleteClosedTcp(_) => {
            "a TCP port whose connection the server has reset keeps its previous way for 10 seconds"
        }
        Step::ClearForeignMark(..) => {
            "inbound connections that an interrupted change of the backend stopped stay so until they are closed"
        }
    }
}

/// The entries are listed before the sockets: a connection of the proxy that begins meanwhile is not among them.
fn clear_foreign_mark(table: &mut Conntrack, family: Family, mark: Mark) -> io::Result<usize> {
    let filter = Filter { family, transport: Transport::Tcp, destination_port: None };
    let mut marked: Vec<Entry> = table.dump(&filter)?;
    marked.retain(|entry| entry.mark == mark.0);
    if marked.is_empty() {
        return Ok(0);
    }
    let local: HashSet<SocketAddr> =
        sock_diag::tcp_sockets(&BEGUN)?.into_iter().map(|socket| socket.local).collect();
    let mut cleared = 0;
    for entry in marked.iter().filter(|entry| !local.contains(&entry.original.source)) {
        cleared += usize::from(table.set_mark(entry, 0)?);
    }
    Ok(cleared)
}
