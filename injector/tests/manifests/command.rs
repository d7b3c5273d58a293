//! The command, with files.

use serde_json::Value;
use sidecar_injector::cli::{self, Environment, Exit, Failure, Output};
use sidecar_injector::manifests::to_yaml;
use sidecar_injector::yaml;

use super::{Options, objects, only, options};

fn run(arguments: &[&str]) -> Result<Output, Failure> {
    let default =
        arguments.first() == Some(&"manifests") && !arguments.iter().any(|one| one.starts_with("--revision"));
    let replace = default.then_some(&"--replace-istiod");
    let arguments = ["sidecar-injector"].iter().chain(arguments).chain(replace);
    cli::run(arguments.map(Into::into), &Environment::default())
}

fn read(text: &str) -> Vec<Value> {
    yaml::read_documents(text.as_bytes()).unwrap().into_iter().map(|document| document.value).collect()
}

#[test]
fn what_is_printed_reads_back_as_what_was_meant() {
    let output = run(&["manifests", "--validating-policy"]).unwrap();
    assert_eq!(read(&output.text), objects(&options()));
    assert_eq!(output.text, to_yaml(&objects(&options())));
    let flags = [
        "manifests",
        "--namespace=mesh",
        "--revision=canary",
        "--image=example.com/i:1",
        "--replicas=3",
        "--failure-policy=Ignore",
        "--cert-manager",
        "--platform=openshift",
    ];
    let expected = Options {
        namespace: "mesh".parse().unwrap(),
        revision: "canary".parse().unwrap(),
        image: "example.com/i:1".parse().unwrap(),
        replicas: 3.try_into().unwrap(),
        failure_policy: sidecar_injector::manifests::FailurePolicy::Ignore,
        certificates: sidecar_injector::manifests::Certificates::CertManager,
        platform: sidecar_injector::manifests::Platform::Openshift,
        validating_policy: false,
        ..options()
    };
    assert_eq!(read(&run(&flags).unwrap().text), objects(&expected));
}

#[test]
fn check_takes_the_manifests_as_its_webhooks() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let manifests = file("manifests.yaml", &run(&["manifests"]).unwrap().text);
    let pod = file(
        "pod.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: shop}\nspec: {containers: [{name: a, image: a}]}\n",
    );
    let namespace = |labels: &str| {
        let text =
            format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: shop, labels: {{{labels}}}}}\n");
        file("namespace.yaml", &text)
    };
    let enforce = "istio-injection: enabled, pod-security.kubernetes.io/enforce";
    for (labels, refused) in [
        ("istio-injection: enabled", false),
        ("team: a", true),
        (&format!("{enforce}: baseline"), true),
        (&format!("{enforce}: privileged"), false),
    ] {
        let namespace = namespace(labels);
        let arguments = ["check", "-f", &pod, "--webhooks", &manifests, "--namespace-file", &namespace];
        assert_eq!(run(&arguments).unwrap().refused, refused, "{labels}");
    }
    let conditions = "  sideEffects: None\n  matchConditions: [{name: some, expression: 'false'}]\n";
    let text = run(&["manifests"]).unwrap().text.replace("  sideEffects: None\n", conditions);
    let (conditional, namespace) = (file("conditional.yaml", &text), namespace("istio-injection: enabled"));
    let output =
        run(&["check", "-f", &pod, "--webhooks", &conditional, "--namespace-file", &namespace]).unwrap();
    assert!(output.text.contains("its matchConditions some are not evaluated"), "{}", output.text);
    let arguments = ["check", "-f", &pod, "--inject-config", &manifests, "--mesh-config", &manifests];
    assert!(!run(&arguments).unwrap().refused, "the ConfigMaps can be read, too");
}

#[test]
fn config_of_one_s_own_goes_into_the_config_maps() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let data = |arguments: &[&str], key: &str| {
        let objects = read(&run(arguments).unwrap().text);
        let found = objects.iter().find_map(|object| object["data"][key].as_str().map(str::to_owned));
        found.unwrap()
    };
    let values = file("values.yaml", "global: {hub: example.com/istio}\n");
    let text = data(&["manifests", "--values", &values, "--init-image", "example.com/init:1"], "values");
    let read_values = yaml::read(&text).unwrap();
    assert_eq!(read_values["global"]["hub"], "example.com/istio");
    assert_eq!(read_values["global"]["proxy_init"]["image"], "example.com/init:1");
    assert_eq!(read_values["global"]["proxy"]["statusPort"], 15020, "the built-in ones stand below");

    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio-sidecar-injector}\ndata:\n  config: |\n    \
               policy: disabled\n    templates: {}\n  values: '{\"global\": {\"hub\": \"h\"}}'\n";
    let map = file("map.yaml", map);
    assert_eq!(data(&["manifests", "--inject-config", &map], "config"), "policy: disabled\ntemplates: {}\n");
    assert!(data(&["manifests", "--inject-config", &map], "values").contains("hub: h"));
    let mesh = file("mesh.yaml", "trustDomain: example.com\n");
    assert_eq!(data(&["manifests", "--mesh-config", &mesh], "mesh"), "trustDomain: example.com\n");

    let broken = file("broken.yaml", "templates: {sidecar: '{{ nonsense }}'}\n");
    let failure = run(&["manifests", "--inject-config", &broken]).unwrap_err();
    assert_eq!(failure.exit, Exit::Data);
    assert!(failure.to_string().contains("nonsense"), "{failure}");
}

#[test]
fn a_file_that_is_not_there_is_reported_with_its_flag() {
    let failure = run(&["manifests", "--mesh-config", "/nowhere/m", "--values", "/nowhere/v"]).unwrap_err();
    assert_eq!((failure.exit, failure.problems.len()), (Exit::NoInput, 2), "{failure}");
    assert!(failure.problems[0].starts_with("--values /nowhere/v: No such file"), "{failure}");
    assert!(failure.problems[1].starts_with("--mesh-config /nowhere/m: No such file"), "{failure}");
}

#[test]
fn bad_values_are_reported() {
    for (argument, named) in [
        ("--namespace=Mesh", "a-z"),
        ("--revision=1.28", "a-z"),
        ("--namespace=x/y", "--namespace <NAMESPACE>': \"x/y\" is not accepted, expected at most 63 of a-z"),
        ("--image=a b", "--image <IMAGE>': \"a b\" is not accepted, expected [HOST[:PORT]/]PATH[:TAG]"),
        ("--image=", "--image <IMAGE>': \"\" is not accepted"),
        ("--init-image=a b", "--init-image <IMAGE>': \"a b\" is not accepted"),
        ("--replicas=0", "--replicas"),
        ("--failure-policy=maybe", "fail"),
    ] {
        let failure = run(&["manifests", argument]).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        let (_, value) = argument.split_once('=').unwrap();
        assert!(failure.to_string().contains(value) && failure.to_string().contains(named), "{failure}");
    }
    let failure = run(&["manifests", "--image=x\ny"]).unwrap_err();
    let message = failure.to_string();
    assert_eq!((failure.exit, message.lines().count()), (Exit::Usage, 1), "{message}");
    assert!(message.contains(r#""x\ny" is not accepted"#), "{message}");
    let kinds = |arguments: &[&str]| {
        let text = run(arguments).unwrap().text;
        let kinds = text.lines().filter_map(|line| line.strip_prefix("kind: ").map(str::to_owned));
        kinds.collect::<Vec<_>>()
    };
    assert_eq!(kinds(&["manifests", "--create-namespace"])[0], "Namespace");
    assert!(!kinds(&["manifests"]).contains(&"Namespace".to_owned()));
    assert_eq!(run(&["manifests", "--uninstall", "--create-namespace"]).unwrap_err().exit, Exit::Usage);
}

#[test]
fn names_of_istiod_are_not_taken_without_being_asked_for() {
    let plain = |arguments: &[&str]| {
        let arguments = ["sidecar-injector", "manifests"].iter().chain(arguments);
        cli::run(arguments.map(Into::into), &Environment::default())
    };
    for arguments in [[].as_slice(), &["--revision=default"], &["--uninstall"], &["--create-namespace"]] {
        let failure = plain(arguments).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        for part in ["ConfigMaps istio and", "--revision NAME", "--replace-istiod"] {
            assert!(failure.to_string().contains(part), "{failure}");
        }
    }
    // With a revision no object has a name of istiod's default revision.
    for arguments in [["--revision=own", "--cert-manager"], ["--revision=own", "--validating-policy"]] {
        for object in read(&plain(&arguments).unwrap().text) {
            let name = object["metadata"]["name"].as_str().unwrap();
            assert!(name.contains("-own"), "{}: {name}", object["kind"]);
        }
    }
}

#[test]
fn a_revision_does_not_inject_namespaces_by_default() {
    let is_warned = |arguments: &[&str]| {
        let notes = run(arguments).unwrap().notes;
        notes.iter().any(|note| note.contains("--enable-namespaces-by-default has no effect with --revision"))
    };
    assert!(is_warned(&["manifests", "--revision=canary", "--enable-namespaces-by-default"]));
    assert!(!is_warned(&["manifests", "--enable-namespaces-by-default"]));
    assert!(!is_warned(&["manifests", "--revision=canary"]));
}

#[test]
fn an_image_of_this_machine_is_written_with_a_warning() {
    let warned = |arguments: &[&str]| -> Vec<String> {
        let notes = run(arguments).unwrap().notes;
        notes.into_iter().filter(|note| note.contains("no other machine can pull")).collect()
    };
    assert_eq!(warned(&["manifests"]).len(), 2);
    let image = "--image=registry.example/injector:1";
    let notes = warned(&["manifests", image]);
    assert!(notes.len() == 1 && notes[0].contains("localhost/istio-iptables:"), "{notes:?}");
    for given in
        ["--init-image=registry.example/init:1", "--set=global.proxy_init.image=registry.example/init:1"]
    {
        assert_eq!(warned(&["manifests", image, given]), Vec::<String>::new());
        assert!(run(&["manifests", given]).unwrap().text.contains("registry.example/init:1"));
    }
}

/// What the Deployment says is what the command takes; only the cluster is not there.
#[test]
fn the_webhook_takes_the_arguments_and_reads_the_config_maps() {
    use sidecar_injector::cluster::ConfigMapName;
    use sidecar_injector::manifests::Names;

    for options in super::all() {
        let objects = objects(&options);
        let container = &only(&objects, "Deployment")["spec"]["template"]["spec"]["containers"][0];
        let mut arguments: Vec<String> = Vec::new();
        for argument in container["args"].as_array().unwrap() {
            let argument = argument.as_str().unwrap().replace("$(POD_NAMESPACE)", options.namespace.as_str());
            arguments.push(argument.replace(":15017", ":0").replace(":15014", ":0"));
        }
        let map = arguments.iter().find_map(|argument| argument.strip_prefix("--watch-configmap=")).unwrap();
        let map: ConfigMapName = map.parse().unwrap();
        let names = Names::new(&options.revision);
        assert_eq!((map.name.as_str(), map.mesh()), (names.injector().as_str(), names.mesh()));
        arguments.push("--kubeconfig=/nowhere".to_owned());
        let failure = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).unwrap_err();
        assert_ne!(failure.exit, Exit::Usage, "{failure}");
    }
}
