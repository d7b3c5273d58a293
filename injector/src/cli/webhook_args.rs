//! Flags of `webhook`.

use clap::Args as ClapArgs;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use istio_iptables::config::LogFormat;
use log::LevelFilter;

use crate::cluster::ConfigMapName;
use crate::config::ConfigFiles;
use crate::manifests::{Image, Namespace, Platform, Revision, ServiceName, Subdomain};
use crate::webhook::options::{Limits, Listen, NativeSidecars};

#[derive(ClapArgs, Clone, Debug)]
pub(super) struct WebhookArgs {
    /// Address of the admission port: :PORT for all addresses, or ADDRESS:PORT; port 0 means any free port
    #[arg(long, default_value = ":15017", value_name = "ADDRESS")]
    pub(super) https_addr: Listen,
    /// Address of the monitoring port: /healthz, /readyz and /metrics
    #[arg(long, default_value = ":15014", value_name = "ADDRESS")]
    pub(super) monitoring_addr: Listen,
    #[command(flatten)]
    pub(super) certificates: CertificateArgs,
    #[command(flatten)]
    pub(super) config: ConfigFiles,
    #[command(flatten)]
    pub(super) cluster: ClusterArgs,
    /// Control plane revision
    #[arg(short, long, default_value = "", hide_default_value = true)]
    pub(super) revision: Revision,
    /// Make proxies native sidecars; auto: if all known kubelets support them
    #[arg(long, value_enum, default_value_t = NativeSidecars::Auto, value_name = "WHEN")]
    pub(super) native_sidecars: NativeSidecars,
    /// Platform; openshift: users and groups come from the namespace
    #[arg(long, value_enum, value_name = "NAME")]
    pub(super) platform: Option<Platform>,
    /// Image of the init container; overrides global.proxy_init.image of the values
    #[arg(long, value_name = "IMAGE")]
    pub(super) init_image: Option<Image>,
    /// Deny pods with app containers that run as the proxy's user
    #[arg(long)]
    pub(super) reject_proxy_uid: bool,
    #[command(flatten)]
    pub(super) limits: Limits,
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
    /// Private key in PEM; watched
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
    /// File to which --self-signed writes its CA
    #[arg(long, value_name = "FILE")]
    pub(super) ca_out: Option<String>,
}

/// The cluster.
#[derive(ClapArgs, Clone, Debug)]
#[command(next_help_heading = "Cluster")]
pub(super) struct ClusterArgs {
    /// ConfigMap with `config` and `values`, watched, instead of files; the mesh config comes from ConfigMap
    /// `istio` (`istio-REVISION`) of the same namespace
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub(super) watch_configmap: Option<ConfigMapName>,
    /// MutatingWebhookConfiguration whose caBundle is patched with the CA of --self-signed; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(super) webhook_config: Vec<Subdomain>,
    /// Do not patch caBundle, because another program does, such as cert-manager
    #[arg(long)]
    pub(super) ca_managed_externally: bool,
    /// Kubeconfig; default: the pod's service account, then $KUBECONFIG, then ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<String>,
}

#[derive(ClapArgs, Clone, Debug)]
#[command(next_help_heading = "Log")]
pub(super) struct LogArgs {
    /// Format of log lines
    #[arg(long, default_value = "text", value_name = "FORMAT", value_parser = log_format())]
    pub(super) log_format: LogFormat,
    /// Lowest level that is logged
    #[arg(long, default_value = "info", value_name = "LEVEL", value_parser = log_level())]
    pub(super) log_level: LevelFilter,
}

fn log_format() -> impl TypedValueParser<Value = LogFormat> {
    let json = |format: String| if format == "json" { LogFormat::Json } else { LogFormat::Text };
    PossibleValuesParser::new(["text", "json"]).map(json)
}

fn log_level() -> impl TypedValueParser<Value = LevelFilter> {
    PossibleValuesParser::new(["error", "warn", "info", "debug"])
        .try_map(|level| level.parse::<LevelFilter>())
}
