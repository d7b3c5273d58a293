//! Exit codes, for scripts. They are interface, documented in `--help` and in docs/exit-codes.md.

use std::fmt;
use std::process::ExitCode;

/// How a run ended. The numbers follow `sysexits.h` where it has one, and Istio for a failed validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything asked for was done, or was done already.
    Done = 0,
    /// What was compared differs, or is not proved to be the same.
    Different = 1,
    /// Bad options: flags, variables or the config file.
    Usage = 64,
    /// No usable backend: no tool, or the kernel has none of what the tools need.
    Unavailable = 69,
    /// The kernel or the restore tool refused.
    Refused = 70,
    /// A file asked for, or a report, cannot be written. A run that changes rules prints none, and needs no
    /// log.
    CannotCreate = 73,
    /// The lock stayed busy for the whole waiting time.
    Busy = 75,
    /// A privilege (capability) is missing.
    NoPermission = 77,
    /// Validation failed: the probe was not captured.
    ValidationFailed = 126,
}

impl Exit {
    /// All codes with what they mean, in numeric order, for `--help` and the documentation.
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::Done, "done"),
        (
            Self::Different,
            "a comparison found a difference, or cannot rule one out; --expect got another answer",
        ),
        (Self::Usage, "bad options"),
        (Self::Unavailable, "no usable backend; or no istio-iptables-report, which writes pages"),
        (Self::Refused, "the kernel or the restore tool refused"),
        (Self::CannotCreate, "cannot write a file, or the output to standard output"),
        (Self::Busy, "lock busy, or a tool hangs"),
        (Self::NoPermission, "missing privilege"),
        (Self::ValidationFailed, "validation failed"),
    ];

    /// The number a script sees.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code())
    }
}
