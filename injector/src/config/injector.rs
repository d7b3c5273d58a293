//! The injector config: policy, selectors, templates.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::error::{ConfigError, Problem};
use crate::decide::{Policy, Rules, Selector};
use crate::path::FieldError;
use crate::yaml;
use gotemplate::{Delimiters, Functions, Options, Template};

/// The name of the template that a config without names for its templates has.
const SIDECAR: &str = "sidecar";

/// A parsed injector config.
#[derive(Debug)]
pub struct InjectorConfig {
    /// Policy and selectors.
    pub rules: Rules,
    /// Templates of pods that do not choose.
    pub default_templates: Vec<String>,
    /// By name.
    pub templates: BTreeMap<String, PodTemplate>,
    /// Aliases: a name, and the templates that it expands to.
    pub aliases: BTreeMap<String, Vec<String>>,
    /// Put onto every injected pod.
    pub injected_annotations: Map<String, Value>,
    /// Selectors, or parts of them, that select nothing: a pod may be injected that should not be.
    pub ignored_selectors: Vec<String>,
    /// Keys that mean nothing, each as a sentence: often a known one, misspelt.
    pub unknown_keys: Vec<String>,
}

/// A template and what its text describes.
#[derive(Debug)]
pub struct PodTemplate {
    /// The template.
    pub template: Template,
    /// Whether it describes a pod spec only, as before Istio 1.1.
    pub spec_only: bool,
}

impl InjectorConfig {
    /// Reads a config: Istio's, one of the 1.0 era, or a bare template.
    ///
    /// # Errors
    ///
    /// Every problem in it.
    pub fn parse(source: &str, text: &str, functions: &Functions) -> Result<Self, Vec<ConfigError>> {
        let read = yaml::read(text);
        let value = match &read {
            Ok(Value::Object(object)) if is_config(object) => object,
            // A template is seldom YAML itself; what has actions in it is taken for one.
            _ if text.contains("{{") || is_pod(read.as_ref().ok()) => {
                return Self::bare(source, text, functions);
            }
            Err(error) => {
                return Err(vec![ConfigError::new(source, "", Problem::Yaml(Box::new(error.clone())))]);
            }
            Ok(_) => {
                return Err(vec![ConfigError::new(source, "", Problem::NotAConfig)]);
            }
        };
        Reader { source, text, functions, problems: Vec::new(), ignored: Vec::new() }.config(value)
    }

    fn bare(source: &str, text: &str, functions: &Functions) -> Result<Self, Vec<ConfigError>> {
        let mut reader = Reader { source, text, functions, problems: Vec::new(), ignored: Vec::new() };
        let template = reader.template(SIDECAR, text, false);
        match template {
            Some(template) => Ok(Self {
                rules: Rules { policy: Policy::Enabled, never: Vec::new(), always: Vec::new() },
                default_templates: vec![SIDECAR.to_owned()],
                templates: BTreeMap::from([(SIDECAR.to_owned(), template)]),
                aliases: BTreeMap::new(),
                injected_annotations: Map::new(),
                ignored_selectors: Vec::new(),
                unknown_keys: Vec::new(),
            }),
            None => Err(reader.problems),
        }
    }

    /// The templates of a name in `inject.istio.io/templates` or `defaultTemplates`, if it is known. Aliases
    /// are expanded once.
    #[must_use]
    pub fn resolve(&self, name: &str) -> Option<Vec<String>> {
        let alias = self.aliases.get(name).cloned();
        alias.or_else(|| self.templates.contains_key(name).then(|| vec![name.to_owned()]))
    }

    /// Every name that can be asked for.
    pub(crate) fn known_names(&self) -> Vec<&str> {
        let names: BTreeSet<&str> =
            self.templates.keys().chain(self.aliases.keys()).map(String::as_str).collect();
        names.into_iter().collect()
    }
}

const KEYS: [&str; 9] = [
    "policy",
    "defaultTemplates",
    "templates",
    "template",
    "aliases",
    "neverInjectSelector",
    "alwaysInjectSelector",
    "injectedAnnotations",
    "rawTemplates",
];

fn is_config(object: &Map<String, Value>) -> bool {
    KEYS.iter().any(|key| object.contains_key(*key))
}

fn is_pod(value: Option<&Value>) -> bool {
    value.is_some_and(|value| value.get("spec").is_some() || value.get("metadata").is_some())
}

/// The line with the key of a template whose text is a block: its lines follow.
fn begins(text: &str, name: &str) -> Option<usize> {
    let opens = |line: &str| {
        let value = line.trim().strip_prefix(name)?.strip_prefix(':')?;
        value.trim().starts_with('|').then_some(())
    };
    text.lines().position(|line| opens(line).is_some()).map(|at| at + 1)
}

struct Reader<'a> {
    source: &'a str,
    text: &'a str,
    functions: &'a Functions,
    problems: Vec<ConfigError>,
    /// Warnings about what is left out.
    ignored: Vec<String>,
}

impl Reader<'_> {
    fn problem(&mut self, place: impl Into<String>, problem: Problem) {
        self.problems.push(ConfigError::new(self.source, place, problem));
    }

    fn config(mut self, object: &Map<String, Value>) -> Result<InjectorConfig, Vec<ConfigError>> {
        let templates = self.templates(object);
        let mut default_templates = self.names(object, "defaultTemplates");
        if default_templates.is_empty() {
            default_templates.push(SIDECAR.to_owned());
        }
        let policy = match object.get("policy") {
            None | Some(Value::Null) => Policy::Unknown(String::new()),
            Some(Value::String(text)) => Policy::parse(text),
            Some(other) => Policy::parse(&other.to_string()),
        };
        let rules = Rules {
            policy,
            never: self.selectors(object, "neverInjectSelector"),
            always: self.selectors(object, "alwaysInjectSelector"),
        };
        let aliases = self.aliases(object);
        let injected_annotations = self.annotations(object);
        let unknown = object.keys().filter(|key| !KEYS.contains(&key.as_str()));
        let known = KEYS.join(", ");
        let unknown = unknown.map(|key| format!("{key}: not known, ignored; known are {known}"));
        let config = InjectorConfig {
            rules,
            default_templates,
            templates,
            aliases,
            injected_annotations,
            ignored_selectors: std::mem::take(&mut self.ignored),
            unknown_keys: unknown.collect(),
        };
        self.unknown_names(object, &config);
        if self.problems.is_empty() { Ok(config) } else { Err(self.problems) }
    }

    fn templates(&mut self, object: &Map<String, Value>) -> BTreeMap<String, PodTemplate> {
        let mut templates = BTreeMap::new();
        match (object.get("templates"), object.get("template")) {
            (Some(Value::Object(texts)), _) => {
                for (name, text) in texts {
                    match text.as_str() {
                        Some(text) => {
                            let parsed = self.template(name, text, false);
                            templates.extend(parsed.map(|template| (name.clone(), template)));
                        }
                        None => self.problem(
                            format!("templates.{name}"),
                            Problem::WrongType("a string, the template"),
                        ),
                    }
                }
            }
            (None | Some(Value::Null), Some(Value::String(text))) => {
                let parsed = self.template(SIDECAR, text, true);
                templates.extend(parsed.map(|template| (SIDECAR.to_owned(), template)));
            }
            (None | Some(Value::Null), _) => self.problem("templates", Problem::NoTemplates),
            (Some(_), _) => self.problem("templates", Problem::WrongType("a map of strings")),
        }
        templates
    }

    fn template(&mut self, name: &str, text: &str, spec_only: bool) -> Option<PodTemplate> {
        let delimiters = if spec_only { Delimiters::SQUARE } else { Delimiters::default() };
        match Template::parse(name, text, self.functions, Options { delimiters }) {
            Ok(template) => Some(PodTemplate { template, spec_only }),
            Err(error) => {
                let begins = begins(self.text, name);
                let place = begins.map_or_else(String::new, |begins| format!("line {}", begins + error.line));
                self.problem(place, Problem::Template(Box::new(error)));
                None
            }
        }
    }

    /// The result of `read` for a key; `None` if the key is absent, null, or of another type.
    fn given<'v, T>(
        &mut self,
        object: &'v Map<String, Value>,
        key: &str,
        expected: &str,
        read: impl Fn(&'v Value) -> Option<T>,
    ) -> Option<T> {
        let value = object.get(key).filter(|value| !value.is_null())?;
        let given = read(value);
        if given.is_none() {
            self.problem(key, Problem::Field(Box::new(FieldError::new("", value, expected))));
        }
        given
    }

    fn names(&mut self, object: &Map<String, Value>, key: &str) -> Vec<String> {
        let name = |item: &Value| item.as_str().map(str::to_owned);
        let read = |value: &Value| value.as_array()?.iter().map(name).collect();
        self.given(object, key, "a list of names", read).unwrap_or_default()
    }

    fn selectors(&mut self, object: &Map<String, Value>, key: &str) -> Vec<Selector> {
        let items = self.given(object, key, "a list of label selectors", Value::as_array);
        let mut selectors = Vec::new();
        for (at, item) in items.into_iter().flatten().enumerate() {
            let unknown = Selector::unknown_keys(item);
            self.ignored.extend(unknown.map(|name| {
                format!("{key}[{at}].{name}: not known, ignored; known are matchLabels, matchExpressions")
            }));
            match Selector::parse(item) {
                Ok(selector) => match selector.impossible() {
                    Some(impossible) => self.ignored.push(format!("{key}[{at}]: ignored: {impossible}")),
                    None => selectors.push(selector),
                },
                // As in Istio: a selector that cannot be evaluated selects nothing.
                Err(error)
                    if [".operator", ".values", ".key"].iter().any(|end| error.path.ends_with(end)) =>
                {
                    self.ignored.push(format!("{key}[{at}]: ignored: {error}"));
                }
                Err(error) => self.problem(format!("{key}[{at}]"), Problem::Field(Box::new(error))),
            }
        }
        selectors
    }

    fn aliases(&mut self, object: &Map<String, Value>) -> BTreeMap<String, Vec<String>> {
        let aliases = self.given(object, "aliases", "a map of lists", Value::as_object);
        let names = aliases.into_iter().flat_map(|aliases| aliases.keys().map(move |name| (aliases, name)));
        names.map(|(aliases, name)| (name.clone(), self.names(aliases, name))).collect()
    }

    fn annotations(&mut self, object: &Map<String, Value>) -> Map<String, Value> {
        let map = self.given(object, "injectedAnnotations", "a map", Value::as_object);
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        map.into_iter().flatten().map(|(key, value)| (key.clone(), Value::String(text(value)))).collect()
    }

    /// A template with an error of its own is known all the same.
    fn unknown_names(&mut self, object: &Map<String, Value>, config: &InjectorConfig) {
        let given = object.get("templates").and_then(Value::as_object).into_iter().flat_map(Map::keys);
        let known: BTreeSet<&str> = config.templates.keys().chain(given).map(String::as_str).collect();
        let is_template = |name: &str| known.contains(name);
        let is_known = |name: &str| is_template(name) || config.aliases.contains_key(name);
        let mut unknown: Vec<(String, &String)> = Vec::new();
        for (alias, names) in &config.aliases {
            let missing = names.iter().filter(|name| !is_template(name));
            unknown.extend(missing.map(|name| (format!("aliases.{alias}"), name)));
        }
        let missing = config.default_templates.iter().filter(|name| !is_known(name));
        unknown.extend(missing.map(|name| ("defaultTemplates".to_owned(), name)));
        if !known.is_empty() {
            let known: Vec<String> = known.into_iter().map(str::to_owned).collect();
            for (place, name) in unknown {
                self.problem(place, Problem::UnknownTemplate { name: name.clone(), known: known.clone() });
            }
        }
    }
}
