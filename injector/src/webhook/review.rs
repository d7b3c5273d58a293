//! `AdmissionReview`: what is read of one, and its answer.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::bounds::LONGEST_UID;
use super::fault::Fault;
use super::{nullable, said};

const KIND: &str = "AdmissionReview";

/// The version of a review: it is answered in the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `admission.k8s.io/v1`.
    V1,
    /// `admission.k8s.io/v1beta1`.
    V1beta1,
}

impl Version {
    /// Its `apiVersion`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

/// A review.
#[derive(Clone, Debug)]
pub struct Review<'a> {
    /// Its version.
    pub version: Version,
    /// What is asked.
    pub request: Request<'a>,
}

/// What is read of `request`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request<'a> {
    /// Goes back with the answer.
    #[serde(borrow, default, deserialize_with = "nullable::text")]
    pub uid: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "nullable::map")]
    kind: Kind<'a>,
    #[serde(borrow, default, deserialize_with = "nullable::map")]
    resource: Resource<'a>,
    #[serde(borrow, default, deserialize_with = "nullable::text")]
    sub_resource: Cow<'a, str>,
    /// The namespace of the object.
    #[serde(borrow, default, deserialize_with = "nullable::text")]
    pub namespace: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "nullable::text")]
    operation: Cow<'a, str>,
    /// The object, unread.
    #[serde(borrow, default)]
    pub object: Option<&'a RawValue>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Kind<'a> {
    #[serde(borrow, default, deserialize_with = "nullable::text")]
    group: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "nullable::text")]
    kind: Cow<'a, str>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Resource<'a> {
    #[serde(borrow, default, deserialize_with = "nullable::text")]
    group: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "nullable::text")]
    resource: Cow<'a, str>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "nullable::text")]
    api_version: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "nullable::text")]
    kind: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "nullable::optional_map")]
    request: Option<Request<'a>>,
}

impl<'a> Review<'a> {
    /// Reads a review. The object in it is only looked over, however deep it is.
    ///
    /// # Errors
    ///
    /// What is no review, of another version, or without a request or its uid; or a uid that is too long.
    pub fn parse(body: &'a [u8]) -> Result<Self, Fault> {
        let text = std::str::from_utf8(body).map_err(|error| Fault::Utf8 { valid: error.valid_up_to() })?;
        let mut reader = serde_json::Deserializer::from_str(text);
        let envelope: Result<Envelope<'_>, _> = nullable::map(&mut reader);
        let envelope = envelope.and_then(|envelope| reader.end().map(|()| envelope));
        let envelope = envelope.map_err(|error| match error.classify() {
            Category::Data => Fault::NotReview { problem: error.to_string() },
            Category::Eof | Category::Io | Category::Syntax => Fault::Json { problem: error.to_string() },
        })?;
        if envelope.kind != KIND {
            return Err(Fault::NotReview {
                problem: format!("its kind is {:?}", said::word(&envelope.kind)),
            });
        }
        let version = [Version::V1, Version::V1beta1]
            .into_iter()
            .find(|version| version.name() == envelope.api_version)
            .ok_or_else(|| Fault::Version { given: said::word(&envelope.api_version) })?;
        let request = envelope.request.ok_or(Fault::NoRequest)?;
        match request.uid.len() {
            0 => Err(Fault::NoUid),
            1..=LONGEST_UID => Ok(Self { version, request }),
            length => Err(Fault::LongUid { length }),
        }
    }
}

/// Why a request is none of the injector's business.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// As a word.
    pub slug: &'static str,
    /// As a sentence.
    pub message: String,
}

impl Request<'_> {
    /// Whether something else than the creation of a pod is asked about. What the request does not say is taken for a
    /// pod's.
    #[must_use]
    pub fn foreign(&self) -> Option<Foreign> {
        let (kind, resource) = (&self.kind, &self.resource);
        let other_kind = !kind.kind.is_empty() && (kind.kind != "Pod" || !kind.group.is_empty());
        let other_resource =
            !resource.resource.is_empty() && (resource.resource != "pods" || !resource.group.is_empty());
        let (slug, message) = if other_kind || other_resource {
            let what = if other_kind { &kind.kind } else { &resource.resource };
            ("not-a-pod", format!("the request is about {}, not about a Pod", said::word(what)))
        } else if !self.sub_resource.is_empty() {
            ("subresource", format!("the request is about pods/{}", said::word(&self.sub_resource)))
        } else if !matches!(&*self.operation, "" | "CREATE") {
            ("operation", format!("the operation is {}, not CREATE", said::word(&self.operation)))
        } else {
            return None;
        };
        Some(Foreign { slug, message })
    }
}

/// What a review is answered with.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Response<'a> {
    /// That of the request.
    pub uid: &'a str,
    /// Whether the object may come in.
    pub allowed: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status<'a>>,
    /// What form the patch has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch_type: Option<&'static str>,
    /// The patch, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// For the audit log; the API server puts the webhook's name in front of the keys.
    pub audit_annotations: Audit<'a>,
    /// For whoever asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// For the audit log.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Audit<'a> {
    /// What became of the request.
    pub decision: &'a str,
    /// Why, as a word.
    pub reason: &'a str,
}

/// Why an object may not come in.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Status<'a> {
    /// In HTTP's terms.
    pub code: u16,
    /// In Kubernetes' terms.
    pub reason: &'static str,
    /// For whoever has to fix it.
    pub message: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answered<'a> {
    kind: &'static str,
    api_version: &'static str,
    response: &'a Response<'a>,
}

impl Response<'_> {
    /// The whole review.
    #[must_use]
    pub fn write(&self, version: Version) -> Vec<u8> {
        let patch = self.patch.as_ref().map_or(0, String::len);
        let mut body = Vec::with_capacity(512 + patch);
        // A map with text for keys is written to memory: nothing can go wrong.
        let _ = serde_json::to_writer(
            &mut body,
            &Answered { kind: KIND, api_version: version.name(), response: self },
        );
        body
    }
}
