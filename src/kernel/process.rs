//! Processes and files: the trait that tests replace.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::Mode;

pub use super::child::Output;
use super::input::Limited;
use super::{child, input, memory, recording, trial};

/// A program to run.
#[derive(Debug)]
pub struct Command {
    /// The program, by path.
    pub program: PathBuf,
    /// The arguments of the program.
    pub args: Vec<String>,
    /// Variables set for it, besides our own environment.
    pub env: Vec<(String, OsString)>,
    /// Standard input.
    pub input: Option<File>,
    /// How long it may run.
    pub timeout: Duration,
    /// Whether it runs in a network namespace of its own, which ends with it.
    pub is_trial: bool,
}

/// How long a program may run: far longer than any takes, so that one that hangs is reported.
pub const TIMEOUT: Duration = Duration::from_secs(60);

impl Command {
    /// `program` without arguments or input.
    #[must_use]
    pub const fn new(program: PathBuf) -> Self {
        Self { program, args: Vec::new(), env: Vec::new(), input: None, timeout: TIMEOUT, is_trial: false }
    }

    /// The command as typed in a shell.
    #[must_use]
    pub fn line(&self) -> String {
        let env = self.env.iter().map(|(name, value)| format!("{name}={} ", value.display()));
        let args = self.args.iter().map(|arg| format!(" {arg}"));
        env.chain([self.program.display().to_string()]).chain(args).collect()
    }
}

/// Processes and files, as an interface that tests replace.
pub trait Host {
    /// Where the program called `name` is.
    fn find(&self, name: &str) -> Option<PathBuf>;
    /// Where a program really is, with all links followed.
    fn resolve(&self, path: &Path) -> PathBuf;
    /// Runs a program to its end.
    ///
    /// # Errors
    ///
    /// When it cannot be started; `TimedOut` when it had to be killed.
    fn run(&self, command: Command) -> io::Result<Output>;
    /// Reads a whole file, or a named pipe to its end.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or nothing arrives.
    fn read(&self, path: &Path) -> io::Result<String>;
    /// Reads a whole file, whatever its encoding: non-UTF-8 bytes occur in user names and comments.
    ///
    /// # Errors
    /// When it cannot be read.
    fn read_lossily(&self, path: &Path) -> io::Result<String>;
}

/// The machine itself.
#[derive(Clone, Debug)]
pub struct SystemHost {
    directories: Vec<PathBuf>,
}

impl SystemHost {
    /// Looks for programs along `path` (the variable `PATH`), or in the usual places if there is none: an
    /// image without a shell may well have no `PATH`.
    #[must_use]
    pub fn new(path: Option<OsString>) -> Self {
        let path = path.filter(|path| !path.is_empty());
        let usual = || "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into();
        // An empty part is the present directory: no program of it runs as root.
        let named = |directory: &PathBuf| !directory.as_os_str().is_empty();
        Self { directories: std::env::split_paths(&path.unwrap_or_else(usual)).filter(named).collect() }
    }
}

impl Host for SystemHost {
    fn find(&self, name: &str) -> Option<PathBuf> {
        let executable = |path: &PathBuf| {
            fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        };
        let find = || self.directories.iter().map(|directory| directory.join(name)).find(executable);
        let found = recording::text(&["program ", name].concat(), &mut || {
            find().map(|path| path.display().to_string()).ok_or_else(|| io::ErrorKind::NotFound.into())
        });
        found.ok().map(PathBuf::from)
    }

    fn resolve(&self, path: &Path) -> PathBuf {
        let resolved = recording::text(&format!("target of {}", path.display()), &mut || {
            Ok(fs::canonicalize(path)?.display().to_string())
        });
        resolved.map_or_else(|_| path.to_owned(), PathBuf::from)
    }

    fn run(&self, command: Command) -> io::Result<Output> {
        if recording::is_off() { run_program(command) } else { recorded_run(command) }
    }

    #[allow(clippy::disallowed_methods, reason = "the place that is named in the rule")]
    fn read(&self, path: &Path) -> io::Result<String> {
        io::read_to_string(input::open(path)?)
    }

    #[allow(clippy::disallowed_methods, reason = "the place that is named in the rule")]
    fn read_lossily(&self, path: &Path) -> io::Result<String> {
        // A pipe in the place of a system file may have no writer.
        all_lossily(File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?)
    }
}

fn all_lossily(file: File) -> io::Result<String> {
    // Most system files are shorter: one call reads them.
    let mut bytes = Vec::with_capacity(8 << 10);
    Limited::new(file).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads a file as another process sees it; `path` is relative to its root directory. Links end in that root:
/// the process may be untrusted. Before Linux 5.6, and where `openat2` is denied, the last component must not
/// be a link.
///
/// # Errors
/// When it cannot be read.
#[allow(clippy::disallowed_methods, reason = "the place that is named in the rule")]
pub fn read_in_root(pid: u32, path: &str) -> io::Result<String> {
    let root = File::options()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
        .open(format!("/proc/{pid}/root"))?;
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_IN_ROOT);
    let file = match openat2(&root, path, how) {
        Err(Errno::ENOSYS | Errno::EPERM) => openat(&root, path, flags | OFlag::O_NOFOLLOW, Mode::empty()),
        other => other,
    };
    all_lossily(file?.into())
}

/// Replaces this program by another one, with the same standard streams. Returns only if that fails.
#[allow(clippy::disallowed_methods, reason = "the place that is named in the rule")]
#[must_use]
pub fn exec(program: &Path, arguments: &[OsString]) -> io::Error {
    std::process::Command::new(program).args(arguments).exec()
}

/// A program called `name` in the directory of this one, as far as that is known.
#[must_use]
pub fn beside_this(name: &str) -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.with_file_name(name);
    path.is_file().then_some(path)
}

thread_local! {
    /// The processes that this thread starts, while they are asked for.
    static STARTED: RefCell<Option<Vec<u32>>> = const { RefCell::new(None) };
}

/// Calls something. Returns the ids of the processes that it has started in this thread, too.
pub fn with_started<T>(call: impl FnOnce() -> T) -> (T, Vec<u32>) {
    STARTED.set(Some(Vec::new()));
    let result = call();
    (result, STARTED.take().unwrap_or_default())
}

#[allow(clippy::disallowed_methods, reason = "the place that is named in the rule")]
fn run_program(command: Command) -> io::Result<Output> {
    let Command { program, args, env, input, timeout, is_trial } = command;
    // Not /dev/null: it may be missing.
    let stdin = Stdio::from(input.map_or_else(|| memory::file(c"nothing", false), Ok)?);
    let mut command = std::process::Command::new(program);
    command.args(args).envs(env).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    if is_trial {
        trial::isolate(&mut command);
    }
    let child = command.spawn()?;
    STARTED.with_borrow_mut(|started| started.iter_mut().for_each(|ids| ids.push(child.id())));
    child::output(child, timeout)
}

/// Runs a program while its output is recorded, or takes that from a recording: exit code, standard output,
/// and standard error behind it.
fn recorded_run(command: Command) -> io::Result<Output> {
    let line = command.line();
    let (mut command, mut complaints) = (Some(command), None);
    let text = recording::text(&["output of ", &line].concat(), &mut || {
        let Some(command) = command.take() else { return Err(io::ErrorKind::NotFound.into()) };
        let Output { code, stdout, stderr } = run_program(command)?;
        complaints = Some(stderr);
        Ok(format!("{}\n{stdout}", code.map_or_else(|| "signal".to_owned(), |code| code.to_string())))
    })?;
    let stderr = recording::text(&["standard error of ", &line].concat(), &mut || {
        Ok(complaints.take().unwrap_or_default())
    })?;
    let (code, stdout) = text.split_once('\n').unwrap_or_default();
    Ok(Output { code: code.parse().ok(), stdout: stdout.to_owned(), stderr })
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlab::process::run;

    #[test]
    fn system_files_of_any_size_and_type_are_read_without_waiting() {
        let host = SystemHost::new(None);
        let endless = host.read_lossily(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(endless, "it is larger than 64 MiB");
        let directory = run("mktemp", &["-d"]);
        let pipe = Path::new(directory.trim()).join("pipe");
        run("mkfifo", &[&pipe.to_string_lossy()]);
        assert_eq!(host.read_lossily(&pipe).unwrap(), "");
        run("rm", &["-r", directory.trim()]);
    }
}
