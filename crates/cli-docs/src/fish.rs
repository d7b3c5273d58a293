//! Completion for fish.

use clap::{Arg, Command};

use super::{Value, arguments, command_names, is_path, standard, summary, value};

pub(crate) fn script(command: &Command) -> String {
    let name = command.get_name();
    let start = ["complete -c ", name].concat();
    let mut text = ["# Completion of ", name, " for fish.\n", &start, " -f\n"].concat();
    for argument in arguments(command) {
        let refuses = |sub: &&Command| {
            sub.get_arguments().any(|own| own.get_id() == argument.get_id() && own.is_hide_set())
        };
        let refusing: Vec<_> = command.get_subcommands().filter(refuses).flat_map(command_names).collect();
        let condition = match refusing.as_slice() {
            [] => String::new(),
            names => [" -n 'not __fish_seen_subcommand_from ", &names.join(" "), "'"].concat(),
        };
        option(&mut text, &[start.as_str(), &condition].concat(), argument);
    }
    for argument in &standard(true) {
        option(&mut text, &start, argument);
    }
    for sub in command.get_subcommands() {
        let about = summary(sub.get_about());
        let names = command_names(sub);
        for name in &names {
            text.extend([&start, " -n __fish_use_subcommand -a ", name, " -d ", &quoted(&about), "\n"]);
        }
        let start = [&start, " -n '__fish_seen_subcommand_from ", &names.join(" "), "'"].concat();
        for argument in arguments(sub) {
            option(&mut text, &start, argument);
        }
    }
    text
}

fn option(text: &mut String, start: &str, argument: &Arg) {
    let values = match value(argument) {
        Value::None | Value::Optional(_) => String::new(),
        Value::Words(words) if is_path(argument) => [" -F -a ", &quoted(&words)].concat(),
        Value::Words(words) => [" -x -a ", &quoted(&words)].concat(),
        Value::File => " -r -F".to_owned(),
        Value::Process => " -x -a '(__fish_complete_pids)'".to_owned(),
        Value::Any if argument.is_positional() => return,
        Value::Any => " -x".to_owned(),
    };
    text.push_str(start);
    if let Some(short) = argument.get_short() {
        text.extend([" -s ", short.encode_utf8(&mut [0; 4])]);
    }
    for long in argument.get_long().into_iter().chain(argument.get_visible_aliases().unwrap_or_default()) {
        text.extend([" -l ", long]);
    }
    text.push_str(&values);
    if !argument.is_positional() {
        text.extend([" -d ", &quoted(&summary(argument.get_help()))]);
    }
    text.push('\n');
}

fn quoted(text: &str) -> String {
    ["'", &text.replace('\\', "\\\\").replace('\'', "\\'"), "'"].concat()
}
