//! The socket options by which the kernel answers about legacy tables.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};

use super::NAME_LENGTH;
use super::blob::{self, Info};
use crate::kernel::sandbox;
use crate::model::Family;

/// `IPT_SO_GET_INFO`, `IP6T_SO_GET_INFO`.
const GET_INFO: libc::c_int = 64;
/// `IPT_SO_GET_ENTRIES`, `IP6T_SO_GET_ENTRIES`.
const GET_ENTRIES: libc::c_int = 65;
/// The table may grow between the question for its size and that for its entries.
const ATTEMPTS: usize = 16;

/// The description of a table, and its entries without their head.
pub(super) fn table(family: Family, name: &str) -> io::Result<(Info, Vec<u8>)> {
    ask(family, |socket| {
        for _ in 0..ATTEMPTS {
            let described = info(socket, family, name)?;
            match entries(socket, family, name, described.size) {
                // Another size by now.
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                // The description is that of another table of the same size.
                Ok(_) if info(socket, family, name)? != described => {}
                entries => return Ok((described, entries?)),
            }
        }
        Err(io::Error::other(format!(
            "the legacy table {name} ({family}) changed each of the {ATTEMPTS} times it was read"
        )))
    })
}

/// Whether the kernel has a table of this name.
pub(super) fn exists(family: Family, name: &str) -> io::Result<bool> {
    match ask(family, |socket| info(socket, family, name)) {
        Ok(_) => Ok(true),
        Err(error) if means_absent(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// No such table; no legacy tables at all (`ENOPROTOOPT`); no such family (`EAFNOSUPPORT`). For the first,
/// gVisor has `EINVAL`.
pub(super) fn means_absent(error: &io::Error) -> bool {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOPROTOOPT | libc::EAFNOSUPPORT) => true,
        Some(libc::EINVAL) => sandbox::is_sandbox(),
        _ => false,
    }
}

/// Linux answers on any socket of the family. gVisor does on a raw one, which takes CAP_NET_RAW as well; the
/// tools open such a one in any case.
fn ask<T>(family: Family, question: impl Fn(&OwnedFd) -> io::Result<T>) -> io::Result<T> {
    let refused = match open(family, SockType::Datagram, None).and_then(|socket| question(&socket)) {
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) && sandbox::is_sandbox() => error,
        answer => return answer,
    };
    match open(family, SockType::Raw, SockProtocol::Raw) {
        Ok(socket) => question(&socket),
        // Without the capability it is not known whether there are tables.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        Err(_) => Err(refused),
    }
}

fn open(family: Family, kind: SockType, protocol: impl Into<Option<SockProtocol>>) -> io::Result<OwnedFd> {
    let family = match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    };
    Ok(socket(family, kind, SockFlag::SOCK_CLOEXEC, protocol)?)
}

/// `struct ipt_getinfo` of a table.
fn info(socket: &OwnedFd, family: Family, name: &str) -> io::Result<Info> {
    let mut bytes = vec![0; Info::LENGTH];
    write_name(&mut bytes, name)?;
    let length = option(socket, family, GET_INFO, &mut bytes)?;
    bytes.get(..length).and_then(Info::parse).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("short description of the legacy table {name}"))
    })
}

/// The entries of a table: `struct ipt_get_entries` without its head.
fn entries(socket: &OwnedFd, family: Family, name: &str, size: u32) -> io::Result<Vec<u8>> {
    let room = usize::try_from(size).map_err(|_| Errno::EFBIG)?.saturating_add(blob::ENTRIES_HEAD);
    let mut bytes = vec![0; room];
    write_name(&mut bytes, name)?;
    if let Some(field) = bytes.get_mut(NAME_LENGTH..NAME_LENGTH + 4) {
        field.copy_from_slice(&size.to_ne_bytes());
    }
    let length = option(socket, family, GET_ENTRIES, &mut bytes)?;
    bytes.truncate(length);
    bytes.drain(..blob::ENTRIES_HEAD.min(length));
    Ok(bytes)
}

/// The name goes to the head of both structures, with a NUL behind it.
fn write_name(bytes: &mut [u8], name: &str) -> io::Result<()> {
    let field = bytes.get_mut(..name.len()).filter(|_| name.len() < NAME_LENGTH).ok_or(Errno::EINVAL)?;
    field.copy_from_slice(name.as_bytes());
    Ok(())
}

/// `getsockopt`; the kernel reads the head of `bytes` and writes all of it. Returns how much it wrote.
fn option(socket: &OwnedFd, family: Family, number: libc::c_int, bytes: &mut [u8]) -> io::Result<usize> {
    let level = match family {
        Family::V4 => libc::SOL_IP,
        Family::V6 => libc::SOL_IPV6,
    };
    let room = libc::socklen_t::try_from(bytes.len()).map_err(|_| Errno::EFBIG)?;
    let mut length = room;
    // SAFETY: `bytes` is valid for writes of `length` bytes and the kernel writes no more than that; `length`
    // is valid for reads and writes; the descriptor is open, `socket` owns it.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, number, bytes.as_mut_ptr().cast(), &raw mut length)
    };
    Errno::result(result)?;
    usize::try_from(length.min(room)).map_err(|_| Errno::EFBIG.into())
}
