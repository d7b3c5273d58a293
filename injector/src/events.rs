//! Events of the tasks that run beside the server, and the sink that they go to.

use std::fmt;
use std::sync::Arc;

use log::Level;

/// One log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `Warn` if it needs attention, else `Info`.
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

/// The destination of events.
pub(crate) type EventSink = Arc<dyn Fn(Event) + Send + Sync>;

/// The sink that logs.
pub(crate) fn log_sink() -> EventSink {
    Arc::new(|Event { level, component, message, detail }| {
        log::log!(level, component, detail = detail.as_str(); "{message}");
    })
}
