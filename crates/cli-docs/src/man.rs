//! The man page of a program, generated from the definition of its command line.

use clap::{Arg, Command};

use super::{Value, arguments, command_names, names, standard, value, value_name};

/// The page in roff, for section 1.
pub(crate) fn page(command: &Command) -> String {
    let name = command.get_name();
    let about = plain(command.get_about());
    let version = command.get_version().unwrap_or_default();
    let mut page =
        [".TH ", &name.to_uppercase(), " 1 \"\" \"", name, " ", version, "\"\n.SH NAME\n"].concat();
    page.extend([&roff(name), " \\- ", &roff(about.split(':').next().unwrap_or_default()), "\n"]);
    page.extend([".SH SYNOPSIS\n.B ", &roff(name), "\n[\\fICOMMAND\\fR] [\\fIOPTION\\fR]...\n"]);
    page.extend([".SH DESCRIPTION\n", &roff(&about), "\n.SH COMMANDS\n"]);
    for sub in command.get_subcommands() {
        page.extend([
            ".SS ",
            &roff(&command_names(sub).join(", ")),
            "\n",
            &roff(&plain(sub.get_about())),
            "\n",
        ]);
        arguments(sub).for_each(|argument| option(&mut page, argument));
        verbatim(&mut page, &plain(sub.get_after_help()));
    }
    page.push_str(".SH OPTIONS\n");
    let mut heading = None;
    for argument in arguments(command).chain(&standard(true)) {
        let own = argument.get_help_heading();
        if own != heading {
            page.extend([".SS ", &roff(own.unwrap_or("Other")), "\n"]);
            heading = own;
        }
        option(&mut page, argument);
    }
    page.push_str(".SH NOTES\n");
    verbatim(&mut page, &plain(command.get_after_help()));
    page
}

fn plain(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

fn option(page: &mut String, argument: &Arg) {
    let mut title: Vec<String> =
        names(argument).iter().map(|name| ["\\fB", &roff(name), "\\fR"].concat()).collect();
    if argument.is_positional() {
        title.push(String::new());
    }
    let placeholder = ["\\fI", &roff(&value_name(argument)), "\\fR"].concat();
    let value = match value(argument) {
        Value::None => String::new(),
        Value::Optional(_) => ["[=", &placeholder, "]"].concat(),
        Value::Words(_) | Value::File | Value::Process | Value::Any => [" ", &placeholder].concat(),
    };
    page.extend([".TP\n", &title.join(", "), &value, "\n", &roff(&plain(argument.get_help())), "\n"]);
}

fn verbatim(page: &mut String, text: &str) {
    if !text.is_empty() {
        page.push_str(".PP\n.nf\n");
        text.lines().for_each(|line| page.extend([&roff(line), "\n"]));
        page.push_str(".fi\n");
    }
}

/// Text without a meaning for roff: a dot or an apostrophe at the beginning of a line would be a request.
fn roff(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    if escaped.starts_with(['.', '\'']) { ["\\&", &escaped].concat() } else { escaped }
}
