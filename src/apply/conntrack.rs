//! Carries out the steps of [`crate::conntrack`]. The rules are in place already, so a failure is a warning.

use crate::conntrack::{APP_TO_PROXY_ZONE, Step};
use crate::kernel::conntrack::{self, Conntrack, ConntrackError, Filter, TcpState, Zone};
use crate::model::Transport;

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
            Ok(count) => log::info!("{step} ({count} deleted)"),
            Err(error) => {
                self.failed = true;
                log::warn!(
                    "conntrack entries of the previous rules cannot be deleted: {error}; sockets that send DNS \
                     queries from a fixed port keep their previous way until they pause for 2 minutes, and a TCP \
                     port whose connection the server has reset keeps it for 10 seconds"
                );
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
        };
        Ok(count?)
    }
}
