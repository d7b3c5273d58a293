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
    let twice = line(&["-b", "80", "apply", "-b", "90"]);
    assert_eq!(twice.text(Key::InboundPorts).as_deref(), Some("90"));
}

#[test]
fn unexpected_arguments_are_refused_with_hint() {
    const UNEXPECTED: &str = "unexpected argument \"xyz\": neither a sub-command nor the value of an option; sub-commands are \
                              apply, bundle, check, cleanup, diff, explain, guard, observe, show";
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
        (&["xyz"], UNEXPECTED),
        (&["apply", "xyz"], UNEXPECTED),
        (
            &["cleanupp"],
            "unexpected argument \"cleanupp\": neither a sub-command nor the value of an option; did you mean cleanup?",
        ),
        (
            &["--istio-inbound-port=80"],
            "unknown option \"--istio-inbound-port\"; did you mean --istio-inbound-ports (-b)?",
        ),
        (&["show", "--to", "10.0.0.1:80"], "unknown option \"--to\" here; it belongs to explain, observe"),
        (&["check", "--watch"], "unknown option \"--watch\" here; it belongs to show"),
        (&["--bundle", "x"], "unknown option \"--bundle\" here; it belongs to check, explain, show"),
        (&["-y"], "unknown option \"-y\"; `istio-iptables --help` lists the options"),
        (&["-b"], "--istio-inbound-ports needs a value: PORTS"),
        (&["explain", "--to", ""], "--to needs a value: ADDRESS:PORT"),
        (
            &["-redirect-dns"],
            "\"-redirect-dns\" would be read as one-letter options; did you mean --redirect-dns, with two dashes?",
        ),
    ] {
        assert_eq!(line(args).errors(), [expected], "{args:?}");
    }
}

#[test]
fn words_of_other_programs_are_refused_with_what_is_meant_here() {
    for (args, expected) in [
        (&["--uninstall"][..], "unknown option \"--uninstall\"; `cleanup` removes the rules"),
        (
            &["check", "--health"],
            "unknown option \"--health\"; `check` exits with 0 if the live rules are right, \
             `explain --live --expect no-problem` if nothing is wrong with the pod",
        ),
        (
            &["status"],
            "unexpected argument \"status\": neither a sub-command nor the value of an option; `check` exits with 0 if the live rules \
             are right, `explain --live --expect no-problem` if nothing is wrong with the pod",
        ),
        (
            &["show", "--netns", "x"],
            "unknown option \"--netns\"; --pid takes a process, --network-namespace a path or a name of `ip netns`",
        ),
        (
            &["check", "-json"],
            "unknown option \"-j\"; `--output json` (`-o json`) of check, diff, explain, guard, observe and show prints JSON",
        ),
        (
            &["show", "--json"],
            "unknown option \"--json\"; `--output json` (`-o json`) of check, diff, explain, guard, observe and show prints JSON",
        ),
        (
            &["explain", "--pod", "web"],
            "unknown option \"--pod\"; `kubectl capture explain pod/NAME` asks about a pod of the cluster",
        ),
        (
            &["audit"],
            "unexpected argument \"audit\": neither a sub-command nor the value of an option; `install-cni audit` lists the pods of \
             a node, `check --pid PID` compares one",
        ),
        (
            &["bundle", "-o", "pod.json"],
            "unknown option \"--output\"; it belongs to check, diff, explain, guard, observe and show; \
             `istio-iptables bundle > FILE` writes a file",
        ),
        (
            &["cleanup", "-n", "shop"],
            "unexpected argument \"shop\": neither a sub-command nor the value of an option; -n is --dry-run here; `kubectl capture` \
             takes -n NAMESPACE, `--network-namespace` a path or a name of `ip netns`",
        ),
        (
            &["check", "-n"],
            "--dry-run (-n): no effect with check; leave it out; check, diff, explain, guard without --action, observe and show change \
             nothing",
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
    for args in [&["-h"][..], &["check", "--help"], &["istio-iptables", "--help"]] {
        assert!(line(args).printed().contains("--istio-inbound-ports"), "{args:?}");
    }
    assert!(line(&["--version"]).printed().contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn options_without_an_effect_are_refused_by_sub_commands() {
    for args in [&["show", "-p", "99", "-b", "80"][..], &["-b", "80", "-p", "99", "show"]] {
        assert_eq!(
            line(args).errors(),
            [
                "--envoy-port (-p), --istio-inbound-ports (-b): no effect with show; leave it out; `istio-iptables show --help` lists what it accepts"
            ]
        );
    }
    for (sub, option) in [
        ("check", "--dry-run"),
        ("explain", "--cleanup-only"),
        ("bundle", "--rules-file=x"),
        ("cleanup", "--dual-stack"),
        ("show", "--keep-connections"),
    ] {
        let errors = line(&[sub, option]).errors();
        let name = option.split('=').next().unwrap();
        let [error] = errors.as_slice() else { panic!("{errors:?}") };
        let start = format!("no effect with {sub}; leave it out; ");
        assert!(error.contains(name) && error.contains(&start), "{error}");
        assert!(!line(&[sub, "--help"]).printed().contains(&format!("{name} ")), "{sub} {name}");
    }
    let help = line(&["show", "--help"]).printed();
    for spec in Key::ALL.iter().filter(|key| key.spec().has_flag()).map(|key| key.spec()) {
        let is_accepted = ["Backend", "Logging"].contains(&spec.heading.title())
            || ["network-namespace", "pid", "cni-mode", "config"].contains(&spec.name);
        assert_eq!(help.contains(&format!("--{}", spec.name)), is_accepted, "{}\n{help}", spec.name);
    }
}

/// In a pod they are set for its init container.
#[test]
fn variables_and_config_files_are_for_every_sub_command() {
    for sub in
        [SubCommand::Bundle, SubCommand::Check, SubCommand::Cleanup, SubCommand::Explain, SubCommand::Show]
    {
        let raw = line(&[sub.name()])
            .env("ISTIO_INBOUND_PORTS", "80")
            .env("DRY_RUN_FILE_PATH", "/tmp/rules")
            .env("RUN_VALIDATION", "no boolean")
            .document(r#"{"dry-run": true, "istio-service-cidr": "*", "pid": 7}"#)
            .raw();
        let is_about_rules = !matches!(sub, SubCommand::Cleanup | SubCommand::Show);
        assert_eq!(raw.given(Key::InboundPorts).is_some(), is_about_rules, "{sub:?}");
        assert_eq!(raw.given(Key::ServiceCidr).is_some(), is_about_rules, "{sub:?}");
        assert_eq!(raw.given(Key::DryRun).is_some(), sub == SubCommand::Cleanup, "{sub:?}");
        assert!(raw.given(Key::Pid).is_some() && raw.given(Key::RunValidation).is_none(), "{sub:?}");
    }
}

#[test]
fn completions_and_the_man_page_have_every_option_and_command() {
    let text = |name: &str| cli_docs::text(name, &command()).unwrap();
    let texts = cli_docs::SHELLS.map(text);
    let man = text("man").replace("\\-", "-");
    for text in texts.iter().chain([&man]) {
        for spec in Key::ALL.iter().map(|key| key.spec()).filter(|spec| spec.has_flag()) {
            for name in std::iter::once(spec.name).chain(spec.alias) {
                assert!(
                    text.contains(&format!("--{name}")) || text.contains(&format!("-l {name} ")),
                    "{name}\n{text}"
                );
            }
            let words = spec.words.join(" ");
            assert!(spec.kind == Kind::Boolean || text == &man || text.contains(&words), "{words}\n{text}");
        }
        for sub in SubCommand::ALL {
            // Bash shows no descriptions.
            let is_described = text == &texts[0] || text.contains(sub.about());
            assert!(
                text.contains(sub.name()) && is_described,
                "{}
{text}",
                sub.name()
            );
            for key in sub.own_options() {
                assert!(text.contains(key.name()), "{key}\n{text}");
            }
        }
        assert!(!text.contains("vklog"));
    }
}

#[test]
fn examples_in_help_are_accepted() {
    for sub in SubCommand::ALL {
        let help = line(&[sub.name(), "--help"]).printed();
        let (_, examples) = help.split_once("Examples:\n").unwrap();
        assert!(examples.lines().count() > 0, "{help}");
        for example in examples.lines() {
            let words = example.split_whitespace().take_while(|word| !["|", ">"].contains(word));
            let words: Vec<&str> = words.map(|word| word.trim_matches('\'')).collect();
            assert_eq!(words.first(), Some(&"istio-iptables"), "{example}");
            assert!(line(words.get(1..).unwrap()).parse().is_ok(), "{example}");
        }
    }
}

#[test]
fn colours_are_off_without_a_terminal_s_consent() {
    let color = |input: &Input<'_>| input.raw().packet(PacketKey::Color).to_owned();
    assert_eq!(color(&line(&["explain"])), "auto");
    assert_eq!(color(&line(&["explain"]).env("NO_COLOR", "")), "auto");
    assert_eq!(color(&line(&["show"]).env("NO_COLOR", "1")), "never");
    assert_eq!(color(&line(&["check"]).env("TERM", "dumb")), "never");
    assert_eq!(color(&line(&["check", "--color", "always"]).env("NO_COLOR", "1")), "always");
}
