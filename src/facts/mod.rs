//! Facts about the pod, read once.
//!
//! The types here are plain; reading is done by [`crate::kernel`], deciding by [`crate::config`].

mod resolver;
mod users;

pub use resolver::{NameServers, name_servers};
pub use users::{gid_of, uid_of};

/// Files that are read, as they are. `Err` holds the reason why one cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// `/etc/passwd`; empty if there is none.
    pub passwd: String,
    /// `/etc/group`; empty if there is none.
    pub group: String,
    /// `/etc/resolv.conf`; with `--pid` that of the process.
    pub resolv_conf: Result<String, String>,
}
