//! The findings of `doctor`.

use std::fmt;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Injection fails.
    Broken,
    /// Injection works, but probably not as intended, or not for long.
    Warning,
    /// As configured; explains a missing sidecar.
    Note,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Broken => "broken",
            Self::Warning => "warning",
            Self::Note => "note",
        })
    }
}

macro_rules! problems {
    ($($(#[$doc:meta])* $variant:ident $severity:ident $slug:literal;)*) => {
        /// Every kind of finding, in the order in which to fix them. The name is for scripts.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Problem {
            $($(#[$doc])* $variant,)*
        }

        impl Problem {
            /// The kinds of findings.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name for scripts.
            #[must_use]
            pub const fn slug(self) -> &'static str {
                match self { $(Self::$variant => $slug,)* }
            }

            /// The severity of a finding.
            #[must_use]
            pub const fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity,)* }
            }
        }
    };
}

problems! {
    /// No webhook configuration injects.
    WebhookMissing Broken "webhook-missing";
    /// A selector that cannot be read.
    SelectorUnreadable Broken "selector-unreadable";
    /// The API server does not call mutating webhooks.
    AdmissionDisabled Broken "admission-disabled";
    /// No `caBundle`.
    CaEmpty Broken "ca-empty";
    /// A `caBundle` that is not PEM.
    CaUnreadable Broken "ca-unreadable";
    /// A `caBundle` that does not verify the served certificate.
    CaMismatch Broken "ca-mismatch";
    /// A certificate that is not valid now.
    CertificateExpired Broken "certificate-expired";
    /// A certificate for other names.
    CertificateNames Broken "certificate-names";
    /// A webhook that is called for something else than the creation of pods.
    WebhookRules Broken "webhook-rules";
    /// A path that the injector does not serve.
    WebhookPath Broken "webhook-path";
    /// The called Service does not exist.
    ServiceMissing Broken "service-missing";
    /// A Service that selects no pods.
    ServiceSelector Broken "service-selector";
    /// A port that no pod serves.
    ServicePort Broken "service-port";
    /// A Deployment without an available replica.
    Unavailable Broken "unavailable";
    /// A Service without a ready endpoint.
    NoEndpoints Broken "no-endpoints";
    /// A NetworkPolicy that blocks API servers.
    PolicyBlocks Broken "network-policy";
    /// No RoleBinding lets the injector read its ConfigMaps.
    RoleMissing Broken "role-missing";
    /// The ConfigMap does not exist.
    ConfigMissing Broken "config-missing";
    /// An invalid config.
    ConfigBroken Broken "config-broken";
    /// An invalid policy.
    PolicyUnknown Broken "policy-unknown";
    /// A failed call, reported by events or conditions.
    CallFailed Broken "call-failed";
    /// Rejected pods.
    PodDenied Broken "pod-denied";
    /// The Pod Security Standard of a namespace rejects injected pods.
    PodSecurity Broken "pod-security";
    /// Proxies find no control plane.
    ControlPlaneMissing Broken "control-plane-missing";
    /// A label that selects a revision that is not installed.
    UnknownRevision Broken "unknown-revision";
    /// A namespace of `--namespace` is not injected.
    NotSelected Broken "not-selected";
    /// A pod that still has `image: auto`.
    ImageAuto Broken "image-auto";
    /// A pod without the sidecar that it should have.
    SidecarMissing Broken "sidecar-missing";
    /// The API server may use a proxy.
    ApiServerProxy Warning "api-server-proxy";
    /// A certificate that expires soon.
    CertificateExpiring Warning "certificate-expiring";
    /// Conditions in CEL, which are not evaluated.
    MatchConditions Warning "match-conditions";
    /// Two configurations are called for the same pods.
    Overlap Warning "overlap";
    /// A webhook that selects no namespace.
    SelectsNothing Warning "selects-nothing";
    /// Pods are admitted without a sidecar while the injector does not respond.
    FailurePolicyIgnore Warning "failure-policy-ignore";
    /// One replica, without which no pods are created.
    SingleReplica Warning "single-replica";
    /// A short timeout.
    TimeoutShort Warning "timeout-short";
    /// Two labels of which one has no effect.
    BothLabels Warning "both-labels";
    /// A label value without effect.
    LabelValue Warning "label-value";
    /// A pod requests injection where no webhook is called.
    RequestIgnored Warning "request-ignored";
    /// A Job that does not complete because of its proxy.
    JobNeverEnds Warning "job-never-ends";
    /// A pod that is older than the webhook.
    OlderThanWebhook Warning "older-than-webhook";
    /// A namespace with injection disabled.
    NamespaceDisabled Note "namespace-disabled";
    /// A pod on the network of its node.
    HostNetwork Note "host-network";
    /// A pod that opts out.
    OptedOut Note "opted-out";
    /// A pod that the config excludes.
    Excluded Note "excluded";
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of the finding.
    pub problem: Problem,
    /// The object.
    pub object: String,
    /// The observation.
    pub seen: String,
    /// The cause, or the consequence.
    pub cause: String,
    /// The command that fixes it, or shows more.
    pub fix: String,
}
