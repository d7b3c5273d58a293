//! What a new outbound TCP connection costs through the rules, by the length of the lists of exclusions.
//!
//! The destination is outside every range and port of the lists, so a chain of iptables rules is walked to
//! its end, and the connection is captured: one process connects, accepts at the proxy's port and resets.
//! Nothing leaves the namespace.

mod plot;
mod table;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use netlab::{Namespace, ip_batch, socket};
use nfnetlink::{Message, Protocol, Socket};
use serde_json::json;

use crate::Outcome;
use crate::command::Cmd;
use crate::lists::{BASE, separate_ranges};
use crate::measure::{Spread, spread};
use crate::namespace::Families;
use crate::options::Options;
use crate::report::{environment, publish};
use crate::scenarios::VARIANTS;

/// Lengths of the lists.
pub(crate) const LENGTHS: [u32; 4] = [0, 100, 1_000, 10_000];
/// Connections of a round that count; as many as a tenth of them go before, uncounted.
const CONNECTIONS: usize = 100;
/// TEST-NET-3 and a port: in none of the lists.
const DESTINATION: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(203, 0, 113, 10)), 443);
/// Where the rules of [`BASE`] redirect outbound connections.
const PROXY_PORT: u16 = 15001;
/// `IPCTNL_MSG_CT_DELETE` of `NFNL_SUBSYS_CTNETLINK`; without a filter it empties the namespace's table.
const CONNTRACK_DELETE: u16 = (1 << 8) | 2;
/// A veth pair and a default route: a connection that leaves by `lo` returns before the lists.
const LINKS: &str = "link set lo up\nlink add eth0 type veth peer name peer0\nlink set eth0 up\nlink set peer0 up\n\
     address add 10.1.2.3/24 dev eth0\nroute add default via 10.1.2.1\n";

/// What a list excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    Ranges,
    Ports,
}

impl List {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ranges => "excluded ranges (`-x`)",
            Self::Ports => "excluded ports (`-o`)",
        }
    }

    fn config(self, length: u32) -> serde_json::Value {
        match self {
            Self::Ranges => json!({ "istio-service-exclude-cidr": separate_ranges(length) }),
            Self::Ports => {
                let ports: Vec<String> = (0..length).map(|i| (20_000 + i).to_string()).collect();
                json!({ "istio-local-outbound-ports-exclude": ports })
            }
        }
    }
}

/// What holds the rules, or nothing does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    NoRules,
    /// One of [`VARIANTS`].
    Iptables(usize),
    Nftables,
}

impl Backend {
    pub(crate) const WITH_RULES: [Self; 3] = [Self::Iptables(0), Self::Iptables(1), Self::Nftables];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NoRules => "no rules",
            Self::Iptables(0) => "iptables-nft",
            Self::Iptables(_) => "iptables-legacy",
            Self::Nftables => "native nftables",
        }
    }

    fn run(self, options: &Options, arguments: &[&str]) -> Option<Cmd> {
        match self {
            Self::NoRules => None,
            Self::Iptables(variant) => {
                VARIANTS.get(variant).map(|v| v.run(&options.bin, arguments, Families::Ipv4))
            }
            Self::Nftables => Some(Cmd::new(&options.bin).args(arguments).args(["--backend", "nftables"])),
        }
    }
}

/// One set of rules in a namespace of its own.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) backend: Backend,
    pub(crate) list: List,
    pub(crate) length: u32,
    space: Namespace,
    proxy: TcpListener,
    conntrack: Socket,
    destination: SocketAddr,
    /// Of each round, the median time of a connection.
    pub(crate) rounds: Vec<Duration>,
}

/// Measures, and writes figures and plot.
pub(crate) fn all(options: &Options, scratch: &Path) -> Outcome<()> {
    eprintln!("bench: new connections");
    let mut cases = vec![Case::new(options, scratch, Backend::NoRules, List::Ranges, 0)?];
    for backend in Backend::WITH_RULES {
        for list in [List::Ranges, List::Ports] {
            for length in LENGTHS {
                // Without a list there is one case, whatever the list.
                if length > 0 || list == List::Ranges {
                    cases.push(Case::new(options, scratch, backend, list, length)?);
                }
            }
        }
    }
    // A trial round each first: caches and lazily allocated memory of the kernel.
    cases.iter_mut().try_for_each(Case::round)?;
    cases.iter_mut().for_each(|case| case.rounds.clear());
    for _ in 0..options.runs {
        cases.iter_mut().try_for_each(Case::round)?;
    }
    let figures = format!(
        "Command: `make bench-connections`. {} rounds of {CONNECTIONS} connections for each cell, in turn; {}.\n\n{}",
        options.runs,
        environment()?,
        table::markdown(&cases)
    );
    if let Some(file) = &options.plot {
        std::fs::write(file, plot::svg(&cases))?;
        eprintln!("bench: plot written to {}", file.display());
    }
    publish("connection figures", &figures, options.write.as_deref())
}

impl Case {
    fn new(options: &Options, scratch: &Path, backend: Backend, list: List, length: u32) -> Outcome<Self> {
        let space = Namespace::new();
        space.enter();
        ip_batch(LINKS);
        let config = scratch.join("connections.json");
        std::fs::write(&config, list.config(length).to_string())?;
        let config = config.display().to_string();
        let arguments: Vec<&str> = BASE.iter().copied().chain(["--config", &config]).collect();
        if let Some(run) = backend.run(options, &arguments) {
            run.run()?;
        }
        let proxy = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PROXY_PORT))?;
        let destination = match backend {
            Backend::NoRules => SocketAddr::from((Ipv4Addr::new(10, 1, 2, 3), PROXY_PORT)),
            Backend::Iptables(_) | Backend::Nftables => DESTINATION,
        };
        let conntrack = Socket::open(Protocol::Netfilter)?;
        let case = Self { backend, list, length, space, proxy, conntrack, destination, rounds: Vec::new() };
        case.check()?;
        Ok(case)
    }

    /// The connection must be captured, or figures would be those of something else.
    fn check(&self) -> Outcome<()> {
        let client = TcpStream::connect_timeout(&self.destination, Duration::from_secs(10))?;
        let (server, _) = self.proxy.accept()?;
        let meant = socket::original_destination(&server)?;
        socket::reset(&client);
        if meant == self.destination {
            return Ok(());
        }
        Err(format!(
            "{}: the proxy got a connection to {meant}, not to {}",
            self.backend.name(),
            self.destination
        )
        .into())
    }

    fn round(&mut self) -> Outcome<()> {
        self.space.enter();
        // Entries of earlier rounds would make the table longer for some cases than for others.
        let header = [0; 4];
        self.conntrack.request(&Message::new(CONNTRACK_DELETE, 0, &header))?;
        for _ in 0..CONNECTIONS / 10 {
            self.connection()?;
        }
        let mut times = (0..CONNECTIONS).map(|_| self.connection()).collect::<Outcome<Vec<_>>>()?;
        times.sort_unstable();
        self.rounds.extend(times.get(CONNECTIONS / 2));
        Ok(())
    }

    /// From the client's socket until both ends are gone. A reset leaves nothing that waits.
    fn connection(&self) -> Outcome<Duration> {
        let start = Instant::now();
        let client = TcpStream::connect(self.destination)?;
        let (server, _) = self.proxy.accept()?;
        socket::reset(&client);
        drop(client);
        drop(server);
        Ok(start.elapsed())
    }

    /// Microseconds of a connection.
    pub(crate) fn microseconds(&self) -> Spread {
        let Spread { median, least, most } = spread(self.rounds.clone());
        Spread { median: median * 1000.0, least: least * 1000.0, most: most * 1000.0 }
    }

    /// Time of a connection as a multiple of `other`'s: the median over the rounds, each compared with the
    /// round of `other` that was run in the same turn.
    pub(crate) fn ratio(&self, other: &Self) -> f64 {
        let mut ratios: Vec<f64> =
            self.rounds.iter().zip(&other.rounds).map(|(a, b)| a.as_secs_f64() / b.as_secs_f64()).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN)
    }
}
