//! Traffic settings of a mesh config: locality, connection pools, outlier detection, retries.

use gotemplate::{EnumType, Field, Kind, Schema};

use super::{BOOL_VALUE, DURATION, INT, STR, STRINGS, UINT};

const UINT_VALUE: Kind = Kind::Wrapper(&UINT);

enums! {
    HTTP_UPGRADE "v1alpha3.ConnectionPoolSettings_HTTPSettings_H2UpgradePolicy" ["DEFAULT" 0, "DO_NOT_UPGRADE" 1, "UPGRADE" 2];
}

messages! {
    LOCALITY_LB "v1alpha3.LocalityLoadBalancerSetting" {
        "Distribute" "distribute" Kind::List(&Kind::Struct(&DISTRIBUTE));
        "Failover" "failover" Kind::List(&Kind::Struct(&FAILOVER));
        "FailoverPriority" "failoverPriority" STRINGS; "Enabled" "enabled" BOOL_VALUE;
    }
    DISTRIBUTE "v1alpha3.LocalityLoadBalancerSetting_Distribute" {
        "From" "from" STR; "To" "to" Kind::Map(&UINT);
    }
    FAILOVER "v1alpha3.LocalityLoadBalancerSetting_Failover" { "From" "from" STR; "To" "to" STR; }
    ZONE_AWARE_LB "v1alpha3.ZoneAwareLoadBalancerSetting" {
        "Failover" "failover" Kind::List(&Kind::Struct(&FAILOVER));
        "FailoverPriority" "failoverPriority" STRINGS; "Enabled" "enabled" BOOL_VALUE;
    }
    TRAFFIC_POLICY "meshconfig.MeshConfig_DefaultTrafficPolicy" {
        "ConnectionPool" "connectionPool" ptr!(CONNECTION_POOL);
        "OutlierDetection" "outlierDetection" ptr!(OUTLIER_DETECTION);
    }
    CONNECTION_POOL "v1alpha3.ConnectionPoolSettings" { "Tcp" "tcp" ptr!(POOL_TCP); "Http" "http" ptr!(POOL_HTTP); }
    POOL_TCP "v1alpha3.ConnectionPoolSettings_TCPSettings" {
        "MaxConnections" "maxConnections" INT; "ConnectTimeout" "connectTimeout" DURATION;
        "TcpKeepalive" "tcpKeepalive" ptr!(TCP_KEEPALIVE); "MaxConnectionDuration" "maxConnectionDuration" DURATION;
        "IdleTimeout" "idleTimeout" DURATION;
    }
    TCP_KEEPALIVE "v1alpha3.ConnectionPoolSettings_TCPSettings_TcpKeepalive" {
        "Probes" "probes" UINT; "Time" "time" DURATION; "Interval" "interval" DURATION;
    }
    POOL_HTTP "v1alpha3.ConnectionPoolSettings_HTTPSettings" {
        "Http1MaxPendingRequests" "http1MaxPendingRequests" INT; "Http2MaxRequests" "http2MaxRequests" INT;
        "MaxRequestsPerConnection" "maxRequestsPerConnection" INT; "MaxRetries" "maxRetries" INT;
        "IdleTimeout" "idleTimeout" DURATION; "H2UpgradePolicy" "h2UpgradePolicy" Kind::Enum(&HTTP_UPGRADE);
        "UseClientProtocol" "useClientProtocol" Kind::Bool; "MaxConcurrentStreams" "maxConcurrentStreams" INT;
    }
    OUTLIER_DETECTION "v1alpha3.OutlierDetection" {
        "ConsecutiveErrors" "consecutiveErrors" INT;
        "SplitExternalLocalOriginErrors" "splitExternalLocalOriginErrors" Kind::Bool;
        "ConsecutiveLocalOriginFailures" "consecutiveLocalOriginFailures" UINT_VALUE;
        "ConsecutiveGatewayErrors" "consecutiveGatewayErrors" UINT_VALUE;
        "Consecutive_5XxErrors" "consecutive5xxErrors" UINT_VALUE; "Interval" "interval" DURATION;
        "BaseEjectionTime" "baseEjectionTime" DURATION; "MaxEjectionPercent" "maxEjectionPercent" INT;
        "MinHealthPercent" "minHealthPercent" INT;
    }
    HTTP_RETRY "v1alpha3.HTTPRetry" {
        "Attempts" "attempts" INT; "PerTryTimeout" "perTryTimeout" DURATION; "RetryOn" "retryOn" STR;
        "RetryRemoteLocalities" "retryRemoteLocalities" BOOL_VALUE;
        "RetryIgnorePreviousHosts" "retryIgnorePreviousHosts" BOOL_VALUE; "Backoff" "backoff" DURATION;
    }
    CERTIFICATE "v1alpha1.Certificate" { "SecretName" "secretName" STR; "DnsNames" "dnsNames" STRINGS; }
}
