//! What has to happen before Rust's runtime starts, which aborts the process if a standard stream is closed and `/dev/null`
//! cannot be opened in its place.
#![allow(
    unsafe_code,
    reason = "code that runs before `main` is named in a section, and std has no wrapper for the calls"
)]

/// The C library calls what this section points to before `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = prepare;

extern "C" fn prepare() {
    for stream in 0..=2 {
        // SAFETY: the calls take numbers and constant strings only, and touch nothing of Rust's runtime.
        unsafe {
            if libc::fcntl(stream, libc::F_GETFD) == -1
                && libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) == -1
            {
                // The lowest free number is this stream's: those below are open by now.
                libc::memfd_create(c"closed".as_ptr(), 0);
            }
        }
    }
    // SAFETY: no handler is installed. A write beyond RLIMIT_FSIZE then fails with EFBIG, which is reported, instead of
    // ending the process without a word.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}
