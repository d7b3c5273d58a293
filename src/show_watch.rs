//! `show --watch`.

use std::time::{Duration, Instant};

use crate::apply::show::{Shown, rules};
use crate::config::{BackendChoice, Output};
use crate::format;
use crate::kernel::process::Host;
use crate::kernel::terminal;
use crate::report::Failure;

/// The pause between two lists.
const INTERVAL: Duration = Duration::from_secs(1);

/// Prints the rules with their rates again and again, until standard output cannot be written to; `paint` gives text its colours.
///
/// # Errors
/// The live state cannot be read, or standard output not be written to.
pub fn watch(
    host: &impl Host,
    choice: BackendChoice,
    output: Output,
    paint: &dyn Fn(String) -> String,
) -> Result<(), Failure> {
    let mut before: Option<(Instant, Vec<Shown>)> = None;
    loop {
        let now = Instant::now();
        let shown = rules(host, choice)?;
        let earlier = before.as_ref().map(|(at, shown)| (now.duration_since(*at), shown.as_slice()));
        let text = paint(format::show(&shown, earlier, output));
        terminal::show(&text, output == Output::Text).map_err(|error| Failure::no_output(&error))?;
        before = Some((now, shown));
        std::thread::sleep(INTERVAL);
    }
}
