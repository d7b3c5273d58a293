//! Every annotation and label that has to do with injection, in one table.

use istio_iptables::cli::Key;

/// Where a key is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the pod.
    Annotation,
    /// On the pod, as an annotation or, which wins, as a label.
    Both,
    /// On the pod.
    Label,
    /// On the namespace.
    NamespaceLabel,
}

impl Place {
    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Annotation => "annotation",
            Self::Both => "label, annotation",
            Self::Label => "label",
            Self::NamespaceLabel => "label of the namespace",
        }
    }
}

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// A boolean as Go reads it.
    Boolean,
    /// What this option of the init binary takes.
    Capture(Key),
    /// A log level of Envoy.
    EnvoyLevel,
    /// Log levels of Envoy's components.
    EnvoyLevels,
    /// A JSON object.
    JsonObject,
    /// A whole number, not negative.
    Number,
    /// A port, or 0.
    PortOrZero,
    /// A ProxyConfig as YAML.
    ProxyConfig,
    /// A Kubernetes quantity.
    Quantity,
    /// Anything.
    Text,
    /// Ports and paths to scrape; not the proxy's own ports.
    ScrapeTargets,
    /// One of these words; a wrong one is an error.
    Word(&'static [&'static str]),
    /// One of these words; a wrong one is ignored with a warning.
    WordOrIgnored(&'static [&'static str]),
    /// Set by injection, not by people.
    Written,
}

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The key.
    pub key: &'static str,
    /// Where it is written.
    pub place: Place,
    /// What its value looks like.
    pub syntax: Syntax,
    /// What counts without it.
    pub default: &'static str,
    /// What it does.
    pub effect: &'static str,
    /// Whether nothing but templates reads it: without one that names it, it has no effect.
    pub for_templates: bool,
}

/// The row of an annotation or label.
#[must_use]
pub fn row(key: &str) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.key == key)
}

const fn annotation(key: &'static str, syntax: Syntax, default: &'static str, effect: &'static str) -> Row {
    Row { key, place: Place::Annotation, syntax, default, effect, for_templates: false }
}

const fn for_templates(
    key: &'static str,
    syntax: Syntax,
    default: &'static str,
    effect: &'static str,
) -> Row {
    Row { key, place: Place::Annotation, syntax, default, effect, for_templates: true }
}

const fn label(key: &'static str, default: &'static str, effect: &'static str) -> Row {
    Row { key, place: Place::Label, syntax: Syntax::Text, default, effect, for_templates: false }
}

const fn written(key: &'static str, effect: &'static str) -> Row {
    annotation(key, Syntax::Written, "", effect)
}

/// All rows, in the order of the documentation.
pub const TABLE: &[Row] = &[
    // Whether
    Row {
        key: "sidecar.istio.io/inject",
        place: Place::Both,
        syntax: Syntax::WordOrIgnored(&["true", "false", ""]),
        default: "the namespace's labels, then `policy`",
        effect: "Whether the pod is injected; webhooks see only the label",
        for_templates: false,
    },
    Row {
        key: "istio-injection",
        place: Place::NamespaceLabel,
        syntax: Syntax::WordOrIgnored(&["enabled", "disabled"]),
        default: "",
        effect: "Whether pods of the namespace are injected; wins over `istio.io/rev`",
        for_templates: false,
    },
    Row {
        key: "istio.io/rev",
        place: Place::Label,
        syntax: Syntax::Text,
        default: "",
        effect: "On the namespace, else on the pod: the revision that injects; as an annotation of the pod, the one that did",
        for_templates: false,
    },
    annotation(
        "inject.istio.io/templates",
        Syntax::Text,
        "`defaultTemplates` of the injector config",
        "Templates or aliases, separated by commas, applied in this order",
    ),
    // Capture
    annotation(
        "sidecar.istio.io/interceptionMode",
        Syntax::Word(&["REDIRECT", "TPROXY", "NONE"]),
        "`interceptionMode` of the proxy config, REDIRECT",
        "How inbound connections reach the proxy; NONE: nothing is captured",
    ),
    annotation(
        "traffic.sidecar.istio.io/includeOutboundIPRanges",
        Syntax::Capture(Key::ServiceCidr),
        "`global.proxy.includeIPRanges`, `*`",
        "Outbound ranges to capture; `*` for all, nothing for none",
    ),
    annotation(
        "traffic.sidecar.istio.io/excludeOutboundIPRanges",
        Syntax::Capture(Key::ServiceExcludeCidr),
        "`global.proxy.excludeIPRanges`, none",
        "Outbound ranges to leave alone; looked at first",
    ),
    annotation(
        "traffic.sidecar.istio.io/includeOutboundPorts",
        Syntax::Capture(Key::OutboundPorts),
        "`global.proxy.includeOutboundPorts`, none",
        "Outbound ports to capture whatever their range",
    ),
    annotation(
        "traffic.sidecar.istio.io/excludeOutboundPorts",
        Syntax::Capture(Key::LocalOutboundPortsExclude),
        "`global.proxy.excludeOutboundPorts`, none",
        "Outbound ports to leave alone",
    ),
    annotation(
        "traffic.sidecar.istio.io/includeInboundPorts",
        Syntax::Capture(Key::InboundPorts),
        "`global.proxy.includeInboundPorts`, `*`",
        "Inbound ports to capture; `*` for all, nothing for none",
    ),
    annotation(
        "traffic.sidecar.istio.io/excludeInboundPorts",
        Syntax::Capture(Key::LocalExcludePorts),
        "`global.proxy.excludeInboundPorts`, none",
        "Inbound ports to leave alone, besides the proxy's own; only when all are captured",
    ),
    annotation(
        "traffic.sidecar.istio.io/excludeInterfaces",
        Syntax::Capture(Key::ExcludeInterfaces),
        "none",
        "Interfaces whose traffic is not captured",
    ),
    annotation(
        "istio.io/reroute-virtual-interfaces",
        Syntax::Capture(Key::KubeVirtInterfaces),
        "none",
        "Virtual interfaces whose inbound traffic counts as outbound",
    ),
    annotation(
        "traffic.sidecar.istio.io/kubevirtInterfaces",
        Syntax::Capture(Key::KubeVirtInterfaces),
        "none",
        "Older name of `istio.io/reroute-virtual-interfaces`",
    ),
    // The proxy
    annotation(
        "proxy.istio.io/config",
        Syntax::ProxyConfig,
        "`defaultConfig` of the mesh config",
        "Proxy config for this pod: top-level fields replace the mesh's, proxyMetadata is merged; the init container's own variables in it are read by its parser",
    ),
    for_templates(
        "sidecar.istio.io/proxyImage",
        Syntax::Text,
        "hub, image and tag of the values",
        "Whole name of the image of the proxy and the init container; one without a slash has no effect",
    ),
    annotation(
        "sidecar.istio.io/proxyImageType",
        Syntax::Text,
        "`image.imageType` of the proxy config, then `global.variant`",
        "Variant of the image (debug, distroless), behind the tag; default: none",
    ),
    for_templates(
        "sidecar.istio.io/proxyCPU",
        Syntax::Quantity,
        "`global.proxy.resources`",
        "CPU request; any of the four replaces the whole block",
    ),
    for_templates(
        "sidecar.istio.io/proxyMemory",
        Syntax::Quantity,
        "`global.proxy.resources`",
        "Memory request; any of the four replaces the whole block",
    ),
    for_templates(
        "sidecar.istio.io/proxyCPULimit",
        Syntax::Quantity,
        "`global.proxy.resources`",
        "CPU limit; any of the four replaces the whole block",
    ),
    for_templates(
        "sidecar.istio.io/proxyMemoryLimit",
        Syntax::Quantity,
        "`global.proxy.resources`",
        "Memory limit; any of the four replaces the whole block",
    ),
    annotation(
        "sidecar.istio.io/nativeSidecar",
        Syntax::WordOrIgnored(&["true", "false"]),
        "`--native-sidecars`",
        "Whether the proxy is an init container that keeps running",
    ),
    for_templates(
        "sidecar.istio.io/capNetBindService",
        Syntax::WordOrIgnored(&["true", "false"]),
        "`global.proxy.capNetBindService`, false",
        "Lets the proxy listen on ports below 1024, as root; not in the built-in templates",
    ),
    for_templates(
        "sidecar.istio.io/logLevel",
        Syntax::EnvoyLevel,
        "`global.proxy.logLevel`, warning",
        "Log level of Envoy",
    ),
    for_templates(
        "sidecar.istio.io/componentLogLevel",
        Syntax::EnvoyLevels,
        "`global.proxy.componentLogLevel`, misc:error",
        "Log levels of parts of Envoy",
    ),
    for_templates(
        "sidecar.istio.io/agentLogLevel",
        Syntax::Capture(Key::LogOutputLevel),
        "`global.logging.level`, default:info",
        "Log level of the agent and the init container",
    ),
    for_templates(
        "sidecar.istio.io/bootstrapOverride",
        Syntax::Text,
        "none",
        "ConfigMap with a bootstrap configuration for Envoy; not in the built-in templates",
    ),
    for_templates(
        "sidecar.istio.io/userVolume",
        Syntax::JsonObject,
        "none",
        "More volumes of the pod: their sources by name",
    ),
    for_templates(
        "sidecar.istio.io/userVolumeMount",
        Syntax::JsonObject,
        "none",
        "More mounts of the proxy: by volume name",
    ),
    for_templates(
        "sidecar.istio.io/discoveryAddress",
        Syntax::Text,
        "",
        "Deprecated: use `proxy.istio.io/config`",
    ),
    annotation("sidecar.istio.io/extraStatTags", Syntax::Text, "", "Read by the proxy itself"),
    annotation("sidecar.istio.io/statsInclusionPrefixes", Syntax::Text, "", "Read by the proxy itself"),
    annotation("sidecar.istio.io/statsInclusionSuffixes", Syntax::Text, "", "Read by the proxy itself"),
    annotation("sidecar.istio.io/statsInclusionRegexps", Syntax::Text, "", "Read by the proxy itself"),
    annotation("sidecar.istio.io/statsHistogramBuckets", Syntax::Text, "", "Read by the proxy itself"),
    annotation("sidecar.istio.io/statsCompression", Syntax::Text, "", "Read by the proxy itself"),
    annotation("sidecar.istio.io/statsFlushInterval", Syntax::Text, "", "Read by the proxy itself"),
    annotation("sidecar.istio.io/statsEvictionInterval", Syntax::Text, "", "Read by the proxy itself"),
    for_templates("sidecar.istio.io/enableCoreDump", Syntax::Text, "", "Read by older templates only"),
    for_templates(
        "sidecar.istio.io/controlPlaneAuthPolicy",
        Syntax::Text,
        "",
        "Read by older templates only",
    ),
    // Health
    annotation(
        "status.sidecar.istio.io/port",
        Syntax::PortOrZero,
        "`global.proxy.statusPort`, 15020",
        "Port on which the agent answers; 0: the proxy has no probes, and the app's stay as they are",
    ),
    for_templates(
        "readiness.status.sidecar.istio.io/initialDelaySeconds",
        Syntax::Number,
        "`global.proxy.readinessInitialDelaySeconds`, 0",
        "Delay of the proxy's readiness probe",
    ),
    for_templates(
        "readiness.status.sidecar.istio.io/periodSeconds",
        Syntax::Number,
        "`global.proxy.readinessPeriodSeconds`, 15",
        "Period of the proxy's readiness probe",
    ),
    for_templates(
        "readiness.status.sidecar.istio.io/failureThreshold",
        Syntax::Number,
        "`global.proxy.readinessFailureThreshold`, 4",
        "Failures after which the proxy is not ready",
    ),
    for_templates(
        "readiness.status.sidecar.istio.io/applicationPorts",
        Syntax::Text,
        "",
        "Read by older templates only",
    ),
    annotation(
        "sidecar.istio.io/rewriteAppHTTPProbers",
        Syntax::Boolean,
        "`sidecarInjectorWebhook.rewriteAppHTTPProbe`, true",
        "Whether the app's probes and hooks go through the agent",
    ),
    // Metrics
    annotation(
        "prometheus.istio.io/merge-metrics",
        Syntax::Boolean,
        "`enablePrometheusMerge` of the mesh config, true",
        "Whether the agent serves the app's metrics too",
    ),
    annotation(
        "prometheus.istio.io/scrape-targets",
        Syntax::ScrapeTargets,
        "`prometheus.io/port` and `path`",
        "Several targets for the agent: PORT:PATH,...",
    ),
    annotation(
        "prometheus.istio.io/secure-port",
        Syntax::Text,
        "`ENVOY_SECURE_MERGED_METRICS_PORT` of the proxy, none",
        "Port on which scrapers find the metrics behind mutual TLS",
    ),
    annotation(
        "prometheus.io/scrape",
        Syntax::Text,
        "",
        "false: metrics are left alone; otherwise handed to the agent and replaced",
    ),
    annotation("prometheus.io/port", Syntax::Text, "", "Handed to the agent and replaced by the status port"),
    annotation(
        "prometheus.io/path",
        Syntax::Text,
        "",
        "Handed to the agent and replaced by /stats/prometheus",
    ),
    // Others
    annotation(
        "k8s.v1.cni.cncf.io/networks",
        Syntax::Text,
        "none",
        "With the multus CNI provider `default/istio-cni` is added",
    ),
    annotation(
        "apm.datadoghq.com/env",
        Syntax::JsonObject,
        "none",
        "With the datadog tracer: environment of the proxy",
    ),
    label(
        "service.istio.io/canonical-name",
        "app.kubernetes.io/name, then app, then the workload's name",
        "Name of the service in telemetry",
    ),
    label(
        "service.istio.io/canonical-revision",
        "app.kubernetes.io/version, then version, then latest",
        "Version of the service in telemetry",
    ),
    label("service.istio.io/workload-name", "the workload's name", "Name of the workload in telemetry"),
    label("security.istio.io/tlsMode", "istio", "Tells others that the pod understands mutual TLS"),
    label("networking.istio.io/tunnel", "http, with HBONE", "Tells others that the pod understands HBONE"),
    label("topology.istio.io/network", "`global.network`", "Network of the pod"),
    written("sidecar.istio.io/status", "What injection put in"),
    written("proxy.istio.io/overrides", "The user's versions of containers that the templates have too"),
    written("kubectl.kubernetes.io/default-container", "First container of the app, unless it is set"),
    written("kubectl.kubernetes.io/default-logs-container", "First container of the app, unless it is set"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_stands_twice() {
        for (at, row) in TABLE.iter().enumerate() {
            assert!(!TABLE[..at].iter().any(|other| other.key == row.key), "{}", row.key);
        }
    }
}
