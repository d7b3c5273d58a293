//! A file in the directory of network configurations.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::error::InstallError;
use super::files;
use super::splice::{Invalid, List, NO_PLUGINS, Single, require_version};

/// Configurations that libcni converts into lists of one plugin.
pub(super) const SINGLE: [&str; 2] = [".conf", ".json"];
/// Lists of plugins.
pub(super) const LIST: &str = ".conflist";

/// Our file in the drop-in directory of a network. Behind those with lower numbers.
pub const DROP_IN: &str = "50-istio-cni.conf";

/// Go reads strings that are not valid UTF-8, too: such a file counts, and cannot be edited here.
const NOT_UTF_8: &str = "not valid UTF-8";

/// A configuration that the runtime uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// Where it is.
    pub path: PathBuf,
    /// What it holds.
    pub text: String,
    is_list: bool,
}

/// What an installation did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The file with the entry.
    pub path: PathBuf,
    /// Whether it was written.
    pub changed: bool,
}

impl ConfigFile {
    /// The name of the network, if it is a list.
    #[must_use]
    pub fn list(&self) -> Option<List<'_>> {
        if self.is_list { List::parse(&self.text).ok() } else { None }
    }

    /// Refuses a version that the plugin does not have.
    ///
    /// # Errors
    /// It has none of ours.
    pub fn require_version(&self) -> Result<(), Invalid> {
        if self.is_list { require_version(&self.text) } else { Single::parse(&self.text)?.require_version() }
    }

    /// The types of its plugins.
    #[must_use]
    pub fn types(&self) -> Vec<String> {
        let single = || Single::parse(&self.text).iter().map(|single| single.kind().to_owned()).collect();
        self.list().map_or_else(single, |list| list.types().into_iter().map(str::to_owned).collect())
    }

    /// Reads a file; what libcni would not load is not an error.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: PathBuf) -> Result<Result<Self, Invalid>, InstallError> {
        let is_list = path.to_string_lossy().ends_with(LIST);
        if files::is_special(&path) {
            return Ok(Err(Invalid::new(files::NOT_REGULAR)));
        }
        let Some(bytes) = files::read(&path)? else {
            let is_link = path.symlink_metadata().is_ok();
            return Ok(Err(Invalid::new(if is_link { "a link to no file" } else { "no such file" })));
        };
        let parse = |text: &str| {
            if !is_list {
                return Single::parse(text).map(drop);
            }
            let list = List::parse(text)?;
            let has_plugins = !list.is_of_drop_ins() || has_drop_ins(&path, list.name());
            if has_plugins { Ok(()) } else { Err(Invalid::new(NO_PLUGINS)) }
        };
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let read = parse(&String::from_utf8_lossy(error.as_bytes()));
                return Ok(Err(read.err().unwrap_or_else(not_utf_8)));
            }
        };
        Ok(parse(&text).map(|()| Self { path, text, is_list }))
    }
}

fn not_utf_8() -> Invalid {
    Invalid::used(NOT_UTF_8, "the runtime uses it and it cannot be edited; write it in UTF-8")
}

/// Whether other programs have drop-in files for a list.
fn has_drop_ins(list: &Path, network: &str) -> bool {
    let names = files::names(&list.with_file_name(network)).unwrap_or_default();
    names.iter().any(|name| files::has_ending(name, SINGLE[0]) && name != DROP_IN)
}

/// Whether libcni reads a file of this name.
#[must_use]
pub fn is_config(name: &OsStr) -> bool {
    files::has_ending(name, LIST) || SINGLE.iter().any(|ending| files::has_ending(name, ending))
}
