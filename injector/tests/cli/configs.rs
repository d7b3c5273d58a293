//! Config, values, mesh config and namespace as files, and what is wrong with them.

use super::*;

/// Helm and istiod take the last value, too: config, values and mesh config of theirs are not refused.
#[test]
fn duplicate_keys_in_configs_are_warnings() {
    let folder = Folder::new();
    let deployment = folder.file("d.yaml", DEPLOYMENT);
    let config = format!("{}\npolicy: enabled\n", sidecar_injector::config::BUILTIN_CONFIG.trim_end());
    let line = config.lines().count();
    for (flag, text, expected) in [
        ("--values", "global:\n  tag: a\n  tag: b\n", "line 3, column 3: duplicate key \"tag\"".to_owned()),
        (
            "--mesh-config",
            "trustDomain: a\ntrustDomain: b\n",
            "line 2, column 1: duplicate key \"trustDomain\"".to_owned(),
        ),
        ("--inject-config", config.as_str(), format!("line {line}, column 1: duplicate key \"policy\"")),
    ] {
        let file = folder.file("c.yaml", text);
        let mut arguments = vec!["inject", "-f", &deployment, flag, &file];
        let values = folder.file("v.yaml", sidecar_injector::config::BUILTIN_VALUES);
        if flag == "--inject-config" {
            arguments.extend(["--values", &values]);
        }
        let notes = run(&arguments).unwrap().notes;
        let expected = format!("{file}: yaml: {expected}: only the last value is used");
        assert!(notes.iter().any(|note| note.contains(&expected)), "{expected}: {notes:?}");
    }
}

#[test]
fn errors_name_the_source_of_a_value() {
    let folder = Folder::new();
    let deployment = folder.file("d.yaml", DEPLOYMENT);
    let values = folder.file("v.yaml", "global: {proxy: {excludeInboundPorts: abc}}\n");
    let failure =
        |more: &[&str]| run(&[&["inject", "-f", &deployment], more].concat()).unwrap_err().to_string();
    for set in ["global=1", "global.proxy=x", "global.proxy.resources={a}", "global.proxy_init=1"] {
        let (path, _) = set.split_once('=').unwrap();
        let expected =
            format!("error: --set: {path}: expected a key below it, as the values have: KEY.KEY=VALUE\n");
        assert_eq!(failure(&["--set", set]), expected, "{set}");
        assert_eq!(failure(&["--set", set, "--init-image", "registry/init:1"]), expected, "{set}");
    }
    for set in [
        "global.proxy.privileged=abc",
        "pilot.cni.enabled=yes",
        "sidecarInjectorWebhook.rewriteAppHTTPProbe=",
    ] {
        let path = set.split_once('=').unwrap().0;
        assert_eq!(failure(&["--set", set]), format!("error: --set: {path}: expected true or false\n"));
    }
    let text = failure(&["--set", "global.proxy.resources.limits.cpu=abc"]);
    assert!(
        text.contains("(found \"abc\"); --set global.proxy.resources.limits.cpu has this value"),
        "{text}"
    );
    let text = failure(&["--set", "global.proxy=null"]);
    assert!(text.contains("(found \"<no value>\"; a value that the template reads is not set)"), "{text}");
    let quoted = folder.file("quoted.yaml", "global: {logAsJson: \"true\"}\n");
    assert_eq!(
        failure(&["--values", &quoted]),
        format!("error: {quoted}: global.logAsJson: expected true or false\n")
    );
    let scalar = folder.file("scalar.yaml", "global: 1\n");
    assert_eq!(
        failure(&["--values", &scalar]),
        format!("error: {scalar}: global: expected a map of values\n")
    );
    let ports = "(global.proxy.excludeInboundPorts of";
    let file = failure(&["--values", &values]);
    assert!(file.contains(&format!("{ports} {values})")), "{file}");
    let set = failure(&["--values", &values, "--set", "global.proxy.excludeInboundPorts=def"]);
    assert!(set.contains("\"def\"") && set.contains(&format!("{ports} --set)")), "{set}");
    // With a config of one's own, the template that reads below the value fails.
    let config = folder.file(
        "config.yaml",
        "policy: enabled\ntemplates:\n  sidecar: |\n    spec:\n      containers:\n      - name: istio-proxy\n        image: {{ .Values.a.b.c }}\n",
    );
    let text = failure(&["--inject-config", &config, "--values", &scalar, "--set", "a.b=1"]);
    assert!(text.contains("the values are those of --set"), "{text}");
    let given = folder.file("given.yaml", "a: {b: 1}\n");
    let text = failure(&["--inject-config", &config, "--values", &given]);
    assert!(text.contains(&format!("the values are those of {given}")), "{text}");
}

#[test]
fn null_deletes_a_value_as_in_helm() {
    let folder = Folder::new();
    let deployment = folder.file("d.yaml", DEPLOYMENT);
    let config = folder.file(
        "config.yaml",
        "policy: enabled\ntemplates:\n  sidecar: |\n    metadata: {annotations: {values: '{{ toJson .Values.a }}'}}\n    spec: {}\n",
    );
    let values = folder.file("v.yaml", "a: {b: {c: 1}, d: 2, e: null}\n");
    for (set, left) in [
        (&["a.b=null"] as &[&str], r#"{"d":2,"e":null}"#),
        (&["a.b.c=null"], r#"{"b":{},"d":2,"e":null}"#),
        (&["a.none=null"], r#"{"b":{"c":1},"d":2,"e":null}"#),
        (&["a=null"], "null"),
        // Later ones count.
        (&["a.d=3", "a.d=null"], r#"{"b":{"c":1},"e":null}"#),
        (&["a.d=null,a.d=3"], r#"{"b":{"c":1},"d":3,"e":null}"#),
    ] {
        let mut words = vec!["inject", "-f", &deployment, "--inject-config", &config, "--values", &values];
        words.extend(set.iter().flat_map(|set| ["--set", set]));
        let text = run(&words).unwrap().text;
        assert!(
            text.contains(&format!("values: '{left}'")) || text.contains(&format!("values: \"{left}\"")),
            "{set:?}: {text}"
        );
    }
}

#[test]
fn files_of_another_sort_are_refused() {
    let folder = Folder::new();
    let file = folder.file("d.yaml", DEPLOYMENT);
    let config = folder.file("config.yaml", &run(&["config", "config"]).unwrap().text);
    let values = folder.file("values.yaml", &run(&["config", "values"]).unwrap().text);
    let mesh = folder.file("mesh.yaml", "trustDomain: cluster.local\n");
    for (flag, given, problem) in [
        (
            "--values",
            &config,
            "config.yaml: it is an injector config; expected values: pass it with --inject-config",
        ),
        ("--values", &mesh, "mesh.yaml: it is a mesh config; expected values: pass it with --mesh-config"),
        (
            "--inject-config",
            &values,
            "values.yaml: it is values; expected an injector config: pass it with --values",
        ),
        (
            "--mesh-config",
            &values,
            "values.yaml: it is values; expected a mesh config: pass it with --values",
        ),
        (
            "--inject-config",
            &file,
            "d.yaml: it is a Kubernetes object of kind Deployment; expected an injector config",
        ),
        (
            "--mesh-config",
            &file,
            "d.yaml: it is a Kubernetes object of kind Deployment; expected a mesh config",
        ),
    ] {
        let failure = run(&["inject", "-f", &file, flag, given]).unwrap_err();
        assert_eq!(failure.exit, Exit::Data);
        assert!(failure.problems[0].ends_with(problem), "{flag}: {failure}");
    }
    let typo = folder.file("typo.yaml", "global: {proxy: {imge: a}}\n");
    let failure = run(&["inject", "-f", &file, "--values", &typo]).unwrap_err().to_string();
    assert!(failure.contains("global.proxy.imge: not known; did you mean image?"), "{failure}");
    let unread = folder.file("unread.yaml", "global: {nosuch: true}\n");
    let notes = run(&["inject", "-f", &file, "--values", &unread]).unwrap().notes;
    assert!(notes[0].contains("global.nosuch: not supported by the built-in template"), "{notes:?}");
}

#[test]
fn the_namespace_file_is_that_of_the_object() {
    let folder = Folder::new();
    let file = folder.file("d.yaml", DEPLOYMENT);
    let namespace = |name: &str| {
        folder.file(
            &format!("{name}.yaml"),
            &format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n"),
        )
    };
    assert!(run(&["inject", "-f", &file, "--namespace-file", &namespace("shop")]).is_ok());
    let failure =
        run(&["inject", "-f", &file, "--namespace-file", &namespace("bank")]).unwrap_err().to_string();
    assert!(
        failure.contains("namespace shop: --namespace-file has namespace bank, expected shop"),
        "{failure}"
    );
}

#[test]
fn a_bad_value_is_reported_with_its_file() {
    let folder = Folder::new();
    let file = folder.file("d.yaml", DEPLOYMENT);
    let values = folder.file("values.yaml", "global: {proxy: {excludeInboundPorts: '80,8o'}}\n");
    let failure = run(&["inject", "-f", &file, "--values", &values]).unwrap_err().to_string();
    let place = format!("(global.proxy.excludeInboundPorts of {values})");
    assert!(failure.contains("8o") && failure.contains(&place), "{failure}");
    // The pod's own annotation is not a value of the config.
    let own = DEPLOYMENT.replace(
        "{labels: {app: web}}",
        "{annotations: {traffic.sidecar.istio.io/excludeInboundPorts: '80,8o'}}",
    );
    let own =
        run(&["inject", "-f", &folder.file("own.yaml", &own), "--values", &values]).unwrap_err().to_string();
    assert!(own.contains("traffic.sidecar.istio.io/excludeInboundPorts") && !own.contains("of /"), "{own}");
    let config = folder.file("config.yaml", "policy: enabled\ntemplates:\n  sidecar: |\n    metadata: {labels: {x: '{{ .Values.global.tag.x }}'}}\n");
    let values = folder.file("typed.yaml", "global: {tag: a}\n");
    let failure = run(&["inject", "-f", &file, "--inject-config", &config, "--values", &values])
        .unwrap_err()
        .to_string();
    assert!(
        failure.contains("can't evaluate field x in type string")
            && failure.contains(&format!("the values are those of {values}")),
        "{failure}"
    );
}

/// What `lint` finds in a file is its negative result, whatever it is; a file that cannot be read is none.
#[test]
fn lint_has_one_exit_code_for_invalid_configs() {
    let folder = Folder::new();
    let lint = |flag: &str, file: &str| run(&["lint", flag, file]);
    for flag in ["--inject-config", "--values", "--mesh-config"] {
        for text in ["", "# nothing\n---\n", "a: [", "- a\n", "policy: [\n"] {
            let output = lint(flag, &folder.file("c.yaml", text)).unwrap();
            assert!(output.refused && output.text.is_empty(), "{flag} {text:?}: {output:?}");
            assert!(output.notes[0].starts_with("error: "), "{:?}", output.notes);
        }
        let invalid = folder.file("invalid.yaml", "");
        std::fs::write(&invalid, b"a: \xff\n").unwrap();
        assert!(lint(flag, &invalid).unwrap().refused, "{flag}");
        assert_eq!(lint(flag, &format!("{invalid}.absent")).unwrap_err().exit, Exit::NoInput);
    }
}

/// A selector that is ignored injects pods that should not be, or the other way round.
#[test]
fn lint_refuses_selectors_that_are_ignored() {
    let folder = Folder::new();
    let values = folder.file("v.yaml", sidecar_injector::config::BUILTIN_VALUES);
    let lint = |more: &str| {
        let text = format!("{}\n{more}\n", sidecar_injector::config::BUILTIN_CONFIG.trim_end());
        run(&["lint", "--inject-config", &folder.file("c.yaml", &text), "--values", &values]).unwrap()
    };
    for (selector, problem) in [
        (
            "neverInjectSelector: [{matchExpressions: [{key: a, operator: Is, values: [b]}]}]",
            "[0]: ignored: ",
        ),
        ("alwaysInjectSelector: [{matchLabels: {'a b': c}}]", "[0]: ignored: "),
        ("neverInjectSelector: [{matchLabels: {a: b}}, {matchLabel: {a: b}}]", "[1].matchLabel: not known"),
    ] {
        let output = lint(selector);
        assert!(output.refused, "{selector}: {output:?}");
        let found = output.notes.iter().filter(|note| note.starts_with("error: ") && note.contains(problem));
        assert_eq!(found.count(), 1, "{selector}: {:?}", output.notes);
        assert!(!output.text.contains("no problem"), "{}", output.text);
    }
    // Other warnings are no errors, and a problem all the same.
    let output = lint("defaultTemplate: [x]");
    assert!(!output.refused && !output.notes.is_empty(), "{output:?}");
    assert!(output.text.starts_with("no error found, 1 warning; templates and aliases: "), "{}", output.text);
    assert!(lint("").text.starts_with("no problem found; templates and aliases: "));
}
