//! What the server is told. A value that exists can be served with.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use istio_iptables::config::LogOptions;

use crate::inject::Options;
use crate::manifests::{NameError, Namespace, Subdomain};

/// Everything that `webhook` is told.
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
    /// Who puts the CA into webhook configurations.
    pub ca_bundle: CaBundle,
    /// Whether proxies are native sidecars, where the pod does not say.
    pub native_sidecars: NativeSidecars,
    /// Whether namespaces prescribe users and groups: OpenShift.
    pub openshift: bool,
    /// What is the same for all pods.
    pub injection: Options,
    /// Memory for answers that are asked for again, in bytes; 0 for none.
    pub cache_bytes: usize,
    /// How much is done at once.
    pub limits: Limits,
    /// How long things take.
    pub times: Times,
    /// The file that says where the cluster is; without it, the pod's service account or the usual places.
    pub kubeconfig: Option<PathBuf>,
    /// What is logged, and how.
    pub log: LogOptions,
    /// Environment variables that are valid UTF-8: templates may read them.
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
    pub const fn everywhere(port: u16) -> Self {
        Self { address: SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port), any_family: true }
    }
}

impl std::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = text.strip_prefix(':').and_then(|port| port.parse().ok());
        if let Some(port) = port {
            return Ok(Self::everywhere(port));
        }
        let address =
            text.parse().map_err(|_| "expected :PORT, ADDRESS:PORT or [ADDRESS]:PORT".to_owned())?;
        Ok(Self { address, any_family: false })
    }
}

/// Where the certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificates {
    /// Files, looked at again and again.
    Files {
        /// The chain, leaf first.
        cert: String,
        /// The leaf's key.
        key: String,
    },
    /// Made here.
    SelfSigned {
        /// The Service that the API server calls.
        service: String,
        /// Its namespace.
        namespace: String,
        /// Where the CA is written for others to trust.
        ca_out: Option<PathBuf>,
    },
}

/// Where injector config, values and mesh config come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigFrom {
    /// Files, looked at again and again; what is missing is built in.
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

/// Who puts the CA into webhook configurations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CaBundle {
    /// We do, into these MutatingWebhookConfigurations; none is a list like any other.
    Ours(Vec<String>),
    /// Somebody else does.
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

/// How much is done at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Requests that are worked on; others wait.
    pub requests: usize,
    /// Open connections.
    pub connections: usize,
}

/// How long things take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Between being asked to end and accepting no more.
    pub drain_delay: Duration,
    /// Between being asked to end and the end, at most.
    pub grace: Duration,
    /// Between two looks at files.
    pub watch_interval: Duration,
}
