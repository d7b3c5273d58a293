//! Stubs of C library functions in static builds (`make static cni`), which save half a megabyte. std and glibc themselves link
//! `sscanf`, a reader of debug information, and `printf` with streams, wide characters, converters of encodings and the loader of
//! those: for output that these programs do not print. glibc's start links the loader of libraries, and std the unwinder.
#![allow(unsafe_code, reason = "a function that stands for one of the C library has its name")]
#![allow(non_upper_case_globals, reason = "so has a variable")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io::Write as _;

use nix::libc;

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

/// Where the loader looks for libraries, of which a static program loads none.
#[unsafe(no_mangle)]
const extern "C" fn _dl_init_paths() {}

/// What a library that is loaded later needs of threads.
#[unsafe(no_mangle)]
const extern "C" fn _dl_nothread_init_static_tls() {}

/// Takes the right to write from the part of the program that is not written after its start. In glibc it is in the same object as what
/// relocates libraries.
#[unsafe(no_mangle)]
extern "C" fn _dl_protect_relro(_program: *const c_void) {
    // SAFETY: the kernel gives the headers of this program, which is linked for the addresses in there.
    let headers = unsafe {
        let first = libc::getauxval(libc::AT_PHDR) as *const libc::Elf64_Phdr;
        std::slice::from_raw_parts(first, libc::getauxval(libc::AT_PHNUM) as usize)
    };
    // SAFETY: it has no precondition.
    let page = unsafe { libc::getauxval(libc::AT_PAGESZ) };
    for header in headers.iter().filter(|header| header.p_type == libc::PT_GNU_RELRO) {
        let [start, end] = [header.p_vaddr, header.p_vaddr + header.p_memsz].map(|at| at & !(page - 1));
        // SAFETY: nothing writes there after the start.
        unsafe { libc::mprotect(start as *mut c_void, (end - start) as usize, libc::PROT_READ) };
    }
}

/// `struct gconv_fcts` of the C locale: how wide characters are converted. No stream is wide.
#[unsafe(no_mangle)]
static __wcsmbs_gconv_fcts_c: [usize; 4] = [0; 4];

unsafe extern "C" {
    /// The text of an error; null for an unknown one.
    fn strerrordesc_np(number: c_int) -> *const c_char;
}

/// `strerror_r(3)` of POSIX, without `snprintf`.
#[unsafe(no_mangle)]
unsafe extern "C" fn __xpg_strerror_r(number: c_int, buffer: *mut c_char, size: usize) -> c_int {
    // SAFETY: any number is accepted; what is returned is a constant.
    let known = unsafe { strerrordesc_np(number).as_ref().map(|text| CStr::from_ptr(text)) };
    // SAFETY: the caller gives a buffer of this size.
    let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), size) };
    let Some((end, mut text)) = buffer.split_last_mut() else { return libc::ERANGE };
    *end = 0;
    let written = match known {
        Some(known) => text.write_all(known.to_bytes()),
        None => write!(text, "Unknown error {number}"),
    };
    if let Some(end) = text.first_mut() {
        *end = 0;
    }
    if written.is_ok() { 0 } else { libc::ERANGE }
}

/// Of a fatal error of the C library, behind which it ends the program.
#[unsafe(no_mangle)]
unsafe extern "C" fn __snprintf(buffer: *mut c_char, size: usize) -> c_int {
    if size > 0 {
        // SAFETY: the caller gives a buffer of this size.
        unsafe { buffer.write(0) };
    }
    0
}

/// An assertion of the C library fails.
#[unsafe(no_mangle)]
unsafe extern "C" fn __assert_fail(assertion: *const c_char, _file: *const c_char, _line: c_uint) -> ! {
    // SAFETY: it is a constant of the C library.
    let assertion = unsafe { CStr::from_ptr(assertion) };
    // SAFETY: the text has this length.
    unsafe { libc::write(libc::STDERR_FILENO, assertion.as_ptr().cast(), assertion.count_bytes()) };
    std::process::abort()
}

/// Where `malloc_stats` prints, which nothing calls: it is in the same object as `malloc`.
#[unsafe(no_mangle)]
static stderr: usize = 0;

/// Functions that return nothing, 0 or null, which are one to their callers.
macro_rules! empty {
    ($($name:ident)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> usize {
                0
            }
        )*
    };
}

// Unwinding, which never begins.
empty!(__gcc_personality_v0 _Unwind_GetDataRelBase _Unwind_GetIPInfo _Unwind_GetLanguageSpecificData _Unwind_GetRegionStart);
empty!(_Unwind_GetTextRelBase _Unwind_Resume _Unwind_SetGR _Unwind_SetIP);
// How `malloc_stats` prints.
empty!(fprintf _IO_fputs fwrite);
// The streams whose locks `fork` takes, and frees in the child: none.
empty!(_IO_iter_begin _IO_iter_end _IO_iter_next _IO_iter_file _IO_list_lock _IO_list_unlock _IO_list_resetlock);
