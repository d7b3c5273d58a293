//! The text of `--help`.

use std::fmt::Write;

use super::options::Key;
use super::spec::OptionSpec;
use crate::exit::Exit;

pub(super) const ABOUT: &str = "Redirects a pod's traffic to its sidecar proxy: writes the netfilter rules that send \
     inbound and outbound connections through the proxy, and updates them when the options change.";

/// The help of one option, with its default and its variables.
pub(super) fn of(spec: &OptionSpec) -> String {
    let mut text = spec.help.to_owned();
    if !spec.default.is_empty() {
        text.push_str(&format!(" [default: {}]", spec.default));
    }
    let names = spec.variable_names();
    if !names.is_empty() {
        text.push_str(&format!(" [env: {}]", names.join(", ")));
    }
    text
}

const EXAMPLES: &str = "
Examples:
  istio-iptables -i '*' -b '*' -d 15020,15021,15090
  istio-iptables explain --live --from outside --to 10.0.0.9:15020
  istio-iptables check --pid 4711
";

/// The text below the options.
pub(super) fn after() -> String {
    let mut text = String::from("Options that are environment variables only:\n");
    for spec in Key::ALL.iter().map(|key| key.spec()).filter(|spec| !spec.has_flag()) {
        let default = match spec.default {
            "" => String::new(),
            default => format!(" [default: {default}]"),
        };
        // Writing into a string cannot fail.
        let _ = writeln!(text, "  {}\n          {}{default}", spec.name, spec.help);
    }
    text.push_str(
        "\nPrecedence: flag, environment variable, config file, default. Lists are \
         comma-separated. Booleans are given as --flag or --flag=false.\n\nExit codes:\n",
    );
    for (exit, meaning) in Exit::ALL {
        let _ = writeln!(text, "  {:>3}  {meaning}", exit.code());
    }
    text.push_str(EXAMPLES);
    text
}
