//! System calls that a seccomp profile forbids.
#![allow(unsafe_code, reason = "a filter is installed between fork and exec, by a raw system call")]

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output};

use crate::pod::{BUILT, Pod};

/// Runs the binary with a filter under which no netlink socket can be made.
fn without_netlink(args: &[&str]) -> Output {
    const ALLOW: u32 = 0x7fff_0000;
    const EPERM: u32 = 0x0005_0001;
    let step = |code: u16, jt: u8, jf: u8, k: u32| libc::sock_filter { code, jt, jf, k };
    // struct seccomp_data: the number at 0, the first argument at 16.
    let mut filter = [
        step(0x20, 0, 0, 0),
        step(0x15, 0, 3, u32::try_from(libc::SYS_socket).unwrap()),
        step(0x20, 0, 0, 16),
        step(0x15, 0, 1, u32::try_from(libc::AF_NETLINK).unwrap()),
        step(0x06, 0, 0, EPERM),
        step(0x06, 0, 0, ALLOW),
    ];
    let install = move || {
        let program = libc::sock_fprog { len: 6, filter: filter.as_mut_ptr() };
        // SAFETY: the program and its filter live until the call returns.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
        };
        if done { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    let mut command = Command::new(BUILT);
    // SAFETY: what runs in the child makes two system calls and allocates nothing.
    unsafe { command.args(args).pre_exec(install) }.output().unwrap()
}

#[test]
fn forbidden_netlink_names_seccomp_and_not_the_capability() {
    // A dry run: it writes nothing wherever it is run.
    let output = without_netlink(&["-b", "80", "--dry-run"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(77), "{errors}");
    assert!(errors.contains("seccompProfile") && !errors.contains("capabilities.add"), "{errors}");
}

#[test]
fn the_network_of_another_user_namespace_is_named_as_a_cause() {
    let pod = Pod::new();
    let before = pod.state();
    pod.istio(&["-b", "80"])
        .under(&["unshare", "--user", "--map-root-user"])
        .end()
        .exits(77)
        .stderr_contains("another user namespace")
        .stderr_lacks("capabilities.add");
    assert_eq!(pod.state(), before);
}
