//! Errors in the format of the CNI specification.

use istio_iptables::exit::Exit;
use istio_iptables::report::Failure;
use istio_iptables::text::one_line;
use serde::Serialize;

use crate::version::Version;

/// Maximum length of a message: container runtimes and kubelet copy it into the pod's
/// `FailedCreatePodSandBox` event.
pub const LONGEST_MESSAGE: usize = 300;

/// Error codes: 1 to 99 by the CNI specification, from 100 on our own. `docs/cni.md` lists what to do about
/// each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Code {
    /// The version of the configuration is not supported, or has no such command.
    IncompatibleVersion = 1,
    /// A `CNI_*` variable is missing or invalid.
    InvalidEnvironment = 4,
    /// A file or standard input cannot be read or written.
    Io = 5,
    /// Standard input is not a JSON object.
    Decoding = 6,
    /// The network configuration, or an annotation of the pod, is invalid.
    InvalidConfig = 7,
    /// The runtime shall try again later.
    TryAgainLater = 11,
    /// STATUS: no ADD can succeed.
    NotAvailable = 50,
    /// A defect of this program.
    Internal = 100,
    /// CHECK: the live rules are not those that the pod needs.
    RulesDiffer = 101,
    /// The kernel or a tool refused the rules, or the live ones differ from those just written.
    RulesRefused = 102,
    /// The tools of the backend, or what it needs of the kernel, are not there.
    BackendMissing = 103,
}

impl Code {
    /// The codes, in numeric order.
    pub const ALL: [Self; 11] = [
        Self::IncompatibleVersion,
        Self::InvalidEnvironment,
        Self::Io,
        Self::Decoding,
        Self::InvalidConfig,
        Self::TryAgainLater,
        Self::NotAvailable,
        Self::Internal,
        Self::RulesDiffer,
        Self::RulesRefused,
        Self::BackendMissing,
    ];
}

/// An error, as it goes to the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CniError {
    /// The code of the error.
    pub code: Code,
    /// What failed, in one line of at most [`LONGEST_MESSAGE`] characters.
    pub msg: String,
    /// More lines; may be empty.
    pub details: String,
}

impl CniError {
    /// An error without details.
    #[must_use]
    pub fn new(code: Code, msg: impl AsRef<str>) -> Self {
        Self { code, msg: shortened(&one_line(msg.as_ref()), LONGEST_MESSAGE), details: String::new() }
    }

    /// Adds details.
    #[must_use]
    pub fn details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// Without details: the runtime's library joins message and details, and the whole is the pod's
    /// `FailedCreatePodSandBox` event.
    #[must_use]
    pub fn without_details(self) -> Self {
        Self { details: String::new(), ..self }
    }

    /// A failure to write or compare rules. `differ` is the code of rules that differ.
    #[must_use]
    pub fn of_rules(failure: &Failure, differ: Code) -> Self {
        let code = match failure.exit {
            Exit::Busy => Code::TryAgainLater,
            Exit::Usage => Code::InvalidConfig,
            Exit::Different | Exit::Refused => differ,
            Exit::CannotCreate | Exit::Done | Exit::NoPermission | Exit::ValidationFailed => {
                Code::RulesRefused
            }
            Exit::Unavailable => Code::BackendMissing,
        };
        let hint = failure.hint.as_deref().map(|hint| format!("; {hint}")).unwrap_or_default();
        // What follows a colon is among the details.
        Self::new(code, format!("{}{hint}", failure.what.trim_end_matches(':'))).details(failure.to_string())
    }

    /// The JSON document, for a configuration of `version`.
    #[must_use]
    pub fn to_json(&self, version: Version) -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Document<'a> {
            cni_version: &'a str,
            code: u16,
            msg: &'a str,
            #[serde(skip_serializing_if = "str::is_empty")]
            details: &'a str,
        }
        let document = Document {
            cni_version: version.name(),
            code: self.code as u16,
            msg: &self.msg,
            details: &self.details,
        };
        // Strings and a number: this cannot fail.
        serde_json::to_string(&document).unwrap_or_default()
    }
}

/// The text, or as much of it as fits into so many characters, with an ellipsis.
#[must_use]
pub fn shortened(text: &str, longest: usize) -> String {
    const ELLIPSIS: char = '…';
    match text.char_indices().nth(longest) {
        None => text.to_owned(),
        Some(_) => text.chars().take(longest.saturating_sub(1)).chain([ELLIPSIS]).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_one_line_and_a_limit() {
        let long = CniError::new(Code::InvalidConfig, format!("a\n{}", "ü".repeat(1000)));
        assert_eq!(long.msg.chars().count(), LONGEST_MESSAGE);
        assert!(long.msg.starts_with("a\\nüü") && long.msg.ends_with("ü…"));
        assert_eq!(shortened(&"x".repeat(LONGEST_MESSAGE), LONGEST_MESSAGE), "x".repeat(LONGEST_MESSAGE));
    }

    #[test]
    fn document_is_that_of_the_specification() {
        let error = CniError::new(Code::TryAgainLater, "no \"quotes\"");
        assert_eq!(
            error.to_json(Version::V0_4_0),
            r#"{"cniVersion":"0.4.0","code":11,"msg":"no \"quotes\""}"#
        );
        let detailed = error.details("a\nb").to_json(Version::V1_1_0);
        assert!(detailed.ends_with(r#","details":"a\nb"}"#), "{detailed}");
    }
}
