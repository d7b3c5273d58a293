//! Events of the tasks that run beside the server, and the sink that they go to.

use std::fmt;
use std::sync::Arc;

/// Whether an event needs attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// It does not.
    Info,
    /// It does.
    Warn,
}

/// One log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whether it needs attention.
    pub level: Level,
    /// What it is about, from a closed list: `config`, `certificate`, `caBundle`, `nodes`, `namespaces`.
    pub component: &'static str,
    /// What happened: a constant.
    pub message: &'static str,
    /// The facts.
    pub detail: String,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.component, self.message, self.detail)
    }
}

/// Where events go.
pub type EventSink = Arc<dyn Fn(Event) + Send + Sync>;

/// The sink that logs.
#[must_use]
pub fn log_sink() -> EventSink {
    Arc::new(|Event { level, component, message, detail }| {
        let level = match level {
            Level::Info => log::Level::Info,
            Level::Warn => log::Level::Warn,
        };
        log::log!(level, component, detail = detail.as_str(); "{message}");
    })
}
