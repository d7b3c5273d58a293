use super::*;
use crate::decide::Policy;
use crate::inject::functions;

fn source(text: &str) -> Option<Source> {
    Some(Source { name: "file".to_owned(), text: text.to_owned() })
}

fn load(config: &str) -> Result<Settings, Vec<String>> {
    let sources = Sources { config: source(config), ..Sources::default() };
    sources.load(&functions(|_| None)).map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

#[test]
fn what_is_built_in_can_be_read() {
    let settings = Sources::default().load(&functions(|_| None)).unwrap();
    assert_eq!(settings.injector.known_names(), ["gateway", "sidecar"]);
    assert_eq!(settings.injector.rules.policy, Policy::Enabled);
    assert_eq!(settings.mesh, Mesh::default());
}

#[test]
fn the_three_forms_of_a_config() {
    let full = "policy: disabled\ntemplates: {a: 'metadata: {}', b: ''}\ndefaultTemplates: [both]\naliases: {both: [a, b]}\n";
    let settings = load(full).unwrap();
    assert_eq!(settings.injector.rules.policy, Policy::Disabled);
    assert_eq!(settings.injector.resolve("both"), Some(vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(settings.injector.resolve("c"), None);

    let bare = "metadata:\n  labels:\n    a: {{ .Revision }}\n";
    let settings = load(bare).unwrap();
    assert_eq!(settings.injector.default_templates, ["sidecar"]);
    assert!(!settings.injector.templates["sidecar"].spec_only);

    let old = "policy: enabled\ntemplate: |\n  initContainers:\n  - name: [[ .MeshConfig.TrustDomain ]]\n";
    let settings = load(old).unwrap();
    assert!(settings.injector.templates["sidecar"].spec_only);
}

#[test]
fn config_map_holds_config_and_values() {
    let map = "kind: ConfigMap\ndata:\n  config: |\n    policy: enabled\n    templates: {sidecar: ''}\n  values: |\n    {\"revision\": \"canary\"}\n";
    let settings = load(map).unwrap();
    assert_eq!(settings.values["revision"], "canary");
    let own =
        Sources { config: source(map), values: source("revision: own"), mesh: source("trustDomain: td") };
    let settings = own.load(&functions(|_| None)).unwrap();
    assert_eq!(settings.values["revision"], "own");
    assert_eq!(settings.mesh.config()["trustDomain"], "td");
    let problems = load("kind: ConfigMap\ndata: {mesh: x}\n").unwrap_err();
    assert!(problems[0].contains("no key \"config\""), "{problems:?}");
}

#[test]
fn the_config_map_with_the_key_is_picked_out_of_several() {
    let config = "kind: ConfigMap\nmetadata: {name: a}\ndata:\n  config: 'templates: {sidecar: \"\"}'\n  values: 'revision: canary'\n";
    let mesh = "kind: ConfigMap\nmetadata: {name: b}\ndata:\n  mesh: 'trustDomain: td'\n";
    let item = |text: &str| format!("- {}\n", text.trim_end().replace('\n', "\n  "));
    let list = format!("kind: List\nitems:\n{}{}", item(mesh), item(config));
    for text in [
        format!("{config}---\n{mesh}"),
        format!("# first\n---\n{mesh}---\nkind: Secret\n---\n{config}"),
        list,
    ] {
        let all = Sources { config: source(&text), mesh: source(&text), values: None };
        let settings = all.load(&functions(|_| None)).unwrap();
        assert_eq!(settings.mesh.config()["trustDomain"], "td");
        assert_eq!(settings.values, serde_json::json!({"revision": "canary"}));
    }
    let problems = load(&format!("{mesh}---\n{mesh}")).unwrap_err();
    assert!(problems[0].contains("none of the 2 ConfigMaps has a key \"config\""), "{problems:?}");
    let problems = load(&format!("{config}---\n{config}")).unwrap_err();
    assert!(problems[0].contains("ConfigMap \"a\", ConfigMap \"a\": expected one"), "{problems:?}");
}

#[test]
fn few_values_go_over_those_of_the_built_in_config_only() {
    let some = "global: {proxy_init: {image: my/x:1}, proxy: {resources: null}, imagePullSecrets: [s]}";
    let few = Sources { values: source(some), ..Sources::default() };
    let values = few.load(&functions(|_| None)).unwrap().values;
    assert_eq!(values["global"]["proxy_init"]["image"], "my/x:1");
    assert_eq!(values["global"]["imagePullSecrets"], serde_json::json!(["s"]));
    assert_eq!(values["global"]["proxy"]["resources"]["requests"]["cpu"], "100m");
    let own = Sources { config: source("templates: {sidecar: ''}"), ..few };
    let values = own.load(&functions(|_| None)).unwrap().values;
    assert_eq!(values["global"].get("logging"), None);
}

#[test]
fn every_problem_at_once() {
    let sources = Sources {
        config: source(
            "policy: x\ndefaultTemplates: [nope]\ntemplates:\n  a: '{{ nonsense }}'\n  b: '{{ if }}'\nneverInjectSelector: 7\n",
        ),
        values: source("[]"),
        mesh: source("defaultConfig: {statusPort: many}"),
    };
    let problems = sources.load(&functions(|_| None)).unwrap_err();
    let text: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let text = text.join("\n");
    assert_eq!(problems.len(), 6, "{text}");
    for part in [
        "template a line 1 column 4: function \"nonsense\" not defined",
        "template b line 1",
        "neverInjectSelector: 7",
        "defaultTemplates: there is no template \"nope\"; there are: a, b",
        "expected a map of values",
        "defaultConfig.statusPort: \"many\" is not accepted, expected an integer",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn bad_template_is_found_in_the_file() {
    let problems =
        load("policy: enabled\ntemplates:\n  sidecar: |\n    metadata:\n      {{ nope }}: x\n").unwrap_err();
    assert_eq!(problems, ["file: line 5: template sidecar line 2 column 6: function \"nope\" not defined"]);
}

#[test]
fn invalid_config_is_refused() {
    for text in ["", "[]", "7", "a: b", "policy: enabled", "policy: enabled\ntemplates: 7\n", "a: [\n"] {
        let problems = load(text).unwrap_err();
        assert_eq!(problems.len(), 1, "{text:?}: {problems:?}");
    }
}

#[test]
fn misspelt_key_is_reported() {
    let settings = load("policy: enabled\nneverInjectSelectors: []\ntemplates: {sidecar: ''}\n").unwrap();
    let reported = settings.warnings.first().unwrap();
    assert!(
        reported.starts_with("file: neverInjectSelectors: not known, ignored")
            && reported.contains("neverInjectSelector,")
    );
    assert_eq!(settings.warnings.len(), 1);
}

/// As in Istio, such a selector selects nothing.
#[test]
fn selectors_that_cannot_select_are_reported() {
    for (selector, part) in [
        ("{matchLabel: {a: b}}", "neverInjectSelector[0].matchLabel: not known"),
        ("{matchLabels: {a b: c}}", "\"a b\" is not the key of a label"),
        ("{matchLabels: {a: b c}}", "\"b c\" is not the value of a label"),
        ("{matchExpressions: [{key: a, operator: NotIn, values: [b, -c]}]}", "\"-c\" is not the value"),
        ("{matchExpressions: [{key: -a, operator: DoesNotExist}]}", "\"-a\" is not the key of a label"),
    ] {
        let text =
            format!("policy: enabled\nneverInjectSelector: [{selector}]\ntemplates: {{sidecar: ''}}\n");
        let settings = load(&text).unwrap();
        assert!(
            settings.warnings.len() == 1 && settings.warnings[0].contains(part),
            "{:?}",
            settings.warnings
        );
        let never = &settings.injector.rules.never;
        let labels = serde_json::Map::new();
        assert!(never.iter().all(|selector| selector.is_empty() || !selector.matches(&labels)), "{selector}");
    }
    let error = load("policy: enabled\nneverInjectSelector: [{matchLabels: a}]\ntemplates: {sidecar: ''}\n");
    assert!(error.unwrap_err()[0].contains("a map of labels"));
}

/// `uninject` notes what templates of other names write.
#[test]
fn built_in_templates_have_their_names() {
    let settings = Sources::default().load(&functions(|_| None)).unwrap();
    assert!(settings.injector.templates.keys().eq(BUILTIN_TEMPLATES));
}

#[test]
fn manifest_is_no_config() {
    assert!(load("apiVersion: v1\nkind: Pod\nspec: {serviceAccountName: '{{ .Revision }}'}\n").is_ok());
    for kind in ["Pod", "Deployment"] {
        let text = format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{}}\n");
        let problems = load(&text).unwrap_err();
        assert!(
            problems.len() == 1 && problems[0].contains(&format!("object of kind {kind}; expected")),
            "{problems:?}"
        );
    }
}

#[test]
fn config_map_that_was_cut_off() {
    let problems = |text: &str| {
        let sources = Sources { values: source(text), mesh: source(text), ..Sources::default() };
        let problems = sources.load(&functions(|_| None)).map(|_| ()).unwrap_err();
        problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    for cut in
        ["apiVersion: v1\n", "apiVersion: v1\ndata:\n  mesh: |\n    trustDomain: td\n  values: '{}'\nkind:\n"]
    {
        assert!(problems(cut).contains("file: kind: missing"), "{cut}");
    }
    let empty = problems("kind: ConfigMap\ndata:\n  values: ''\n  mesh: |\n");
    for key in ["values", "mesh"] {
        assert!(empty.contains(&format!("(key {key}): there is nothing in it; expected {{}}")), "{empty}");
    }
    let beside = "kind: ConfigMap\ndata:\n  config: 'templates: {sidecar: \"\"}'\n  values: |\n";
    let error = load(beside).unwrap_err();
    assert_eq!(error.len(), 1, "{error:?}");
    assert!(error[0].contains("(key values): there is nothing in it"), "{error:?}");
}
