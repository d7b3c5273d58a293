//! What has to happen before `main`. Rust's runtime, with which all programs but the init binary start,
//! aborts the process if a standard stream is closed and `/dev/null` cannot be opened in its place.
#![allow(
    unsafe_code,
    reason = "code that runs before `main` is named in a section, and std has no wrapper for the calls"
)]

use std::sync::atomic::{AtomicBool, Ordering};

use super::stack_overflow;

/// Whether standard output was closed. What is open in its place accepts everything.
static OUTPUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether the process was started without standard output.
pub(super) fn output_was_closed() -> bool {
    OUTPUT_WAS_CLOSED.load(Ordering::Relaxed)
}

/// The C library calls what this section points to before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = prepare;

extern "C" fn prepare() {
    for stream in 0..=2 {
        // SAFETY: the calls take numbers and constant strings only, and nothing here needs Rust's runtime.
        unsafe {
            if libc::fcntl(stream, libc::F_GETFD) != -1 {
                continue;
            }
            if stream == libc::STDOUT_FILENO {
                OUTPUT_WAS_CLOSED.store(true, Ordering::Relaxed);
            }
            if libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) == -1 {
                // The lowest free number is this stream's: those below are open by now.
                libc::memfd_create(c"closed".as_ptr(), 0);
            }
        }
    }
    // SAFETY: no handler is installed. A write beyond RLIMIT_FSIZE then fails with EFBIG, which is reported,
    // instead of ending the process without a word.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Prepares the process of a program without Rust's runtime: what that does beside opening standard streams.
/// A write to a closed pipe is an error, and a stack overflow is reported.
pub fn without_runtime() {
    // SAFETY: no handler is installed.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
    stack_overflow::report();
}
