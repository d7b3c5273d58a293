//! Two functions of the C library that the program as `make static` builds it has in an empty form. std links them for output that
//! this program cannot print, and with them 0.3 MB: `sscanf`, and a reader of debug information.
#![allow(unsafe_code, reason = "a function that stands for one of the C library has its name")]

use std::ffi::{c_int, c_void};

/// The bounds of a thread's stack, by which std tells a stack overflow from other faults. glibc reads them with `sscanf` from
/// `/proc/self/maps`, at each start. Without them a stack overflow is a plain SIGSEGV.
#[unsafe(no_mangle)]
extern "C" fn pthread_getattr_np(_thread: libc::pthread_t, _attributes: *mut libc::pthread_attr_t) -> c_int {
    libc::ENOSYS
}

/// The frames of a backtrace. The program has no unwind tables and no symbols, so there are none; that this is known when it is
/// linked leaves out the reader of debug information.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Backtrace(
    _frame: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
    _argument: *mut c_void,
) -> c_int {
    const END_OF_STACK: c_int = 5;
    END_OF_STACK
}
