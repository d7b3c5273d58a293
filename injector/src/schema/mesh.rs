//! Istio's mesh and proxy config as templates see them, and as files are read into them.

use gotemplate::{EnumType, Field, Kind, Schema};

macro_rules! messages {
    ($($name:ident $go:literal { $($field:literal $key:literal $kind:expr;)* })*) => {
        $(
            #[doc = concat!("`", $go, "`")]
            pub(crate) static $name: Schema = Schema {
                name: $go,
                proto: true,
                fields: &[$(Field::new($field, $key, $kind)),*],
            };
        )*
    };
}

macro_rules! enums {
    ($($name:ident $go:literal [$($value:literal $number:literal),*];)*) => {
        $(
            #[doc = concat!("`", $go, "`")]
            pub(crate) static $name: EnumType = EnumType { name: $go, values: &[$(($value, $number)),*] };
        )*
    };
}

const STRINGS: Kind = Kind::List(&Kind::Str);
const STRING_MAP: Kind = Kind::Map(&Kind::Str);
const OBJECT: Kind = Kind::Map(&Kind::Any);
const OBJECTS: Kind = Kind::List(&Kind::Map(&Kind::Any));
const BOOL_VALUE: Kind = Kind::Wrapper(&Kind::Bool);
const INT_VALUE: Kind = Kind::Wrapper(&Kind::Int32);

enums! {
    INTERCEPTION_MODE "v1alpha1.ProxyConfig_InboundInterceptionMode" ["REDIRECT" 0, "TPROXY" 1, "NONE" 2];
    AUTHENTICATION_POLICY "v1alpha1.AuthenticationPolicy" ["NONE" 0, "MUTUAL_TLS" 1, "INHERIT" 1000];
    INGRESS_MODE "v1alpha1.MeshConfig_IngressControllerMode" ["UNSPECIFIED" 0, "OFF" 1, "DEFAULT" 2, "STRICT" 3];
    LOG_ENCODING "v1alpha1.MeshConfig_AccessLogEncoding" ["TEXT" 0, "JSON" 1];
    INBOUND_MODE "v1alpha1.MeshConfig_InboundTrafficPolicy_Mode" ["PASSTHROUGH" 0, "LOCALHOST" 1];
    OUTBOUND_MODE "v1alpha1.MeshConfig_OutboundTrafficPolicy_Mode" ["REGISTRY_ONLY" 0, "ALLOW_ANY" 1];
}

messages! {
    PROXY_CONFIG "meshconfig.ProxyConfig" {
        "ConfigPath" "configPath" Kind::Str; "BinaryPath" "binaryPath" Kind::Str;
        "ServiceCluster" "serviceCluster" Kind::Str; "TracingServiceName" "tracingServiceName" Kind::Str;
        "DrainDuration" "drainDuration" Kind::Duration; "DiscoveryAddress" "discoveryAddress" Kind::Str;
        "ZipkinAddress" "zipkinAddress" Kind::Str; "StatsdUdpAddress" "statsdUdpAddress" Kind::Str;
        "ProxyAdminPort" "proxyAdminPort" Kind::Int32;
        "ControlPlaneAuthPolicy" "controlPlaneAuthPolicy" Kind::Enum(&AUTHENTICATION_POLICY);
        "CustomConfigFile" "customConfigFile" Kind::Str; "StatNameLength" "statNameLength" Kind::Int32;
        "Concurrency" "concurrency" INT_VALUE; "ProxyBootstrapTemplatePath" "proxyBootstrapTemplatePath" Kind::Str;
        "InterceptionMode" "interceptionMode" Kind::Enum(&INTERCEPTION_MODE);
        "Tracing" "tracing" Kind::Ptr(&Kind::Struct(&TRACING));
        "EnvoyAccessLogService" "envoyAccessLogService" Kind::Ptr(&Kind::Struct(&REMOTE_SERVICE));
        "EnvoyMetricsService" "envoyMetricsService" Kind::Ptr(&Kind::Struct(&REMOTE_SERVICE));
        "ProxyMetadata" "proxyMetadata" STRING_MAP; "RuntimeValues" "runtimeValues" STRING_MAP;
        "StatusPort" "statusPort" Kind::Int32; "ExtraStatTags" "extraStatTags" STRINGS;
        "GatewayTopology" "gatewayTopology" Kind::Ptr(&OBJECT);
        "TerminationDrainDuration" "terminationDrainDuration" Kind::Duration; "MeshId" "meshId" Kind::Str;
        "ReadinessProbe" "readinessProbe" Kind::Ptr(&OBJECT);
        "ProxyStatsMatcher" "proxyStatsMatcher" Kind::Ptr(&Kind::Struct(&STATS_MATCHER));
        "HoldApplicationUntilProxyStarts" "holdApplicationUntilProxyStarts" BOOL_VALUE;
        "CaCertificatesPem" "caCertificatesPem" STRINGS; "Image" "image" Kind::Ptr(&Kind::Struct(&PROXY_IMAGE));
        "PrivateKeyProvider" "privateKeyProvider" Kind::Ptr(&OBJECT);
        "ProxyHeaders" "proxyHeaders" Kind::Ptr(&OBJECT); "FileFlushInterval" "fileFlushInterval" Kind::Duration;
        "FileFlushMinSizeKb" "fileFlushMinSizeKb" Kind::Wrapper(&Kind::Uint32);
        "StatsFlushInterval" "statsFlushInterval" Kind::Duration;
        "StatsEvictionInterval" "statsEvictionInterval" Kind::Duration;
        "StatsCompression" "statsCompression" BOOL_VALUE;
    }
    TRACING "v1alpha1.Tracing" {
        "Zipkin" "zipkin" Kind::Ptr(&Kind::Struct(&TRACER_ADDRESS));
        "Lightstep" "lightstep" Kind::Ptr(&Kind::Struct(&LIGHTSTEP));
        "Datadog" "datadog" Kind::Ptr(&Kind::Struct(&TRACER_ADDRESS)); "Stackdriver" "stackdriver" Kind::Ptr(&OBJECT);
        "OpenCensusAgent" "openCensusAgent" Kind::Ptr(&OBJECT); "CustomTags" "customTags" OBJECT;
        "MaxPathTagLength" "maxPathTagLength" Kind::Uint32; "Sampling" "sampling" Kind::Float;
        "TlsSettings" "tlsSettings" Kind::Ptr(&Kind::Struct(&TLS_SETTINGS));
        "EnableIstioTags" "enableIstioTags" BOOL_VALUE;
    }
    TRACER_ADDRESS "v1alpha1.Tracing_Zipkin" {
        "Address" "address" Kind::Str;
    }
    LIGHTSTEP "v1alpha1.Tracing_Lightstep" {
        "Address" "address" Kind::Str; "AccessToken" "accessToken" Kind::Str;
    }
    TLS_SETTINGS "v1alpha3.ClientTLSSettings" {
        "Mode" "mode" Kind::Str; "ClientCertificate" "clientCertificate" Kind::Str;
        "PrivateKey" "privateKey" Kind::Str; "CaCertificates" "caCertificates" Kind::Str;
        "CredentialName" "credentialName" Kind::Str; "SubjectAltNames" "subjectAltNames" STRINGS;
        "Sni" "sni" Kind::Str; "InsecureSkipVerify" "insecureSkipVerify" BOOL_VALUE; "CaCrl" "caCrl" Kind::Str;
    }
    REMOTE_SERVICE "v1alpha1.RemoteService" {
        "Address" "address" Kind::Str; "TlsSettings" "tlsSettings" Kind::Ptr(&Kind::Struct(&TLS_SETTINGS));
        "TcpKeepalive" "tcpKeepalive" Kind::Ptr(&OBJECT);
    }
    STATS_MATCHER "v1alpha1.ProxyConfig_ProxyStatsMatcher" {
        "InclusionPrefixes" "inclusionPrefixes" STRINGS; "InclusionSuffixes" "inclusionSuffixes" STRINGS;
        "InclusionRegexps" "inclusionRegexps" STRINGS;
    }
    PROXY_IMAGE "v1beta1.ProxyImage" {
        "ImageType" "imageType" Kind::Str;
    }
    MESH_CONFIG "meshconfig.MeshConfig" {
        "ProxyListenPort" "proxyListenPort" Kind::Int32;
        "ProxyInboundListenPort" "proxyInboundListenPort" Kind::Int32; "ProxyHttpPort" "proxyHttpPort" Kind::Int32;
        "ConnectTimeout" "connectTimeout" Kind::Duration; "TcpKeepalive" "tcpKeepalive" Kind::Ptr(&OBJECT);
        "IngressClass" "ingressClass" Kind::Str; "IngressService" "ingressService" Kind::Str;
        "IngressControllerMode" "ingressControllerMode" Kind::Enum(&INGRESS_MODE);
        "IngressSelector" "ingressSelector" Kind::Str; "EnableTracing" "enableTracing" Kind::Bool;
        "AccessLogFile" "accessLogFile" Kind::Str; "AccessLogFormat" "accessLogFormat" Kind::Str;
        "AccessLogEncoding" "accessLogEncoding" Kind::Enum(&LOG_ENCODING);
        "EnableEnvoyAccessLogService" "enableEnvoyAccessLogService" Kind::Bool;
        "DisableEnvoyListenerLog" "disableEnvoyListenerLog" Kind::Bool;
        "DefaultConfig" "defaultConfig" Kind::Ptr(&Kind::Struct(&PROXY_CONFIG));
        "OutboundTrafficPolicy" "outboundTrafficPolicy" Kind::Ptr(&Kind::Struct(&OUTBOUND_POLICY));
        "InboundTrafficPolicy" "inboundTrafficPolicy" Kind::Ptr(&Kind::Struct(&INBOUND_POLICY));
        "ConfigSources" "configSources" OBJECTS; "EnableAutoMtls" "enableAutoMtls" BOOL_VALUE;
        "TrustDomain" "trustDomain" Kind::Str; "TrustDomainAliases" "trustDomainAliases" STRINGS;
        "CaCertificates" "caCertificates" OBJECTS; "DefaultServiceExportTo" "defaultServiceExportTo" STRINGS;
        "DefaultVirtualServiceExportTo" "defaultVirtualServiceExportTo" STRINGS;
        "DefaultDestinationRuleExportTo" "defaultDestinationRuleExportTo" STRINGS;
        "RootNamespace" "rootNamespace" Kind::Str; "LocalityLbSetting" "localityLbSetting" Kind::Ptr(&OBJECT);
        "DnsRefreshRate" "dnsRefreshRate" Kind::Duration; "H2UpgradePolicy" "h2UpgradePolicy" Kind::Str;
        "InboundClusterStatName" "inboundClusterStatName" Kind::Str;
        "OutboundClusterStatName" "outboundClusterStatName" Kind::Str;
        "EnablePrometheusMerge" "enablePrometheusMerge" BOOL_VALUE;
        "VerifyCertificateAtClient" "verifyCertificateAtClient" BOOL_VALUE;
        "ExtensionProviders" "extensionProviders" OBJECTS; "DefaultProviders" "defaultProviders" Kind::Ptr(&OBJECT);
        "DiscoverySelectors" "discoverySelectors" OBJECTS; "PathNormalization" "pathNormalization" Kind::Ptr(&OBJECT);
        "DefaultHttpRetryPolicy" "defaultHttpRetryPolicy" Kind::Ptr(&OBJECT);
        "MeshMTLS" "meshMTLS" Kind::Ptr(&OBJECT); "TlsDefaults" "tlsDefaults" Kind::Ptr(&OBJECT);
        "ProtocolDetectionTimeout" "protocolDetectionTimeout" Kind::Duration;
        "ServiceSettings" "serviceSettings" OBJECTS; "ServiceScopeConfigs" "serviceScopeConfigs" OBJECTS;
    }
    OUTBOUND_POLICY "v1alpha1.MeshConfig_OutboundTrafficPolicy" {
        "Mode" "mode" Kind::Enum(&OUTBOUND_MODE);
    }
    INBOUND_POLICY "v1alpha1.MeshConfig_InboundTrafficPolicy" {
        "Mode" "mode" Kind::Enum(&INBOUND_MODE);
    }
}
