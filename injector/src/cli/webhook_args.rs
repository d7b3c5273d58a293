//! Flags of `webhook`.

use clap::{Args as ClapArgs, ValueEnum};

use super::args::{Choice, ConfigArgs, Platform};
use crate::manifests::{Namespace, Revision, ServiceName, Subdomain};
use crate::webhook::options::{Listen, ObjectName};

#[derive(ClapArgs, Clone, Debug)]
pub(super) struct WebhookArgs {
    /// Where admission is served: :PORT for all addresses, or ADDRESS:PORT; port 0 takes a free one
    #[arg(long, default_value = ":15017", value_name = "ADDRESS")]
    pub(super) https_addr: Listen,
    /// Where /healthz, /readyz and /metrics are served
    #[arg(long, default_value = ":15014", value_name = "ADDRESS")]
    pub(super) monitoring_addr: Listen,
    #[command(flatten)]
    pub(super) certificates: CertificateArgs,
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    #[command(flatten)]
    pub(super) cluster: ClusterArgs,
    /// Control plane revision
    #[arg(short, long, default_value = "", hide_default_value = true)]
    pub(super) revision: Revision,
    /// Whether proxies are native sidecars; auto means: if all kubelets can, as far as they are known
    #[arg(long, value_enum, default_value_t = Choice::Auto, value_name = "WHEN")]
    pub(super) native_sidecars: Choice,
    /// Platform; with openshift, users and groups come from namespaces
    #[arg(long, value_enum, value_name = "NAME")]
    pub(super) platform: Option<Platform>,
    /// Refuse app containers that run as the proxy's user
    #[arg(long)]
    pub(super) reject_proxy_uid: bool,
    #[command(flatten)]
    pub(super) limits: LimitArgs,
    #[command(flatten)]
    pub(super) log: LogArgs,
}

/// Where the certificate comes from.
#[derive(ClapArgs, Clone, Debug)]
#[command(next_help_heading = "Certificate")]
pub(super) struct CertificateArgs {
    /// Certificate chain in PEM, leaf first; looked at again and again
    #[arg(long, value_name = "FILE")]
    pub(super) tls_cert: Option<String>,
    /// Its key in PEM
    #[arg(long, value_name = "FILE")]
    pub(super) tls_key: Option<String>,
    /// Make a CA and a certificate
    #[arg(long)]
    pub(super) self_signed: bool,
    /// The Service that the API server calls, for --self-signed
    #[arg(long, value_name = "NAME")]
    pub(super) service: Option<ServiceName>,
    /// Its namespace, for --self-signed
    #[arg(short, long, value_name = "NAME")]
    pub(super) namespace: Option<Namespace>,
    /// Where --self-signed writes its CA
    #[arg(long, value_name = "FILE")]
    pub(super) ca_out: Option<String>,
}

/// What is read from a cluster and written to it.
#[derive(ClapArgs, Clone, Debug)]
#[command(next_help_heading = "Cluster")]
pub(super) struct ClusterArgs {
    /// ConfigMap with `config` and `values`, watched, instead of files; the mesh config is beside it, in `istio` (`istio-REVISION`)
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub(super) watch_configmap: Option<ObjectName>,
    /// MutatingWebhookConfiguration whose caBundle gets the CA of --self-signed; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(super) webhook_config: Vec<Subdomain>,
    /// Leave caBundle to somebody else, such as cert-manager
    #[arg(long)]
    pub(super) ca_managed_externally: bool,
    /// Where the cluster is; default: the pod's service account, or the usual places
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<String>,
}

/// How much is done at once, and how long it may take.
#[derive(ClapArgs, Clone, Debug)]
#[command(next_help_heading = "Limits")]
pub(super) struct LimitArgs {
    /// Memory for answers that are asked for again, in MiB; 0 for none
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub(super) cache_mb: u16,
    /// Requests that are worked on at once; others wait
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) max_requests: u32,
    /// Open connections; one more closes the one that has been idle longest
    #[arg(long, default_value_t = 2048, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub(super) max_connections: u32,
    /// Between being asked to end and accepting no more, so that others notice (5s, or seconds)
    #[arg(long, default_value = "5s", value_name = "TIME")]
    pub(super) drain_delay: Time,
    /// Between being asked to end and the end, at most
    #[arg(long, default_value = "25s", value_name = "TIME")]
    pub(super) grace: Time,
    /// Between two looks at the files of config and certificate
    #[arg(long, default_value = "1s", value_name = "TIME")]
    pub(super) watch_interval: Time,
}

/// A length of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Time(pub(super) std::time::Duration);

impl std::str::FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let nanoseconds = match text.parse::<u32>() {
            Ok(seconds) => Some(u64::from(seconds) * 1_000_000_000),
            Err(_) => goduration::parse(text).and_then(|nanoseconds| u64::try_from(nanoseconds).ok()),
        };
        let time = nanoseconds.map(std::time::Duration::from_nanos);
        time.map(Self).ok_or_else(|| "expected a number of seconds, or a duration such as 1.5s".to_owned())
    }
}

#[derive(ClapArgs, Clone, Debug)]
#[command(next_help_heading = "Log")]
pub(super) struct LogArgs {
    /// How lines look
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    pub(super) log_format: LogFormat,
    /// Which lines are written: this level and above
    #[arg(long, value_enum, default_value_t = LogLevel::Info, value_name = "LEVEL")]
    pub(super) log_level: LogLevel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}
