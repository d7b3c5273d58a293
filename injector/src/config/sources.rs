//! Sources of config: files in several formats, or the built-in one.

use serde_json::Value;

use super::builtin;
use super::error::{ConfigError, Problem};
use super::injector::InjectorConfig;
use super::mesh::Mesh;
use super::source::Source;
use super::values::{self, ValuesFrom};
use crate::object;
use crate::path::FieldError;
use crate::yaml;
use gotemplate::Functions;

/// What a file is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// Injector config.
    Config,
    /// Values.
    Values,
    /// Mesh config.
    Mesh,
}

impl SourceKind {
    const ALL: [Self; 3] = [Self::Config, Self::Values, Self::Mesh];

    /// The flag of the source, its name, and top-level keys that no other has.
    const fn properties(self) -> (&'static str, &'static str, &'static [&'static str]) {
        match self {
            Self::Config => (
                "--inject-config",
                "an injector config",
                &[
                    "defaultTemplates",
                    "templates",
                    "alwaysInjectSelector",
                    "neverInjectSelector",
                    "injectedAnnotations",
                ],
            ),
            Self::Values => ("--values", "values", &["global", "sidecarInjectorWebhook", "revisionTags"]),
            Self::Mesh => (
                "--mesh-config",
                "a mesh config",
                &[
                    "defaultConfig",
                    "trustDomain",
                    "rootNamespace",
                    "enablePrometheusMerge",
                    "extensionProviders",
                ],
            ),
        }
    }

    /// The flag that names the file.
    pub(crate) const fn flag(self) -> &'static str {
        self.properties().0
    }

    /// What a text is, if it is something else.
    fn mistaken(self, text: &str) -> Option<Problem> {
        let value = yaml::read(text).ok()?;
        let has = |kind: &Self| {
            let (_, _, keys) = kind.properties();
            keys.iter().any(|key| value.get(*key).is_some_and(|value| !value.is_null()))
        };
        let (_, expected, _) = self.properties();
        let of_kind = value.get("kind").and_then(Value::as_str).filter(|_| value.get("apiVersion").is_some());
        // A bare template may say that it is one of a Pod.
        let is_template = |kind: &str| kind == "Pod" && text.contains("{{");
        let is_file = |kind: &str| matches!(kind, "ConfigMap" | "List") || is_template(kind);
        if let Some(kind) = of_kind.filter(|kind| !is_file(kind)) {
            let found = format!("a Kubernetes object of kind {kind}");
            return Some(Problem::OtherFile { found, expected, fix: None });
        }
        let other = Self::ALL.into_iter().find(has).filter(|_| !has(&self))?;
        let (flag, found, _) = other.properties();
        Some(Problem::OtherFile { found: found.to_owned(), expected, fix: Some(flag.to_owned()) })
    }
}

/// The files of the flags; what is missing is built in.
#[derive(clap::Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigFiles {
    /// Injector config: the `config` of the ConfigMap, the whole ConfigMap, or a bare template; default:
    /// built in
    #[arg(long, alias = "injectConfigFile", value_name = "FILE")]
    pub(crate) inject_config: Option<String>,
    /// Values (YAML or JSON), or the whole ConfigMap; default: built in
    #[arg(long, alias = "valuesFile", value_name = "FILE")]
    pub(crate) values: Option<String>,
    /// Mesh config, or the whole ConfigMap; default: built in
    #[arg(long, alias = "meshConfigFile", value_name = "FILE")]
    pub(crate) mesh_config: Option<String>,
}

impl ConfigFiles {
    /// The files that are given, each with what it holds.
    pub(crate) fn given(&self) -> impl Iterator<Item = (SourceKind, &str)> {
        let files = [&self.inject_config, &self.values, &self.mesh_config];
        SourceKind::ALL.into_iter().zip(files).filter_map(|(kind, file)| Some((kind, file.as_deref()?)))
    }

    /// Reads each of them with `read`. Errors: those of all.
    pub(crate) fn read<E>(
        &self,
        mut read: impl FnMut(SourceKind, &str) -> Result<Source, E>,
    ) -> Result<Sources, Vec<E>> {
        let (mut sources, mut errors) = (Sources::default(), Vec::new());
        for (kind, file) in self.given() {
            let slot = match kind {
                SourceKind::Config => &mut sources.config,
                SourceKind::Values => &mut sources.values,
                SourceKind::Mesh => &mut sources.mesh,
            };
            *slot = read(kind, file).map_err(|error| errors.push(error)).ok();
        }
        if errors.is_empty() { Ok(sources) } else { Err(errors) }
    }
}

impl Source {
    /// What was read from a file.
    /// Errors: when there is nothing in it, or only comments: it may be on its way, or have been cut off, and
    /// is not taken for the wish to have what is built in, or nothing.
    pub(crate) fn of_file(holds: SourceKind, name: &str, text: String) -> Result<Self, ConfigError> {
        if !is_blank(&text) {
            return Ok(Self { name: name.to_owned(), text });
        }
        let (flag, what, _) = holds.properties();
        let or = match holds {
            SourceKind::Config => "",
            SourceKind::Values => ", or {} for none",
            SourceKind::Mesh => ", or {} for Istio's defaults",
        };
        let problem = Problem::EmptyFile { expected: format!("{what}{or}"), flag };
        Err(ConfigError::new(name, "", problem))
    }
}

/// Whether there is nothing in a text but comments.
pub(crate) fn is_blank(text: &str) -> bool {
    text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#') || line == "---")
}

/// The files that were given; what is missing is built in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// Injector config: the text, or the whole ConfigMap, which may hold the values too.
    pub config: Option<Source>,
    /// Values: the text, or the whole ConfigMap.
    pub values: Option<Source>,
    /// Mesh config: the text, or the whole ConfigMap.
    pub mesh: Option<Source>,
}

/// Everything that was read.
#[derive(Debug)]
pub struct Settings {
    /// The injector config.
    pub injector: InjectorConfig,
    /// The values that templates read.
    pub values: Value,
    /// The source of the values, for messages.
    pub values_from: ValuesFrom,
    /// The mesh config.
    pub mesh: Mesh,
    /// Warnings about them.
    pub warnings: Vec<String>,
}

impl Sources {
    /// The ConfigMaps of an installation. Unlike a file, the first one has to hold values, as in Istio: the
    /// built-in ones have an image of a local build.
    #[must_use]
    pub(crate) fn of_cluster(config: Source, mesh: Option<Source>) -> Self {
        Self { values: Some(config.clone()), config: Some(config), mesh }
    }

    /// The texts of injector config and mesh config, out of their ConfigMaps. [`load`](Self::load) says what
    /// is wrong with them.
    #[must_use]
    pub fn texts(&self) -> (String, String) {
        let text = |given: &Option<Source>, key: &str, builtin: &str| match given {
            Some(given) => opened(given, key, &mut Vec::new()).source.text,
            None => builtin.to_owned(),
        };
        (text(&self.config, "config", builtin::CONFIG), text(&self.mesh, "mesh", builtin::MESH))
    }

    /// Reads all of them.
    ///
    /// # Errors
    ///
    /// Every problem in any of them.
    pub fn load(&self, functions: &Functions) -> Result<Settings, Vec<ConfigError>> {
        self.load_with(functions, Value::Null)
    }

    /// Reads all of them, with values that are laid over those of the files.
    /// Errors: as [`load`](Self::load).
    pub(crate) fn load_with(&self, functions: &Functions, set: Value) -> Result<Settings, Vec<ConfigError>> {
        let mut problems = Vec::new();
        let builtin = |name: &str, text: &str| Source { name: name.to_owned(), text: text.to_owned() };
        let mut config = builtin("built-in config", builtin::CONFIG);
        let mut values = builtin("built-in values", builtin::VALUES);
        let mut mesh = builtin("built-in mesh config", builtin::MESH);
        if let Some(given) = &self.config {
            let held = opened(given, "config", &mut problems);
            if let Some(more) = held.beside("values") {
                problems.extend(blank_key(&more));
                values = more;
            }
            config = held.source;
        }
        let is_builtin = self.config.is_none() || config.text.trim_end() == builtin::CONFIG.trim_end();
        let mut below = None;
        if let Some(given) = &self.values {
            // Built-in templates need all of the built-in values; a config of one's own comes with its own.
            below = Some(values).filter(|_| self.config.is_none());
            values = opened(given, "values", &mut problems).source;
        }
        if let Some(given) = &self.mesh {
            mesh = opened(given, "mesh", &mut problems).source;
        }
        for (kind, source) in
            [(SourceKind::Config, &config), (SourceKind::Values, &values), (SourceKind::Mesh, &mesh)]
        {
            problems.extend(
                kind.mistaken(&source.text).map(|problem| ConfigError::new(&source.name, "", problem)),
            );
        }
        let duplicates = [&config, &values, &mesh].map(|source| {
            yaml::duplicate_key(&source.text).map(|duplicate| format!("{}: {duplicate}", source.name))
        });
        let injector = keep(InjectorConfig::parse(&config.name, &config.text, functions), &mut problems);
        let below = below.map_or(Ok(Value::Null), |below| values::read(&below));
        let given = keep(values::read(&values).map_err(|problem| vec![problem]), &mut problems);
        let mut unsupported = Vec::new();
        if is_builtin && let Some(given) = &given {
            unsupported = values::unsupported(&values.name, given, &mut problems);
            unsupported.extend(values::unsupported(values::SET, &set, &mut problems));
        }
        let values_from = ValuesFrom { file: values.name, set: set.clone() };
        let merged = below.map(|below| {
            given.map(|given| {
                let files = values_from.merge_file(below, given, &mut problems);
                values_from.merge_set(files, set, &mut problems)
            })
        });
        let values = keep(merged.map_err(|problem| vec![problem]), &mut problems).flatten();
        let mesh = keep(read_mesh(&mesh), &mut problems);
        match (injector, values, mesh) {
            (Some(injector), Some(values), Some((mesh, mut warnings))) if problems.is_empty() => {
                let ignored = injector.ignored_selectors.iter().chain(&injector.unknown_keys);
                let unknown = ignored.map(|problem| format!("{}: {problem}", config.name));
                warnings.splice(..0, unknown.chain(unsupported).chain(duplicates.into_iter().flatten()));
                Ok(Settings { injector, values, values_from, mesh, warnings })
            }
            _ => Err(problems),
        }
    }
}

fn keep<T>(result: Result<T, Vec<ConfigError>>, problems: &mut Vec<ConfigError>) -> Option<T> {
    result.map_err(|more| problems.extend(more)).ok()
}

/// A file, and the other keys of the ConfigMap that it was.
struct Opened {
    source: Source,
    map: Option<Value>,
}

impl Opened {
    fn beside(&self, key: &str) -> Option<Source> {
        let text = self.map.as_ref()?.pointer("/data")?.get(key)?.as_str()?;
        let name = self.source.name.split(" (key").next().unwrap_or_default();
        Some(Source { name: format!("{name} (key {key})"), text: text.to_owned() })
    }
}

/// Takes the text out of a ConfigMap, if the file is one or has some, as documents or in a List.
fn opened(given: &Source, key: &str, problems: &mut Vec<ConfigError>) -> Opened {
    let whole = || Opened { source: given.clone(), map: None };
    if !given.text.contains("ConfigMap") && !given.text.contains("apiVersion") {
        return whole();
    }
    let mut maps = Vec::new();
    for document in yaml::read_documents(given.text.as_bytes()).unwrap_or_default() {
        if is_cut_off(&document.value) {
            problems.push(ConfigError::new(&given.name, "kind", Problem::MissingKind));
        }
        collect_maps(document.value, &mut maps);
    }
    if maps.is_empty() {
        return whole();
    }
    let text = |map: &Value| Some(map.pointer("/data")?.get(key)?.as_str()?.to_owned());
    let count = maps.len();
    let mut holders = maps.into_iter().filter_map(|map| Some((text(&map)?, map)));
    let problem = match (holders.next(), holders.next()) {
        (Some((text, map)), None) => {
            let source = Source { name: format!("{} (key {key})", given.name), text };
            // The parser of injector configs has words of its own.
            problems.extend(blank_key(&source).filter(|_| key != "config"));
            return Opened { source, map: Some(map) };
        }
        (Some(first), Some(second)) => {
            let maps =
                [first, second].into_iter().chain(holders).map(|(_, map)| object::title(&map)).collect();
            Problem::AmbiguousKey { key: key.to_owned(), maps }
        }
        (None, _) => Problem::MissingKey { key: key.to_owned(), maps: count },
    };
    problems.push(ConfigError::new(&given.name, "data", problem));
    whole()
}

/// What is wrong with a key that has nothing in it.
fn blank_key(source: &Source) -> Option<ConfigError> {
    is_blank(&source.text).then(|| ConfigError::new(&source.name, "", Problem::BlankKey))
}

/// Whether it begins as a ConfigMap that is printed by the API server, which writes the kind behind the data.
/// A template has a spec.
fn is_cut_off(object: &Value) -> bool {
    let has = |key: &str| object.get(key).is_some_and(|value| !value.is_null());
    has("apiVersion") && !has("kind") && object.get("spec").is_none()
}

fn collect_maps(value: Value, maps: &mut Vec<Value>) {
    if value.get("kind").and_then(Value::as_str) == Some("ConfigMap") {
        maps.push(value);
    } else if let Some(items) = object::items(&value) {
        items.iter().for_each(|item| collect_maps(item.clone(), maps));
    }
}

fn read_mesh(source: &Source) -> Result<(Mesh, Vec<String>), Vec<ConfigError>> {
    let bad = |problem: Problem| ConfigError::new(&source.name, "", problem);
    let value = yaml::read(&source.text).map_err(|error| vec![bad(Problem::Yaml(Box::new(error)))])?;
    let fields = |errors: Vec<FieldError>| -> Vec<_> {
        errors.into_iter().map(|error| bad(Problem::Field(Box::new(error)))).collect()
    };
    let mesh = Mesh::default().with(&value).map_err(fields)?;
    let unknown = Mesh::unknown_fields(&value);
    let warnings = unknown.iter().map(|field| format!("{}: {field}", source.name)).collect();
    Ok((mesh, warnings))
}
