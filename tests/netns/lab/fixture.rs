//! The setting of a test: a backend and the address families of the pod.

use std::net::{IpAddr, SocketAddr};

use super::pod::{Pod, Topology};

/// What holds the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    IptablesNft,
    IptablesLegacy,
    /// Native nftables.
    Native,
}

impl Backend {
    /// The value of `--backend`.
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Self::IptablesNft => "iptables-nft",
            Self::IptablesLegacy => "iptables-legacy",
            Self::Native => "nftables",
        }
    }

    /// `iptables-nft-save` and the like, also for foreign rules beside native ones; `tool` is `""`, `"-save"`
    /// or `"-restore"`.
    pub(crate) fn tool(self, family: Family, tool: &str) -> String {
        let variant = match self {
            Self::IptablesNft | Self::Native => "nft",
            Self::IptablesLegacy => "legacy",
        };
        match family {
            Family::V4 => format!("iptables-{variant}{tool}"),
            Family::V6 => format!("ip6tables-{variant}{tool}"),
        }
    }
}

/// An address family. Its methods are the address plan of the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    fn pick(self, v4: &str, v6: &str) -> IpAddr {
        match self {
            Self::V4 => v4.parse().unwrap(),
            Self::V6 => v6.parse().unwrap(),
        }
    }

    /// The pod's address on `eth0`.
    pub(crate) fn pod(self) -> IpAddr {
        self.pick("10.1.0.2", "fd00:1::2")
    }

    /// The neighbour of `eth0`: the pod's default router, and where outside callers call from.
    pub(crate) fn outside(self) -> IpAddr {
        self.pick("10.1.0.1", "fd00:1::1")
    }

    /// A service in the world outside.
    pub(crate) fn service(self) -> IpAddr {
        self.pick("192.0.2.10", "2001:db8:2::10")
    }

    /// The range of [`Self::service`], as an option value.
    pub(crate) fn service_range(self) -> &'static str {
        match self {
            Self::V4 => "192.0.2.0/24",
            Self::V6 => "2001:db8:2::/48",
        }
    }

    /// Another service, in another range.
    pub(crate) fn other_service(self) -> IpAddr {
        self.pick("198.51.100.10", "2001:db8:3::10")
    }

    /// The cluster's name server.
    pub(crate) fn name_server(self) -> IpAddr {
        self.pick("10.96.0.10", "fd00:96::10")
    }

    /// An unassigned address that the outside network routes to the pod.
    pub(crate) fn routed_to_pod(self) -> IpAddr {
        self.pick("203.0.113.10", "2001:db8:4::10")
    }

    /// The pod's address on `eth1`, where there is one.
    pub(crate) fn pod_second(self) -> IpAddr {
        self.pick("10.2.0.2", "fd00:2::2")
    }

    /// The neighbour of `eth1`.
    pub(crate) fn outside_second(self) -> IpAddr {
        self.pick("10.2.0.1", "fd00:2::1")
    }

    /// The pod's side of the guest's bridge.
    pub(crate) fn bridge(self) -> IpAddr {
        self.pick("172.20.0.1", "fd00:20::1")
    }

    /// A virtual machine behind the pod's bridge.
    pub(crate) fn guest(self) -> IpAddr {
        self.pick("172.20.0.2", "fd00:20::2")
    }

    /// `127.0.0.1` or `::1`.
    pub(crate) fn loopback(self) -> IpAddr {
        self.pick("127.0.0.1", "::1")
    }

    /// The address that stands for this host as a destination.
    pub(crate) fn unspecified(self) -> IpAddr {
        self.pick("0.0.0.0", "::")
    }

    /// The source address by which the proxy marks calls that it passes through to the app.
    pub(crate) fn passthrough(self) -> IpAddr {
        self.pick("127.0.0.6", "::6")
    }

    /// Prefix length of the links.
    pub(crate) fn link_prefix(self) -> u8 {
        match self {
            Self::V4 => 24,
            Self::V6 => 64,
        }
    }

    /// Prefix length of one host.
    pub(crate) fn host_prefix(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }
}

/// `address:port`.
pub(crate) fn at(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address, port)
}

/// The address families that a pod has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    V4,
    V6,
    Dual,
}

impl Stack {
    /// The families of the stack.
    pub(crate) fn families(self) -> &'static [Family] {
        match self {
            Self::V4 => &[Family::V4],
            Self::V6 => &[Family::V6],
            Self::Dual => &[Family::V4, Family::V6],
        }
    }
}

/// A backend and a stack: one test body runs on several of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixture {
    pub(crate) backend: Backend,
    pub(crate) stack: Stack,
}

impl Fixture {
    /// The families to test.
    pub(crate) fn families(self) -> &'static [Family] {
        self.stack.families()
    }

    /// A pod and its world, without a rule in it.
    pub(crate) fn pod(self) -> Pod {
        Pod::new(self, Topology::Plain)
    }

    /// Same, with a second NIC or a guest.
    pub(crate) fn pod_in(self, world: Topology) -> Pod {
        Pod::new(self, world)
    }
}

/// Makes `#[test]`s of functions that take a [`Fixture`]: `nft_v4::name`, `legacy_dual::name`, ...
macro_rules! for_these_fixtures {
    ($($module:ident: $backend:ident $stack:ident),+; $tests:tt) => {
        $($crate::lab::fixture::for_one_fixture!($module $backend $stack $tests);)+
    };
}

/// One module of tests.
macro_rules! for_one_fixture {
    ($module:ident $backend:ident $stack:ident [$($test:ident),+ $(,)?]) => {
        mod $module {
            use $crate::lab::{Backend, Fixture, Stack};
            const HERE: Fixture = Fixture { backend: Backend::$backend, stack: Stack::$stack };
            $(#[test]
            fn $test() {
                super::$test(HERE);
            })+
        }
    };
}

/// Fixtures of the two iptables variants, each with IPv4, IPv6 and dual stack.
macro_rules! for_each_fixture {
    ($($test:ident),+ $(,)?) => {
        $crate::lab::for_these_fixtures!(
            nft_v4: IptablesNft V4, nft_v6: IptablesNft V6, nft_dual: IptablesNft Dual,
            legacy_v4: IptablesLegacy V4, legacy_v6: IptablesLegacy V6, legacy_dual: IptablesLegacy Dual;
            [$($test),+]
        );
    };
}

/// Fixtures of the two iptables variants and native nftables, each with IPv4, IPv6 and dual stack.
macro_rules! for_each_fixture_and_native {
    ($($test:ident),+ $(,)?) => {
        $crate::lab::for_each_fixture!($($test),+);
        $crate::lab::for_these_fixtures!(
            native_v4: Native V4, native_v6: Native V6, native_dual: Native Dual;
            [$($test),+]
        );
    };
}

/// Fixtures of the two iptables variants, on a dual-stack pod: for what does not depend on the family.
macro_rules! for_each_backend {
    ($($test:ident),+ $(,)?) => {
        $crate::lab::for_these_fixtures!(nft: IptablesNft Dual, legacy: IptablesLegacy Dual; [$($test),+]);
    };
}

/// Fixtures of the two iptables variants and native nftables, on a dual-stack pod: for what does not depend
/// on the family.
macro_rules! for_each_backend_and_native {
    ($($test:ident),+ $(,)?) => {
        $crate::lab::for_these_fixtures!(
            nft: IptablesNft Dual, legacy: IptablesLegacy Dual, native: Native Dual; [$($test),+]
        );
    };
}

pub(crate) use {
    for_each_backend, for_each_backend_and_native, for_each_fixture, for_each_fixture_and_native,
    for_one_fixture, for_these_fixtures,
};
