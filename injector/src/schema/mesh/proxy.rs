//! Istio's proxy config: all of `mesh.istio.io/v1alpha1` `ProxyConfig`, deprecated fields included.

use gotemplate::{EnumType, Field, Kind, Schema};

use super::{BOOL_VALUE, DURATION, INT, INT_VALUE, STR, STRING_MAP, STRINGS, UINT};

const BOOL: Kind = Kind::Bool;
const LONG_VALUE: Kind = Kind::Named("wrapperspb.Int64Value", &Kind::Str);

enums! {
    TRACING_SERVICE_NAME "v1alpha1.ProxyConfig_TracingServiceName" [
        "APP_LABEL_AND_NAMESPACE" 0, "CANONICAL_NAME_ONLY" 1, "CANONICAL_NAME_AND_NAMESPACE" 2
    ];
    AUTHENTICATION_POLICY "v1alpha1.AuthenticationPolicy" ["NONE" 0, "MUTUAL_TLS" 1, "INHERIT" 1000];
    INTERCEPTION_MODE "v1alpha1.ProxyConfig_InboundInterceptionMode" ["REDIRECT" 0, "TPROXY" 1, "NONE" 2];
    TRACE_CONTEXT "v1alpha1.Tracing_OpenCensusAgent_TraceContext" [
        "UNSPECIFIED" 0, "W3C_TRACE_CONTEXT" 1, "GRPC_BIN" 2, "CLOUD_TRACE_CONTEXT" 3, "B3" 4
    ];
    TLS_MODE "v1alpha3.ClientTLSSettings_TLSmode" ["DISABLE" 0, "SIMPLE" 1, "MUTUAL" 2, "ISTIO_MUTUAL" 3];
    FORWARD_CLIENT_CERT_DETAILS "v1alpha1.ForwardClientCertDetails" [
        "UNDEFINED" 0, "SANITIZE" 1, "FORWARD_ONLY" 2, "APPEND_FORWARD" 3, "SANITIZE_SET" 4, "ALWAYS_FORWARD_ONLY" 5
    ];
    METADATA_EXCHANGE_MODE "v1alpha1.ProxyConfig_ProxyHeaders_MetadataExchangeMode" ["UNDEFINED" 0, "IN_MESH" 1];
    PROFILE "v1alpha1.ProxyConfig_ConnectionSettings_Profile" ["SIDECAR" 0, "EDGE" 1];
    HEADERS_WITH_UNDERSCORES_ACTION "v1alpha1.ProxyConfig_ConnectionSettings_HeadersWithUnderscoresAction" [
        "HEADERS_WITH_UNDERSCORES_UNSPECIFIED" 0, "HEADERS_WITH_UNDERSCORES_ALLOW" 1,
        "HEADERS_WITH_UNDERSCORES_REJECT_REQUEST" 2, "HEADERS_WITH_UNDERSCORES_DROP_HEADER" 3
    ];
    PATH_WITH_ESCAPED_SLASHES_ACTION "v1alpha1.ProxyConfig_ConnectionSettings_PathWithEscapedSlashesAction" [
        "PATH_WITH_ESCAPED_SLASHES_UNSPECIFIED" 0, "KEEP_UNCHANGED" 1, "REJECT_REQUEST" 2, "UNESCAPE_AND_REDIRECT" 3,
        "UNESCAPE_AND_FORWARD" 4
    ];
}

messages! {
    PROXY_CONFIG "meshconfig.ProxyConfig" {
        "ConfigPath" "configPath" STR; "BinaryPath" "binaryPath" STR; "ServiceCluster" "serviceCluster" STR;
        "TracingServiceName" "tracingServiceName" Kind::Wrapper(&Kind::Enum(&TRACING_SERVICE_NAME));
        "DrainDuration" "drainDuration" DURATION; "DiscoveryAddress" "discoveryAddress" STR;
        "DiscoveryRefreshDelay" "discoveryRefreshDelay" DURATION; "ZipkinAddress" "zipkinAddress" STR;
        "StatsdUdpAddress" "statsdUdpAddress" STR; "EnvoyMetricsServiceAddress" "envoyMetricsServiceAddress" STR;
        "ProxyAdminPort" "proxyAdminPort" INT; "AvailabilityZone" "availabilityZone" STR;
        "ControlPlaneAuthPolicy" "controlPlaneAuthPolicy" Kind::Enum(&AUTHENTICATION_POLICY);
        "CustomConfigFile" "customConfigFile" STR; "StatNameLength" "statNameLength" INT;
        "Concurrency" "concurrency" INT_VALUE; "ProxyBootstrapTemplatePath" "proxyBootstrapTemplatePath" STR;
        "InterceptionMode" "interceptionMode" Kind::Enum(&INTERCEPTION_MODE);
        "Tracing" "tracing" ptr!(TRACING); "Sds" "sds" ptr!(SDS);
        "EnvoyAccessLogService" "envoyAccessLogService" ptr!(REMOTE_SERVICE);
        "EnvoyMetricsService" "envoyMetricsService" ptr!(REMOTE_SERVICE); "ProxyMetadata" "proxyMetadata" STRING_MAP;
        "RuntimeValues" "runtimeValues" STRING_MAP; "StatusPort" "statusPort" INT;
        "ExtraStatTags" "extraStatTags" STRINGS; "GatewayTopology" "gatewayTopology" ptr!(TOPOLOGY);
        "TerminationDrainDuration" "terminationDrainDuration" DURATION; "MeshId" "meshId" STR;
        "ReadinessProbe" "readinessProbe" ptr!(READINESS_PROBE);
        "ProxyStatsMatcher" "proxyStatsMatcher" ptr!(PROXY_STATS_MATCHER);
        "HoldApplicationUntilProxyStarts" "holdApplicationUntilProxyStarts" BOOL_VALUE;
        "CaCertificatesPem" "caCertificatesPem" STRINGS; "Image" "image" ptr!(PROXY_IMAGE);
        "PrivateKeyProvider" "privateKeyProvider" ptr!(PRIVATE_KEY_PROVIDER);
        "ProxyHeaders" "proxyHeaders" ptr!(PROXY_HEADERS); "FileFlushInterval" "fileFlushInterval" DURATION;
        "FileFlushMinSizeKb" "fileFlushMinSizeKb" UINT; "StatsCompression" "statsCompression" BOOL_VALUE;
        "ConnectionSettings" "connectionSettings" ptr!(CONNECTION_SETTINGS);
    }
    PROXY_CONFIG_RESOURCE "v1beta1.ProxyConfig" {
        "Selector" "selector" ptr!(WORKLOAD_SELECTOR); "Concurrency" "concurrency" INT_VALUE;
        "EnvironmentVariables" "environmentVariables" STRING_MAP; "Image" "image" ptr!(PROXY_IMAGE);
    }
    WORKLOAD_SELECTOR "v1beta1.WorkloadSelector" { "MatchLabels" "matchLabels" STRING_MAP; }
    TRACING "v1alpha1.Tracing" {
        "Zipkin" "zipkin" ptr!(ZIPKIN); "Lightstep" "lightstep" ptr!(LIGHTSTEP); "Datadog" "datadog" ptr!(DATADOG);
        "Stackdriver" "stackdriver" ptr!(STACKDRIVER); "OpenCensusAgent" "openCensusAgent" ptr!(OPEN_CENSUS_AGENT);
        "CustomTags" "customTags" Kind::Map(&Kind::Struct(&CUSTOM_TAG)); "MaxPathTagLength" "maxPathTagLength" UINT;
        "Sampling" "sampling" Kind::Float; "TlsSettings" "tlsSettings" ptr!(CLIENT_TLS_SETTINGS);
        "EnableIstioTags" "enableIstioTags" BOOL_VALUE;
    }
    ZIPKIN "v1alpha1.Tracing_Zipkin" { "Address" "address" STR; }
    LIGHTSTEP "v1alpha1.Tracing_Lightstep" { "Address" "address" STR; "AccessToken" "accessToken" STR; }
    DATADOG "v1alpha1.Tracing_Datadog" { "Address" "address" STR; }
    STACKDRIVER "v1alpha1.Tracing_Stackdriver" {
        "Debug" "debug" BOOL; "MaxNumberOfAttributes" "maxNumberOfAttributes" LONG_VALUE;
        "MaxNumberOfAnnotations" "maxNumberOfAnnotations" LONG_VALUE;
        "MaxNumberOfMessageEvents" "maxNumberOfMessageEvents" LONG_VALUE;
    }
    OPEN_CENSUS_AGENT "v1alpha1.Tracing_OpenCensusAgent" {
        "Address" "address" STR; "Context" "context" Kind::List(&Kind::Enum(&TRACE_CONTEXT));
    }
    CUSTOM_TAG "v1alpha1.Tracing_CustomTag" {
        "Literal" "literal" ptr!(LITERAL); "Environment" "environment" ptr!(ENVIRONMENT);
        "Header" "header" ptr!(REQUEST_HEADER);
    }
    LITERAL "v1alpha1.Tracing_Literal" { "Value" "value" STR; }
    ENVIRONMENT "v1alpha1.Tracing_Environment" { "Name" "name" STR; "DefaultValue" "defaultValue" STR; }
    REQUEST_HEADER "v1alpha1.Tracing_RequestHeader" { "Name" "name" STR; "DefaultValue" "defaultValue" STR; }
    CLIENT_TLS_SETTINGS "v1alpha3.ClientTLSSettings" {
        "Mode" "mode" Kind::Enum(&TLS_MODE); "ClientCertificate" "clientCertificate" STR;
        "PrivateKey" "privateKey" STR; "CaCertificates" "caCertificates" STR; "CredentialName" "credentialName" STR;
        "SubjectAltNames" "subjectAltNames" STRINGS; "Sni" "sni" STR;
        "InsecureSkipVerify" "insecureSkipVerify" BOOL_VALUE; "CaCrl" "caCrl" STR;
    }
    SDS "v1alpha1.SDS" { "Enabled" "enabled" BOOL; "K8SSaJwtPath" "k8sSaJwtPath" STR; }
    REMOTE_SERVICE "v1alpha1.RemoteService" {
        "Address" "address" STR; "TlsSettings" "tlsSettings" ptr!(CLIENT_TLS_SETTINGS);
        "TcpKeepalive" "tcpKeepalive" ptr!(TCP_KEEPALIVE);
    }
    TCP_KEEPALIVE "v1alpha3.ConnectionPoolSettings_TCPSettings_TcpKeepalive" {
        "Probes" "probes" UINT; "Time" "time" DURATION; "Interval" "interval" DURATION;
    }
    TOPOLOGY "v1alpha1.Topology" {
        "NumTrustedProxies" "numTrustedProxies" UINT;
        "ForwardClientCertDetails" "forwardClientCertDetails" Kind::Enum(&FORWARD_CLIENT_CERT_DETAILS);
        "ProxyProtocol" "proxyProtocol" ptr!(PROXY_PROTOCOL_CONFIGURATION);
    }
    PROXY_PROTOCOL_CONFIGURATION "v1alpha1.Topology_ProxyProtocolConfiguration" {}
    READINESS_PROBE "v1alpha3.ReadinessProbe" {
        "InitialDelaySeconds" "initialDelaySeconds" INT; "TimeoutSeconds" "timeoutSeconds" INT;
        "PeriodSeconds" "periodSeconds" INT; "SuccessThreshold" "successThreshold" INT;
        "FailureThreshold" "failureThreshold" INT; "HttpGet" "httpGet" ptr!(HTTP_HEALTH_CHECK_CONFIG);
        "TcpSocket" "tcpSocket" ptr!(TCP_HEALTH_CHECK_CONFIG); "Exec" "exec" ptr!(EXEC_HEALTH_CHECK_CONFIG);
        "Grpc" "grpc" ptr!(GRPC_HEALTH_CHECK_CONFIG);
    }
    HTTP_HEALTH_CHECK_CONFIG "v1alpha3.HTTPHealthCheckConfig" {
        "Path" "path" STR; "Port" "port" UINT; "Host" "host" STR; "Scheme" "scheme" STR;
        "HttpHeaders" "httpHeaders" Kind::List(&Kind::Struct(&HTTP_HEADER));
    }
    HTTP_HEADER "v1alpha3.HTTPHeader" { "Name" "name" STR; "Value" "value" STR; }
    TCP_HEALTH_CHECK_CONFIG "v1alpha3.TCPHealthCheckConfig" { "Host" "host" STR; "Port" "port" UINT; }
    EXEC_HEALTH_CHECK_CONFIG "v1alpha3.ExecHealthCheckConfig" { "Command" "command" STRINGS; }
    GRPC_HEALTH_CHECK_CONFIG "v1alpha3.GrpcHealthCheckConfig" { "Port" "port" UINT; "Service" "service" STR; }
    PROXY_STATS_MATCHER "v1alpha1.ProxyConfig_ProxyStatsMatcher" {
        "InclusionPrefixes" "inclusionPrefixes" STRINGS; "InclusionSuffixes" "inclusionSuffixes" STRINGS;
        "InclusionRegexps" "inclusionRegexps" STRINGS;
    }
    PROXY_IMAGE "v1beta1.ProxyImage" { "ImageType" "imageType" STR; }
    PRIVATE_KEY_PROVIDER "v1alpha1.PrivateKeyProvider" {
        "Cryptomb" "cryptomb" ptr!(CRYPTO_MB); "Qat" "qat" ptr!(QAT);
    }
    CRYPTO_MB "v1alpha1.PrivateKeyProvider_CryptoMb" {
        "PollDelay" "pollDelay" DURATION; "Fallback" "fallback" BOOL_VALUE;
    }
    QAT "v1alpha1.PrivateKeyProvider_QAT" { "PollDelay" "pollDelay" DURATION; "Fallback" "fallback" BOOL_VALUE; }
    PROXY_HEADERS "v1alpha1.ProxyConfig_ProxyHeaders" {
        "ForwardedClientCert" "forwardedClientCert" Kind::Enum(&FORWARD_CLIENT_CERT_DETAILS);
        "SetCurrentClientCertDetails" "setCurrentClientCertDetails" ptr!(SET_CURRENT_CLIENT_CERT_DETAILS);
        "RequestId" "requestId" ptr!(REQUEST_ID); "Server" "server" ptr!(SERVER);
        "AttemptCount" "attemptCount" ptr!(ATTEMPT_COUNT);
        "EnvoyDebugHeaders" "envoyDebugHeaders" ptr!(ENVOY_DEBUG_HEADERS);
        "MetadataExchangeHeaders" "metadataExchangeHeaders" ptr!(METADATA_EXCHANGE_HEADERS);
        "PreserveHttp1HeaderCase" "preserveHttp1HeaderCase" BOOL_VALUE;
        "XForwardedHost" "xForwardedHost" ptr!(X_FORWARDED_HOST);
        "XForwardedPort" "xForwardedPort" ptr!(X_FORWARDED_PORT);
    }
    SET_CURRENT_CLIENT_CERT_DETAILS "v1alpha1.ProxyConfig_ProxyHeaders_SetCurrentClientCertDetails" {
        "Subject" "subject" BOOL_VALUE; "Cert" "cert" BOOL_VALUE; "Chain" "chain" BOOL_VALUE; "Dns" "dns" BOOL_VALUE;
        "Uri" "uri" BOOL_VALUE;
    }
    REQUEST_ID "v1alpha1.ProxyConfig_ProxyHeaders_RequestId" { "Disabled" "disabled" BOOL_VALUE; }
    SERVER "v1alpha1.ProxyConfig_ProxyHeaders_Server" { "Disabled" "disabled" BOOL_VALUE; "Value" "value" STR; }
    ATTEMPT_COUNT "v1alpha1.ProxyConfig_ProxyHeaders_AttemptCount" { "Disabled" "disabled" BOOL_VALUE; }
    ENVOY_DEBUG_HEADERS "v1alpha1.ProxyConfig_ProxyHeaders_EnvoyDebugHeaders" { "Disabled" "disabled" BOOL_VALUE; }
    METADATA_EXCHANGE_HEADERS "v1alpha1.ProxyConfig_ProxyHeaders_MetadataExchangeHeaders" {
        "Mode" "mode" Kind::Enum(&METADATA_EXCHANGE_MODE);
    }
    X_FORWARDED_HOST "v1alpha1.ProxyConfig_ProxyHeaders_XForwardedHost" { "Enabled" "enabled" BOOL_VALUE; }
    X_FORWARDED_PORT "v1alpha1.ProxyConfig_ProxyHeaders_XForwardedPort" { "Enabled" "enabled" BOOL_VALUE; }
    CONNECTION_SETTINGS "v1alpha1.ProxyConfig_ConnectionSettings" {
        "Profile" "profile" Kind::Enum(&PROFILE);
        "ListenerPerConnectionBufferLimitBytes" "listenerPerConnectionBufferLimitBytes" INT_VALUE;
        "ClusterPerConnectionBufferLimitBytes" "clusterPerConnectionBufferLimitBytes" INT_VALUE;
        "HttpIdleTimeout" "httpIdleTimeout" DURATION;
        "HttpMaxConnectionDuration" "httpMaxConnectionDuration" DURATION;
        "HttpDrainTimeout" "httpDrainTimeout" DURATION; "HttpRequestTimeout" "httpRequestTimeout" DURATION;
        "HttpRequestHeadersTimeout" "httpRequestHeadersTimeout" DURATION;
        "HttpStreamIdleTimeout" "httpStreamIdleTimeout" DURATION;
        "HttpMaxStreamDuration" "httpMaxStreamDuration" DURATION;
        "HttpMaxConcurrentStreams" "httpMaxConcurrentStreams" INT_VALUE;
        "Http2InitialStreamWindowSize" "http2InitialStreamWindowSize" INT_VALUE;
        "Http2InitialConnectionWindowSize" "http2InitialConnectionWindowSize" INT_VALUE;
        "HttpHeadersWithUnderscoresAction" "httpHeadersWithUnderscoresAction" Kind::Enum(&HEADERS_WITH_UNDERSCORES_ACTION);
        "HttpMergeSlashes" "httpMergeSlashes" BOOL_VALUE;
        "HttpPathWithEscapedSlashesAction" "httpPathWithEscapedSlashesAction" Kind::Enum(&PATH_WITH_ESCAPED_SLASHES_ACTION);
        "ListenerConnectionLimit" "listenerConnectionLimit" INT_VALUE;
        "GlobalDownstreamConnectionLimit" "globalDownstreamConnectionLimit" INT_VALUE;
    }
}
