//! Config from files, with hot reload.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::config_store::ConfigStore;
use crate::config::{ConfigError, ConfigFiles, Source, Sources};
use crate::file_watcher::{FileWatcher, Stable};
use crate::files;
use gotemplate::Functions;

/// Reads the files.
/// Errors: every file that cannot be read: one that is gone is not the same as none.
pub(super) fn read(named: &ConfigFiles) -> Result<Sources, Vec<ConfigError>> {
    named.read(|kind, name| {
        let unusable = |problem: String| ConfigError::unusable(name, problem);
        let bytes = files::read_regular(name).map_err(|error| unusable(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|_| unusable("not valid UTF-8".to_owned()))?;
        Source::of_file(kind, name, text)
    })
}

/// Watches the files until `stopping`; `loaded` is what was read from them.
pub(super) async fn watch(
    named: ConfigFiles,
    loaded: Sources,
    interval: Duration,
    store: Arc<ConfigStore>,
    functions: Arc<Functions>,
    stopping: CancellationToken,
) {
    let names = named.given().map(|(_, name)| name).collect::<Vec<_>>().join(", ");
    if names.is_empty() {
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
    let unresponsive = Err(vec![ConfigError::unusable(&names, watcher.problem())]);
    let watch = watcher.watch(Stable::new(Ok(loaded)), move || read(&named), unresponsive, apply);
    stopping.run_until_cancelled(watch).await;
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
            inject_config: named("config", ""),
            values: named("values", "\n \n"),
            mesh_config: named("mesh", "{}"),
        };
        let problems: Vec<String> = read(&files).unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(problems.len(), 2, "{problems:?}");
        for (problem, (_, name)) in problems.iter().zip(files.given()) {
            let begin = format!("{name}: the file is empty; expected");
            assert!(problem.starts_with(&begin), "{problem}");
        }
    }
}
