//! Config from files, watched.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::config_store::ConfigStore;
use super::options::ConfigFrom;
use crate::config::{ConfigError, Problem, Source, SourceKind, Sources};
use crate::file_watcher::{FileWatcher, Stable};
use crate::files;
use gotemplate::Functions;

/// The files of the flags.
#[derive(Clone, Debug)]
pub(super) struct ConfigFiles {
    config: Option<String>,
    values: Option<String>,
    mesh: Option<String>,
}

impl ConfigFiles {
    /// The files, if config comes from files.
    pub(super) fn of(from: &ConfigFrom) -> Option<Self> {
        match from {
            ConfigFrom::Files { config, values, mesh } => {
                Some(Self { config: config.clone(), values: values.clone(), mesh: mesh.clone() })
            }
            ConfigFrom::ConfigMap(_) => None,
        }
    }

    /// Reads them.
    /// Errors: every file that cannot be read: one that is gone is not the same as none.
    pub(super) fn read(&self) -> Result<Sources, Vec<ConfigError>> {
        let mut problems = Vec::new();
        let mut read = |holds: SourceKind, name: &Option<String>| {
            let name = name.as_ref()?;
            let bad = |problem: String| ConfigError {
                source: name.clone(),
                place: String::new(),
                problem: Problem::Unusable(problem),
            };
            let bytes = files::read_regular(name).map_err(|error| bad(error.to_string()));
            let text = bytes
                .and_then(|bytes| String::from_utf8(bytes).map_err(|_| bad("not valid UTF-8".to_owned())));
            match text.and_then(|text| Source::of_file(holds, name, text)) {
                Ok(source) => Some(source),
                Err(problem) => {
                    problems.push(problem);
                    None
                }
            }
        };
        let sources = Sources {
            config: read(SourceKind::Config, &self.config),
            values: read(SourceKind::Values, &self.values),
            mesh: read(SourceKind::Mesh, &self.mesh),
        };
        if problems.is_empty() { Ok(sources) } else { Err(problems) }
    }

    fn unresponsive(&self, watcher: &FileWatcher) -> Vec<ConfigError> {
        let names: Vec<&str> =
            [&self.config, &self.values, &self.mesh].into_iter().filter_map(Option::as_deref).collect();
        vec![ConfigError {
            source: names.join(", "),
            place: String::new(),
            problem: Problem::Unusable(watcher.problem()),
        }]
    }

    /// Watches them until `stopping`.
    pub(super) async fn watch(
        self,
        loaded: Sources,
        interval: Duration,
        store: Arc<ConfigStore>,
        functions: Arc<Functions>,
        stopping: CancellationToken,
    ) {
        if self.config.is_none() && self.values.is_none() && self.mesh.is_none() {
            return;
        }
        let apply = |found: Result<Sources, Vec<ConfigError>>| match found {
            Ok(sources) => {
                // Problems are logged and counted there.
                let _ = store.configure(&sources, &functions);
            }
            Err(problems) => store.unreadable(&problems),
        };
        let watcher = FileWatcher::every(interval);
        let unresponsive = Err(self.unresponsive(&watcher));
        let watch = watcher.watch(Stable::new(Ok(loaded)), move || self.read(), unresponsive, apply);
        stopping.run_until_cancelled(watch).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_file_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let named = |name: &str, text: &str| {
            let path = folder.path().join(name).to_str().unwrap().to_owned();
            files::replace(&path, text).unwrap();
            Some(path)
        };
        let files = ConfigFiles {
            config: named("config", ""),
            values: named("values", "\n \n"),
            mesh: named("mesh", "{}"),
        };
        let problems: Vec<String> = files.read().unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(problems.len(), 2, "{problems:?}");
        for (problem, name) in problems.iter().zip([&files.config, &files.values]) {
            let begin = format!("{}: the file is empty; expected", name.as_deref().unwrap());
            assert!(problem.starts_with(&begin), "{problem}");
        }
    }
}
