//! Regression files of the honesty tests: `regressions/TEST/NAME.json`, one divergence each. A test that
//! finds one prints the file.

use std::path::PathBuf;

use proptest::test_runner::TestError;
use serde_json::Value;

fn directory(test: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/netns/regressions", test].iter().collect()
}

/// The files of a test, by name; there is at least one.
pub(crate) fn regressions(test: &str) -> Vec<(String, Value)> {
    let directory = directory(test);
    let entries = std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{directory:?}: {error}"));
    let mut found: Vec<(String, Value)> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            let content = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"));
            (path.file_stem().unwrap().to_string_lossy().into_owned(), content)
        })
        .collect();
    found.sort_by(|one, next| one.0.cmp(&next.0));
    assert!(!found.is_empty(), "{directory:?}: no file");
    found
}

/// What a random test found, with the file that keeps it.
pub(crate) fn finding<T>(test: &str, error: &TestError<T>, file: impl Fn(&T) -> Value) -> String {
    match error {
        TestError::Abort(reason) => format!("aborted: {reason}"),
        TestError::Fail(reason, smallest) => format!(
            "{reason}\n\nto keep it: {}/WHAT-DIFFERS.json\n{:#}",
            directory(test).display(),
            file(smallest)
        ),
    }
}

/// The texts of a list.
pub(crate) fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().unwrap_or_else(|| panic!("{list}: no list"));
    list.iter().map(|text| text.as_str().unwrap_or_else(|| panic!("{text}: no text")).to_owned()).collect()
}
