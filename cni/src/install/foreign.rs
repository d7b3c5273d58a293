//! Foreign entries, files and programs with our type or names, such as those of Istio's own istio-cni.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use istio_iptables::config::CAPTURE_ANNOTATION;
use istio_iptables::text::path_shown;

use super::config_file::ConfigFile;
use super::entry;
use super::error::InstallError;
use super::files;
use super::net_dir;
use super::options::{Dirs, Install, InstallMode};
use super::splice::{Owner, Single, TYPE};

/// Something that is not ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Where it is.
    pub path: PathBuf,
    /// What it is.
    pub kind: Kind,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An entry of a list.
    Entry {
        /// Whether it is in ambient mode.
        ambient: bool,
    },
    /// A configuration of its own: a drop-in file, or one that multus calls.
    Configuration {
        /// Whether it is in ambient mode.
        ambient: bool,
    },
    /// The program.
    Program,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = |ambient| if ambient { "ambient" } else { "sidecar" };
        let path = path_shown(&self.path);
        match self.kind {
            Kind::Entry { ambient } => {
                write!(f, "{path}: an entry of type {TYPE} that is not ours, in {} mode", mode(ambient))
            }
            Kind::Configuration { ambient } => {
                write!(
                    f,
                    "{path}: a configuration of type {TYPE} that is not ours, in {} mode",
                    mode(ambient)
                )
            }
            Kind::Program => write!(f, "{path}: a program that is not ours"),
        }
    }
}

impl Kind {
    const fn is_ambient(self) -> bool {
        matches!(self, Self::Entry { ambient: true } | Self::Configuration { ambient: true })
    }
}

/// Everything of another program that has our type or name.
///
/// # Errors
/// A directory or file cannot be read.
pub fn find(dirs: &Dirs) -> Result<Vec<Foreign>, InstallError> {
    let mut found = Vec::new();
    if dirs.net.is_dir() {
        configurations(&dirs.net, &mut found)?;
        for name in files::directories(&dirs.net)? {
            configurations(&dirs.net.join(name), &mut found)?;
        }
    }
    let path = dirs.bin.join(TYPE);
    if is_foreign(&path).map_err(|error| InstallError::io("read", &path, &error))? {
        found.push(Foreign { path, kind: Kind::Program });
    }
    Ok(found)
}

/// Whether a program is not ours: ours, in whatever version, reads the annotation. A file without bytes is
/// not a program. Istio's is too large to be read as a whole.
fn is_foreign(path: &Path) -> io::Result<bool> {
    let file = match files::open_regular(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    let (mut window, mut is_empty) = (Vec::new(), true);
    while (&file).take(1 << 20).read_to_end(&mut window)? > 0 {
        is_empty = false;
        if memchr::memmem::find(&window, CAPTURE_ANNOTATION.as_bytes()).is_some() {
            return Ok(false);
        }
        // It may begin in this part and end in the next.
        window.drain(..window.len().saturating_sub(CAPTURE_ANNOTATION.len()));
    }
    Ok(!is_empty)
}

fn configurations(dir: &Path, found: &mut Vec<Foreign>) -> Result<(), InstallError> {
    for name in net_dir::configs(dir)? {
        // The runtime cannot use what cannot be read.
        let Ok(Ok(file)) = ConfigFile::read(dir.join(name)) else { continue };
        let owners = file.list().map(|list| list.owners().collect::<Vec<_>>());
        let is_list = owners.is_some();
        for owner in owners.unwrap_or_else(|| Single::parse(&file.text).iter().map(Single::owner).collect()) {
            if let Owner::Istio { ambient } = owner {
                let kind = if is_list { Kind::Entry { ambient } } else { Kind::Configuration { ambient } };
                found.push(Foreign { path: file.path.clone(), kind });
            }
        }
    }
    Ok(())
}

/// Refuses to install next to a foreign plugin, or to replace it without `--replace-istio`. Returns what will
/// be replaced.
///
/// # Errors
/// What was found, and what to do.
pub fn check(options: &Install) -> Result<Vec<Foreign>, InstallError> {
    let found = find(&options.dirs)?;
    let own = match options.mode {
        InstallMode::Standalone => Some(entry::standalone(&options.dirs.net)),
        InstallMode::DropIn => entry::drop_in(&options.dirs).ok(),
        InstallMode::List => None,
    };
    let is_other_file =
        |one: &&Foreign| matches!(one.kind, Kind::Configuration { .. }) && own.as_ref() != Some(&one.path);
    let shown = |found: &mut dyn Iterator<Item = &Foreign>| {
        found.map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    let remove = "nothing was changed; remove Istio's CNI first (its DaemonSet istio-cni-node)";
    let mut ambient = found.iter().filter(|one| one.kind.is_ambient()).peekable();
    let mut others = found.iter().filter(is_other_file).peekable();
    let problem = if ambient.peek().is_some() {
        format!("{}: {remove}: --replace-istio does not replace ambient mode", shown(&mut ambient))
    } else if others.peek().is_some() {
        format!("{}: {remove}, and these files, which --replace-istio does not replace", shown(&mut others))
    } else if !found.is_empty() && !options.replace_istio {
        format!("{}: {remove}, or replace it with --replace-istio", shown(&mut found.iter()))
    } else {
        own.map_or(Ok(()), |path| entry::check_own_file(&path, options.replace_istio).map(drop))?;
        return Ok(found);
    };
    Err(InstallError::new(problem))
}
