//! Random option sets, and what each of them captures: the expectation that packets are compared with.
//!
//! The expectation is derived from the documented meaning of the options alone. It shares no code with the
//! program.

use std::fmt;

use super::flows::{Destination, Flow, SERVER_RESETS, Source};
use super::random::Random;
use crate::lab::Family;

/// The lab's services as option values.
const SERVICE: &str = "192.0.2.0/24,2001:db8:2::/48";
const OTHER_SERVICE: &str = "198.51.100.0/24,2001:db8:3::/48";
const NAME_SERVERS: &str = "nameserver 10.96.0.10\nnameserver fd00:96::10\n";

/// An option set. Every field has a few values that make a difference for some flow, or for the rules only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    backend: &'static str,
    families: &'static [Family],
    tproxy: bool,
    /// Mark and table of TPROXY mode are not the default ones.
    other_mark: bool,
    inbound: Inbound,
    outbound: Outbound,
    /// `-q 443`.
    includes_443: bool,
    /// `-x` with the range of the other service.
    excludes_other_service: bool,
    /// `-o`.
    excluded_port: Option<u16>,
    groups: Groups,
    dns: Dns,
    /// `-c eth1`, and an interface that does not exist.
    excludes_second_nic: bool,
    drop_invalid: bool,
    /// `-p 16001 -z 16006`.
    other_ports: bool,
    /// `-k`, with an interface that does not exist.
    virtual_interface: bool,
    verify: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inbound {
    None,
    All,
    AllBut15020,
    Only8080,
    Only8080And15020,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outbound {
    None,
    All,
    Service,
    BothServices,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Groups {
    All,
    AllBut101,
    Only101,
    Only101And1000,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dns {
    Off,
    NameServers,
    All,
}

const DUAL: &[Family] = &[Family::V4, Family::V6];
const V4: &[Family] = &[Family::V4];
const V6: &[Family] = &[Family::V6];
/// How many fields [`Options::set_field`] knows.
const FIELDS: usize = 16;

impl Options {
    /// The defaults of an injected pod, with a few fields at random.
    pub(super) fn random(random: &mut Random) -> Self {
        let mut options = Self {
            backend: "iptables-nft",
            families: DUAL,
            tproxy: false,
            other_mark: false,
            inbound: Inbound::All,
            outbound: Outbound::All,
            includes_443: false,
            excludes_other_service: false,
            excluded_port: None,
            groups: Groups::All,
            dns: Dns::Off,
            excludes_second_nic: false,
            drop_invalid: false,
            other_ports: false,
            virtual_interface: false,
            verify: false,
        };
        for _ in 0..4 {
            options.set_field(random);
        }
        options
    }

    /// A neighbour: one to three fields are redrawn, so that most flows keep their verdict.
    pub(super) fn changed(&self, random: &mut Random) -> Self {
        let mut options = self.clone();
        for _ in 0..=random.below(3) {
            options.set_field(random);
        }
        options
    }

    fn set_field(&mut self, random: &mut Random) {
        match random.below(FIELDS + 4) {
            // What changes most in the kernel is chosen more often.
            0 | 16 | 17 => {
                self.backend =
                    random.pick(&["iptables-nft", "iptables-legacy", "nftables", "nftables", "auto"]);
            }
            1 | 18 => self.families = random.pick(&[DUAL, DUAL, V4, V6]),
            2 | 19 => self.tproxy = !self.tproxy,
            3 => self.other_mark = random.chance(30),
            4 => {
                self.inbound = random.pick(&[
                    Inbound::None,
                    Inbound::All,
                    Inbound::AllBut15020,
                    Inbound::Only8080,
                    Inbound::Only8080And15020,
                ]);
            }
            5 => {
                self.outbound =
                    random.pick(&[Outbound::None, Outbound::All, Outbound::Service, Outbound::BothServices]);
            }
            6 => self.includes_443 = !self.includes_443,
            7 => self.excludes_other_service = !self.excludes_other_service,
            8 => self.excluded_port = random.pick(&[None, None, Some(443), Some(53)]),
            9 => {
                self.groups =
                    random.pick(&[Groups::All, Groups::AllBut101, Groups::Only101, Groups::Only101And1000]);
            }
            10 | 11 => self.dns = random.pick(&[Dns::Off, Dns::NameServers, Dns::All]),
            12 => self.excludes_second_nic = !self.excludes_second_nic,
            13 => self.drop_invalid = !self.drop_invalid,
            14 => self.other_ports = !self.other_ports,
            _ => {
                self.virtual_interface = random.chance(50);
                self.verify = random.chance(30);
            }
        }
    }

    /// The command line.
    pub(super) fn args(&self) -> Vec<&'static str> {
        let mut args = vec!["--backend", self.backend, "--ip-family"];
        args.push(if self.families == DUAL {
            "dual"
        } else if self.families == V4 {
            "ipv4"
        } else {
            "ipv6"
        });
        args.extend(["-m", if self.tproxy { "TPROXY" } else { "REDIRECT" }]);
        let mut when = |condition: bool, more: &[&'static str]| {
            if condition {
                args.extend(more);
            }
        };
        when(self.tproxy && self.other_mark, &["-t", "500", "-r", "200"]);
        when(self.includes_443, &["-q", "443"]);
        when(self.excludes_other_service, &["-x", OTHER_SERVICE]);
        when(self.excluded_port == Some(443), &["-o", "443"]);
        when(self.excluded_port == Some(53), &["-o", "53"]);
        when(self.dns != Dns::Off, &["--redirect-dns"]);
        when(self.dns == Dns::All, &["--capture-all-dns"]);
        when(self.excludes_second_nic, &["-c", "eth1,net9"]);
        when(self.drop_invalid, &["--drop-invalid"]);
        when(self.other_ports, &["-p", "16001", "-z", "16006"]);
        when(self.virtual_interface, &["-k", "vnet9"]);
        when(self.verify, &["--verify"]);
        args.extend(match self.inbound {
            Inbound::None => &[][..],
            Inbound::All => &["-b", "*"],
            Inbound::AllBut15020 => &["-b", "*", "-d", "15020"],
            Inbound::Only8080 => &["-b", "8080"],
            Inbound::Only8080And15020 => &["-b", "7000,8080,15020"],
        });
        args.extend(match self.outbound {
            Outbound::None => &[][..],
            Outbound::All => &["-i", "*"],
            Outbound::Service => &["-i", SERVICE],
            Outbound::BothServices => &["-i", "192.0.2.0/24,2001:db8:2::/48,198.51.100.0/24,2001:db8:3::/48"],
        });
        args
    }

    /// The variables.
    pub(super) fn env(&self) -> &'static [(&'static str, &'static str)] {
        match self.groups {
            Groups::All => &[],
            Groups::AllBut101 => &[("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "101")],
            Groups::Only101 => &[("ISTIO_OUTBOUND_OWNER_GROUPS", "101")],
            Groups::Only101And1000 => &[("ISTIO_OUTBOUND_OWNER_GROUPS", "101,1000")],
        }
    }

    /// The resolver file of the pod.
    pub(super) fn resolver() -> &'static str {
        NAME_SERVERS
    }

    /// The port of the proxy where a new connection or a query of this flow arrives; none if it is not
    /// captured.
    pub(super) fn captures(&self, flow: &Flow, family: Family) -> Option<u16> {
        if !self.families.contains(&family) {
            return None;
        }
        let (outbound, inbound) = if self.other_ports { (16001, 16006) } else { (15001, 15006) };
        match (flow.from, flow.to) {
            (Source::Outside, to) => self.captures_inbound(to, flow.port).then_some(inbound),
            // The proxy's call of its own pod comes in again.
            (Source::Proxy, Destination::Pod) => Some(inbound),
            (Source::Proxy, _) | (Source::App, Destination::Pod) => None,
            (Source::App | Source::OtherUser, _) if self.is_excluded(flow) => None,
            (Source::App | Source::OtherUser, to) if self.captures_dns(to, flow.port) => Some(15053),
            (Source::App | Source::OtherUser, _) if flow.is_udp => None,
            (Source::App | Source::OtherUser, to) => {
                self.captures_outbound(to, flow.port).then_some(outbound)
            }
        }
    }

    /// The mark by which the proxy may use the addresses of its clients, in TPROXY mode.
    pub(super) fn tproxy_mark(&self, family: Family) -> Option<u32> {
        let mark = if self.other_mark { 500 } else { 1337 };
        (self.tproxy && self.inbound != Inbound::None && self.families.contains(&family)).then_some(mark)
    }

    /// Whether Istio's rules let a new connection of this flow past the proxy although they capture it: in
    /// TPROXY mode a SYN that follows the entry of a connection which the server has reset counts as a packet
    /// of that connection. It gets the mark, but not the proxy's socket.
    pub(super) fn may_miss(&self, flow: &Flow) -> bool {
        self.tproxy && flow.name == SERVER_RESETS
    }

    fn captures_inbound(&self, to: Destination, port: u16) -> bool {
        if to == Destination::PodSecondNic && self.excludes_second_nic {
            return false;
        }
        match self.inbound {
            Inbound::None => false,
            Inbound::All => true,
            Inbound::AllBut15020 => port != 15020,
            Inbound::Only8080 => port == 8080,
            Inbound::Only8080And15020 => port == 8080 || port == 15020,
        }
    }

    fn is_excluded(&self, flow: &Flow) -> bool {
        let group = if flow.from == Source::App { 1000 } else { 101 };
        let other_group = match self.groups {
            Groups::All => false,
            Groups::AllBut101 => group == 101,
            Groups::Only101 => group != 101,
            Groups::Only101And1000 => group != 101 && group != 1000,
        };
        let by_second_nic = flow.to == Destination::OutsideSecondNic && self.excludes_second_nic;
        other_group || by_second_nic || self.excluded_port == Some(flow.port)
    }

    fn captures_dns(&self, to: Destination, port: u16) -> bool {
        let server = match self.dns {
            Dns::Off => false,
            Dns::NameServers => to == Destination::NameServer,
            Dns::All => true,
        };
        server && port == 53
    }

    fn captures_outbound(&self, to: Destination, port: u16) -> bool {
        if to == Destination::OtherService && self.excludes_other_service {
            return false;
        }
        let in_range = match self.outbound {
            Outbound::None => false,
            Outbound::All => true,
            Outbound::Service => to == Destination::Service,
            Outbound::BothServices => matches!(to, Destination::Service | Destination::OtherService),
        };
        in_range || (self.includes_443 && port == 443)
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.env() {
            write!(f, "{name}={value} ")?;
        }
        write!(f, "istio-iptables")?;
        self.args().iter().try_for_each(|arg| write!(f, " '{arg}'"))
    }
}
