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
const STR: Kind = Kind::Str;
const DURATION: Kind = Kind::Duration;
const INT: Kind = Kind::Int32;
const UINT: Kind = Kind::Uint32;

/// A message in another one, nil where it is absent.
macro_rules! ptr {
    ($name:ident) => {
        Kind::Ptr(&Kind::Struct(&$name))
    };
}

mod proxy;
mod traffic;

use traffic::{CERTIFICATE, HTTP_RETRY, LOCALITY_LB, TRAFFIC_POLICY, ZONE_AWARE_LB};

pub(crate) use proxy::{PROXY_CONFIG, PROXY_CONFIG_RESOURCE};

enums! {
    INGRESS_MODE "v1alpha1.MeshConfig_IngressControllerMode" ["UNSPECIFIED" 0, "OFF" 1, "DEFAULT" 2, "STRICT" 3];
    LOG_ENCODING "v1alpha1.MeshConfig_AccessLogEncoding" ["TEXT" 0, "JSON" 1];
    INBOUND_MODE "v1alpha1.MeshConfig_InboundTrafficPolicy_Mode" ["PASSTHROUGH" 0, "LOCALHOST" 1];
    OUTBOUND_MODE "v1alpha1.MeshConfig_OutboundTrafficPolicy_Mode" ["REGISTRY_ONLY" 0, "ALLOW_ANY" 1, "ALLOW_ANY_DYNAMIC_DNS" 3];
    H2_UPGRADE_POLICY "v1alpha1.MeshConfig_H2UpgradePolicy" ["DO_NOT_UPGRADE" 0, "UPGRADE" 1];
}

messages! {
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
        "RootNamespace" "rootNamespace" Kind::Str; "LocalityLbSetting" "localityLbSetting" ptr!(LOCALITY_LB);
        "DnsRefreshRate" "dnsRefreshRate" Kind::Duration;
        "H2UpgradePolicy" "h2UpgradePolicy" Kind::Enum(&H2_UPGRADE_POLICY);
        "InboundClusterStatName" "inboundClusterStatName" Kind::Str;
        "OutboundClusterStatName" "outboundClusterStatName" Kind::Str;
        "EnablePrometheusMerge" "enablePrometheusMerge" BOOL_VALUE;
        "VerifyCertificateAtClient" "verifyCertificateAtClient" BOOL_VALUE;
        "ExtensionProviders" "extensionProviders" OBJECTS; "DefaultProviders" "defaultProviders" Kind::Ptr(&OBJECT);
        "DiscoverySelectors" "discoverySelectors" OBJECTS; "PathNormalization" "pathNormalization" Kind::Ptr(&OBJECT);
        "DefaultHttpRetryPolicy" "defaultHttpRetryPolicy" ptr!(HTTP_RETRY);
        "DefaultInboundHttpRetryPolicy" "defaultInboundHttpRetryPolicy" ptr!(HTTP_RETRY);
        "MeshMTLS" "meshMTLS" Kind::Ptr(&OBJECT); "TlsDefaults" "tlsDefaults" Kind::Ptr(&OBJECT);
        "ProtocolDetectionTimeout" "protocolDetectionTimeout" Kind::Duration;
        "ServiceSettings" "serviceSettings" OBJECTS; "ServiceScopeConfigs" "serviceScopeConfigs" OBJECTS;
        "HboneIdleTimeout" "hboneIdleTimeout" DURATION; "Certificates" "certificates" Kind::List(&Kind::Struct(&CERTIFICATE));
        "ZoneAwareLbSetting" "zoneAwareLbSetting" ptr!(ZONE_AWARE_LB); "Ca" "ca" Kind::Ptr(&OBJECT);
        "DefaultTrafficPolicy" "defaultTrafficPolicy" ptr!(TRAFFIC_POLICY);
        "ServiceEntryVisibility" "serviceEntryVisibility" Kind::Ptr(&OBJECT);
    }
    OUTBOUND_POLICY "v1alpha1.MeshConfig_OutboundTrafficPolicy" {
        "Mode" "mode" Kind::Enum(&OUTBOUND_MODE);
    }
    INBOUND_POLICY "v1alpha1.MeshConfig_InboundTrafficPolicy" {
        "Mode" "mode" Kind::Enum(&INBOUND_MODE);
    }
}
