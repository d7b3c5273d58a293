//! Help and errors for people who run `istio-cni`: runtimes set `CNI_COMMAND` and pass no argument.

use istio_iptables::cli::is_misspelt;
use istio_iptables::exit::Exit;

/// The commands of the agent.
pub const COMMANDS: [&str; 4] = ["install", "status", "audit", "uninstall"];

const HELP: &str = "\
Usage: istio-cni COMMAND [OPTIONS]

A CNI plugin. Container runtimes call it with CNI_COMMAND and other variables, and the configuration on standard input.

Commands:
  install      run the node agent: install the plugin and its configuration entry, and keep both in place;
               see `istio-cni install --help`
  status       print what is installed on this node; exit code 1 if pods are not captured
  audit        compare the live rules of all captured pods of this node with those that the plugin wrote; exit code 1 if a
               pod's differ or cannot be read; see `istio-cni audit --help`
  uninstall    remove the plugin's entry and state from this node; see `istio-cni uninstall --help`

Options:
  -h, --help     print this help
  -V, --version  print the version
";

/// A text to print, and how the program ends with it: bad usage belongs to standard error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The text, with its line end.
    pub text: String,
    /// How the program ends.
    pub exit: Exit,
}

/// The reply to an argument that is not a command of the agent. `None`: there is no argument.
#[must_use]
pub fn reply(argument: Option<&str>) -> Option<Reply> {
    let (text, exit) = match argument? {
        "--help" | "-h" | "help" => (HELP.to_owned(), Exit::Done),
        "--version" | "-V" | "version" => (version("istio-cni"), Exit::Done),
        other => {
            let accepted = "install, status, audit, uninstall, --help or --version";
            let mut commands = COMMANDS.into_iter();
            let hint = match other.to_ascii_lowercase().as_str() {
                "check" => "; `audit` compares the live rules (CHECK of CNI is CNI_COMMAND=CHECK)".to_owned(),
                "add" | "del" | "gc" => "; the container runtime sets CNI_COMMAND for that".to_owned(),
                "repair" | "guard" => {
                    format!("; the agent does that: `istio-cni install --{other}`, see its --help")
                }
                _ => commands
                    .find(|command| is_misspelt(other, command))
                    .map(|command| format!("; did you mean {command}?"))
                    .unwrap_or_default(),
            };
            let problem = format!("unknown argument {other:?}, expected {accepted}{hint}\n");
            (problem, Exit::Usage)
        }
    };
    Some(Reply { text, exit })
}

/// What `--version` prints.
#[must_use]
pub fn version(program: &str) -> String {
    format!("{program} {}\n", env!("CARGO_PKG_VERSION"))
}
