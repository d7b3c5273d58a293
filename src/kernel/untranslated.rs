//! The C library's texts, such as those of `strerror`, without translations: for programs that are linked statically, here and in
//! `cni/src/main.rs`. Nothing calls `setlocale`, so that each text is its own translation. glibc links what reads catalogues, and
//! converts their encodings, all the same: 46 kB.
#![allow(unsafe_code, reason = "a function that stands for one of the C library has its name")]

use std::ffi::{c_char, c_int};

/// `dcgettext(3)` by the name that glibc itself calls.
#[unsafe(no_mangle)]
extern "C" fn __dcgettext(_domain: *const c_char, text: *const c_char, _category: c_int) -> *const c_char {
    text
}
