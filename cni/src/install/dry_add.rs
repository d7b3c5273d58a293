//! A test run of ADD by the installed program in a temporary network namespace: it shows that rules of the
//! kind that pods get can be written here.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;

use istio_iptables::kernel::process::SystemHost;
use istio_iptables::kernel::rtnetlink::loopback;
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};

use super::binary;
use super::error::InstallError;
use crate::netconf::POD_ANNOTATIONS;
use crate::pod::{PROXY, STATUS, VALIDATION};
use crate::source::CONFIG_SOURCE;

/// What names the pod and, with the inode of its namespace, the attachment: two agents may try at the same
/// time.
const CONTAINER: &str = "istio-cni-dry-add";
const INTERFACE: &str = "eth0";
/// The pod, as the plugin logs it.
pub(super) const POD: &str = "istio-cni-dry-add/istio-cni-dry-add";

/// Runs ADD with this entry for a pod that is captured, then DEL.
///
/// # Errors
/// No namespace can be made, or what the plugin reports.
pub fn dry_add(host: &SystemHost, program: &Path, run_dir: &Path, entry: &Value) -> Result<(), InstallError> {
    let namespace = namespace()?;
    let inode = namespace
        .metadata()
        .map_err(|error| InstallError::new(format!("stat of a namespace: {error}")))?
        .ino();
    let container = format!("{CONTAINER}-{inode}");
    let state = run_dir.join("state").join(format!("{container}.{INTERFACE}.json"));
    let path = format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd());
    let config = config(entry);
    let attachment = Attachment { container: &container, netns: &path };
    let captured = call(host, program, "ADD", &attachment, &config).and_then(|()| {
        // The plugin keeps state of what it captured, and only of that.
        if state.exists() {
            return Ok(());
        }
        Err(InstallError::new(
            "test run of ADD in a temporary network namespace: the plugin captured nothing",
        ))
    });
    let deleted = call(host, program, "DEL", &attachment, &config);
    captured.and(deleted)
}

/// What the program is called for.
struct Attachment<'a> {
    container: &'a str,
    netns: &'a str,
}

/// A new network namespace, which the file keeps.
fn namespace() -> Result<File, InstallError> {
    let failed = |error: &dyn std::fmt::Display| {
        InstallError::new(format!(
            "cannot make a network namespace for the test run of ADD: {error}; expected CAP_SYS_ADMIN"
        ))
    };
    let made = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET)?;
        loopback::set_up()?; // as the runtime does
        OpenOptions::new().read(true).open("/proc/thread-self/ns/net")
    });
    let made = made.join().map_err(|_| failed(&"its thread panicked"))?;
    made.map_err(|error| failed(&error))
}

/// The entry as the runtime passes it, for a pod that was injected.
fn config(entry: &Value) -> Value {
    let mut config = entry.clone();
    let status = json!({"initContainers": [VALIDATION], "containers": [PROXY]}).to_string();
    if let Some(keys) = config.as_object_mut() {
        keys.insert("name".to_owned(), json!(CONTAINER));
        keys.insert("cniVersion".to_owned(), json!("1.0.0"));
        keys.insert("prevResult".to_owned(), json!({"cniVersion": "1.0.0", "interfaces": [], "ips": []}));
        let annotations = json!({STATUS: status, CONFIG_SOURCE: "api"});
        keys.insert("runtimeConfig".to_owned(), json!({ POD_ANNOTATIONS: annotations }));
    }
    config
}

fn call(
    host: &SystemHost,
    program: &Path,
    name: &str,
    attachment: &Attachment<'_>,
    config: &Value,
) -> Result<(), InstallError> {
    let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={CONTAINER};K8S_POD_NAME={CONTAINER}");
    let variables = [
        ("CNI_COMMAND", name),
        ("CNI_CONTAINERID", attachment.container),
        ("CNI_NETNS", attachment.netns),
        ("CNI_IFNAME", INTERFACE),
        ("CNI_ARGS", &args),
        ("CNI_PATH", "/"),
    ];
    binary::call(host, program, &variables, config).map_err(|error| {
        InstallError::new(format!("test run of {name} in a temporary network namespace: {}", error.msg))
    })
}
