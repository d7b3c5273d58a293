//! Files that live in memory: no directory has to be writable, and nothing is left behind when a run is
//! killed.

use std::ffi::CStr;
use std::fs::File;
use std::io;

use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};

/// `MFD_NOEXEC_SEAL`, since Linux 6.3. Where `vm.memfd_noexec` is 2, nothing else is accepted.
const NOEXEC_SEAL: MFdFlags = MFdFlags::from_bits_retain(8);

/// An empty file; `name` is for `/proc`. Processes that are started inherit it only with `inherited`.
///
/// # Errors
/// The kernel refuses: no memory, too many open files, or a kernel before 3.17.
pub(super) fn file(name: &CStr, inherited: bool) -> io::Result<File> {
    let flags = if inherited { MFdFlags::empty() } else { MFdFlags::MFD_CLOEXEC };
    let made = match memfd_create(name, flags | NOEXEC_SEAL) {
        Err(Errno::EINVAL) => memfd_create(name, flags),
        made => made,
    };
    Ok(File::from(made?))
}
