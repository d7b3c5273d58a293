//! An overflow of the main thread's stack is reported. Rust's runtime does that, too; for the limits of the
//! stack it has the C library read /proc/self/maps with `scanf`, which is 0.1 MB of a static program.
#![allow(unsafe_code, reason = "std and nix have no safe wrapper for a stack of signals")]

use std::ffi::{c_int, c_void};
use std::ptr;

use libc::{siginfo_t, ucontext_t};

/// The cause is a limit that is too low, since no depth of recursion depends on what is read.
const REPORT: &str =
    "error: stack overflow: the limit of the stack is too low (`ulimit -s`), 8192 is usual\n";
/// How far from the top of the stack, in bytes, an access is of the stack: a large frame of C.
const NEAR: usize = 64 << 10;
/// The size of the handler's stack in bytes. The kernel saves all registers there, which are 11 KiB with AMX.
const SIZE: usize = 64 << 10;

static mut STACK: [u8; SIZE] = [0; SIZE];

/// From now on an overflow of this thread's stack is reported, and ends the process by SIGABRT.
pub(super) fn report() {
    let stack = libc::stack_t { ss_sp: (&raw mut STACK).cast::<c_void>(), ss_flags: 0, ss_size: SIZE };
    // SAFETY: the stack is static and nothing else uses it; the handler has the form for SA_SIGINFO.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        action.sa_sigaction = on_fault as *const () as usize;
        if libc::sigaltstack(&raw const stack, ptr::null_mut()) == 0 {
            libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut());
        }
    }
}

/// Reports an overflow. After any other fault, the instruction runs again, and the process ends by it.
extern "C" fn on_fault(signal: c_int, information: *const siginfo_t, context: *const c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO both; the calls are safe in one (signal-safety(7)).
    unsafe {
        let accessed = (*information).si_addr() as usize;
        if accessed.abs_diff(stack_pointer(&*context.cast())) < NEAR {
            libc::write(libc::STDERR_FILENO, REPORT.as_ptr().cast(), REPORT.len());
            libc::abort();
        }
        libc::signal(signal, libc::SIG_DFL);
    }
}

#[cfg(target_arch = "x86_64")]
fn stack_pointer(context: &ucontext_t) -> usize {
    context.uc_mcontext.gregs.get(libc::REG_RSP as usize).map_or(0, |pointer| *pointer as usize)
}

#[cfg(target_arch = "aarch64")]
fn stack_pointer(context: &ucontext_t) -> usize {
    context.uc_mcontext.sp as usize
}
