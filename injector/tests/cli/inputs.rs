//! What may be given as input, and what form the output has.

use super::*;

#[test]
fn a_missing_command_prints_the_usage() {
    let failure = run(&[]).unwrap_err();
    assert_eq!(failure.exit, Exit::Usage);
    let text = failure.to_string();
    assert!(text.contains("Usage: sidecar-injector <COMMAND>") && !text.contains("error:"), "{text}");
    let positional = run(&["inject", "d.yaml"]).unwrap_err().to_string();
    assert!(
        positional.contains("'d.yaml'") && positional.contains("pass files with -f FILE"),
        "{positional}"
    );
    for given in [&["lint", "config.yaml"][..], &["lint", "-f", "config.yaml"]] {
        let config = run(given).unwrap_err().to_string();
        assert!(config.contains("pass the config with --inject-config FILE"), "{config}");
    }
    let misspelt = run(&["injct"]).unwrap_err().to_string();
    assert!(misspelt.contains("'inject'"), "{misspelt}");
}

#[test]
fn words_of_other_programs_are_refused_with_what_is_meant() {
    for (args, part) in [
        (&["version"][..], "'version': did you mean --version?"),
        (&["analyze"], "doctor what is wrong"),
        (&["uninstall"], "manifests --uninstall"),
        (&["nothing-like-it"], "'nothing-like-it': --help lists what is accepted"),
        (&["inject", "--dry-run", "-f", "x"], "--diff shows the changes"),
        (&["check", "--format", "json"], "'--format' found: did you mean -o?"),
        (&["inject", "--file", "x"], "did you mean -f FILE?"),
        (&["inject", "--nothing-like-it"], "--help lists what is accepted"),
    ] {
        let failure = run(args).unwrap_err();
        let text = failure.to_string();
        assert!(failure.exit == Exit::Usage && text.contains(part) && !text.contains("to pass"), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

#[test]
fn unusable_inputs_are_reported_with_a_fix() {
    let folder = Folder::new();
    let failure =
        |name: &str, text: &str| run(&["inject", "-f", &folder.file(name, text)]).unwrap_err().to_string();
    let chart = failure("chart.yaml", "{{ if .Values.x }}\na: b\n{{ end }}\n");
    assert!(chart.contains("chart.yaml: ") && chart.contains("run helm template first"), "{chart}");
    let chart =
        failure("named.yaml", &DEPLOYMENT.replace("{name: web, n", "{name: '{{ .Release.Name }}', n"));
    assert!(chart.contains("run helm template first"), "{chart}");
    let json = failure("broken.json", "{\"a\": [1,}");
    assert!(json.contains("broken.json: not valid JSON: ") && json.contains("line 1 column 10"), "{json}");
    let missing = run(&["inject", "-f", "/nowhere/x.yaml"]).unwrap_err().to_string();
    assert_eq!(missing, "error: /nowhere/x.yaml: No such file or directory\n");
    let url = run(&["inject", "-f", "https://example.com/x.yaml"]).unwrap_err().to_string();
    assert!(url.contains("a URL, expected a file: curl -fsSL https://example.com/x.yaml"), "{url}");
}

#[test]
fn directories_are_read_recursively_on_request() {
    let folder = Folder::new();
    folder.file("a.yaml", DEPLOYMENT);
    let inner = Path::new(&folder.file("b.yaml", SERVICE)).parent().unwrap().join("inner");
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(inner.join("c.yaml"), DEPLOYMENT.replace("{name: web, n", "{name: deep, n")).unwrap();
    let path = inner.parent().unwrap().to_str().unwrap().to_owned();
    let flat = run(&["inject", "-f", &path]).unwrap();
    assert!(!flat.text.contains("name: deep"), "{}", flat.text);
    let deep = run(&["inject", "-R", "-f", &path]).unwrap();
    assert_eq!(
        deep.summary,
        [
            "Deployment \"shop/web\": injected",
            "Service \"web\": no pod, not changed",
            "Deployment \"shop/deep\": injected"
        ]
    );
    assert_eq!(run(&["inject", "-R", "--quiet", "-f", &path]).unwrap().summary, [""; 0]);
}

#[test]
fn a_pod_template_of_another_kind_is_said_to_be_left_to_the_webhook() {
    let folder = Folder::new();
    let file = folder.file("r.yaml", &DEPLOYMENT.replace("kind: Deployment", "kind: Rollout"));
    let output = run(&["inject", "-f", &file]).unwrap();
    assert_eq!(
        output.summary,
        ["Rollout \"shop/web\": the pods of this kind are injected by the webhook only, not changed"]
    );
    assert_eq!(output.text, std::fs::read_to_string(&file).unwrap());
}

#[test]
fn a_diff_that_shows_something_is_a_negative_result() {
    let folder = Folder::new();
    let plain = folder.file("a.yaml", DEPLOYMENT);
    let once = folder.file("once.yaml", &run(&["inject", "-f", &plain]).unwrap().text);
    assert!(run(&["inject", "--diff", "-f", &plain]).unwrap().refused);
    let again = run(&["inject", "--diff", "-f", &once]).unwrap();
    assert_eq!((again.text.as_str(), again.refused), ("", false));
    assert!(!run(&["inject", "-f", &plain]).unwrap().refused);
}

#[test]
fn json_stays_json_and_line_endings_stay() {
    let folder = Folder::new();
    let value = sidecar_injector::yaml::read(DEPLOYMENT).unwrap();
    let json = folder.file("a.json", &value.to_string());
    let injected = run(&["inject", "-f", &json]).unwrap().text;
    let read: Value = serde_json::from_str(&injected).unwrap();
    assert_eq!(read["spec"]["template"]["spec"]["initContainers"][0]["name"], "istio-init");
    let yaml = folder.file("a.yaml", DEPLOYMENT);
    let as_json = run(&["inject", "-o", "json", "-f", &yaml]).unwrap();
    assert_eq!(
        (as_json.target.as_str(), &serde_json::from_str::<Value>(&as_json.text).unwrap()),
        ("-", &read)
    );
    let as_yaml = run(&["inject", "-o", "yaml", "-f", &json]).unwrap().text;
    assert_eq!(as_yaml, run(&["inject", "-f", &yaml]).unwrap().text);
    let windows = folder.file("w.yaml", &format!("{SERVICE}---\n{DEPLOYMENT}").replace('\n', "\r\n"));
    let out = run(&["inject", "-f", &windows]).unwrap().text;
    assert!(out.contains("name: istio-proxy\r\n"), "{out}");
    assert_eq!(out.matches('\n').count(), out.matches("\r\n").count());
}

#[test]
fn plain_scalars_that_are_no_text_are_warned_of() {
    let folder = Folder::new();
    let text =
        DEPLOYMENT.replace("{name: web, n", "{name: YES, labels: {mode: 0777, port: 80, on: \"off\"}, n");
    let notes = run(&["inject", "-f", &folder.file("a.yaml", &text)]).unwrap().notes;
    let all: Vec<&String> = notes.iter().filter(|note| note.contains("in YAML 1.1")).collect();
    let [name, mode] = all.as_slice() else { panic!("{notes:?}") };
    assert!(name.contains("metadata.name: YES is true in YAML 1.1: write it in quotes"), "{name}");
    assert!(mode.contains("metadata.labels.mode: 0777 is 511 in YAML 1.1"), "{mode}");
}

/// kubectl and istioctl take the last value and lose the first.
#[test]
fn duplicate_keys_are_refused_where_a_value_would_be_lost() {
    let folder = Folder::new();
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - {name: a, image: a}\n  \
               containers:\n  - {name: b, image: b}\n";
    let list = format!(
        "apiVersion: v1\nkind: List\nitems:\n{}",
        pod.replace("\n", "\n  ").replacen("api", "- api", 1)
    );
    let map = "apiVersion: v1\nkind: ConfigMap\ndata: {a: '1', a: '2'}\n";
    for (text, document, line, column, key) in [
        (pod.to_owned(), "", 7, 3, "containers"),
        (format!("{SERVICE}---\n{pod}"), ", document 2", 11, 3, "containers"),
        (list, "", 10, 5, "containers"),
        (DEPLOYMENT.replace("{app: web}", "{app: web, app: web}"), "", 7, 35, "app"),
        (DEPLOYMENT.replace("name: web, namespace: shop", "name: web, \"name\": shop"), "", 4, 23, "name"),
    ] {
        let file = folder.file("d.yaml", &text);
        for command in ["inject", "uninject", "check"] {
            let failure = run(&[command, "-f", &file]).unwrap_err();
            let place =
                format!("d.yaml{document}: yaml: line {line}, column {column}: duplicate key \"{key}\": ");
            assert!(failure.exit == Exit::Data && failure.to_string().contains(&place), "{place}: {failure}");
        }
    }
    // What is passed through loses nothing.
    let text = format!("{map}---\n{DEPLOYMENT}");
    let file = folder.file("m.yaml", &text);
    assert!(run(&["inject", "-f", &file]).unwrap().text.starts_with(map));
    let failure = run(&["inject", "-o", "yaml", "-f", &file]).unwrap_err().to_string();
    assert!(
        failure.contains("m.yaml, document 1: yaml: line 3, column 16: duplicate key \"a\""),
        "{failure}"
    );
    let values = folder.file("v.yaml", "global: {tag: a}\nglobal: {hub: b}\n");
    let notes =
        run(&["inject", "-f", &folder.file("d.yaml", DEPLOYMENT), "--values", &values]).unwrap().notes;
    assert!(
        notes.iter().any(|note| note.contains("v.yaml: yaml: line 2, column 1: duplicate key \"global\"")),
        "{notes:?}"
    );
    // Keys of `<<` are overwritten on purpose.
    let merge = DEPLOYMENT.replace("{labels: {app: web}}", "{labels: {<<: {app: api}, app: web}}");
    assert!(run(&["inject", "-f", &folder.file("a.yaml", &merge)]).is_ok());
}

#[test]
fn an_unknown_format_writes_no_file() {
    let folder = Folder::new();
    let file = folder.file("d.yaml", DEPLOYMENT);
    let failure = run(&["inject", "-f", &file, "-o", "xml"]).unwrap_err();
    assert_eq!(failure.exit, Exit::Usage);
    let text = failure.to_string();
    assert!(
        text.contains("--output xml: no such format, expected json, yaml or a file")
            && text.contains("./xml"),
        "{text}"
    );
    assert_eq!(run(&["inject", "-f", &file, "-o", "./xml"]).unwrap().target, "./xml");
    assert_eq!(run(&["inject", "-f", &file, "-o", "out.txt"]).unwrap().target, "out.txt");
}

/// What the shell makes of `<(command)`.
#[test]
fn a_pipe_is_read_to_its_end() {
    let folder = Folder::new();
    let path = folder.path("pipe");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let name = path.to_str().unwrap().to_owned();
    let writer = std::thread::spawn(move || std::fs::write(path, DEPLOYMENT).unwrap());
    let output = run(&["inject", "-f", &name]).unwrap();
    writer.join().unwrap();
    assert!(output.text.contains("name: istio-proxy"), "{}", output.text);
}

/// A part of a file is neither invalid nor the whole.
#[test]
fn a_file_that_is_too_large_is_refused_as_such() {
    let folder = Folder::new();
    let pod = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "annotations": {"a": "PAD"}}, "spec": {"containers": []}}"#;
    for mebibytes in [6, 17] {
        let file = folder.file("large.json", &pod.replace("PAD", &"x".repeat(mebibytes << 20)));
        let failure = run(&["inject", "-f", &file]).unwrap_err();
        assert_eq!(failure.exit, Exit::Data);
        assert!(
            failure.problems[0].contains(
                "large.json: yaml: the document that begins in line 1 is larger than 6 MiB, the most that is read of one document"
            ),
            "{failure}"
        );
    }
}

/// As kubectl takes them.
#[test]
fn binary_values_pass_through_and_are_decoded() {
    let folder = Folder::new();
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: !!binary aGVsbG8=}\n";
    let file = folder.file("s.yaml", &format!("{secret}---\n{DEPLOYMENT}"));
    assert!(run(&["inject", "-f", &file]).unwrap().text.starts_with(secret));
    let text = run(&["inject", "-o", "yaml", "-f", &file]).unwrap().text;
    assert!(text.contains("  a: hello\n"), "{text}");
}

#[test]
fn commands_refuse_the_same_objects() {
    let folder = Folder::new();
    let list = |item: &str| format!("apiVersion: v1\nkind: List\nitems:\n- {SERVICE_IN_FLOW}\n- {item}\n");
    const SERVICE_IN_FLOW: &str = "{apiVersion: v1, kind: Service, metadata: {name: s}}";
    let chart = "{apiVersion: v1, kind: Pod, metadata: {name: '{{ .Release.Name }}'}, spec: {containers: [{name: a, image: a}]}}";
    for (item, expected) in [
        ("{spec: {containers: [{name: a, image: a}]}}", "an object without kind"),
        ("7", "no object"),
        (chart, "metadata.name has a template action: run helm template first"),
        ("{apiVersion: v1, kind: Pod, spec: {containers: 7}}", "spec.containers"),
    ] {
        let file = folder.file("list.yaml", &format!("{DEPLOYMENT}---\n{}", list(item)));
        let problems = ["inject", "uninject", "check"]
            .map(|command| run(&[command, "-f", &file]).expect_err(command).problems);
        let [problem] = problems[0].as_slice() else { panic!("{problems:?}") };
        assert!(
            problem.contains("list.yaml, document 2 (line 12), item 2: ") && problem.contains(expected),
            "{problem}"
        );
        assert!(problems.iter().all(|one| *one == problems[0]), "{problems:?}");
    }
}

#[test]
fn inputs_without_an_object_are_refused() {
    let folder = Folder::new();
    let refused = |text: &str| {
        let failure = run(&["inject", "-f", &folder.file("x.yaml", text)]).unwrap_err();
        assert_eq!((failure.exit, failure.problems.len()), (Exit::Data, 1), "{text:?}");
        failure.problems[0].clone()
    };
    for text in ["", "\n", "# a comment\n", "---\n---\n", "null\n"] {
        assert!(refused(text).ends_with("x.yaml: no document, expected objects of Kubernetes"), "{text:?}");
    }
    for text in ["hello, world\n", "- a\n", "7\n"] {
        assert!(refused(text).contains("x.yaml: no object, expected objects of Kubernetes"), "{text:?}");
    }
    assert!(refused("replicas: 2\n").contains("an object without kind"));
    assert!(
        refused("{apiVersion: v1, kind: List, items: [{a: 1}]}")
            .contains("x.yaml, item 1: an object without kind")
    );
    // Charts render empty files beside others.
    let (empty, full) = (folder.file("empty.yaml", "# nothing\n"), folder.file("full.yaml", DEPLOYMENT));
    assert!(run(&["inject", "-f", &empty, "-f", &full]).is_ok());
    assert!(run(&["inject", "-f", &folder.file("y.yaml", &format!("---\n---\n{SERVICE}"))]).is_ok());
}

#[test]
fn lists_of_one_kind_and_pod_templates_are_injected() {
    let folder = Folder::new();
    let pod = "{metadata: {name: a}, spec: {containers: [{name: a, image: b}]}}";
    let list = format!("apiVersion: v1\nkind: PodList\nitems: [{pod}]\n");
    let output = run(&["inject", "-f", &folder.file("list.yaml", &list)]).unwrap();
    assert_eq!(output.summary, ["Pod \"a\": injected"]);
    let template = format!("apiVersion: v1\nkind: PodTemplate\nmetadata: {{name: t}}\ntemplate: {pod}\n");
    let output = run(&["inject", "-f", &folder.file("template.yaml", &template)]).unwrap();
    assert!(output.text.contains("name: istio-proxy"), "{}", output.text);
    let checked = run(&["check", "--summary", "-f", &folder.file("list.yaml", &list)]).unwrap();
    assert!(!checked.refused && checked.text.contains("Pod \"a\""), "{}", checked.text);
}

#[test]
fn pods_in_resources_of_other_projects_are_left_to_the_webhook() {
    let folder = Folder::new();
    let containers = "{spec: {containers: [{name: a, image: b}]}}";
    for (version, kind, spec) in [
        ("argoproj.io/v1alpha1", "Rollout", format!("{{template: {containers}}}")),
        ("serving.knative.dev/v1", "Service", format!("{{template: {containers}}}")),
        (
            "apps.kruise.io/v1alpha1",
            "AdvancedCronJob",
            format!("{{template: {{jobTemplate: {{spec: {{template: {containers}}}}}}}}}"),
        ),
        ("batch.volcano.sh/v1alpha1", "Job", format!("{{tasks: [{{template: {containers}}}]}}")),
    ] {
        let text = format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: it}}\nspec: {spec}\n");
        let output = run(&["inject", "-f", &folder.file("x.yaml", &text)]).unwrap();
        assert_eq!(
            (output.summary, output.text),
            (
                vec![format!(
                    "{kind} \"it\": the pods of this kind are injected by the webhook only, not changed"
                )],
                text
            )
        );
    }
}
