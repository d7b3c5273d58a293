//! Completion for bash, without other programs.

use clap::{Arg, Command};

use super::{Value, arguments, command_names, function, inherited, names, standard, value};

/// An option and its value are two words, or one with `=`.
const SPACE_OR_EQUALS: &str = "[\\ =]";

/// `=` is a word of its own there, so that an option and its value are found before it and behind it.
const HEAD: &str = r#"() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} by=' ' command='' word words=''
    if [[ $cur == = ]]; then
        cur='' by='='
    elif [[ $prev == = ]]; then
        prev=${COMP_WORDS[COMP_CWORD-2]} by='='
    fi
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case $word in
"#;

/// Processes by the beginning of their number or name. Both are listed, the number alone is inserted.
const PROCESSES: &str = r#"
        compopt +o default 2>/dev/null
        COMPREPLY=()
        for word in /proc/[1-9]*/comm; do
            { read -r words <"$word"; } 2>/dev/null || continue
            word=${word#/proc/} word=${word%/comm}
            [[ $word == "$cur"* || $words == "$cur"* ]] && COMPREPLY+=("$word ($words)")
        done
        ((${#COMPREPLY[@]} == 1)) && COMPREPLY=("${COMPREPLY[0]%% *}")
        return ;;"#;

pub(crate) fn script(command: &Command) -> String {
    let (name, function) = (command.get_name(), function(command));
    let mut text = ["# Completion of ", name, " for bash.\n_", &function, HEAD].concat();
    let mut commands = Vec::new();
    for sub in command.get_subcommands() {
        let names = command_names(sub);
        line(&mut text, &["        ", &names.join("|"), ") command=", sub.get_name(), "; break ;;"]);
        commands.extend(names);
    }
    text.push_str("        esac\n    done\n    case $command$by$prev in\n");
    for sub in command.get_subcommands() {
        values(&mut text, sub.get_name(), sub);
    }
    values(&mut text, "*", command);
    text.push_str(
        "    *)\n        if [[ $cur == -* ]]; then\n            case $command in\n            '') words='",
    );
    text.push_str(&flags(arguments(command).chain(&standard(true))));
    text.push_str("' ;;\n");
    for sub in command.get_subcommands() {
        let all = arguments(sub).chain(inherited(command, sub)).collect::<Vec<_>>();
        let all = flags(all.into_iter().chain(&standard(false)));
        line(&mut text, &["            ", sub.get_name(), ") words='", &all, "' ;;"]);
    }
    text.push_str("            esac\n        else\n            case $command in\n            '') words='");
    text.push_str(&commands.join(" "));
    text.push_str("' ;;\n");
    for sub in command.get_subcommands() {
        let positional = arguments(sub).find(|argument| argument.is_positional());
        if let Some(Value::Words(words)) = positional.map(value) {
            line(&mut text, &["            ", sub.get_name(), ") words='", &words, "' ;;"]);
        }
    }
    text.push_str("            esac\n        fi ;;\n    esac\n    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\n");
    // File names where no word fits.
    line(&mut text, &["complete -o default -F _", &function, " ", name]);
    text
}

/// The values of options: a case for each.
fn values(text: &mut String, command: &str, definition: &Command) {
    let mut any: Vec<String> = Vec::new();
    for argument in arguments(definition).filter(|argument| !argument.is_positional()) {
        let patterns = |separator: &str| {
            let of = |name: String| [command, separator, &name].concat();
            names(argument).into_iter().map(of).collect::<Vec<_>>()
        };
        match value(argument) {
            Value::None => {}
            Value::Optional(words) => {
                line(text, &["    ", &patterns("=").join("|"), ") words='", &words, "' ;;"]);
            }
            Value::Words(words) => {
                line(text, &["    ", &patterns(SPACE_OR_EQUALS).join("|"), ") words='", &words, "' ;;"]);
            }
            Value::Process => {
                line(text, &["    ", &patterns(SPACE_OR_EQUALS).join("|"), ")", PROCESSES]);
            }
            Value::File => line(text, &["    ", &patterns(SPACE_OR_EQUALS).join("|"), ") ;;"]),
            Value::Any => any.extend(patterns(SPACE_OR_EQUALS)),
        }
    }
    if !any.is_empty() {
        line(text, &["    ", &any.join("|"), ") compopt +o default 2>/dev/null ;;"]);
    }
}

fn flags<'a>(arguments: impl Iterator<Item = &'a Arg>) -> String {
    arguments.flat_map(names).collect::<Vec<_>>().join(" ")
}

fn line(text: &mut String, parts: &[&str]) {
    text.extend(parts.iter().copied());
    text.push('\n');
}
