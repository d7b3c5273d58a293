//! Colours for text output, chosen by how a line begins.

use clap::{Args, ValueEnum};
use istio_iptables::commands::color::{GREEN, RED, RESET, YELLOW, painted_row};
use istio_iptables::kernel::terminal;

use super::Environment;

#[derive(Args, Clone, Debug)]
pub(super) struct ColorArgs {
    /// Colours in text; auto: on a terminal, unless NO_COLOR is set or TERM is dumb
    #[arg(long, value_enum, default_value_t = When::Auto, value_name = "WHEN")]
    color: When,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum When {
    Auto,
    Always,
    Never,
}

impl ColorArgs {
    /// The printed text.
    pub(super) fn paint(&self, text: String, environment: &Environment) -> String {
        let is_refused = || !environment.get("NO_COLOR").is_empty() || environment.get("TERM") == "dumb";
        let has_colors = match self.color {
            When::Always => true,
            When::Auto => !is_refused() && terminal::is_terminal(),
            When::Never => false,
        };
        if has_colors { text.split_inclusive('\n').map(painted).collect() } else { text }
    }
}

/// Line prefixes and their colours.
const LINES: [(&str, &str); 11] = [
    ("  yes ", GREEN),
    ("  no  ", YELLOW),
    ("  ?   ", YELLOW),
    ("  warning:", YELLOW),
    ("  error:", RED),
    ("broken ", RED),
    ("warning ", YELLOW),
    ("note ", YELLOW),
    ("not checked:", YELLOW),
    ("no problem found", GREEN),
    ("  fix ", GREEN),
];

/// Verdicts that follow the name of an object.
const VERDICTS: [(&str, &str); 3] = [(": injected", GREEN), (": not injected", YELLOW), (": refused", RED)];

fn painted(line: &str) -> String {
    let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
    let whole = LINES.iter().find(|(start, _)| line.starts_with(start)).map(|(_, style)| *style);
    // A verdict may quote another one: the first counts.
    let verdicts = VERDICTS.iter().filter_map(|(words, style)| Some((line.find(words)?, *style)));
    let verdict = verdicts.min_by_key(|(at, _)| *at).filter(|_| !line.starts_with(' '));
    let text = match (whole, verdict) {
        (Some(style), _) => [style, line, RESET].concat(),
        (None, Some((at, style))) => {
            let (object, verdict) = line.split_at_checked(at + 2).unwrap_or((line, ""));
            [object, style, verdict, RESET].concat()
        }
        (None, None) => painted_row(line).unwrap_or_else(|| line.to_owned()),
    };
    text + end
}
