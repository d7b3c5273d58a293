//! ADD of a pod that has started without the plugin, by the plugin's program.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;

use istio_iptables::kernel::netns::Namespace;
use istio_iptables::kernel::process::SystemHost;
use istio_iptables::model::Backend;
use serde_json::{Value, json};

use super::binary;
use crate::environment::LATE_NETNS;
use crate::error::Code;
use crate::plugin::late::LatePod;
use crate::state::StateDir;

/// Writes rules and state, with the file name of the network namespace. Where the backend of the
/// configuration is missing, rules are native.
///
/// # Errors
/// As of ADD.
pub(super) fn add(
    host: &SystemHost,
    program: &Path,
    states: &StateDir,
    LatePod { conf, id, pod }: &LatePod,
    (namespace, name): (&Namespace, &str),
) -> Result<(), String> {
    let netns = format!("/proc/{}/fd/{}", std::process::id(), namespace.as_fd().as_raw_fd());
    let args = format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_UID={}",
        pod.namespace, pod.name, pod.uid
    );
    let variables = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", id.container.as_str()),
        ("CNI_NETNS", &netns),
        ("CNI_IFNAME", &id.interface),
        ("CNI_ARGS", &args),
        ("CNI_PATH", "/"),
        (LATE_NETNS, name),
    ];
    // Where this fails, the plugin fails, too.
    let _ = states.begin(id);
    let call = |conf: &Value| binary::call(host, program, &variables, conf);
    match call(conf) {
        Err(error) if error.code == Some(Code::BackendMissing as u64) => {
            let mut native = conf.clone();
            if let Some(keys) = native.as_object_mut() {
                keys.insert("backend".to_owned(), json!(Backend::Native.to_string()));
            }
            call(&native).map_err(|native| format!("{}; natively: {}", error.msg, native.msg))?;
        }
        called => called.map_err(|error| error.msg)?,
    }
    // The plugin keeps state of what it captured, and only of that.
    match states.read(id) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err("the plugin has captured nothing".to_owned()),
        Err(error) => Err(error.msg),
    }
}
