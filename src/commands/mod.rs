//! The commands of the program, one file each. None but [`capture`] and [`guard`] changes anything.

pub mod bundle;
pub mod capture;
pub mod check;
mod check_format;
pub mod color;
mod diff;
pub mod explain;
pub mod guard;
mod interfaces;
mod namespace;
mod observe;
mod older;
mod show;
mod validate;

use crate::config::{Color, GivenOption, Intent, OptionScope, Question, Resolved, RunOptions};
use crate::exit::Exit;
use crate::kernel::process::Host;
use crate::kernel::terminal;
use crate::report::Failure;
use crate::text::wrapped;
use namespace::{enter, enter_settled, network, require_intention, require_net_admin};

pub use check_format::check as check_report;
pub use older::{forget_connections, older_connections, reset_connections};

/// Executes a run. Returns the text for standard output, with the exit code.
///
/// # Errors
/// The first stage that fails.
pub fn run(host: &impl Host, resolved: Resolved) -> Result<(String, Exit), Failure> {
    let Resolved {
        run,
        log: _,
        query,
        question,
        diff,
        guard,
        observe,
        color,
        is_bare,
        wide,
        intent,
        warnings,
        given,
        scope,
    } = resolved;
    let has_colors = match color {
        Color::Always => true,
        Color::Auto => terminal::is_terminal(),
        Color::Never => false,
    };
    let width = terminal::width().filter(|_| !wide);
    let paint = |report: String| {
        let painted = if has_colors { color::paint(&report) } else { report };
        if let Some(width) = width { wrapped(&painted, width) } else { painted }
    };
    for warning in &warnings {
        log::warn!("{warning}");
    }
    if let Some(query) = query {
        return explain::explain(host, &query, intent, &run, &given)
            .map(|(report, exit)| (paint(report), exit));
    }
    if let Some(question) = question {
        let (report, exit) = answer(host, question, intent, &run, (scope, &given, &paint))?;
        return Ok((paint(report), exit));
    }
    if let Some(options) = guard {
        return guard::guard(host, options, intent, &run, (scope, &given)).map(|exit| (String::new(), exit));
    }
    if let Some(options) = observe {
        return observe::observe(host, options, &intent, &run, &given).map(|exit| (String::new(), exit));
    }
    if let Some(query) = diff {
        enter(&run)?;
        let known = diff::DiffContext { intent, run, network };
        return diff::diff(host, &query, &known).map(|(report, exit)| (paint(report), exit));
    }
    if is_bare {
        require_intention()?;
    }
    if !given.is_empty() {
        let options: Vec<String> = given.iter().map(ToString::to_string).collect();
        log::info!("options: {}", options.join(" "));
    }
    capture::capture(host, intent, &run)
}

/// The report to a question about the live rules.
fn answer(
    host: &impl Host,
    question: Question,
    intent: Intent,
    run: &RunOptions,
    (scope, given, paint): (OptionScope, &[GivenOption], &dyn Fn(String) -> String),
) -> Result<(String, Exit), Failure> {
    require_net_admin()?;
    enter_settled(run)?;
    Ok(match question {
        Question::Bundle(context) => (bundle::bundle(host, &context, &intent, run), Exit::Done),
        Question::Check(output) => check::report(host, output, intent, run, (scope, given))?,
        Question::Show { output, watch } => {
            (show::show(host, run.backend, output, watch, paint)?, Exit::Done)
        }
    })
}
