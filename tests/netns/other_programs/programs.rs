//! The programs, and what each puts into the namespace of a pod.

use crate::lab::Family;

/// What another program puts into a network namespace.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rules {
    /// For the restore tools of both families.
    Iptables(&'static str),
    /// Tables of its own.
    Nft(&'static str),
}

/// Rules of one program, and what they mean for captured connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) rules: Rules,
    /// Table and chain of every rule, or table of every base chain, that a warning has to name; there is no
    /// other warning.
    pub(super) named: &'static [&'static str],
    /// Named beside iptables only: ACCEPT ends no other base chain, such as that of native nftables.
    pub(super) accepts: &'static [&'static str],
    /// The ports to which it redirects connections of the app and of clients, before ours if they are in
    /// iptables.
    pub(super) redirects: Option<(u16, u16)>,
    /// Keeps connections of clients from the proxy in TPROXY mode, in this family.
    pub(super) drops_tproxy: Option<Family>,
    /// The program's links, addresses, routes and policy rules, as commands of `ip`.
    pub(super) network: &'static str,
    /// What these do with packets that leave the pod.
    pub(super) routes: Routes,
}

/// Where packets go that leave the pod for another network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Routes {
    /// To the services of the lab.
    Services,
    /// Into a tunnel.
    Elsewhere,
    /// Into a tunnel, and replies from other addresses than those in the pod have to come out of it. Those of
    /// the proxy carry the service's address, and come from `lo`.
    DropReplies,
}

const fn program(name: &'static str, rules: Rules, named: &'static [&'static str]) -> Program {
    Program {
        name,
        rules,
        named,
        accepts: &[],
        redirects: None,
        drops_tproxy: None,
        network: "",
        routes: Routes::Services,
    }
}

macro_rules! iptables {
    ($file:literal) => {
        Rules::Iptables(include_str!(concat!($file, ".rules")))
    };
}

macro_rules! nft {
    ($file:literal) => {
        Rules::Nft(include_str!(concat!($file, ".nft")))
    };
}

pub(super) const OF_CLUSTERS: [Program; 5] = [
    program("kube-proxy, iptables", iptables!("kube_proxy"), &["nat PREROUTING", "nat OUTPUT"]),
    program(
        "kube-proxy, nftables",
        nft!("kube_proxy"),
        &["kube-proxy nat-prerouting", "kube-proxy nat-output"],
    ),
    Program {
        accepts: &["mangle PREROUTING"],
        ..program("Calico", iptables!("calico"), &["raw PREROUTING"])
    },
    program("AWS VPC CNI", iptables!("aws_vpc_cni"), &[]),
    program("NodeLocal DNSCache", iptables!("node_local_dns"), &["raw PREROUTING", "raw OUTPUT"]),
];

pub(super) const OF_HOSTS: [Program; 7] = [
    program("Docker", iptables!("docker"), &["raw PREROUTING", "nat PREROUTING", "nat OUTPUT"]),
    program("Docker's name server", iptables!("docker_dns"), &["nat OUTPUT"]),
    program("Tailscale", iptables!("tailscale"), &["filter INPUT"]),
    program("libvirt", iptables!("libvirt"), &[]),
    program("NetworkManager", nft!("network_manager"), &[]),
    Program {
        drops_tproxy: Some(Family::V6),
        ..program("firewalld", nft!("firewalld"), &["firewalld filter_PREROUTING", "firewalld filter_INPUT"])
    },
    program("ufw", iptables!("ufw"), &["filter INPUT"]),
];

pub(super) const OF_MESHES: [Program; 2] = [
    Program {
        redirects: Some((4140, 4143)),
        ..program("Linkerd", iptables!("linkerd"), &["nat PREROUTING", "nat OUTPUT"])
    },
    Program {
        redirects: Some((15101, 20000)),
        ..program("Consul", iptables!("consul"), &["nat PREROUTING", "nat OUTPUT"])
    },
];

pub(super) const OF_NETWORK_PLUGINS: [Program; 6] = [
    program("Cilium", iptables!("cilium"), &["raw PREROUTING", "raw OUTPUT", "mangle PREROUTING"]),
    program("Antrea", iptables!("antrea"), &[]),
    program("kube-router", iptables!("kube_router"), &["filter INPUT", "filter OUTPUT"]),
    program("Weave", iptables!("weave"), &["filter INPUT"]),
    program("Flannel", iptables!("flannel"), &[]),
    program("portmap, iptables", iptables!("cni_portmap"), &["nat PREROUTING", "nat OUTPUT"]),
];

pub(super) const OF_CONTAINER_ENGINES: [Program; 5] = [
    program("portmap, nftables", nft!("cni_portmap"), &["cni_hostport prerouting", "cni_hostport output"]),
    program("netavark", nft!("netavark"), &["netavark PREROUTING", "netavark OUTPUT"]),
    program("fail2ban, iptables", iptables!("fail2ban"), &["filter INPUT"]),
    program("fail2ban, nftables", nft!("fail2ban"), &["f2b-table f2b-chain"]),
    program("systemd-networkd", nft!("systemd_networkd"), &[]),
];

const WIREGUARD: &str = include_str!("wg_quick.ip");

pub(super) const OF_NETWORKS: [Program; 4] = [
    Program {
        network: WIREGUARD,
        routes: Routes::DropReplies,
        ..program("wg-quick, iptables", iptables!("wg_quick"), &["raw PREROUTING"])
    },
    Program {
        network: WIREGUARD,
        routes: Routes::DropReplies,
        ..program("wg-quick, nftables", nft!("wg_quick"), &["wg-quick-wg0 preraw"])
    },
    Program {
        network: include_str!("openvpn.ip"),
        routes: Routes::Elsewhere,
        ..program("OpenVPN", Rules::Iptables(""), &[])
    },
    Program { network: include_str!("multus.ip"), ..program("Multus", Rules::Iptables(""), &[]) },
];

/// Istio's ambient mode, whose chain in OUTPUT has the name of ours.
pub(super) const AMBIENT: Program = program("Istio ambient", iptables!("istio_ambient"), &[]);

/// Istio's ambient mode, whose chains are in tables of its own.
pub(super) const AMBIENT_NFT: Program = program("Istio ambient, nftables", nft!("istio_ambient"), &[]);
