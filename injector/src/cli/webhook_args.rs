//! Flags of `webhook`.

use clap::{Args as ClapArgs, ValueEnum};

use super::args::{Choice, ConfigArgs, Platform};
use crate::manifests::{Namespace, Revision, ServiceName, Subdomain};
use crate::webhook::options::{Listen, ObjectName};

#[derive(ClapArgs, Clone, Debug)]
pub(super) struct WebhookArgs {
    /// Address of the admission port: :PORT for all addresses, or ADDRESS:PORT; port 0 takes a free one
    #[arg(long, default_value = ":15017", value_name = "ADDRESS")]
    pub(super) https_addr: Listen,
    /// Address of the monitoring port: /healthz, /readyz and /metrics
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
    /// Whether proxies are native sidecars; auto: if all known kubelets support them
    #[arg(long, value_enum, default_value_t = Choice::Auto, value_name = "WHEN")]
    pub(super) native_sidecars: Choice,
    /// Platform; openshift: users and groups come from the namespace
    #[arg(long, value_enum, value_name = "NAME")]
    pub(super) platform: Option<Platform>,
    /// Deny pods with app containers that run as the proxy's user
    #[arg(long)]
    pub(super) reject_proxy_uid: bool,
    #[command(flatten)]
    pub(super) limits: LimitArgs,
    #[command(flatten)]
    pub(super) log: LogArgs,
}

/// The certificate.
#[derive(ClapArgs, Clone, Debug)]
#[command(next_help_heading = "Certificate")]
pub(super) struct CertificateArgs {
    /// Certificate chain in PEM, leaf first; watched
    #[arg(long, value_name = "FILE")]
    pub(super) tls_cert: Option<String>,
    /// Its key in PEM
    #[arg(long, value_name = "FILE")]
    pub(super) tls_key: Option<String>,
    /// Issue a CA and a certificate
    #[arg(long)]
    pub(super) self_signed: bool,
    /// Service that the API server calls, for --self-signed
    #[arg(long, value_name = "NAME")]
    pub(super) service: Option<ServiceName>,
    /// Namespace of the Service, for --self-signed
    #[arg(short, long, value_name = "NAME")]
    pub(super) namespace: Option<Namespace>,
    /// File that --self-signed writes its CA to
    #[arg(long, value_name = "FILE")]
    pub(super) ca_out: Option<String>,
}

/// The cluster.
#[derive(ClapArgs, Clone, Debug)]
#[command(next_help_heading = "Cluster")]
pub(super) struct ClusterArgs {
    /// ConfigMap with `config` and `values`, watched, instead of files; the mesh config is in ConfigMap `istio` (`istio-REVISION`) beside it
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub(super) watch_configmap: Option<ObjectName>,
    /// MutatingWebhookConfiguration whose caBundle gets the CA of --self-signed; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(super) webhook_config: Vec<Subdomain>,
    /// Do not write caBundle: another program does, such as cert-manager
    #[arg(long)]
    pub(super) ca_managed_externally: bool,
    /// Kubeconfig; default: the pod's service account, then $KUBECONFIG, then ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<String>,
}

/// Concurrency and time limits.
#[derive(ClapArgs, Clone, Debug)]
#[command(next_help_heading = "Limits")]
pub(super) struct LimitArgs {
    /// Pods that are reviewed at once; other requests wait
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) max_requests: u32,
    /// Open connections; others wait
    #[arg(long, default_value_t = 2048, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub(super) max_connections: u32,
    /// From SIGTERM until no more connections are accepted, while endpoints are withdrawn (5s, or seconds)
    #[arg(long, default_value = "5s", value_name = "TIME")]
    pub(super) drain_delay: Time,
    /// From SIGTERM to the end, at most
    #[arg(long, default_value = "25s", value_name = "TIME")]
    pub(super) grace: Time,
    /// Between two reads of the files of config and certificate
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
    /// Format of log lines
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    pub(super) log_format: LogFormat,
    /// Lowest level that is logged
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
