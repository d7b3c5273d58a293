//! Completion for zsh, as a file of `fpath` or to be sourced.

use clap::{Arg, Command};

use super::{
    Value, arguments, command_names, function, inherited, is_path, names, standard, summary, value,
    value_name,
};

/// Processes by their numbers, with their names.
const PROCESSES: &str = r#"    local file
    local -a processes
    for file in /proc/[1-9]*/comm(N); do
        processes+=("${${file#/proc/}%/comm}:$(<$file)")
    done 2>/dev/null
    _describe process processes
"#;

pub(crate) fn script(command: &Command) -> String {
    let (name, function) = (command.get_name(), function(command));
    let mut text = ["#compdef ", name, "\n"].concat();
    let subs = command.get_subcommands().flat_map(arguments);
    if arguments(command).chain(subs).any(|argument| matches!(value(argument), Value::Process)) {
        text.extend(["_", &function, "_processes() {\n", PROCESSES, "}\n"]);
    }
    text.extend(["_", &function, "() {\n"]);
    text.push_str(
        "    local context state state_descr line curcontext=$curcontext\n    typeset -A opt_args\n",
    );
    text.push_str("    local -a options=(\n");
    for argument in arguments(command).chain(&standard(true)) {
        option(&mut text, &function, argument);
    }
    text.push_str("    )\n    local -a commands=(\n");
    for sub in command.get_subcommands() {
        let about = summary(sub.get_about()).replace(':', "\\:");
        for name in command_names(sub) {
            text.extend(["        ", &quoted(&[name, ":", &about].concat()), "\n"]);
        }
    }
    text.push_str("    )\n    _arguments -s $options '1: :->command' '*:: :->rest' && return\n");
    text.push_str("    case $state in\n    command) _describe command commands ;;\n    rest)\n");
    text.push_str("        case $line[1] in\n");
    for sub in command.get_subcommands() {
        text.extend(["        ", &command_names(sub).join("|"), ") options=(\n"]);
        for argument in arguments(sub).chain(inherited(command, sub)).chain(&standard(false)) {
            option(&mut text, &function, argument);
        }
        text.push_str("        ) ;;\n");
    }
    text.push_str("        esac\n        _arguments -s $options ;;\n    esac\n}\n");
    text.extend(["if [[ $funcstack[1] == _", name, " ]]; then _", &function, " \"$@\"; else compdef _"]);
    text.extend([&function, " ", name, "; fi\n"]);
    text
}

fn option(text: &mut String, function: &str, argument: &Arg) {
    let value = value(argument);
    let name = value_name(argument);
    let candidates = match &value {
        Value::None => String::new(),
        Value::Optional(words) => ["::", &name, ":(", words, ")"].concat(),
        Value::Words(words) => [":", &name, ":(", words, ")"].concat(),
        Value::File => [":", &name, ":_files"].concat(),
        Value::Process => [":", &name, ":_", function, "_processes"].concat(),
        Value::Any => [":", &name, ": "].concat(),
    };
    let mut spec = |start: &str, rest: &str| {
        text.extend(["        ", &quoted(&[start, rest].concat()), "\n"]);
    };
    if argument.is_positional() {
        return match value {
            Value::Words(words) if is_path(argument) => {
                spec("*:", &[&name, ":{compadd ", &words, "; _files}"].concat())
            }
            // A bare message would take the place of options.
            Value::Any => spec("*:", &[&name, ":()"].concat()),
            Value::None | Value::Optional(_) | Value::Words(_) | Value::File | Value::Process => {
                spec("*", &candidates)
            }
        };
    }
    let help = summary(argument.get_help());
    let help =
        ["[", &help.replace('\\', "\\\\").replace('[', "\\[").replace(']', "\\]").replace(':', "\\:"), "]"];
    let help = help.concat();
    for name in names(argument) {
        let with_value = match (&value, name.starts_with("--")) {
            (Value::None, _) | (Value::Optional(_), false) => None,
            (Value::Optional(_), true) => Some("=-"),
            (Value::Words(_) | Value::File | Value::Process | Value::Any, true) => Some("="),
            (Value::Words(_) | Value::File | Value::Process | Value::Any, false) => Some("+"),
        };
        let candidates = if with_value.is_some() { candidates.as_str() } else { "" };
        spec(&["*", &name, with_value.unwrap_or_default()].concat(), &[help.as_str(), candidates].concat());
    }
}

fn quoted(text: &str) -> String {
    ["'", &text.replace('\'', "'\\''"), "'"].concat()
}
