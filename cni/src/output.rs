//! Standard output: exactly one JSON document, or nothing where a command has no result.

use std::io::{self, Write as _};
use std::panic::PanicHookInfo;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{SFlag, fstat, makedev};

use crate::error::{CniError, Code};
use crate::log_sink;
use crate::version::Version;

/// Whether the document is written, or about to be.
static WRITTEN: AtomicBool = AtomicBool::new(false);

/// Prints the result of a command, or its error. What was printed before is all there is.
pub fn print(version: Version, result: &Result<String, CniError>) -> ExitCode {
    if WRITTEN.swap(true, Ordering::SeqCst) {
        return ExitCode::FAILURE;
    }
    let (text, code) = match result {
        Ok(text) => (text.clone(), ExitCode::SUCCESS),
        Err(error) => (error.to_json(version), ExitCode::FAILURE),
    };
    let mut out = io::stdout();
    let printed =
        require_open(&text).and_then(|()| out.write_all(text.as_bytes())).and_then(|()| out.flush());
    match printed {
        Ok(()) => code,
        Err(error) => {
            // The runtime is gone; the error is still logged.
            let _ = writeln!(io::stderr(), "standard output: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A standard output that was closed is `/dev/null` by now, for reading and writing: Rust's runtime opens it,
/// so that no other file gets its number. A result that is written to it is lost.
fn require_open(text: &str) -> io::Result<()> {
    const NULL: u64 = makedev(1, 3);
    if text.is_empty() {
        return Ok(());
    }
    let out = io::stdout();
    let file = fstat(&out)?;
    let is_null = file.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFCHR.bits() && file.st_rdev == NULL;
    let flags = OFlag::from_bits_truncate(fcntl(&out, FcntlArg::F_GETFL)?);
    if is_null && flags.contains(OFlag::O_RDWR) {
        return Err(io::Error::other("closed, expected an open file for the result"));
    }
    Ok(())
}

/// From now on a panic is an error of code 100, and ends the process.
pub fn report_panics() {
    std::panic::set_hook(Box::new(|info| {
        eprintln!("{info}");
        let error = of_panic(info);
        log::error!("{}", error.msg);
        print(Version::NEWEST, &Err(error));
        log_sink::deliver();
        #[allow(
            clippy::disallowed_methods,
            reason = "the alternative is SIGABRT, which loses the exit code"
        )]
        std::process::exit(1);
    }));
}

fn of_panic(info: &PanicHookInfo<'_>) -> CniError {
    let place =
        info.location().map(|place| format!(" at {}:{}", place.file(), place.line())).unwrap_or_default();
    let payload = info.payload();
    let owned = payload.downcast_ref::<String>().map(String::as_str);
    let what = owned.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or_default();
    CniError::new(Code::Internal, format!("defect in istio-cni{place}: {what}"))
}
