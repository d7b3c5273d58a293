//! The table of every annotation and label that affects injection.

use istio_iptables::cli::Key;

/// Where a key is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// On the pod.
    Annotation,
    /// On the pod, as an annotation or, which wins, as a label.
    Both,
    /// On the pod.
    Label,
    /// On the namespace.
    NamespaceLabel,
}

impl KeyKind {
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
    /// A JSON object of objects by name, or an array of objects with a name, as Istio's reference says; each
    /// with this text, if any.
    JsonNamed(Option<&'static str>),
    /// An integer, not negative.
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
    /// Set by injection, not by users.
    SetByInjection,
}

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The key.
    pub key: &'static str,
    /// Where it is written.
    pub place: KeyKind,
    /// What its value looks like.
    pub syntax: Syntax,
    /// The value without it.
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

/// The rows, and a constant for the key of each: `NAME "key": place, syntax, default, effect`, and
/// `templates` if nothing but templates reads it.
macro_rules! table {
    (@flag) => { false };
    (@flag templates) => { true };
    ($($name:ident $key:literal: $place:ident, $syntax:expr, $default:literal, $effect:expr $(, $only:ident)?;)*) => {
        /// The keys of all rows.
        pub mod keys {
            $(#[doc = concat!("The key `", $key, "`.")] pub const $name: &str = $key;)*
        }

        /// All rows, in the order of the documentation.
        pub const TABLE: &[Row] = &[$(Row {
            key: $key,
            place: KeyKind::$place,
            syntax: $syntax,
            default: $default,
            effect: $effect,
            for_templates: table!(@flag $($only)?),
        }),*];
    };
}

table! {
    // Whether
    INJECT "sidecar.istio.io/inject": Both, Syntax::WordOrIgnored(&["true", "false", ""]),
        "the namespace's labels, then `policy`", "Whether the pod is injected; the API server's webhook selectors see only the label";
    NAMESPACE_INJECTION "istio-injection": NamespaceLabel, Syntax::WordOrIgnored(&["enabled", "disabled"]),
        "", "Whether pods of the namespace are injected; takes precedence over `istio.io/rev`";
    REVISION "istio.io/rev": Label, Syntax::Text,
        "", "On the namespace, otherwise on the pod: the revision that injects; as an annotation of the pod: the revision that has injected it";
    TEMPLATES "inject.istio.io/templates": Annotation, Syntax::Text,
        "`defaultTemplates` of the injector config", "Templates or aliases, separated by commas, applied in this order";
    // Capture
    INTERCEPTION_MODE "sidecar.istio.io/interceptionMode": Annotation, Syntax::Word(&["REDIRECT", "TPROXY", "NONE"]),
        "`interceptionMode` of the proxy config, REDIRECT", "How inbound connections reach the proxy; NONE: nothing is captured";
    INCLUDE_OUTBOUND_IP_RANGES "traffic.sidecar.istio.io/includeOutboundIPRanges": Annotation, Syntax::Capture(Key::ServiceCidr),
        "`global.proxy.includeIPRanges`, `*`", "Outbound ranges to capture; `*` for all, nothing for none";
    EXCLUDE_OUTBOUND_IP_RANGES "traffic.sidecar.istio.io/excludeOutboundIPRanges": Annotation, Syntax::Capture(Key::ServiceExcludeCidr),
        "`global.proxy.excludeIPRanges`, none", "Outbound ranges that are not captured; checked first";
    INCLUDE_OUTBOUND_PORTS "traffic.sidecar.istio.io/includeOutboundPorts": Annotation, Syntax::Capture(Key::OutboundPorts),
        "`global.proxy.includeOutboundPorts`, none", Key::OutboundPorts.spec().help;
    EXCLUDE_OUTBOUND_PORTS "traffic.sidecar.istio.io/excludeOutboundPorts": Annotation, Syntax::Capture(Key::LocalOutboundPortsExclude),
        "`global.proxy.excludeOutboundPorts`, none", "Outbound ports that are not captured";
    INCLUDE_INBOUND_PORTS "traffic.sidecar.istio.io/includeInboundPorts": Annotation, Syntax::Capture(Key::InboundPorts),
        "`global.proxy.includeInboundPorts`, `*`", "Inbound ports to capture; `*` for all, nothing for none";
    EXCLUDE_INBOUND_PORTS "traffic.sidecar.istio.io/excludeInboundPorts": Annotation, Syntax::Capture(Key::LocalExcludePorts),
        "`global.proxy.excludeInboundPorts`, none", "Inbound ports that are not captured, in addition to the proxy's own; only if all inbound ports are captured";
    EXCLUDE_INTERFACES "traffic.sidecar.istio.io/excludeInterfaces": Annotation, Syntax::Capture(Key::ExcludeInterfaces),
        "none", Key::ExcludeInterfaces.spec().help;
    REROUTE_VIRTUAL_INTERFACES "istio.io/reroute-virtual-interfaces": Annotation, Syntax::Capture(Key::KubeVirtInterfaces),
        "none", Key::KubeVirtInterfaces.spec().help;
    KUBEVIRT_INTERFACES "traffic.sidecar.istio.io/kubevirtInterfaces": Annotation, Syntax::Capture(Key::KubeVirtInterfaces),
        "none", "Older name of `istio.io/reroute-virtual-interfaces`";
    // The proxy
    PROXY_CONFIG "proxy.istio.io/config": Annotation, Syntax::ProxyConfig,
        "`defaultConfig` of the mesh config", "Proxy config of this pod: top-level fields replace the mesh's, proxyMetadata is merged; variables of the init container in it are validated by the init binary's parser";
    PROXY_IMAGE "sidecar.istio.io/proxyImage": Annotation, Syntax::Text,
        "hub, image and tag of the values", "Full image reference of the proxy and the init container; a name without a slash has no effect", templates;
    PROXY_IMAGE_TYPE "sidecar.istio.io/proxyImageType": Annotation, Syntax::Text,
        "`image.imageType` of the proxy config, then `global.variant`, none", "Variant of the image (debug, distroless), appended to the tag";
    PROXY_CPU "sidecar.istio.io/proxyCPU": Annotation, Syntax::Quantity,
        "`global.proxy.resources`", "CPU request; setting any of the four replaces all of `global.proxy.resources`", templates;
    PROXY_MEMORY "sidecar.istio.io/proxyMemory": Annotation, Syntax::Quantity,
        "`global.proxy.resources`", "Memory request; setting any of the four replaces all of `global.proxy.resources`", templates;
    PROXY_CPU_LIMIT "sidecar.istio.io/proxyCPULimit": Annotation, Syntax::Quantity,
        "`global.proxy.resources`", "CPU limit; setting any of the four replaces all of `global.proxy.resources`", templates;
    PROXY_MEMORY_LIMIT "sidecar.istio.io/proxyMemoryLimit": Annotation, Syntax::Quantity,
        "`global.proxy.resources`", "Memory limit; setting any of the four replaces all of `global.proxy.resources`", templates;
    NATIVE_SIDECAR "sidecar.istio.io/nativeSidecar": Annotation, Syntax::WordOrIgnored(&["true", "false"]),
        "`--native-sidecars`", "Whether the proxy is an init container that keeps running";
    CAP_NET_BIND_SERVICE "sidecar.istio.io/capNetBindService": Annotation, Syntax::WordOrIgnored(&["true", "false"]),
        "`global.proxy.capNetBindService`, false", "Lets the proxy listen on ports below 1024, as root", templates;
    LOG_LEVEL "sidecar.istio.io/logLevel": Annotation, Syntax::EnvoyLevel,
        "`global.proxy.logLevel`, warning", "Log level of Envoy", templates;
    COMPONENT_LOG_LEVEL "sidecar.istio.io/componentLogLevel": Annotation, Syntax::EnvoyLevels,
        "`global.proxy.componentLogLevel`, misc:error", "Log levels of parts of Envoy", templates;
    AGENT_LOG_LEVEL "sidecar.istio.io/agentLogLevel": Annotation, Syntax::Capture(Key::LogOutputLevel),
        "`global.logging.level`, default:info", "Log level of the agent and the init container", templates;
    RAISE_POD_RESOURCES "istio-iptables/raise-pod-level-resources": Annotation, Syntax::WordOrIgnored(&["true", "false"]),
        "false", "Raises pod-level resources (`spec.resources`) by the requests and limits of the injected containers";
    BOOTSTRAP_OVERRIDE "sidecar.istio.io/bootstrapOverride": Annotation, Syntax::Text,
        "none", "ConfigMap with a bootstrap configuration for Envoy", templates;
    USER_VOLUME "sidecar.istio.io/userVolume": Annotation, Syntax::JsonNamed(None),
        "none", "Additional volumes of the pod", templates;
    USER_VOLUME_MOUNT "sidecar.istio.io/userVolumeMount": Annotation, Syntax::JsonNamed(Some("mountPath")),
        "none", "Additional volume mounts of the proxy, by the name of the volume", templates;
    DISCOVERY_ADDRESS "sidecar.istio.io/discoveryAddress": Annotation, Syntax::Text,
        "", "Deprecated: use `proxy.istio.io/config`", templates;
    EXTRA_STAT_TAGS "sidecar.istio.io/extraStatTags": Annotation, Syntax::Text, "", "Read by the proxy itself";
    STATS_INCLUSION_PREFIXES "sidecar.istio.io/statsInclusionPrefixes": Annotation, Syntax::Text,
        "", "Read by the proxy itself";
    STATS_INCLUSION_SUFFIXES "sidecar.istio.io/statsInclusionSuffixes": Annotation, Syntax::Text,
        "", "Read by the proxy itself";
    STATS_INCLUSION_REGEXPS "sidecar.istio.io/statsInclusionRegexps": Annotation, Syntax::Text,
        "", "Read by the proxy itself";
    STATS_HISTOGRAM_BUCKETS "sidecar.istio.io/statsHistogramBuckets": Annotation, Syntax::Text,
        "", "Read by the proxy itself";
    STATS_COMPRESSION "sidecar.istio.io/statsCompression": Annotation, Syntax::Text, "", "Read by the proxy itself";
    STATS_FLUSH_INTERVAL "sidecar.istio.io/statsFlushInterval": Annotation, Syntax::Text,
        "", "Read by the proxy itself";
    STATS_EVICTION_INTERVAL "sidecar.istio.io/statsEvictionInterval": Annotation, Syntax::Text,
        "", "Read by the proxy itself";
    ENABLE_CORE_DUMP "sidecar.istio.io/enableCoreDump": Annotation, Syntax::Text,
        "", "Read by older templates only", templates;
    CONTROL_PLANE_AUTH_POLICY "sidecar.istio.io/controlPlaneAuthPolicy": Annotation, Syntax::Text,
        "", "Read by older templates only", templates;
    // Health
    STATUS_PORT "status.sidecar.istio.io/port": Annotation, Syntax::PortOrZero,
        "`global.proxy.statusPort`, 15020", "Port of the agent; 0: the proxy has no probes, and the app's are not rewritten";
    READINESS_INITIAL_DELAY_SECONDS "readiness.status.sidecar.istio.io/initialDelaySeconds": Annotation, Syntax::Number,
        "`global.proxy.readinessInitialDelaySeconds`, 0", "Delay of the proxy's readiness probe", templates;
    READINESS_PERIOD_SECONDS "readiness.status.sidecar.istio.io/periodSeconds": Annotation, Syntax::Number,
        "`global.proxy.readinessPeriodSeconds`, 15", "Period of the proxy's readiness probe", templates;
    READINESS_FAILURE_THRESHOLD "readiness.status.sidecar.istio.io/failureThreshold": Annotation, Syntax::Number,
        "`global.proxy.readinessFailureThreshold`, 4", "Failures after which the proxy is not ready", templates;
    READINESS_APPLICATION_PORTS "readiness.status.sidecar.istio.io/applicationPorts": Annotation, Syntax::Text,
        "", "Read by older templates only", templates;
    REWRITE_APP_HTTP_PROBERS "sidecar.istio.io/rewriteAppHTTPProbers": Annotation, Syntax::Boolean,
        "`sidecarInjectorWebhook.rewriteAppHTTPProbe`, true", "Whether the app's probes and hooks are rewritten to go through the agent";
    // Metrics
    MERGE_METRICS "prometheus.istio.io/merge-metrics": Annotation, Syntax::Boolean,
        "`enablePrometheusMerge` of the mesh config, true", "Whether the agent also serves the app's metrics";
    SCRAPE_TARGETS "prometheus.istio.io/scrape-targets": Annotation, Syntax::ScrapeTargets,
        "`prometheus.io/port` and `path`", "Several targets for the agent: PORT:PATH,...";
    SECURE_PORT "prometheus.istio.io/secure-port": Annotation, Syntax::Text,
        "`ENVOY_SECURE_MERGED_METRICS_PORT` of the proxy, none", "Port of the metrics with mutual TLS";
    PROMETHEUS_SCRAPE "prometheus.io/scrape": Annotation, Syntax::Text,
        "", "false: metrics are not merged; otherwise passed to the agent and replaced";
    PROMETHEUS_PORT "prometheus.io/port": Annotation, Syntax::Text,
        "", "Passed to the agent and replaced by the status port";
    PROMETHEUS_PATH "prometheus.io/path": Annotation, Syntax::Text,
        "", "Passed to the agent and replaced by /stats/prometheus";
    // Others
    NETWORKS "k8s.v1.cni.cncf.io/networks": Annotation, Syntax::Text,
        "none", "With the multus CNI provider, `default/istio-cni` is added";
    DATADOG_ENV "apm.datadoghq.com/env": Annotation, Syntax::JsonObject,
        "none", "With the Datadog tracer: environment of the proxy";
    CANONICAL_NAME "service.istio.io/canonical-name": Label, Syntax::Text,
        "app.kubernetes.io/name, then app, then the workload's name", "Name of the service in telemetry";
    CANONICAL_REVISION "service.istio.io/canonical-revision": Label, Syntax::Text,
        "app.kubernetes.io/version, then version, then latest", "Version of the service in telemetry";
    WORKLOAD_NAME "service.istio.io/workload-name": Label, Syntax::Text,
        "the workload's name", "Name of the workload in telemetry";
    TLS_MODE "security.istio.io/tlsMode": Label, Syntax::Text, "istio", "Marks the pod as capable of mutual TLS";
    TUNNEL "networking.istio.io/tunnel": Label, Syntax::Text, "http, with HBONE", "Marks the pod as capable of HBONE";
    NETWORK "topology.istio.io/network": Label, Syntax::Text, "`global.network`", "Network of the pod";
    STATUS "sidecar.istio.io/status": Annotation, Syntax::SetByInjection, "", "What injection added";
    INJECTED_FIELDS "istio-iptables/injected-fields": Annotation, Syntax::SetByInjection,
        "", "Digests of the fields that the webhook wrote into its containers, so that later changes by other webhooks are kept";
    CAPTURE_OPTIONS "istio-iptables/capture-options": Annotation, Syntax::SetByInjection,
        "", "Capture options for the CNI plugin, with `pilot.cni.enabled` and `pilot.cni.captureAnnotation`; docs/cni.md";
    ORIGINAL_POD_RESOURCES "istio-iptables/original-pod-level-resources": Annotation, Syntax::SetByInjection,
        "", "Pod-level resources before `istio-iptables/raise-pod-level-resources` raised them";
    UNINJECT "istio-iptables/uninject": Annotation, Syntax::SetByInjection,
        "", "What `uninject` could not know: the user's own default container, labels and annotations that an injection writes itself, names of ports, quantities as written, positions of containers that an injection moves, and what other values or templates than the built-in ones wrote; with `sidecarInjectorWebhook.uninjectAnnotation`";
    OVERRIDES "proxy.istio.io/overrides": Annotation, Syntax::SetByInjection,
        "", "The user's versions of containers that are also in the templates";
    DEFAULT_CONTAINER "kubectl.kubernetes.io/default-container": Annotation, Syntax::SetByInjection,
        "", "First container of the app, unless it is set";
    DEFAULT_LOGS_CONTAINER "kubectl.kubernetes.io/default-logs-container": Annotation, Syntax::SetByInjection,
        "", "First container of the app, unless it is set";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique() {
        for (at, row) in TABLE.iter().enumerate() {
            assert!(!TABLE[..at].iter().any(|other| other.key == row.key), "{}", row.key);
        }
    }

    /// `istio-iptables explain` names the annotation of an option.
    #[test]
    fn options_of_the_init_binary_name_the_same_annotations() {
        for row in TABLE {
            let Syntax::Capture(option) = row.syntax else { continue };
            let older = row.key == keys::KUBEVIRT_INTERFACES;
            let expected = if older { keys::REROUTE_VIRTUAL_INTERFACES } else { row.key };
            assert_eq!(option.spec().annotation, Some(expected));
        }
        for option in Key::ALL {
            let Some(annotation) = option.spec().annotation else { continue };
            let syntax = row(annotation).map(|row| row.syntax);
            let is_mode = annotation == keys::INTERCEPTION_MODE && *option == Key::InboundInterceptionMode;
            assert!(is_mode || syntax == Some(Syntax::Capture(*option)), "{annotation}");
        }
    }
}
