//! Files in the repository against the expected ones: compared, or written.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Printed with every difference.
const REMEDY: &str = "if that is meant: `make gallery` (UPDATE_GALLERY=1 cargo test --test gallery) regenerates it, to be \
                      looked at before it is committed";

/// Expected files with their contents; `None` for a file that must not exist.
pub(crate) type Expected = BTreeMap<PathBuf, Option<String>>;

/// Whether files are written rather than compared.
#[allow(clippy::disallowed_methods, reason = "a variable selects between comparing and writing")]
fn update() -> bool {
    std::env::var_os("UPDATE_GALLERY").is_some_and(|value| value == "1")
}

/// Compares each file with what it should hold, or writes it.
///
/// # Panics
/// With every difference.
pub(crate) fn compare_or_write(expected: &Expected) {
    let mut differences = String::new();
    for (path, wanted) in expected {
        let live = fs::read_to_string(path).ok();
        if live == *wanted {
            continue;
        }
        match wanted {
            _ if !update() => differences += &difference(path, live.as_deref(), wanted.as_deref()),
            Some(wanted) => {
                fs::write(path, wanted).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
            }
            None => fs::remove_file(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
        }
    }
    assert!(differences.is_empty(), "{differences}\n{REMEDY}");
}

fn difference(path: &Path, live: Option<&str>, wanted: Option<&str>) -> String {
    let path = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap_or(path).display();
    match (live, wanted) {
        (None, _) => format!("\n{path} is missing\n"),
        (_, None) => format!("\n{path} is there, but the scenario makes no such file\n"),
        (Some(live), Some(wanted)) => {
            format!("\n{path} differs (- the file, + what the code makes):\n{}", changed_lines(live, wanted))
        }
    }
}

/// The lines between the common beginning and the common end.
pub(crate) fn changed_lines(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same =
        |pairs: &mut dyn Iterator<Item = (&&str, &&str)>| pairs.take_while(|(old, new)| old == new).count();
    let head = same(&mut old.iter().zip(&new));
    let tail = same(&mut old[head..].iter().rev().zip(new[head..].iter().rev()));
    let place = format!("@ line {}\n", head + 1);
    let gone = old[head..old.len() - tail].iter().map(|line| format!("- {line}\n"));
    let come = new[head..new.len() - tail].iter().map(|line| format!("+ {line}\n"));
    [place].into_iter().chain(gone).chain(come).collect()
}

/// Every file below a folder.
pub(crate) fn below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries
        .map(|entry| entry.expect("the folder can be read").path())
        .flat_map(|path| if path.is_dir() { below(&path) } else { vec![path] })
        .collect()
}
