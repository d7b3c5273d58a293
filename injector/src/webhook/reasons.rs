//! The values of the label `reason` of requests, in metrics, log lines and audit annotations: one table, from
//! which the one in docs/webhook.md is generated.

use crate::decide::Reason;

/// A value of the label `reason`. Only this module makes them: none lacks a row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct RequestReason {
    /// The values of the label `outcome` beside it.
    outcomes: &'static str,
    slug: &'static str,
    status: u16,
    cause: &'static str,
    fix: &'static str,
}

impl RequestReason {
    /// The value.
    #[must_use]
    pub const fn slug(&self) -> &'static str {
        self.slug
    }

    /// Of a denied pod, `status.code` of the review; otherwise the HTTP status.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.status
    }
}

/// `NAME outcomes, value, status: cause, fix`.
macro_rules! reasons {
    ($($name:ident $outcomes:literal, $slug:expr, $status:literal: $cause:literal, $fix:literal;)*) => {
        $(pub(super) const $name: RequestReason =
            RequestReason { outcomes: $outcomes, slug: $slug, status: $status, cause: $cause, fix: $fix };)*

        /// The reasons, as the documentation lists them.
        #[cfg(test)]
        const ALL: &[RequestReason] = &[$($name),*];
    };
}

reasons! {
    POD "injected, skipped", Reason::Pod.slug(), 200:
        "the pod's label or annotation `sidecar.istio.io/inject` decides", "";
    POLICY "injected, skipped", Reason::Policy.slug(), 200: "`policy` of the injector config decides", "";
    ALWAYS_SELECTOR "injected", Reason::AlwaysSelector.slug(), 200:
        "`alwaysInjectSelector` of the injector config matches the pod", "";
    INJECTED_AGAIN "injected", "injected-again", 200:
        "an injected pod is injected again: another webhook or the config has changed it since", "";
    NEVER_SELECTOR "skipped", Reason::NeverSelector.slug(), 200:
        "`neverInjectSelector` of the injector config matches the pod", "";
    UNCHANGED "skipped", "unchanged", 200: "the pod is injected already", "";
    HOST_NETWORK "skipped", Reason::HostNetwork.slug(), 200:
        "`spec.hostNetwork` is true: capture would change the network of the node",
        "remove `hostNetwork`, or the label that requests injection";
    STATIC_POD "skipped", Reason::StaticPod.slug(), 200:
        "a static pod: kubelet runs it from a file of its node, not from this object", "use a DaemonSet";
    SYSTEM_NAMESPACE "skipped", Reason::SystemNamespace.slug(), 200:
        "the namespace belongs to the cluster itself, for example `kube-system`", "remove the label that requests injection";
    UNKNOWN_POLICY "skipped", Reason::UnknownPolicy.slug(), 200:
        "`policy` of the injector config is neither `enabled` nor `disabled`: no pod is injected", "correct `policy`";
    NOT_A_POD "skipped", "not-a-pod", 200:
        "the request is not about a pod", "limit `rules` of the webhook configuration to `pods`";
    SUBRESOURCE "skipped", "subresource", 200:
        "the request is about a subresource, for example `pods/exec`", "limit `rules` of the webhook configuration to `pods`";
    OPERATION "skipped", "operation", 200:
        "the operation is not CREATE", "limit `rules` of the webhook configuration to CREATE";

    ANNOTATIONS "denied", "annotations", 422:
        "invalid values of annotations or labels", "correct the values that the message lists: [annotations](annotations.md)";
    AUTO_IMAGE "denied", "auto-image", 422:
        "a container has the image `auto`, and no applied template has this container",
        "set its image, or the annotation `inject.istio.io/templates`";
    CAPTURE "denied", "capture", 422:
        "the init container would refuse the options that the pod's annotations give it", "correct the annotations that the message names";
    CAPTURE_OF_CONFIG "denied", "capture", 500:
        "the init container would refuse the options that the config gives it", "correct the config: `sidecar-injector lint`";
    CONTAINER_NAME_CONFLICT "denied", "container-name-conflict", 422:
        "a template adds a container with the name of one of the pod's own", "rename the pod's container";
    DUPLICATE_CONTAINER "denied", "duplicate-container", 422:
        "containers of the pod have the same name", "rename one";
    DUPLICATE_MOUNT_PATH "denied", "duplicate-mount-path", 422:
        "two volumes are mounted at the same path of a container", "change the `mountPath` of the pod's own, or the annotation that the message names";
    DUPLICATE_VOLUME "denied", "duplicate-volume", 422:
        "two volumes have the same name", "rename the pod's own, or correct the annotation that the message names";
    INVALID_POD "denied", "invalid-pod", 500:
        "Kubernetes does not accept what a template adds to the pod", "correct the template that the message names: `sidecar-injector lint`";
    MALFORMED "denied", "malformed", 422:
        "a field of the pod has another type than in Kubernetes' API", "correct the fields that the message lists";
    MERGE "denied", "merge", 500:
        "the output of a template cannot be merged with the pod, for example a list item without its merge key",
        "correct the template: `sidecar-injector lint`";
    NAMESPACE "denied", "namespace", 422:
        "the user ranges in the namespace's annotations are invalid (OpenShift)", "correct the annotations that the message names";
    OBJECT "denied", "object", 400:
        "`request.object` cannot be parsed, or is nested too deeply", "send a Pod object";
    POD_TOO_LARGE "denied", "too-large", 413:
        "the pod has more than 50,000 values, without `managedFields`", "shorten lists and annotations of the pod";
    PROXY_UID "denied", "proxy-uid", 403:
        "an app container runs as the proxy's user, with `--reject-proxy-uid`: its traffic would not be captured", "set another `runAsUser`";
    QUANTITY "denied", "quantity", 422: "a value is not a quantity", "use a quantity such as `100m` or `128Mi`";
    RENDER "denied", "render", 500:
        "a template fails for this pod; the message has template, line and column", "correct the template there";
    TEMPLATE_CHANGES_IDENTITY "denied", "template-changes-identity", 500:
        "the output of a template would change the name, the namespace or the kind of the pod", "remove it from the template";
    TEMPLATE_REMOVES_FIELDS "denied", "template-removes-fields", 500:
        "the output of a template would remove containers or volumes from the pod", "let the template add items only; for removals, use `$patch: delete`";
    UNKNOWN_NAMESPACE "denied", "unknown-namespace", 503:
        "the namespace was created a moment ago and is not known yet (OpenShift)", "none needed: controllers retry";
    UNKNOWN_TEMPLATE "denied", "unknown-template", 422:
        "`inject.istio.io/templates` names a template that does not exist", "use a name that the message lists";
    VALUE_CHANGES_STRUCTURE "denied", "value-changes-structure", 422:
        "a value of the pod contains quotes, line breaks or YAML syntax that would change the output of a template", "change the value that the message names";
    VOLUME_NAME_CONFLICT "denied", "volume-name-conflict", 422:
        "a template adds a volume with the name of one of the pod's own, of another type", "rename the pod's volume";
    YAML "denied", "yaml", 500:
        "the output of a template is not a pod in YAML", "correct the template: the message has the line";

    BODY_INCOMPLETE "rejected", "body-incomplete", 400: "the client closed the connection before the end of the body", "if it is frequent, raise `timeoutSeconds` of the webhook configuration";
    BODY_TIMEOUT "rejected", "body-timeout", 408: "the body took more than 10 s", "check the network between API server and webhook";
    BUSY "rejected", "busy", 503:
        "too many concurrent requests, or too much memory in their bodies and responses: [limits](#limits)", "add replicas or CPU, or raise `--max-requests`";
    CONTENT_ENCODING "rejected", "content-encoding", 415: "the body is compressed", "send it without Content-Encoding";
    CONTENT_TYPE "rejected", "content-type", 415: "the Content-Type is not JSON", "send application/json";
    DEADLINE "rejected", "deadline", 504:
        "the deadline (`?timeout=`) passed before the review began", "add replicas or CPU, or raise `timeoutSeconds` of the webhook configuration";
    EMPTY "rejected", "empty", 400: "the body is empty", "send an AdmissionReview";
    ENVIRONMENT "rejected", "environment", 400:
        "a key of the path `/inject/<key>/<value>/...` is invalid", "correct `path` in the webhook configuration";
    ESCAPE "rejected", "escape", 400: "the path has invalid percent escapes", "correct `path` in the webhook configuration";
    JSON "rejected", "json", 400: "the body is not JSON", "send an AdmissionReview";
    LONG_UID "rejected", "long-uid", 400: "`request.uid` has more than 256 bytes", "send a UUID";
    METHOD "rejected", "method", 405: "the method is not POST", "use POST";
    NO_CONFIG "rejected", "no-config", 503:
        "no valid config is loaded yet", "check the watched ConfigMap: the log and `/readyz` have the problem";
    NO_REQUEST "rejected", "no-request", 400: "the AdmissionReview has no `request`", "send an AdmissionReview with a request";
    NO_UID "rejected", "no-uid", 400: "`request.uid` is missing or empty", "send a uid";
    NOT_A_REVIEW "rejected", "not-a-review", 400: "the body is JSON, but not an AdmissionReview", "send an AdmissionReview";
    PANIC "rejected", "panic", 500: "the review failed with a panic", "report the lines of the log as a bug";
    PATH "rejected", "path", 404: "the path is not `/inject` or below it", "correct `path` in the webhook configuration";
    TIMEOUT "rejected", "timeout", 400: "`?timeout=` is not a positive duration", "send a duration such as `5s`";
    BODY_TOO_LARGE "rejected", "too-large", 413: "the body has more than 6 MiB", "shorten the pod";
    UTF_8 "rejected", "utf-8", 400: "the body is not UTF-8", "send an AdmissionReview as UTF-8";
    VERSION "rejected", "version", 400:
        "the `apiVersion` is neither `admission.k8s.io/v1` nor `v1beta1`", "correct `admissionReviewVersions` of the webhook configuration";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write as _;
    use std::fs;

    use super::*;

    fn table() -> String {
        let mut text = "| `outcome` | `reason` | Status | Cause | Fix |\n|---|---|---|---|---|\n".to_owned();
        for RequestReason { outcomes, slug, status, cause, fix } in ALL {
            let fix = if fix.is_empty() { "none needed" } else { fix };
            writeln!(text, "| {outcomes} | `{slug}` | {status} | {cause} | {fix} |").unwrap();
        }
        text
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test reads and, when asked, writes the document")]
    fn reasons_of_the_webhook_page_are_up_to_date() {
        const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/webhook.md");
        const BEGIN: &str = "<!-- reasons: begin -->\n";
        let page = fs::read_to_string(PAGE).unwrap();
        let (head, rest) = page.split_once(BEGIN).unwrap();
        let (_, tail) = rest.split_once("<!-- reasons: end -->").unwrap();
        let wanted = format!("{head}{BEGIN}\n{}\n<!-- reasons: end -->{tail}", table());
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(PAGE, &wanted).unwrap();
        } else {
            assert!(page == wanted, "docs/webhook.md is out of date: run `make gallery`");
        }
    }

    /// Of those with the same value only the status differs, or the outcome.
    #[test]
    fn rows_are_unique() {
        let rows: BTreeSet<_> = ALL.iter().map(|row| (row.slug, row.outcomes, row.status)).collect();
        assert_eq!(rows.len(), ALL.len());
    }
}
