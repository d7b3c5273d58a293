//! Sub-commands, unexpected arguments, help.

use super::*;

#[test]
fn sub_commands_with_options_on_either_side() {
    for args in [["cleanup", "-n"], ["-n", "cleanup"]] {
        let raw = line(&args).raw();
        assert_eq!(raw.command, SubCommand::Cleanup);
        assert_eq!(raw.given(Key::DryRun).unwrap().text, "true");
    }
    assert_eq!(line(&["istio-iptables", "apply"]).raw().command, SubCommand::Apply);
    let twice = line(&["-b", "80", "cleanup", "-b", "90"]);
    assert_eq!(twice.text(Key::InboundPorts).as_deref(), Some("90"));
}

#[test]
fn unexpected_arguments_are_refused_with_hint() {
    for (args, expected) in [
        (
            &["--dual-stack", "false"][..],
            "unexpected argument \"false\": neither a sub-command nor the value of an option; a boolean takes its value behind `=`: \
             --dual-stack=false",
        ),
        (
            &["cleanup", "-n", "true"],
            "unexpected argument \"true\": neither a sub-command nor the value of an option; a boolean takes its value behind `=`: -n=true",
        ),
        (&["now"], "unexpected argument \"now\": neither a sub-command nor the value of an option"),
        (&["apply", "now"], "unexpected argument \"now\": neither a sub-command nor the value of an option"),
        (
            &["cleanup", "apply"],
            "unexpected argument \"apply\": neither a sub-command nor the value of an option",
        ),
        (
            &["--istio-inbound-port=80"],
            "unknown option \"--istio-inbound-port\"; did you mean --istio-inbound-ports?",
        ),
        (&["-y"], "unknown option \"-y\""),
        (&["-b"], "--istio-inbound-ports needs a value"),
        (
            &["-redirect-dns"],
            "\"-redirect-dns\" would be read as one-letter options; did you mean --redirect-dns, with two dashes?",
        ),
    ] {
        assert_eq!(line(args).errors(), [expected], "{args:?}");
    }
}

#[test]
fn command_lines_are_independent() {
    const LINES: [&[&str]; 9] = [
        &["-b", "*", "-x", "10.0.0.0/8"],
        &["-x", ""],
        &["cleanup", "-n"],
        &["apply", "-b", "80"],
        &["--help"],
        &["cleanup", "--help"],
        &["--version"],
        &["--nope"],
        &["-b"],
    ];
    // In a thread of its own there is none before.
    let alone = LINES.map(|args| std::thread::spawn(move || line(args).parse()).join().unwrap());
    for first in LINES {
        for (second, expected) in LINES.iter().zip(&alone) {
            let _ = line(first).parse();
            assert_eq!(&line(second).parse(), expected, "{first:?}, then {second:?}");
        }
    }
}

#[test]
fn help_shows_every_option_and_exit_code() {
    let help = line(&["--help"]).printed();
    for key in Key::ALL {
        let spec = key.spec();
        let shown = if spec.has_flag() { format!("--{}", spec.name) } else { spec.name.to_owned() };
        assert!(help.contains(&shown), "{shown}\n{help}");
        for name in spec.variable_names() {
            assert!(help.contains(&name), "{name}");
        }
        assert!(help.contains(&format!("{}:", spec.heading.title())) || !spec.has_flag());
    }
    for (exit, meaning) in crate::exit::Exit::ALL {
        assert!(help.contains(&format!("{:>3}  {meaning}", exit.code())), "{meaning}");
    }
    assert!(!help.contains("vklog"));
    for args in [&["-h"][..], &["cleanup", "--help"], &["istio-iptables", "--help"]] {
        assert!(line(args).printed().contains("--istio-inbound-ports"), "{args:?}");
    }
    assert!(line(&["--version"]).printed().contains(env!("CARGO_PKG_VERSION")));
}
