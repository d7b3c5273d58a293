//! A pod: its network namespace, the network outside of it, and the processes in both.

use std::fs;
use std::net::IpAddr;
use std::thread;

use netlab::socket::kernel_has_ipv6;
use netlab::{Links, Listen, Namespace, Server, User};

use super::fixture::{Family, Fixture, at};
use super::program::{self, Program};
use super::rules;

/// uid and gid of the app.
pub(crate) const APP: u32 = 1000;
/// uid and gid of the proxy.
pub(crate) const PROXY: u32 = 1337;
/// The proxy's listener for DNS.
pub(crate) const DNS_CAPTURE: u16 = 15053;

/// What there is besides `eth0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    /// Nothing.
    Plain,
    /// A second NIC, `eth1`, to a second network outside.
    SecondNic,
    /// A guest behind the bridge `br0` in the pod, as a virtual machine would be.
    Guest,
}

/// A pod and its surroundings. Everything is gone once it is dropped.
#[derive(Debug)]
pub(crate) struct Pod {
    pub(crate) fixture: Fixture,
    pub(crate) namespace: Namespace,
    outside: Namespace,
    /// Where there is a guest: a namespace costs the kernel time to make and to take apart.
    guest: Option<Namespace>,
}

impl Drop for Pod {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- state of the pod, {:?} ---\n{}", self.fixture, rules::everything(self));
        }
    }
}

impl Pod {
    pub(crate) fn new(fixture: Fixture, world: Topology) -> Self {
        Self::with(Namespace::with_own_tcp_table(), fixture, world)
    }

    /// A pod in this network namespace.
    pub(crate) fn with(namespace: Namespace, fixture: Fixture, world: Topology) -> Self {
        program::require_tools();
        let outside = Namespace::with_own_tcp_table();
        let guest = (world == Topology::Guest).then(Namespace::with_own_tcp_table);
        let pod = Self { fixture, namespace, outside, guest };
        let all = [Some(&pod.namespace), Some(&pod.outside), pod.guest.as_ref()];
        let all = || all.into_iter().flatten();
        // In all of them first: a link is made together with its other end.
        all().for_each(|namespace| namespace.run(set_sysctls));
        pod.namespace.links(|links| pod_links(&pod, world, links));
        pod.outside.links(|links| outside_links(fixture, world, links));
        if let Some(guest) = &pod.guest {
            guest.links(|links| guest_links(fixture, links));
        }
        all().for_each(Namespace::await_ipv6_addresses);
        pod
    }

    /// A user in the pod.
    pub(crate) fn user(&self, uid: u32, gid: u32) -> User {
        User::new(&self.namespace, uid, gid)
    }

    /// The application.
    pub(crate) fn app(&self) -> User {
        self.user(APP, APP)
    }

    /// The sidecar proxy.
    pub(crate) fn proxy(&self) -> User {
        self.user(PROXY, PROXY)
    }

    /// A client outside.
    pub(crate) fn outside(&self) -> User {
        User::new(&self.outside, 0, 0)
    }

    /// A user on the virtual machine.
    pub(crate) fn guest(&self) -> User {
        User::new(self.guest.as_ref().expect("this pod has a guest"), 0, 0)
    }

    /// Starts a proxy that listens where Istio's does.
    pub(crate) fn proxy_listens(&self) -> Server {
        self.proxy_listens_on(15001, 15006, 15008)
    }

    /// Starts a proxy that serves no DNS.
    pub(crate) fn proxy_listens_without_dns(&self) -> Server {
        let listen = [Listen::Tcp(15001), Listen::TcpTransparent(15006), Listen::Tcp(15008)];
        self.proxy().serve("proxy", &listen)
    }

    /// Starts a proxy with other ports. All its listeners are transparent, so it serves REDIRECT and TPROXY.
    pub(crate) fn proxy_listens_on(&self, outbound: u16, inbound: u16, tunnel: u16) -> Server {
        let mut listen = vec![Listen::Tcp(outbound), Listen::TcpTransparent(inbound), Listen::Tcp(tunnel)];
        let has_ipv6 = kernel_has_ipv6();
        for family in [Family::V4, Family::V6].into_iter().filter(|family| has_ipv6 || *family == Family::V4)
        {
            let dns = at(family.loopback(), DNS_CAPTURE);
            listen.push(Listen::TcpAt(dns));
            listen.push(match self.fixture.families().contains(&family) {
                true => Listen::UdpForward(dns, at(family.name_server(), 53)),
                false => Listen::Udp(dns),
            });
        }
        self.proxy().serve("proxy", &listen)
    }

    /// Gives the proxy further listeners, transparent ones.
    pub(crate) fn proxy_also_listens(&self, ports: &[u16]) -> Server {
        let listen: Vec<_> = ports.iter().copied().map(Listen::TcpTransparent).collect();
        self.proxy().serve("proxy", &listen)
    }

    /// Starts an app on these TCP ports.
    pub(crate) fn app_listens(&self, ports: &[u16]) -> Server {
        let listen: Vec<_> = ports.iter().copied().map(Listen::Tcp).collect();
        self.app().serve("app", &listen)
    }

    /// Starts servers outside on these TCP ports, on every address there, and name servers (UDP and TCP 53).
    pub(crate) fn outside_listens(&self, ports: &[u16]) -> Server {
        let mut listen: Vec<_> = ports.iter().copied().map(Listen::Tcp).collect();
        listen.push(Listen::Tcp(53));
        for family in self.fixture.families() {
            listen.push(Listen::Udp(at(family.name_server(), 53)));
            listen.push(Listen::Udp(at(family.service(), 53)));
            listen.push(Listen::Udp(at(family.service(), 5353)));
        }
        self.outside().serve("outside", &listen)
    }

    /// `istio-iptables` in this pod with the fixture's backend, and `--dual-stack` on a dual-stack fixture.
    pub(crate) fn istio_iptables(&self, args: &[&str]) -> Program {
        let program = self.bare_istio_iptables(args);
        match self.fixture.stack {
            // These have no effect on rules of options.
            super::Stack::Dual if args.iter().any(|word| ["cleanup", "show"].contains(word)) => program,
            super::Stack::Dual => program.arg("--dual-stack"),
            super::Stack::V4 | super::Stack::V6 => program,
        }
    }

    /// `istio-iptables` in this pod with the fixture's backend and nothing else that was not asked for.
    pub(crate) fn bare_istio_iptables(&self, args: &[&str]) -> Program {
        self.plain_istio_iptables(args).arg("--backend").arg(self.fixture.backend.flag())
    }

    /// `istio-iptables` in this pod with nothing that was not asked for.
    pub(crate) fn plain_istio_iptables(&self, args: &[&str]) -> Program {
        Program::new(&self.namespace, args)
    }

    /// Runs `istio-iptables`, which must succeed.
    #[track_caller]
    pub(crate) fn apply(&self, args: &[&str]) -> program::Ended {
        self.istio_iptables(args).run().succeeded()
    }
}

/// What a namespace needs before its links.
fn set_sysctls() {
    for (setting, value) in [
        // Servers with a v4 and a v6 socket on the same port.
        ("net/ipv6/bindv6only", "1"),
        // The proxy and the name servers are unprivileged and listen on 53.
        ("net/ipv4/ip_unprivileged_port_start", "0"),
        // The tests' own source ports are not given to other connections.
        ("net/ipv4/ip_local_reserved_ports", "40000-43999"),
        ("net/ipv6/conf/default/accept_dad", "0"),
        // No link-local addresses that appear by themselves, a moment later.
        ("net/ipv6/conf/default/addr_gen_mode", "1"),
    ] {
        if setting.starts_with("net/ipv6/") && !kernel_has_ipv6() {
            continue;
        }
        fs::write(format!("/proc/sys/{setting}"), value).unwrap_or_else(|e| panic!("set {setting}: {e}"));
    }
}

fn pod_links(pod: &Pod, world: Topology, links: &Links) {
    let families = pod.fixture.families();
    links.up("lo");
    links.add_veth("eth0", &pod.outside, "eth0");
    links.up("eth0");
    for family in families {
        links.add_address(family.pod(), family.link_prefix(), "eth0");
        links.add_route(None, family.outside(), "eth0");
    }
    if kernel_has_ipv6() {
        // As every link has one. Without it, no neighbour is asked for in the name of an address of `lo`.
        links.add_address(link_local(2), 64, "eth0");
    }
    match world {
        Topology::Plain => {}
        Topology::SecondNic => {
            links.add_veth("eth1", &pod.outside, "eth1");
            links.up("eth1");
            for family in families {
                links.add_address(family.pod_second(), family.link_prefix(), "eth1");
            }
        }
        Topology::Guest => {
            fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
            links.add_bridge("br0");
            links.add_veth("vnet0", pod.guest.as_ref().expect("its namespace"), "eth0");
            links.set_bridge("vnet0", "br0");
            links.up("vnet0");
            links.up("br0");
            for family in families {
                links.add_address(family.bridge(), family.link_prefix(), "br0");
            }
            // A router asks for its neighbours from a link-local address.
            links.add_address(link_local(2), 64, "br0");
        }
    }
}

fn outside_links(fixture: Fixture, world: Topology, links: &Links) {
    links.up("lo");
    let second = (world == Topology::SecondNic).then_some("eth1");
    for link in ["eth0"].into_iter().chain(second) {
        links.up(link);
        if kernel_has_ipv6() {
            // The services' addresses are on `lo`: neighbours are asked for from a link-local one, and again
            // after some seconds.
            links.add_address(link_local(1), 64, link);
        }
    }
    for &family in fixture.families() {
        links.add_address(family.outside(), family.link_prefix(), "eth0");
        for service in [family.service(), family.other_service(), family.name_server()] {
            links.add_address(service, family.host_prefix(), "lo");
        }
        let to_pod = |address| links.add_route(Some((address, family.host_prefix())), family.pod(), "eth0");
        to_pod(family.routed_to_pod());
        match world {
            Topology::Plain => {}
            Topology::SecondNic => {
                links.add_address(family.outside_second(), family.link_prefix(), "eth1");
            }
            Topology::Guest => to_pod(family.guest()),
        }
    }
}

fn guest_links(fixture: Fixture, links: &Links) {
    links.up("lo");
    links.up("eth0");
    links.add_address(link_local(1), 64, "eth0");
    for &family in fixture.families() {
        links.add_address(family.guest(), family.link_prefix(), "eth0");
        links.add_route(None, family.bridge(), "eth0");
    }
}

fn link_local(host: u16) -> IpAddr {
    [0xfe80, 0, 0, 0, 0, 0, 0, host].into()
}
