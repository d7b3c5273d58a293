//! Options of the webhook; a value that exists is valid.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use istio_iptables::config::LogOptions;

use crate::certs::files::CertFiles;
use crate::cluster::ConfigMapName;
use crate::config::ConfigFiles;
use crate::inject::Options;

/// All options of `webhook`.
#[derive(Clone, Debug)]
pub(crate) struct ServeOptions {
    /// The address of the admission port.
    pub https: Listen,
    /// The address of health and metrics.
    pub monitoring: Listen,
    /// The source of the certificate.
    pub certificates: Certificates,
    /// The source of the config.
    pub config: ConfigFrom,
    /// Which program writes the CA into webhook configurations.
    pub ca_bundle: CaBundle,
    /// Whether proxies are native sidecars, where the pod does not say.
    pub native_sidecars: NativeSidecars,
    /// Whether namespaces define users and groups of pods: OpenShift.
    pub openshift: bool,
    /// Options of the injection.
    pub injection: Options,
    /// Limits of concurrency and time.
    pub limits: Limits,
    /// The kubeconfig; without it, the pod's service account or the default kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// Log level and format.
    pub log: LogOptions,
    /// Environment variables in UTF-8: templates may read them.
    pub environment: Vec<(String, String)>,
}

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listen {
    /// Address and port; port 0 takes a free one.
    pub address: SocketAddr,
    /// Whether only a port was given: all addresses, of both families where the machine has both.
    pub any_family: bool,
}

impl Listen {
    /// All addresses of this machine.
    pub(crate) const fn any(port: u16) -> Self {
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

/// The source of the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Certificates {
    /// Files, watched.
    Files(CertFiles),
    /// Issued by this program for a Service; its CA is written to a file, too.
    SelfSigned { service: String, namespace: String, ca_out: Option<PathBuf> },
}

/// The sources of injector config, values and mesh config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfigFrom {
    /// Files, watched; the built-in one where there is none.
    Files(ConfigFiles),
    /// A ConfigMap of the cluster: its keys `config` and `values`.
    ConfigMap(ConfigMapName),
}

/// Which program writes the CA into webhook configurations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CaBundle {
    /// This program writes the CA into these MutatingWebhookConfigurations; the list may be empty.
    Ours(Vec<String>),
    /// Another program, such as cert-manager.
    External,
}

/// Whether proxies are native sidecars, where the pod does not say.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NativeSidecars {
    Auto,
    True,
    False,
}

/// Limits of concurrency and time.
#[derive(clap::Args, Clone, Copy, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Limits")]
pub(crate) struct Limits {
    /// Maximum number of concurrent reviews; further requests wait
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_requests: u32,
    /// Connection limit: maximum number of open connections; further ones wait
    #[arg(long, default_value_t = 2048, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub max_connections: u32,
    /// How long connections are still accepted after SIGTERM, until the endpoint is removed (5s, or a number
    /// of seconds)
    #[arg(long, default_value = "5s", value_name = "TIME", value_parser = time)]
    pub drain_delay: Duration,
    /// Maximum time from SIGTERM to exit
    #[arg(long, default_value = "25s", value_name = "TIME", value_parser = time)]
    pub grace: Duration,
    /// Interval at which the config and certificate files are read
    #[arg(long, default_value = "1s", value_name = "TIME", value_parser = time)]
    pub watch_interval: Duration,
}

/// A number of seconds, or a duration of Go.
fn time(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<u32>().map(|seconds| Duration::from_secs(seconds.into())).ok();
    let nanoseconds = || goduration::parse(text).and_then(|nanoseconds| u64::try_from(nanoseconds).ok());
    seconds
        .or_else(|| nanoseconds().map(Duration::from_nanos))
        .ok_or_else(|| "expected a number of seconds, or a duration such as 1.5s".to_owned())
}
