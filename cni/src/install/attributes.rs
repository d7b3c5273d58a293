//! What a file has besides its bytes: owner, permissions, security label, ACL. A file that replaces another
//! one takes them over.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};

use nix::errno::Errno;
use xattr::FileExt as _;

/// Extended attributes that are kept, by the beginning of their name. Others belong to the bytes
/// (`security.ima`, `security.evm`) or to the file system (`trusted.overlay.`).
const KEPT: [&str; 4] = ["security.selinux", "security.SMACK64", "system.posix_acl_access", "user."];

/// Gives `new` what `old` has.
///
/// # Errors
/// The file system's. An attribute that cannot be set is logged: policies forbid some labels.
pub fn copy(old: &File, new: &File) -> io::Result<()> {
    let metadata = old.metadata()?;
    fchown(new, Some(metadata.uid()), Some(metadata.gid()))?;
    let names = match old.list_xattr() {
        Err(error) if error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32) => None,
        listed => Some(listed?),
    };
    for name in names.into_iter().flatten() {
        let is_kept = name.to_str().is_some_and(|name| KEPT.iter().any(|kept| name.starts_with(kept)));
        let value = if is_kept { old.get_xattr(&name)? } else { None };
        let Some(value) = value else { continue };
        if new.get_xattr(&name).ok().flatten().as_ref() == Some(&value) {
            continue;
        }
        if let Err(error) = new.set_xattr(&name, &value) {
            let attribute = name.to_string_lossy().into_owned();
            log::warn!(attribute; "extended attribute of the file is lost: {error}");
        }
    }
    // After the ACL, whose mask is the group's permissions.
    new.set_permissions(Permissions::from_mode(metadata.mode() & 0o7777))
}
