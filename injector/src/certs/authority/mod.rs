//! Our own certificate authority, and the certificate that it signs for the webhook. No I/O, no clock.
//!
//! The CA is valid for ten years, like Istio's own: it is rarely copied into a caBundle by hand. The leaf is
//! valid for 90 days and renewed after 60, so that renewals may fail for a month.
//!
//! Certificate rotation: a CA is replaced two years before it ends, in three steps. After each step, clients
//! with the bundle of the previous step can still verify the leaf: the new CA is *announced* in addition to
//! the old one, which still signs; a week later it is *promoted* and signs; a week after that the old one is
//! *retired*. Any step may be late; none requires clocks of different machines to agree to better than an
//! hour.

mod issue;
mod secret;
mod verify;

#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime};

use issue::IssuedCert;
pub use issue::Names;
pub use verify::verify;

use super::CertError;

const DAY: u64 = 24 * 60 * 60; // seconds
/// Validity of a CA.
pub(crate) const CA_LIFE: Duration = Duration::from_secs(3650 * DAY);
/// The time before the end of a CA at which the next one is announced.
pub(crate) const CA_MARGIN: Duration = Duration::from_secs(730 * DAY);
/// Validity of a leaf; after two thirds of it there is another one.
pub(crate) const LEAF_LIFE: Duration = Duration::from_secs(90 * DAY);
/// For how long a CA is published before anything is signed with it: what callers need to learn of it.
pub(crate) const ANNOUNCE: Duration = Duration::from_secs(7 * DAY);
/// For how long a CA is trusted after the last leaf that it signed was replaced.
pub(crate) const RETIRE: Duration = Duration::from_secs(7 * DAY);
/// Certificates are valid from a little before they are made: clocks differ.
pub(crate) const BACKDATE: Duration = Duration::from_secs(60 * 60);

/// A CA, a leaf that it signed, and other trusted CAs. Every value is complete: keys belong to
/// their certificates and the leaf verifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// The names of the leaf; one without all of them is replaced.
    names: Names,
    /// Signs leaves.
    ca: IssuedCert,
    /// Is published already, and signs later.
    next: Option<IssuedCert>,
    /// PEM of what signed earlier and is still trusted.
    previous: Option<String>,
    /// Is served.
    leaf: IssuedCert,
}

/// A step of the renewal.
#[derive(Clone, Copy)]
enum Step {
    /// Another leaf by the same CA.
    Reissue,
    /// Another CA, in addition to the one that signs.
    Announce,
    /// The announced CA signs.
    Promote,
    /// The CA that signed before is no longer trusted.
    Retire,
    /// A new CA and leaf: nothing valid is left.
    Restart,
}

impl Bundle {
    /// A new CA and a leaf.
    ///
    /// # Errors
    ///
    /// A name that cannot stand in a certificate, or no randomness.
    pub fn fresh(names: &Names, now: SystemTime) -> Result<Self, CertError> {
        let ca = IssuedCert::authority(now)?;
        let leaf = IssuedCert::leaf(names, &ca, now)?;
        Ok(Self { names: names.clone(), ca, next: None, previous: None, leaf })
    }

    /// When the next step is due; in the past when it is late.
    #[must_use]
    pub fn due(&self) -> SystemTime {
        self.steps().into_iter().map(|(due, _)| due).min().unwrap_or(self.leaf.not_after)
    }

    /// The bundle with all done that is due, if anything is. A CA that is announced now is not promoted now,
    /// so callers are never more than one step behind.
    ///
    /// # Errors
    ///
    /// As for [`fresh`](Self::fresh).
    pub fn renewed(&self, now: SystemTime) -> Result<Option<Self>, CertError> {
        let late = |bundle: &Self| bundle.steps().into_iter().find(|(due, _)| *due <= now);
        let mut renewed = None;
        while let Some((_, step)) = late(renewed.as_ref().unwrap_or(self)) {
            renewed = Some(renewed.as_ref().unwrap_or(self).after(step, now)?);
        }
        Ok(renewed)
    }

    /// The bundle with another CA announced, ahead of time; nothing changes when a replacement is under way.
    pub(crate) fn rotated(&self, now: SystemTime) -> Result<Self, CertError> {
        let under_way = self.next.is_some() || self.previous.is_some();
        if under_way { Ok(self.clone()) } else { self.after(Step::Announce, now) }
    }

    /// The CAs to trust, as PEM: the content of a caBundle.
    #[must_use]
    pub fn trusted_pem(&self) -> String {
        let next = self.next.as_ref().map_or("", |next| &next.cert);
        [&self.ca.cert, next, self.previous.as_deref().unwrap_or_default()].concat()
    }

    /// The served certificate.
    #[must_use]
    pub fn leaf(&self) -> &IssuedCert {
        &self.leaf
    }

    /// The phase, for log lines.
    #[must_use]
    pub fn phase(&self) -> &'static str {
        match (&self.next, &self.previous) {
            (None, None) => "one CA",
            (Some(_), _) => "the next CA is announced, the old one signs",
            (None, Some(_)) => "the new CA signs, the old one is still trusted",
        }
    }

    /// The steps and when they are due, the most urgent first: the end of a CA precedes everything else.
    fn steps(&self) -> Vec<(SystemTime, Step)> {
        let mut steps = Vec::new();
        match &self.next {
            Some(next) => {
                let known = next.issued() + ANNOUNCE;
                steps.push((known.min(self.ca.not_after - BACKDATE), Step::Promote));
            }
            None => steps.push((self.ca.not_after, Step::Restart)),
        }
        if self.previous.is_some() {
            steps.push((self.leaf.issued() + RETIRE, Step::Retire));
        } else if self.next.is_none() {
            steps.push((self.ca.not_after - CA_MARGIN, Step::Announce));
        }
        steps.push((self.leaf_due(), Step::Reissue));
        steps
    }

    fn leaf_due(&self) -> SystemTime {
        if !self.names.are_in(&self.leaf) {
            return SystemTime::UNIX_EPOCH;
        }
        let life = self.leaf.not_after.duration_since(self.leaf.issued()).unwrap_or_default();
        self.leaf.issued() + life * 2 / 3
    }

    fn after(&self, step: Step, now: SystemTime) -> Result<Self, CertError> {
        let old = self.clone();
        match (step, &self.next) {
            (Step::Restart, _) => Self::fresh(&self.names, now),
            (Step::Announce, _) => Ok(Self { next: Some(IssuedCert::authority(now)?), ..old }),
            (Step::Retire, _) => Ok(Self { previous: None, ..old }),
            (Step::Promote, Some(next)) => {
                let leaf = IssuedCert::leaf(&self.names, next, now)?;
                Ok(Self { ca: next.clone(), next: None, previous: Some(self.ca.cert.clone()), leaf, ..old })
            }
            (Step::Reissue | Step::Promote, _) => {
                Ok(Self { leaf: IssuedCert::leaf(&self.names, &self.ca, now)?, ..old })
            }
        }
    }
}
