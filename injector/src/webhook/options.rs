//! Options of the webhook; a value that exists is valid.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use istio_iptables::config::LogOptions;

use crate::inject::Options;
use crate::manifests::{NameError, Namespace, Subdomain};

/// All options of `webhook`.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where admission is served.
    pub https: Listen,
    /// Where health and metrics are served.
    pub monitoring: Listen,
    /// Where the certificate comes from.
    pub certificates: Certificates,
    /// Where the config comes from.
    pub config: ConfigFrom,
    /// Who writes the CA into webhook configurations.
    pub ca_bundle: CaBundle,
    /// Whether proxies are native sidecars, where the pod does not say.
    pub native_sidecars: NativeSidecars,
    /// Whether namespaces define users and groups of pods: OpenShift.
    pub openshift: bool,
    /// Options of the injection.
    pub injection: Options,
    /// Concurrency limits.
    pub limits: Limits,
    /// Times and intervals.
    pub times: Times,
    /// The kubeconfig; without it, the pod's service account or the default kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// Log level and format.
    pub log: LogOptions,
    /// Environment variables in UTF-8: templates may read them.
    pub environment: Vec<(String, String)>,
}

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Address and port; port 0 takes a free one.
    pub address: SocketAddr,
    /// Whether only a port was given: all addresses, of both families where the machine has both.
    pub any_family: bool,
}

impl Listen {
    /// All addresses of this machine.
    #[must_use]
    pub const fn any(port: u16) -> Self {
        Self { address: SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port), any_family: true }
    }
}

impl std::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = text.strip_prefix(':').and_then(|port| port.parse().ok());
        if let Some(port) = port {
            return Ok(Self::any(port));
        }
        let address =
            text.parse().map_err(|_| "expected :PORT, ADDRESS:PORT or [ADDRESS]:PORT".to_owned())?;
        Ok(Self { address, any_family: false })
    }
}

/// Where the certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificates {
    /// Files, watched.
    Files {
        /// The chain, leaf first.
        cert: String,
        /// The leaf's key.
        key: String,
    },
    /// Issued by this program.
    SelfSigned {
        /// The Service that the API server calls.
        service: String,
        /// Its namespace.
        namespace: String,
        /// The file that the CA is written to.
        ca_out: Option<PathBuf>,
    },
}

/// Where injector config, values and mesh config come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigFrom {
    /// Files, watched; the built-in one where there is none.
    Files {
        /// Injector config.
        config: Option<String>,
        /// Values.
        values: Option<String>,
        /// Mesh config.
        mesh: Option<String>,
    },
    /// A ConfigMap of the cluster: its keys `config` and `values`.
    ConfigMap(ObjectName),
}

/// An object of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl std::str::FromStr for ObjectName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (namespace, name) = text.split_once('/').ok_or_else(|| "expected NAMESPACE/NAME".to_owned())?;
        let bad = |error: NameError| format!("expected NAMESPACE/NAME: {error}");
        Ok(Self {
            namespace: namespace.parse::<Namespace>().map_err(bad)?.as_str().to_owned(),
            name: name.parse::<Subdomain>().map_err(bad)?.as_str().to_owned(),
        })
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Who writes the CA into webhook configurations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaBundle {
    /// This program, into these MutatingWebhookConfigurations; the list may be empty.
    Ours(Vec<String>),
    /// Another program, such as cert-manager.
    External,
}

/// Whether proxies are native sidecars, where the pod does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeSidecars {
    /// If all kubelets can, as far as they are known.
    Auto,
    /// Always.
    True,
    /// Never.
    False,
}

/// Concurrency limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Reviews at once; other requests wait.
    pub requests: usize,
    /// Open connections.
    pub connections: usize,
}

/// Times and intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// From the signal until no more connections are accepted.
    pub drain_delay: Duration,
    /// From the signal to the end, at most.
    pub grace: Duration,
    /// Between two reads of watched files.
    pub watch_interval: Duration,
}
