//! One admission request and its response. No I/O.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;

use super::config_store::ConfigStore;
use super::request_error::RequestError;
use super::review::{AdmissionResponse, AdmissionReview, AuditAnnotations, Status};
use super::verdict::{AdmissionContext, Reviewed, Verdict};
use super::{pod_object, truncate, url};

/// A request, as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The path of the URL, without the query.
    pub path: &'a str,
    /// `Content-Type`.
    pub content_type: Option<&'a str>,
    /// The body, whole.
    pub body: &'a [u8],
}

/// The response, and what is logged and counted of it. The strings are cut where they are too long for a
/// line.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// The `AdmissionReview`, as JSON.
    pub body: Vec<u8>,
    /// What happens to the pod.
    pub verdict: Verdict,
    /// The reason, as a sentence.
    pub message: String,
    /// `request.uid`.
    pub uid: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's workload, as `Kind/name`.
    pub owner: String,
}

/// Reviews pods.
#[derive(Debug)]
pub struct Admission {
    config: Arc<ConfigStore>,
}

impl Admission {
    /// With the config that is in the store at the time of each request.
    #[must_use]
    pub const fn new(config: Arc<ConfigStore>) -> Self {
        Self { config }
    }

    /// Whether there is a config to review with.
    pub(crate) fn is_configured(&self) -> bool {
        self.config.is_configured()
    }

    /// Reviews one request.
    ///
    /// # Errors
    ///
    /// A request that is not an `AdmissionReview`.
    pub fn review(&self, request: &Request<'_>) -> Result<Response, RequestError> {
        let variables = url::variables(request.path)?;
        if request.body.len() > pod_object::MAX_BODY_BYTES {
            return Err(RequestError::TooLarge);
        }
        if request.body.is_empty() {
            return Err(RequestError::Empty);
        }
        if !request.content_type.is_some_and(is_json) {
            return Err(RequestError::ContentType { given: request.content_type.map(str::to_owned) });
        }
        let review = AdmissionReview::parse(request.body)?;
        if let Some(verdict) = review.request.not_a_pod_creation() {
            let namespace = review.request.namespace.clone();
            return Ok(respond(&review, verdict.into(), &namespace));
        }
        let object = review.request.object.map_or("null", RawValue::get);
        let (config, cluster) = (self.config.active(), self.config.cluster_state());
        let context = AdmissionContext {
            config: &config,
            cluster: &cluster,
            namespace: &review.request.namespace,
            variables: &variables,
        };
        let (reviewed, namespace) = context.review(object);
        Ok(respond(&review, reviewed, &namespace))
    }
}

/// `application/json`, with or without parameters.
fn is_json(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

/// A JSON string in base64, which has nothing to escape.
fn base64_string(bytes: &[u8]) -> Option<Box<RawValue>> {
    let mut text = String::with_capacity(bytes.len() / 3 * 4 + 6);
    text.push('"');
    STANDARD.encode_string(bytes, &mut text);
    text.push('"');
    RawValue::from_string(text).ok()
}

fn respond(review: &AdmissionReview<'_>, reviewed: Reviewed, namespace: &str) -> Response {
    let Reviewed { verdict, owner, warnings } = reviewed;
    let message = truncate::message(&verdict.message());
    let (patch, code) = match &verdict {
        Verdict::Unchanged { .. } => (None, None),
        Verdict::Patched { patch, .. } => (base64_string(patch), None),
        Verdict::Denied { denial, .. } => (None, Some(denial.code())),
    };
    let response = AdmissionResponse {
        uid: &review.request.uid,
        allowed: code.is_none(),
        status: code.map(|code| Status { code: code.status, reason: code.reason, message: &message }),
        patch_type: patch.as_ref().map(|_| "JSONPatch"),
        patch,
        audit_annotations: AuditAnnotations { decision: verdict.outcome(), reason: verdict.reason() },
        warnings: truncate::warnings(warnings.iter().map(AsRef::as_ref)),
    };
    let body = response.write(review.version);
    let uid = truncate::word(&review.request.uid);
    let (namespace, owner) = (truncate::word(namespace), truncate::word(&owner));
    Response { body, verdict, message, uid, namespace, owner }
}
