//! Standard output: exactly one JSON document, or nothing where a command has no result.

use std::io::Write as _;
use std::panic::PanicHookInfo;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{CniError, Code};
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
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => code,
        // The runtime is gone.
        Err(_) => ExitCode::FAILURE,
    }
}

/// From now on a panic is an error of code 100, and ends the process.
pub fn report_panics() {
    std::panic::set_hook(Box::new(|info| {
        eprintln!("{info}");
        print(Version::NEWEST, &Err(of_panic(info)));
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
