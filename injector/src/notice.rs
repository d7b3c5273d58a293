//! What parts that run beside the server have to say; whoever starts them decides where it goes.

use std::fmt;
use std::sync::Arc;

/// Whether somebody has to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// It is as it should be.
    Info,
    /// It is not.
    Warn,
}

/// One line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether somebody has to look.
    pub level: Level,
    /// What it is about, as a word from a closed list: `config`, `certificate`, `caBundle`, `nodes`, `namespaces`.
    pub about: &'static str,
    /// The sentence.
    pub message: String,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.about, self.message)
    }
}

/// Where notices go.
pub type Say = Arc<dyn Fn(Notice) + Send + Sync>;

/// Says that something is as it should be.
pub(crate) fn info(say: &Say, about: &'static str, message: impl Into<String>) {
    say(Notice { level: Level::Info, about, message: message.into() });
}

/// Says that something is not as it should be.
pub(crate) fn warn(say: &Say, about: &'static str, message: impl Into<String>) {
    say(Notice { level: Level::Warn, about, message: message.into() });
}
