//! Where the files of the network plugins are, by platform.

use std::fmt;

/// The directories of one platform, as they are on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Platform {
    /// Value of `--platform`.
    pub name: &'static str,
    /// Where the runtime looks for programs.
    pub bin_dir: &'static str,
    /// Where it looks for configurations.
    pub net_dir: &'static str,
    /// Whether the plugin is part of the cluster network's list. Multus calls it by a configuration of its own.
    pub chained: bool,
    /// Where this is from.
    pub source: &'static str,
}

/// All platforms; the first is the default.
pub const PLATFORMS: [Platform; 5] = [
    Platform {
        name: "default",
        bin_dir: "/opt/cni/bin",
        net_dir: "/etc/cni/net.d",
        chained: true,
        source: "defaults of containerd and CRI-O; istio manifests/charts/istio-cni/values.yaml",
    },
    Platform {
        name: "gke",
        bin_dir: "/home/kubernetes/bin",
        net_dir: "/etc/cni/net.d",
        chained: true,
        source: "istio manifests/charts/istio-cni/templates/daemonset.yaml and README.md",
    },
    Platform {
        name: "k3s",
        bin_dir: "/var/lib/rancher/k3s/data/cni",
        net_dir: "/var/lib/rancher/k3s/agent/etc/cni/net.d",
        chained: true,
        source: "istio manifests/helm-profiles/platform-k3s.yaml; an earlier one: /var/lib/rancher/k3s/data/current/bin",
    },
    Platform {
        name: "microk8s",
        bin_dir: "/var/snap/microk8s/current/opt/cni/bin",
        net_dir: "/var/snap/microk8s/current/args/cni-network",
        chained: true,
        source: "istio manifests/helm-profiles/platform-microk8s.yaml",
    },
    Platform {
        name: "openshift",
        bin_dir: "/var/lib/cni/bin",
        net_dir: "/etc/cni/multus/net.d",
        chained: false,
        source: "istio manifests/helm-profiles/platform-openshift.yaml",
    },
];

impl Platform {
    /// The platform of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        PLATFORMS.into_iter().find(|platform| platform.name == name)
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, bin_dir, net_dir, chained, source } = self;
        let how = if *chained { "chained" } else { "by multus" };
        write!(f, "{name}: programs in {bin_dir}, configurations in {net_dir}, {how} ({source})")
    }
}
