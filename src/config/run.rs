//! Run options: action, backend, validation.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cli::Key;
use crate::facts::NameServers;
use crate::model::{Backend, Port, Variant};

/// The action of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write the rules of the options.
    Apply,
    /// Take out everything of ours (`--cleanup-only`, `cleanup`).
    Cleanup,
}

/// Who writes to the kernel, as asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendChoice {
    /// Decided from kernel facts.
    Auto,
    /// One of the two iptables variants, decided from kernel facts.
    Iptables,
    /// `iptables-legacy-restore`.
    IptablesLegacy,
    /// `iptables-nft-restore`.
    IptablesNft,
    /// Native nftables, over netlink.
    Nftables,
}

impl BackendChoice {
    /// The choices.
    pub const ALL: [Self; 5] =
        [Self::Auto, Self::Iptables, Self::IptablesLegacy, Self::IptablesNft, Self::Nftables];

    /// The choice that leaves this backend only.
    #[must_use]
    pub const fn only(backend: Backend) -> Self {
        match backend {
            Backend::Iptables(Variant::Legacy) => Self::IptablesLegacy,
            Backend::Iptables(Variant::Nft) => Self::IptablesNft,
            Backend::Native => Self::Nftables,
        }
    }

    /// Whether it leaves more than one backend.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Auto | Self::Iptables)
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Plain text.
    Text,
}

/// Logging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Lines below this level are not written.
    pub level: log::LevelFilter,
    /// How they look.
    pub format: LogFormat,
}

/// The probe after applying (`--run-validation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validation {
    /// Destination port of the probe (`--iptables-probe-port`).
    pub port: Port,
    /// Timeout (`--probe-timeout`).
    pub timeout: Duration,
}

/// A network namespace that is not the caller's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkNamespace {
    /// The network namespace at this path (`--network-namespace`).
    Path(PathBuf),
    /// The network namespace of this process (`--pid`).
    Pid(u32),
}

impl NetworkNamespace {
    /// The path of the network namespace.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Path(name) => {
                // `ip netns` names them without a path.
                let is_name = name.components().count() == 1 && name.is_relative() && !name.exists();
                let named = Path::new("/run/netns").join(name);
                if is_name && named.exists() { named } else { name.clone() }
            }
            Self::Pid(pid) => PathBuf::from(format!("/proc/{pid}/ns/net")),
        }
    }

    /// The option that names it.
    #[must_use]
    pub const fn option(&self) -> Key {
        match self {
            Self::Path(_) => Key::NetworkNamespace,
            Self::Pid(_) => Key::Pid,
        }
    }
}

/// The options of a run, apart from the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// The action of a run.
    pub action: Action,
    /// Who writes to the kernel.
    pub backend: BackendChoice,
    /// Change nothing, print what would be done.
    pub dry_run: bool,
    /// File to which a dry run also writes the rules (`DRY_RUN_FILE_PATH`).
    pub dry_run_file: Option<PathBuf>,
    /// Where the rules file is kept (`--rules-file`).
    pub rules_file: Option<PathBuf>,
    /// Do not touch rules (`--skip-rule-apply`).
    pub skip_rule_apply: bool,
    /// Probe afterwards.
    pub validation: Option<Validation>,
    /// Rewrite even if nothing differs (`--force-apply`).
    pub force_apply: bool,
    /// Clean-up leaves what open proxied connections need (`--keep-connections`).
    pub keep_connections: bool,
    /// Read everything back and compare rule by rule (`--verify`).
    pub verify: bool,
    /// Network namespace to act in.
    pub network_namespace: Option<NetworkNamespace>,
    /// Host file system, pod network (`--cni-mode`).
    pub cni_mode: bool,
    /// The interface by which the pod's connections arrive, if that is known, as to a plugin that makes the
    /// pod's network: rules with which the kernel drops them there are not written, and those of a run that
    /// fails stay, as nothing runs in the pod then.
    pub pod_interface: Option<String>,
    /// The name servers of the pod's `/etc/resolv.conf`; none if that file is not known.
    pub name_servers: NameServers,
}
