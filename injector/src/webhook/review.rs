//! The wire format: `AdmissionReview`, request and response.

use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::pod_object::MAX_UID_BYTES;
use super::request_error::RequestError;
use super::verdict::Verdict;
use super::{nullable, reasons, truncate};

const KIND: &str = "AdmissionReview";

/// The versions of a review that are accepted; the response has that of its request.
const VERSIONS: [&str; 2] = ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"];

/// The parts of a review that are parsed.
#[derive(Clone, Debug)]
pub(super) struct AdmissionReview<'a> {
    /// The `apiVersion` of the review, one of [`VERSIONS`].
    pub version: &'static str,
    /// The request.
    pub request: AdmissionRequest<'a>,
}

/// The parts of `request` that are parsed.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdmissionRequest<'a> {
    /// Part of the response.
    #[serde(default, deserialize_with = "nullable::text")]
    pub uid: String,
    #[serde(default, deserialize_with = "nullable::map")]
    kind: Kind,
    #[serde(default, deserialize_with = "nullable::map")]
    resource: Resource,
    #[serde(default, deserialize_with = "nullable::text")]
    sub_resource: String,
    /// The namespace of the object.
    #[serde(default, deserialize_with = "nullable::text")]
    pub namespace: String,
    #[serde(default, deserialize_with = "nullable::text")]
    operation: String,
    /// The object, not parsed.
    #[serde(borrow, default)]
    pub object: Option<&'a RawValue>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Kind {
    #[serde(default, deserialize_with = "nullable::text")]
    group: String,
    #[serde(default, deserialize_with = "nullable::text")]
    kind: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Resource {
    #[serde(default, deserialize_with = "nullable::text")]
    group: String,
    #[serde(default, deserialize_with = "nullable::text")]
    resource: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    #[serde(default, deserialize_with = "nullable::text")]
    api_version: String,
    #[serde(default, deserialize_with = "nullable::text")]
    kind: String,
    #[serde(borrow, default, deserialize_with = "nullable::optional_map")]
    request: Option<AdmissionRequest<'a>>,
}

impl<'a> AdmissionReview<'a> {
    /// Reads a review. The object in it is only scanned, however deep it is.
    /// Errors: a body that is not a review, of another version, without a request or its uid, or with a uid
    /// that is too long.
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, RequestError> {
        let text =
            std::str::from_utf8(body).map_err(|error| RequestError::Utf8 { valid: error.valid_up_to() })?;
        let mut reader = serde_json::Deserializer::from_str(text);
        let envelope: Result<Envelope<'_>, _> = nullable::map(&mut reader);
        let envelope = envelope.and_then(|envelope| reader.end().map(|()| envelope));
        let envelope = envelope.map_err(|error| match error.classify() {
            Category::Data => RequestError::NotReview { problem: error.to_string() },
            Category::Eof | Category::Io | Category::Syntax => {
                RequestError::Json { problem: error.to_string() }
            }
        })?;
        if envelope.kind != KIND {
            return Err(RequestError::NotReview {
                problem: format!("its kind is {:?}", truncate::word(&envelope.kind)),
            });
        }
        let version = VERSIONS
            .into_iter()
            .find(|version| *version == envelope.api_version)
            .ok_or_else(|| RequestError::Version { given: truncate::word(&envelope.api_version) })?;
        let request = envelope.request.ok_or(RequestError::NoRequest)?;
        match request.uid.len() {
            0 => Err(RequestError::NoUid),
            1..=MAX_UID_BYTES => Ok(Self { version, request }),
            length => Err(RequestError::LongUid { length }),
        }
    }
}

impl AdmissionRequest<'_> {
    /// The verdict on a request that is about something else than the creation of a pod. Fields that are
    /// missing count as a pod's.
    pub(super) fn not_a_pod_creation(&self) -> Option<Verdict> {
        let (kind, resource) = (&self.kind, &self.resource);
        let other_kind = !kind.kind.is_empty() && (kind.kind != "Pod" || !kind.group.is_empty());
        let other_resource =
            !resource.resource.is_empty() && (resource.resource != "pods" || !resource.group.is_empty());
        let (reason, message) = if other_kind || other_resource {
            let what = if other_kind { &kind.kind } else { &resource.resource };
            (&reasons::NOT_A_POD, format!("the request is about {}, not about a Pod", truncate::word(what)))
        } else if !self.sub_resource.is_empty() {
            (
                &reasons::SUBRESOURCE,
                format!("the request is about pods/{}", truncate::word(&self.sub_resource)),
            )
        } else if !matches!(&*self.operation, "" | "CREATE") {
            (&reasons::OPERATION, format!("the operation is {}, not CREATE", truncate::word(&self.operation)))
        } else {
            return None;
        };
        Some(Verdict::Unchanged { reason, message })
    }
}

/// `response`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdmissionResponse<'a> {
    /// The uid of the request.
    pub uid: &'a str,
    /// Whether the object is allowed.
    pub allowed: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status<'a>>,
    /// The format of the patch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch_type: Option<&'static str>,
    /// The patch, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<Box<RawValue>>,
    /// For the audit log; the API server puts the webhook's name in front of the keys.
    pub audit_annotations: AuditAnnotations<'a>,
    /// For the user who created the object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// For the audit log.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct AuditAnnotations<'a> {
    /// The outcome.
    pub decision: &'a str,
    /// The reason, as a word.
    pub reason: &'a str,
}

/// `metav1.Status`: why an object is denied.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Status<'a> {
    /// HTTP status.
    pub code: u16,
    /// `metav1.StatusReason`.
    pub reason: &'static str,
    /// The reason, as a sentence.
    pub message: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewBody<'a> {
    kind: &'static str,
    api_version: &'static str,
    response: &'a AdmissionResponse<'a>,
}

impl AdmissionResponse<'_> {
    /// The whole review.
    pub(super) fn write(&self, version: &'static str) -> Vec<u8> {
        let patch = self.patch.as_ref().map_or(0, |patch| patch.get().len());
        let mut body = Vec::with_capacity(512 + patch);
        // Writing a map with string keys to memory does not fail.
        let _ = serde_json::to_writer(
            &mut body,
            &ReviewBody { kind: KIND, api_version: version, response: self },
        );
        body
    }
}
