//! Stubs of gettext for static builds, here and in `cni/src/main.rs`: messages of the C library, such as those of `strerror`, stay
//! untranslated. Nothing calls `setlocale`, but glibc links what reads catalogues and converts their encodings all the same: 46 kB.
#![allow(unsafe_code, reason = "a function that stands for one of the C library has its name")]

use std::ffi::{c_char, c_int};

/// `dcgettext(3)` by the name that glibc itself calls.
#[unsafe(no_mangle)]
extern "C" fn __dcgettext(_domain: *const c_char, text: *const c_char, _category: c_int) -> *const c_char {
    text
}
