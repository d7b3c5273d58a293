//! What can be wrong.

use std::fmt;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It does not work.
    Broken,
    /// It works, but not as it is probably meant, or not for long.
    Warning,
    /// It is as it was asked for; good to know when a sidecar is missed.
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
        /// Everything that can be wrong, in the order in which to mend it. The name is what scripts see.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Problem {
            $($(#[$doc])* $variant,)*
        }

        impl Problem {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name for scripts.
            #[must_use]
            pub const fn slug(self) -> &'static str {
                match self { $(Self::$variant => $slug,)* }
            }

            /// How bad it is.
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
    /// The API server does not ask mutating webhooks.
    AdmissionDisabled Broken "admission-disabled";
    /// No `caBundle`.
    CaEmpty Broken "ca-empty";
    /// A `caBundle` that is no PEM.
    CaUnreadable Broken "ca-unreadable";
    /// A `caBundle` that does not vouch for the certificate that is served.
    CaMismatch Broken "ca-mismatch";
    /// A certificate that is not valid now.
    CertificateExpired Broken "certificate-expired";
    /// A certificate for other names.
    CertificateNames Broken "certificate-names";
    /// The Service that is called is not there.
    ServiceMissing Broken "service-missing";
    /// A Service that finds no pods.
    ServiceSelector Broken "service-selector";
    /// A port that nobody serves.
    ServicePort Broken "service-port";
    /// A Deployment without an available replica.
    Unavailable Broken "unavailable";
    /// A Service without a ready endpoint.
    NoEndpoints Broken "no-endpoints";
    /// A NetworkPolicy that keeps API servers out.
    PolicyBlocks Broken "network-policy";
    /// The ConfigMap is not there.
    ConfigMissing Broken "config-missing";
    /// A config that cannot be used.
    ConfigBroken Broken "config-broken";
    /// A policy that is none.
    PolicyUnknown Broken "policy-unknown";
    /// A call that failed, by the cluster's own account.
    CallFailed Broken "call-failed";
    /// Pods that were refused.
    PodRefused Broken "pod-refused";
    /// A label that asks for a revision that is not installed.
    UnknownRevision Broken "unknown-revision";
    /// A namespace that was asked about is not injected.
    NotSelected Broken "not-selected";
    /// A pod with a left-over `image: auto`.
    ImageAuto Broken "image-auto";
    /// A pod without the sidecar that it should have.
    SidecarMissing Broken "sidecar-missing";
    /// The API server may ask a proxy.
    ApiServerProxy Warning "api-server-proxy";
    /// A certificate that expires soon.
    CertificateExpiring Warning "certificate-expiring";
    /// Two configurations are called for the same pods.
    Overlap Warning "overlap";
    /// Nobody is asked about any namespace.
    SelectsNothing Warning "selects-nothing";
    /// Pods come up without a sidecar when the injector does not answer.
    FailurePolicyIgnore Warning "failure-policy-ignore";
    /// One replica, without which no pods are created.
    SingleReplica Warning "single-replica";
    /// Little time to answer.
    TimeoutShort Warning "timeout-short";
    /// Two labels of which one has no effect.
    BothLabels Warning "both-labels";
    /// A value that switches nothing.
    LabelValue Warning "label-value";
    /// A pod asks where nobody is asked.
    AskedInVain Warning "asked-in-vain";
    /// A pod that is older than the webhook.
    OlderThanWebhook Warning "older-than-webhook";
    /// A namespace that is switched off.
    NamespaceDisabled Note "namespace-disabled";
    /// A pod on the network of its node.
    HostNetwork Note "host-network";
    /// A pod that refuses.
    OptedOut Note "opted-out";
    /// A pod that the config leaves out.
    LeftOut Note "left-out";
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What sort of thing.
    pub problem: Problem,
    /// The object in question.
    pub object: String,
    /// What was seen.
    pub seen: String,
    /// What follows from it, or what it comes from.
    pub cause: String,
    /// The command that mends it, or shows more.
    pub fix: String,
}
