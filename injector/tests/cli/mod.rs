//! The commands, with files as people have them.

mod checks;
mod configs;
mod inputs;
mod large;
mod own;
mod program;

use std::path::{Path, PathBuf};

use serde_json::Value;
use sidecar_injector::cli::{self, Environment, Exit, Failure, Output};

const DEPLOYMENT: &str = "# a comment\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\n\
                          spec:\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n      containers:\n      \
                          - {name: web, image: 'web:1'}\n";
const SERVICE: &str = "apiVersion: v1 # untouched\nkind:   Service\nmetadata: {name: web}\n";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn run(arguments: &[&str]) -> Result<Output, Failure> {
    let arguments = std::iter::once("sidecar-injector").chain(arguments.iter().copied());
    cli::run(arguments.map(Into::into), &Environment::default())
}

#[test]
fn documents_that_are_not_injected_keep_every_byte() {
    let folder = Folder::new();
    let ignored =
        DEPLOYMENT.replace("{labels: {app: web}}", "{annotations: {sidecar.istio.io/inject: 'false'}}");
    let text = format!("---\n{SERVICE}--- # next\n{ignored}\n\n---\n# nothing\n---\n{SERVICE}");
    let output = run(&["inject", "-f", &folder.file("all.yaml", &text)]).unwrap();
    assert_eq!(output.text, text);
    assert_eq!(output.notes.len(), 1, "{:?}", output.notes);
    assert!(
        output.notes[0].contains("Deployment \"shop/web\" is not to be injected: annotation"),
        "{:?}",
        output.notes
    );

    let mixed = format!("{SERVICE}---\n{DEPLOYMENT}---\n{SERVICE}");
    let output = run(&["kube-inject", "--filename", &folder.file("mixed.yaml", &mixed)]).unwrap();
    assert!(output.text.starts_with(&format!("{SERVICE}---\napiVersion: apps/v1\n")), "{}", output.text);
    assert!(output.text.ends_with(&format!("\n---\n{SERVICE}")), "{}", output.text);
    assert!(output.text.contains("name: istio-proxy"));
}

#[test]
fn second_injection_and_uninjection() {
    let folder = Folder::new();
    let once = run(&["inject", "-f", &folder.file("a.yaml", DEPLOYMENT)]).unwrap().text;
    let file = folder.file("once.yaml", &once);
    assert_eq!(run(&["inject", "-f", &file]).unwrap().text, once);
    let out = run(&["uninject", "-f", &file]).unwrap();
    let plain = sidecar_injector::yaml::write(&sidecar_injector::yaml::read(DEPLOYMENT).unwrap());
    assert_eq!(out.text, plain);
    let [note] = out.notes.as_slice() else { panic!("{:?}", out.notes) };
    assert!(
        note.starts_with("note: Deployment \"shop/web\": metadata.labels security.istio.io/tlsMode, "),
        "{note}"
    );
    assert!(note.contains("; spec.volumes workload-socket, "), "{note}");
    assert_eq!(run(&["uninject", "-f", &folder.file("s.yaml", SERVICE)]).unwrap().text, SERVICE);
}

#[test]
fn lists_directories_and_several_files() {
    let folder = Folder::new();
    let list = format!(
        "kind: List\napiVersion: v1\nitems:\n- {}\n- {{kind: Service, apiVersion: v1, x: [1]}}\n",
        sidecar_injector::yaml::read(DEPLOYMENT).unwrap()
    );
    folder.file("b.yaml", &list);
    folder.file("a.yml", SERVICE.trim_end());
    folder.file("ignored.txt", "[");
    let output = run(&["inject", "-f", folder.path("").to_str().unwrap()]).unwrap();
    let documents = sidecar_injector::yaml::read_documents(output.text.as_bytes()).unwrap();
    assert_eq!(documents.len(), 2, "{}", output.text);
    assert!(output.text.starts_with(SERVICE), "{}", output.text);
    let items = &documents[1].value["items"];
    assert_eq!(items[0]["spec"]["template"]["spec"]["initContainers"][1]["name"], "istio-proxy");
    assert_eq!(items[1]["x"][0], 1);
    let empty = Folder::new();
    let failure = run(&["inject", "-f", empty.path("").to_str().unwrap()]).unwrap_err();
    assert_eq!(failure.exit, Exit::NoInput);
}

#[test]
fn every_kind_is_injected() {
    let folder = Folder::new();
    let spec = "{template: {spec: {containers: [{name: a, image: b}]}}}";
    for (kind, version, spec) in [
        ("Pod", "v1", "{containers: [{name: a, image: b}]}"),
        ("ReplicationController", "v1", spec),
        ("Deployment", "apps/v1", spec),
        ("DaemonSet", "apps/v1", spec),
        ("ReplicaSet", "apps/v1", spec),
        ("StatefulSet", "apps/v1", spec),
        ("Job", "batch/v1", spec),
        ("CronJob", "batch/v1", &format!("{{jobTemplate: {{spec: {spec}}}}}")),
        ("DeploymentConfig", "apps.openshift.io/v1", spec),
    ] {
        let text = format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: it}}\nspec: {spec}\n");
        let output = run(&["inject", "-f", &folder.file("x.yaml", &text)]).unwrap();
        let owner = format!("kubernetes://apis/{version}/namespaces/default/{}s/it", kind.to_lowercase());
        assert!(output.text.contains(&owner), "{kind}: {}", output.text);
    }
}

#[test]
fn problems_name_file_document_object_key_and_value() {
    let folder = Folder::new();
    let bad = DEPLOYMENT.replace("{labels: {app: web}}", "{annotations: {status.sidecar.istio.io/port: x}}");
    let file = folder.file("bad.yaml", &format!("{SERVICE}---\n{bad}---\n{bad}"));
    let target = folder.path("out.yaml");
    let failure = run(&["inject", "-f", &file, "-o", target.to_str().unwrap()]).unwrap_err();
    assert_eq!(failure.exit, Exit::Data);
    let expected = "document 2 (line 6): Deployment \"shop/web\": annotation status.sidecar.istio.io/port: \"x\" is not accepted, \
                    expected a plain port number from 0 to 65535; 0 means none";
    assert_eq!(failure.problems[0], format!("{file}, {expected}"));
    assert_eq!(failure.problems.len(), 2, "{failure}");
    assert!(!Path::new(&target).exists());
    assert_eq!(run(&["inject", "-f", "/does/not/exist"]).unwrap_err().exit, Exit::NoInput);
    assert_eq!(run(&["inject", "--nonsense"]).unwrap_err().exit, Exit::Usage);
    for flag in ["--namespace=x/y", "--revision=Bad Rev"] {
        let failure = run(&["inject", "-f", &file, flag]).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.to_string().contains("is not accepted, expected at most"), "{failure}");
    }
    assert_eq!(run(&["inject", "-f", &file, "--platform", "openshift"]).unwrap_err().exit, Exit::Usage);
    let failure = run(&["inject", "-f", &file, "--values", &folder.file("v", "[]")]).unwrap_err();
    assert_eq!((failure.exit, failure.problems.len()), (Exit::Data, 1));
}

#[test]
fn printed_config_and_values_are_accepted_as_input() {
    let folder = Folder::new();
    let file = folder.file("a.yaml", DEPLOYMENT);
    let maps = folder.file("maps.yaml", &run(&["config"]).unwrap().text);
    let plain = run(&["inject", "-f", &file]).unwrap().text;
    let given = run(&["inject", "-f", &file, "--inject-config", &maps, "--mesh-config", &maps]).unwrap().text;
    assert_eq!(given, plain);
    let values = folder.file("few.yaml", r#"{"global":{"proxy_init":{"image":"my/x:1"}}}"#);
    let own = run(&["inject", "-f", &file, "--values", &values]).unwrap().text;
    assert_eq!(own, plain.replace(concat!("localhost/istio-iptables:", env!("CARGO_PKG_VERSION")), "my/x:1"));
}

#[test]
fn a_difference_shows_only_what_is_new() {
    let folder = Folder::new();
    let output = run(&["inject", "--diff", "-f", &folder.file("a.yaml", DEPLOYMENT)]).unwrap();
    let removed: Vec<&str> = output.text.lines().filter(|line| line.starts_with('-')).collect();
    assert_eq!(removed.len(), 1, "{removed:?}");
    assert!(output.text.contains("\n+      - name: istio-proxy\n"), "{}", output.text);
    let service = run(&["inject", "--diff", "-f", &folder.file("s.yaml", SERVICE)]).unwrap();
    assert_eq!(service.text, "");
}

#[test]
fn malformed_pods_are_refused_before_anything_is_done() {
    let folder = Folder::new();
    let containers = "- {name: web, image: 'web:1'}";
    let injected = run(&["inject", "-f", &folder.file("i.yaml", DEPLOYMENT)]).unwrap().text;
    for (text, expected) in [
        (DEPLOYMENT.replace(containers, "- null"), "spec.template.spec.containers[0]: null is not accepted"),
        (DEPLOYMENT.replace("{labels: {app: web}}", "x"), "spec.template.metadata: \"x\" is not accepted"),
        (
            injected.replace("      volumes:\n", "      volumes: 1\n      x:\n"),
            "spec.template.spec.volumes: 1 is",
        ),
        ("kind: Pod\napiVersion: v1\nspec: []\n".to_owned(), "spec: [] is not accepted, expected a map"),
    ] {
        let file = folder.file("bad.yaml", &format!("{SERVICE}---\n{text}"));
        for command in ["inject", "uninject", "check"] {
            let failure = run(&[command, "-f", &file]).unwrap_err();
            assert_eq!((failure.exit, failure.problems.len()), (Exit::Data, 1), "{command}: {failure}");
            assert!(failure.problems[0].contains(expected), "{command}: {failure}");
        }
    }
}

#[test]
fn keys_of_a_cron_job_without_effect_are_reported() {
    let folder = Folder::new();
    let text = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: c}\nspec: {jobTemplate: {spec: {template: {\
                metadata: {annotations: {sidecar.istio.io/inject: 'false', mine: x}, labels: {istio.io/rev: canary}}, \
                spec: {containers: [{name: a, image: b}]}}}}}\n";
    let file = folder.file("c.yaml", text);
    let output = run(&["inject", "-f", &file]).unwrap();
    let named = |text: &str| {
        let found: Vec<&str> = text.lines().filter(|line| line.contains("is ignored, as Istio")).collect();
        assert_eq!(found.len(), 2, "{text}");
        assert!(found[0].contains("annotation sidecar.istio.io/inject in spec.jobTemplate.spec"), "{text}");
        assert!(found[1].contains("label istio.io/rev in spec.jobTemplate.spec"), "{text}");
    };
    named(&output.notes.join("\n"));
    named(&run(&["check", "-f", &file]).unwrap().text);
    let plain = sidecar_injector::yaml::write(&sidecar_injector::yaml::read(text).unwrap());
    let out = run(&["uninject", "-f", &folder.file("i.yaml", &output.text)]).unwrap();
    assert_eq!(out.text, plain);
}

#[test]
fn lint_finds_what_only_a_pod_shows() {
    let folder = Folder::new();
    assert!(!run(&["lint"]).unwrap().refused);
    let lint = |text: &str| {
        let output = run(&["lint", "--inject-config", &folder.file("config", text)]).unwrap();
        assert!(output.refused);
        output.notes
    };
    let notes = lint("policy: on\ntemplates: {sidecar: 'spec: {hostNetwork: {{ .Values.nope }}}'}\n");
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].contains("policy"), "{notes:?}");
    let notes = lint("policy: enabled\ntemplates: {sidecar: '{{ .Nope }}'}\n");
    assert!(notes[0].contains("template sidecar line 1 column"), "{notes:?}");
}

#[test]
fn values_without_effect_are_reported_and_misspelt_ones_refused() {
    let folder = Folder::new();
    let lint = |values: &str| run(&["lint", "--values", &folder.file("v.yaml", values)]).unwrap();
    let known = lint(
        "{pilot: {cni: {enabled: true}}, global: {proxy: {seccompProfile: {type: RuntimeDefault}, lifecycle: {}}}}",
    );
    assert_eq!((known.refused, known.notes), (false, Vec::new()));
    // Empty, or as they are built in: nothing is missed.
    let same = "{global: {priorityClassName: '', waypoint: {resources: {}}, hub: docker.io/istio, configCluster: false}}";
    assert_eq!(lint(same).notes, Vec::<String>::new());
    let notes = lint("{global: {priorityClassName: high, waypoint: {resources: {a: b}}}, x: {y: 1}}").notes;
    assert_eq!(notes.len(), 3, "{notes:?}");
    for path in ["global.priorityClassName", "global.waypoint.resources", "x"] {
        let expected = format!("v.yaml: {path}: not supported by the built-in template, ignored");
        assert!(notes.iter().any(|note| note.contains(&expected)), "{path}: {notes:?}");
    }
    for (values, message) in [
        ("{global: {proxy: {imge: a}}}", "v.yaml: global.proxy.imge: not known; did you mean image?"),
        ("{gobal: {tag: a}}", "v.yaml: gobal: not known; did you mean global?"),
        ("{global: {tg: a}}", "v.yaml: global.tg: not known; did you mean tag?"),
        ("{global: {trustDomian: a}}", "v.yaml: global.trustDomian: not known; did you mean trustDomain?"),
        ("{global: {imge: a}}", "v.yaml: global.imge: not known; did you mean global.proxy.image?"),
        ("{global: {proxy: {readinesPeriodSecond: 0}}}", "did you mean readinessPeriodSeconds?"),
    ] {
        let output = lint(values);
        assert!(output.refused && output.notes[0].ends_with(message), "{:?}", output.notes);
    }
}

/// An empty value has no effect only where the key has none: `false` replaces a built-in `true`.
#[test]
fn misspelt_keys_with_empty_values_are_refused() {
    for (key, meant) in [
        ("rewriteAppHTTPProb", "rewriteAppHTTPProbe"),
        ("rewriteAppHTTPProbes", "rewriteAppHTTPProbe"),
        ("uninjectAnnotatio", "uninjectAnnotation"),
        ("enableNamespacesByDefaul", "enableNamespacesByDefault"),
    ] {
        for value in ["false", "null", ""] {
            let output = run(&["lint", "--set", &format!("sidecarInjectorWebhook.{key}={value}")]).unwrap();
            let expected = format!("--set: sidecarInjectorWebhook.{key}: not known; did you mean {meant}?");
            assert!(output.refused && output.notes[0].ends_with(&expected), "{key}: {:?}", output.notes);
        }
    }
    let unknown = run(&["lint", "--set", "sidecarInjectorWebhook.foo=false"]).unwrap();
    assert_eq!((unknown.refused, unknown.notes), (false, Vec::new()));
}

/// The gateway template is tried beside the default one: what follows from this alone is no second fault.
#[test]
fn a_value_that_all_templates_read_has_one_fault_in_each() {
    for (set, image) in
        [("global.proxy.image=a/B:c", "a/B:c"), ("global.tag=null", "docker.io/istio/proxyv2:")]
    {
        let output = run(&["lint", "--set", set]).unwrap();
        assert!(output.refused && output.notes.len() == 2, "{:?}", output.notes);
        for (note, template) in output.notes.iter().zip(["sidecar", "gateway"]) {
            assert!(note.contains(&format!("{image:?}")), "{note}");
            assert!(note.contains(&format!("set by template {template}")), "{note}");
        }
    }
}

/// Values of Istio's charts that no template of the injector reads, however near they are to known ones.
#[test]
fn values_of_other_charts_of_istio_are_never_refused() {
    for key in [
        "pilot.image=a",
        "pilot.tag=a",
        "pilot.cpu.targetAverageUtilization=80",
        "pilot.podLabels.a=b",
        "pilot.taint.enabled=true",
        "pilot.ipFamilies={IPv4}",
        "global.proxy.autoInject=enabled",
        "global.networkPolicy.enabled=true",
        "global.tracer.zipkin.address=a",
        "global.meshNetworks.a=b",
        "global.configValidation=true",
        "global.caCertConfigMapName=a",
        "sidecarInjectorWebhook.injectedAnnotations.a=b",
        "sidecarInjectorWebhook.reinvocationPolicy=IfNeeded",
        "revisionTags={a}",
        "telemetry.enabled=true",
        "defaultRevision=a",
    ] {
        let output = run(&["lint", "--set", key]).unwrap();
        assert!(!output.refused, "{key}: {:?}", output.notes);
    }
}

#[test]
fn values_of_the_command_line_lie_over_those_of_files() {
    let folder = Folder::new();
    let (file, values) =
        (folder.file("a.yaml", DEPLOYMENT), folder.file("v.yaml", "global: {tag: a, hub: example}"));
    let output = run(&["inject", "-f", &file]).unwrap();
    assert!(
        output.notes.len() == 1 && output.notes[0].contains("give --init-image IMAGE"),
        "{:?}",
        output.notes
    );
    let set = "global.tag=1.2,global.imagePullSecrets={one,two},pilot.cni.enabled=true";
    let more = ["--values", &values, "--set", set, "--init-image", "registry.example/i:1"];
    let output = run(&[&["inject", "-f", &file], more.as_slice()].concat()).unwrap();
    assert_eq!(output.notes, Vec::<String>::new());
    for part in
        ["image: example/proxyv2:1.2", "image: registry.example/i:1", "name: istio-validation", "- name: two"]
    {
        assert!(output.text.contains(part), "{part}: {}", output.text);
    }
    let misspelt = run(&["inject", "-f", &file, "--set", "global.proxy.imge=a"]).unwrap_err().to_string();
    assert!(misspelt.contains("--set: global.proxy.imge: not known; did you mean image?"), "{misspelt}");
}

#[test]
fn config_files_with_nothing_in_them_are_refused_by_every_command() {
    let folder = Folder::new();
    let (pods, empty) =
        (folder.file("a.yaml", DEPLOYMENT), folder.file("empty", " \n\t\n# only\n---\n  # comments\n"));
    for flag in ["--inject-config", "--values", "--mesh-config"] {
        let begin = format!("{flag} {empty}: the file is empty; expected ");
        for command in ["inject", "check"] {
            let failure = run(&[command, "-f", &pods, flag, &empty]).unwrap_err();
            assert_eq!(failure.exit, Exit::Data, "{command:?} {flag}");
            assert_eq!(failure.problems.len(), 1, "{:?}", failure.problems);
            assert!(failure.problems[0].starts_with(&begin), "{:?}", failure.problems);
        }
        // What is wrong with a config is the result of `lint`.
        let output = run(&["lint", flag, &empty]).unwrap();
        assert!(output.refused && output.notes.len() == 1, "{output:?}");
        assert!(output.notes[0].starts_with(&format!("error: {begin}")), "{:?}", output.notes);
    }
}

#[test]
fn printed_config_is_the_effective_one() {
    let folder = Folder::new();
    let file = folder.file("a.yaml", DEPLOYMENT);
    let with = |which: &str| folder.file(which, &run(&["config", which]).unwrap().text);
    let (config, values, mesh) = (with("config"), with("values"), with("mesh"));
    let plain = run(&["inject", "-f", &file]).unwrap().text;
    let files = ["--injectConfigFile", &config, "--valuesFile", &values, "--meshConfigFile", &mesh];
    assert_eq!(run(&[&["inject", "-f", &file], &files[..]].concat()).unwrap().text, plain);
    let maps = run(&["config"]).unwrap().text;
    let maps: Vec<&str> = maps.split("---\n").collect();
    let (config, mesh) = (folder.file("one", maps[0]), folder.file("other", maps[1]));
    let files = ["--inject-config", &config, "--mesh-config", &mesh];
    assert_eq!(run(&[&["inject", "-f", &file], &files[..]].concat()).unwrap().text, plain);
}
