//! Which process has the socket of a connection that began just now.

use std::io;
use std::net::SocketAddr;

use super::processes::{self, Process};
use super::sock_diag::{InetSocket, SocketLookup, State, udp_sockets};
use crate::model::Transport;

/// What is known of the side of this network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user that made the socket.
    pub uid: u32,
    /// A process that has it open: the first that is found of several.
    pub process: Option<Process>,
}

/// Looks for owners in the network namespace of this thread.
#[derive(Debug)]
pub struct SocketOwners {
    sockets: SocketLookup,
    /// The processes of the namespace, as they were last read; those that had a socket are first.
    processes: Vec<Process>,
}

impl SocketOwners {
    /// Begins.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn open() -> io::Result<Self> {
        Ok(Self { sockets: SocketLookup::open()?, processes: Vec::new() })
    }

    /// The owner of the socket with these ends; `None` if it has none any more, or never had.
    /// `with_process`: whether the process is looked for, which reads its list of open files.
    pub fn of(
        &mut self,
        transport: Transport,
        (local, remote): (SocketAddr, SocketAddr),
        with_process: bool,
    ) -> Option<Owner> {
        let socket = match transport {
            Transport::Tcp => self.sockets.find(local, remote).ok().flatten(),
            Transport::Udp => nearest(&udp_sockets().unwrap_or_default(), local, remote),
        };
        // The kernel forgets the owner of a connection that has ended.
        let socket = socket.filter(|socket| socket.state != State::TimeWait && socket.inode != 0)?;
        let process = if with_process { self.process(socket.inode) } else { None };
        Some(Owner { uid: socket.uid, process })
    }

    fn process(&mut self, inode: u32) -> Option<Process> {
        if let Some(known) = self.known(inode) {
            return Some(known);
        }
        self.processes = processes::in_network_namespace().ok()?.found;
        self.known(inode)
    }

    fn known(&mut self, inode: u32) -> Option<Process> {
        let at = self.processes.iter().position(|process| processes::has_socket(process.pid, inode))?;
        // Since the list was read it may have started another program, or another process has its number.
        let process = processes::current(self.processes.swap_remove(at).pid)?;
        self.processes.insert(0, process.clone());
        Some(process)
    }
}

/// The UDP socket that sends between these ends: a connected one, one that is bound to the address, one that
/// is bound to the port.
fn nearest(sockets: &[InetSocket], local: SocketAddr, remote: SocketAddr) -> Option<InetSocket> {
    let rank = |socket: &&InetSocket| {
        let is_bound = socket.local.ip() == local.ip();
        match socket.remote == remote {
            true => Some(0).filter(|_| is_bound),
            false if socket.remote.port() != 0 => None,
            false if is_bound => Some(1),
            false => Some(2).filter(|_| socket.local.ip().is_unspecified()),
        }
    };
    let of_port = sockets.iter().filter(|socket| socket.local.port() == local.port());
    let ranked = of_port.filter_map(|socket| Some((rank(&socket)?, socket)));
    ranked.min_by_key(|(rank, _)| *rank).map(|(_, socket)| *socket)
}
