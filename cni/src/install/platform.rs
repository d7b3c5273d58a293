//! Where the files of the network plugins are, by platform.

use std::fmt;

/// The directories of one platform, as they are on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Platform {
    /// Value of `--platform`.
    pub name: &'static str,
    /// Other names of the platform.
    pub aliases: &'static [&'static str],
    /// Where the runtime looks for programs.
    pub bin_dir: &'static str,
    /// Where it looks for configurations.
    pub net_dir: &'static str,
    /// Whether the plugin is part of the cluster network's list. Multus calls it by a configuration of its
    /// own.
    pub chained: bool,
    /// Directories of other versions, for `--help`.
    pub note: Option<&'static str>,
}

/// All platforms; the first is the default.
pub const PLATFORMS: &[Platform] = &[
    // Defaults of containerd and CRI-O; istio manifests/charts/istio-cni/values.yaml.
    Platform {
        name: "default",
        aliases: &["kubernetes", "minikube"],
        bin_dir: "/opt/cni/bin",
        net_dir: "/etc/cni/net.d",
        chained: true,
        note: None,
    },
    // istio manifests/charts/istio-cni/templates/daemonset.yaml and README.md.
    Platform {
        name: "gke",
        aliases: &[],
        bin_dir: "/home/kubernetes/bin",
        net_dir: "/etc/cni/net.d",
        chained: true,
        note: None,
    },
    // istio manifests/helm-profiles/platform-k3d.yaml.
    Platform {
        name: "k3d",
        aliases: &[],
        bin_dir: "/bin",
        net_dir: "/var/lib/rancher/k3s/agent/etc/cni/net.d",
        chained: true,
        note: None,
    },
    // istio manifests/helm-profiles/platform-k3s.yaml; the note from an earlier one.
    Platform {
        name: "k3s",
        aliases: &[],
        bin_dir: "/var/lib/rancher/k3s/data/cni",
        net_dir: "/var/lib/rancher/k3s/agent/etc/cni/net.d",
        chained: true,
        note: Some("older k3s: --bin-dir=/var/lib/rancher/k3s/data/current/bin"),
    },
    // istio manifests/helm-profiles/platform-microk8s.yaml.
    Platform {
        name: "microk8s",
        aliases: &[],
        bin_dir: "/var/snap/microk8s/current/opt/cni/bin",
        net_dir: "/var/snap/microk8s/current/args/cni-network",
        chained: true,
        note: None,
    },
    // istio manifests/helm-profiles/platform-openshift.yaml.
    Platform {
        name: "openshift",
        aliases: &[],
        bin_dir: "/var/lib/cni/bin",
        net_dir: "/etc/cni/multus/net.d",
        chained: false,
        note: None,
    },
];

impl Platform {
    /// The platform of this name, in whatever case; without one, the default, as with Istio's
    /// `global.platform`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        let is_named = |platform: &Self| platform.names().any(|one| one.eq_ignore_ascii_case(name));
        let mut all = PLATFORMS.iter().copied();
        if name.is_empty() { all.next() } else { all.find(is_named) }
    }

    /// All names of this platform.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        [self.name].into_iter().chain(self.aliases.iter().copied())
    }

    /// What `--platform` accepts.
    #[must_use]
    pub fn accepted() -> String {
        PLATFORMS.iter().flat_map(Self::names).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bin_dir, net_dir, chained, note, .. } = self;
        let name = self.names().collect::<Vec<_>>().join(", ");
        let how = if *chained { "chained" } else { "by multus" };
        write!(f, "{name}: programs in {bin_dir}, configurations in {net_dir}, {how}")?;
        note.map_or(Ok(()), |note| write!(f, "; {note}"))
    }
}
