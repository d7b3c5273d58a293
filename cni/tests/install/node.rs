//! The directories of a node, and the agent's commands in them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use serde_json::Value;

/// A network's list as network plugins write it, with what a JSON library would change: order, spaces,
/// escapes, numbers.
pub(crate) const LIST: &str = "{\r\n  \"cniVersion\": \"1.0.0\",\n\t\"plugins\" : [\n    { \"type\":\"bridge\", \"mtu\": 1.50e3, \
     \"\\u0061\": \"\u{e4}\" },\n    {\"type\": \"portmap\",\"capabilities\":{\"portMappings\":true}}\n  ], \"name\": \"cluster\"}\n\n";

/// A network as a configuration of one plugin.
pub(crate) const SINGLE: &str = "{\n\t\"cniVersion\": \"0.3.1\", \"type\": \"bridge\",\r\n\"name\":\"clust\\u0065r\", \"mtu\": 1.50e3 }\n";

pub(crate) struct Node {
    folder: tempfile::TempDir,
    pub(crate) net: PathBuf,
    pub(crate) bin: PathBuf,
    pub(crate) run: PathBuf,
}

impl Node {
    /// In memory: programs are large, and files are synchronized often.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").expect("/dev/shm is writable");
        let [net, bin, run] = ["net.d", "bin", "run"].map(|name| folder.path().join(name));
        fs::create_dir(&net).unwrap();
        fs::create_dir(&bin).unwrap();
        let node = Self { folder, net, bin, run };
        for (name, text) in files {
            node.write(name, text);
        }
        node
    }

    /// With the program, as an earlier installation leaves it.
    pub(crate) fn with_program(files: &[(&str, &str)]) -> Self {
        let node = Self::new(files);
        fs::copy(program(), node.bin.join("istio-cni")).unwrap();
        node
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.net.join(name), text).unwrap();
    }

    /// Replaces a file as careful programs do: by `rename`.
    pub(crate) fn replace(&self, name: &str, text: &str) {
        replace(&self.net, name, text);
    }

    /// A file that was written long ago: it is not being written.
    pub(crate) fn write_old(&self, name: &str, text: &str) {
        self.write(name, text);
        let file = fs::File::options().append(true).open(self.net.join(name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.net.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) fn inode(&self, name: &str) -> u64 {
        fs::metadata(self.net.join(name)).unwrap().ino()
    }

    /// The names in the directory of configurations.
    pub(crate) fn names(&self) -> Vec<String> {
        names(&self.net)
    }

    /// A command of the agent with the node's directories.
    pub(crate) fn command(&self, command: &str, options: &[&str]) -> Command {
        let mut run = Command::new(program());
        run.arg0("istio-cni").arg(command).args(options).env_remove("CNI_COMMAND");
        for (option, dir) in [("net-dir", &self.net), ("bin-dir", &self.bin), ("run-dir", &self.run)] {
            run.arg(format!("--{option}={}", dir.display()));
        }
        if command == "install" {
            // No pods of the machine.
            run.arg(format!("--results-dir={}", self.run.with_file_name("results").display()));
        }
        run
    }

    pub(crate) fn run(&self, command: &str, options: &[&str]) -> Output {
        self.command(command, options).output().unwrap()
    }

    #[track_caller]
    pub(crate) fn install(&self, options: &[&str]) {
        succeed(&self.run("install", &[&["--once"], options].concat()));
    }

    #[track_caller]
    pub(crate) fn uninstall(&self, options: &[&str]) -> String {
        succeed(&self.run("uninstall", options))
    }

    /// What an installation or removal must say when it fails.
    #[track_caller]
    pub(crate) fn fails(&self, command: &str, options: &[&str], expected: &str) {
        let output = self.run(command, options);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(expected), "{expected}: {output:?}");
    }

    /// The types of the plugins in a list.
    pub(crate) fn types(&self, name: &str) -> Vec<String> {
        types(&self.read(name)).unwrap_or_else(|| panic!("{}", self.read(name)))
    }
}

#[track_caller]
fn succeed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The types of a list, read without the agent's code.
pub(crate) fn types(text: &str) -> Option<Vec<String>> {
    let list: Value = serde_json::from_str(text).ok()?;
    list["name"].as_str().filter(|name| !name.is_empty())?;
    let types = list["plugins"].as_array()?.iter().map(|plugin| plugin["type"].as_str().map(str::to_owned));
    types.collect::<Option<Vec<_>>>().filter(|types| !types.is_empty())
}

pub(crate) fn replace(dir: &Path, name: &str, text: &str) {
    let new = dir.join("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, dir.join(name)).unwrap();
}

pub(crate) fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub(crate) fn program() -> &'static Path {
    static PROGRAM: LazyLock<String> =
        LazyLock::new(|| netlab::process::under_test("ISTIO_CNI_PROGRAM", env!("CARGO_BIN_EXE_istio-cni")));
    Path::new(PROGRAM.as_str())
}
