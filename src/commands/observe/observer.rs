//! Who began a connection, and what the live rules did with it.

use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use crate::apply;
use crate::commands::explain::live;
use crate::commands::namespace::network;
use crate::config::{CaptureConfig, GivenOption, Intent, RunOptions, Sender};
use crate::explain::{Judgement, LiveState, Pod, Rules, SeenConnection};
use crate::facts::NameServers;
use crate::kernel::conntrack::Entry;
use crate::kernel::idmap::OwnerIds;
use crate::kernel::process::Host;
use crate::kernel::processes::Process;
use crate::kernel::socket_owner::{Owner, SocketOwners};
use crate::model::{Family, Network};
use crate::report::Failure;

/// More connections at a time are reported without their processes: to find one means to read the open files
/// of others.
const MOST_WITH_PROCESS: usize = 100;
/// How often the live state is read again because connections contradict it.
const INTERVAL: Duration = Duration::from_secs(1);

/// A connection, with all that is known of it.
#[derive(Debug)]
pub(super) struct Observed {
    pub(super) time: SystemTime,
    pub(super) entry: Entry,
    /// The owner of the socket, if it is one of this network namespace.
    pub(super) owner: Option<Owner>,
    /// Whether a process of this namespace began it.
    pub(super) is_outbound: bool,
    /// Whether it is the proxy's own.
    pub(super) is_of_proxy: bool,
    pub(super) judgement: Judgement,
}

/// The live state.
pub(super) struct Observer<'a, H> {
    host: &'a H,
    intent: &'a Intent,
    run: &'a RunOptions,
    given: &'a [GivenOption],
    state: State,
    owners: Option<SocketOwners>,
    ids: OwnerIds,
    read: Instant,
    with_process: bool,
}

struct State {
    config: CaptureConfig,
    network: Network,
    /// Always there, but while a connection is judged.
    live: Option<LiveState>,
}

impl<'a, H: Host> Observer<'a, H> {
    /// Reads the live state.
    pub(super) fn new(
        host: &'a H,
        (intent, run): (&'a Intent, &'a RunOptions),
        given: &'a [GivenOption],
    ) -> Result<Self, Failure> {
        let state = State::read(host, intent, run)?;
        let owners = SocketOwners::open();
        let owners = owners.inspect_err(|error| {
            log::warn!("which process has which connection is not known: {error}");
        });
        let ids = OwnerIds::read().unwrap_or_default();
        let (owners, read) = (owners.ok(), Instant::now());
        state.warn(&[]);
        Ok(Self { host, intent, run, given, state, owners, ids, read, with_process: true })
    }

    /// What holds the rules.
    pub(super) fn rules(&self) -> String {
        let live = self.state.live.as_ref().filter(|live| live.has_rules());
        live.map_or_else(|| "none".to_owned(), |live| live.backend.to_string())
    }

    pub(super) fn read_again(&mut self) -> Result<(), Failure> {
        let known = self.state.uncaptured();
        self.state = State::read(self.host, self.intent, self.run)?;
        self.state.warn(&known);
        self.read = Instant::now();
        Ok(())
    }

    /// So many connections follow.
    pub(super) const fn begin(&mut self, number: usize) {
        self.with_process = number <= MOST_WITH_PROCESS;
    }

    pub(super) fn connection(&mut self, entry: &Entry) -> Result<Observed, Failure> {
        let time = SystemTime::now();
        let (source, destination) = (entry.original.source, entry.original.destination);
        let is_outbound = self.is_own(source.ip());
        let with_process = self.with_process;
        let owners = self.owners.as_mut().filter(|_| is_outbound);
        let owner = owners.and_then(|all| all.of(entry.transport, (source, destination), with_process));
        let owner = owner.map(|owner| self.mapped(owner));
        let seen = SeenConnection {
            transport: entry.transport,
            source,
            destination,
            translated_to: entry.status.destination_translated().then(|| entry.reply.source.port()),
            sender: if is_outbound { owner.as_ref().map(sender) } else { Some(Sender::Outside) },
        };
        let mut judgement = self.judge(&seen);
        if !judgement.is_explained && self.read.elapsed() >= INTERVAL {
            self.read_again()?;
            judgement = self.judge(&seen);
        }
        let is_of_proxy = self.is_of_proxy(owner.as_ref(), judgement.sender)?;
        Ok(Observed { time, entry: *entry, owner, is_outbound, is_of_proxy, judgement })
    }

    fn judge(&mut self, seen: &SeenConnection) -> Judgement {
        let State { config, network, live } = &mut self.state;
        let pod = Pod { config, given: self.given, network, live: live.take() };
        let judgement = pod.judge(seen);
        *live = pod.live;
        judgement
    }

    fn is_own(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.state.network.addresses.iter().any(|own| own.address == address)
    }

    /// With the ids that rules have.
    fn mapped(&self, mut owner: Owner) -> Owner {
        owner.uid = self.ids.uid(owner.uid);
        if let Some(process) = &mut owner.process {
            (process.uid, process.gid) = (self.ids.uid(process.uid), self.ids.gid(process.gid));
        }
        owner
    }

    /// Whether the sender is the proxy, and not a process of the app that runs as its user or group.
    fn is_of_proxy(&mut self, owner: Option<&Owner>, sender: Sender) -> Result<bool, Failure> {
        let has_ids = |uid: u32, gid: Option<u32>| {
            let proxy = &self.state.config.traffic.proxy;
            proxy.uids.contains(&uid) || gid.is_some_and(|gid| proxy.gids.contains(&gid))
        };
        let Some(owner) = owner else { return Ok(sender == Sender::Proxy) };
        let process = owner.process.as_ref();
        if !has_ids(owner.uid, process.map(|process| process.gid)) {
            return Ok(false);
        }
        let Some(process) = process else { return Ok(true) };
        if self.state.in_proxy_container(process).is_none() && self.read.elapsed() >= INTERVAL {
            self.read_again()?;
        }
        Ok(self.state.in_proxy_container(process).unwrap_or(true))
    }
}

impl State {
    fn read(host: &impl Host, intent: &Intent, run: &RunOptions) -> Result<Self, Failure> {
        let network = network()?;
        let (config, _) = intent.clone().decide(&network);
        let own = apply::live_inspection::rules(host, run.backend)?;
        let (config, live, _) = live(own, &config, &network, &NameServers::default());
        Ok(Self { config, network, live: Some(live) })
    }

    /// The families of which the pod has an address, or all if it has none, and for which no rule is live.
    fn uncaptured(&self) -> Vec<Family> {
        let has_address = |family: &Family| {
            let mut own = self.network.addresses.iter().filter(|own| own.is_of_pod());
            own.any(|own| own.address.is_ipv4() == (*family == Family::V4))
        };
        let has_any = Family::ALL.iter().any(has_address);
        let live = self.live.as_ref();
        let has_rules =
            |family: &Family| live.is_some_and(|live| live.rules.get(family).is_some_and(Rules::has_ours));
        Family::ALL
            .into_iter()
            .filter(|family| (!has_any || has_address(family)) && !has_rules(family))
            .collect()
    }

    /// Warns of families without rules that are not `known` to have none.
    fn warn(&self, known: &[Family]) {
        let families: Vec<String> = self
            .uncaptured()
            .iter()
            .filter(|family| !known.contains(family))
            .map(ToString::to_string)
            .collect();
        if !families.is_empty() {
            log::warn!(
                "no capture rule is live for {}: nothing of it is captured, and the kernel tracks its connections only while rules of some program need it",
                families.join(" and ")
            );
        }
    }

    /// Whether a process is in the container in which the proxy listens, if that is known of this program and
    /// these ids.
    fn in_proxy_container(&self, Process { pid, name, uid, gid, mounts: _ }: &Process) -> Option<bool> {
        let mut known = self.live.as_ref()?.runtime.processes.iter();
        known.find(|one| (one.pid, &one.name, one.uid, one.gid) == (*pid, name, *uid, *gid))?.is_proxy
    }
}

fn sender(Owner { uid, process }: &Owner) -> Sender {
    match process {
        Some(process) => Sender::Process { uid: *uid, gid: process.gid },
        None => Sender::Uid(*uid),
    }
}
