//! Where config comes from: files of several shapes, or what is built in.

use serde_json::Value;

use super::builtin;
use super::error::ConfigError;
use super::injector::InjectorConfig;
use super::mesh::Mesh;
use crate::template::Functions;
use crate::yaml;

/// A file, by name and content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its name, for messages.
    pub name: String,
    /// Its content.
    pub text: String,
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
    /// The mesh config.
    pub mesh: Mesh,
    /// What is odd about them.
    pub warnings: Vec<String>,
}

impl Sources {
    /// Reads all of them.
    ///
    /// # Errors
    ///
    /// Every problem in any of them.
    pub fn load(&self, functions: &Functions) -> Result<Settings, Vec<ConfigError>> {
        let mut problems = Vec::new();
        let builtin = |name: &str, text: &str| Source { name: name.to_owned(), text: text.to_owned() };
        let mut config = builtin("built-in config", builtin::CONFIG);
        let mut values = builtin("built-in values", builtin::VALUES);
        let mut mesh = builtin("built-in mesh config", builtin::MESH);
        if let Some(given) = &self.config {
            let held = opened(given, "config", &mut problems);
            if let Some(more) = held.beside("values") {
                values = more;
            }
            config = held.source;
        }
        if let Some(given) = &self.values {
            values = opened(given, "values", &mut problems).source;
        }
        if let Some(given) = &self.mesh {
            mesh = opened(given, "mesh", &mut problems).source;
        }
        let injector = keep(InjectorConfig::parse(&config.name, &config.text, functions), &mut problems);
        let values = keep(read_values(&values).map_err(|problem| vec![problem]), &mut problems);
        let mesh = keep(read_mesh(&mesh).map_err(|problem| vec![problem]), &mut problems);
        match (injector, values, mesh) {
            (Some(injector), Some(values), Some((mesh, warnings))) if problems.is_empty() => {
                Ok(Settings { injector, values, mesh, warnings })
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

/// Takes the text out of a ConfigMap, if the file is one.
fn opened(given: &Source, key: &str, problems: &mut Vec<ConfigError>) -> Opened {
    let whole = || Opened { source: given.clone(), map: None };
    if !given.text.contains("ConfigMap") {
        return whole();
    }
    let Ok(value) = yaml::read(&given.text) else {
        return whole();
    };
    if value.get("kind").and_then(Value::as_str) != Some("ConfigMap") {
        return whole();
    }
    match value.pointer("/data").and_then(|data| data.get(key)).and_then(Value::as_str) {
        Some(text) => {
            let source = Source { name: format!("{} (key {key})", given.name), text: text.to_owned() };
            Opened { source, map: Some(value) }
        }
        None => {
            problems.push(ConfigError::new(&given.name, "data", format!("the ConfigMap has no key {key:?}")));
            whole()
        }
    }
}

fn read_values(source: &Source) -> Result<Value, ConfigError> {
    let value =
        yaml::read(&source.text).map_err(|error| ConfigError::new(&source.name, "", error.to_string()))?;
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(Value::Object(serde_json::Map::new())),
        Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Err(ConfigError::new(&source.name, "", "expected a map of values"))
        }
    }
}

fn read_mesh(source: &Source) -> Result<(Mesh, Vec<String>), ConfigError> {
    let bad = |problem: String| ConfigError::new(&source.name, "", problem);
    let value = yaml::read(&source.text).map_err(|error| bad(error.to_string()))?;
    let mesh = Mesh::default().with(&value).map_err(bad)?;
    let unknown = Mesh::unknown_fields(&value);
    let warnings =
        unknown.iter().map(|field| bad(format!("{field}: not known, ignored")).to_string()).collect();
    Ok((mesh, warnings))
}
