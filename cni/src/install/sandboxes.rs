//! The sandboxes that the runtime has set up, from the results that libcni keeps for DEL: the pod, its
//! annotations and its network namespace.
//!
//! libcni writes a result after the last plugin of ADD, and removes it after the last one of DEL.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use istio_iptables::kernel::netns::{Namespace, NamespaceId};
use serde_json::Value;

use super::error::InstallError;
use super::files;
use crate::environment::{AttachmentId, PodName};
use crate::netconf::POD_ANNOTATIONS;

/// The interface of each namespace that is not the pod's.
const LOOPBACK: &str = "lo";

/// A pod's sandbox.
#[derive(Clone, Debug)]
pub(super) struct Sandbox {
    /// The attachment of the pod's own interface.
    pub(super) id: AttachmentId,
    /// The name of its network.
    pub(super) network: String,
    pub(super) pod: PodName,
    /// What the runtime passed to plugins; `None`: nothing.
    pub(super) annotations: Option<BTreeMap<String, String>>,
    /// When it was set up.
    pub(super) since: SystemTime,
    /// The file name of its network namespace, if all results of the container name the same one.
    pub(super) netns: Option<String>,
}

/// The network namespace of a sandbox.
#[derive(Debug)]
pub(super) enum Place {
    /// The runtime's record names it, and it was there before the record.
    Proven(Namespace, NamespaceId),
    /// The sandbox has ended.
    Ended,
    /// Which one it is cannot be proved: why.
    Unproven(&'static str),
}

impl Sandbox {
    /// Where the runtime keeps its network namespace, if that is known.
    pub(super) fn path(&self, netns_dir: &Path) -> Option<PathBuf> {
        Some(netns_dir.join(self.netns.as_ref()?))
    }

    /// Opens its network namespace in the runtime's directory.
    pub(super) fn open(&self, netns_dir: &Path, own: NamespaceId) -> Place {
        let Some(path) = self.path(netns_dir) else {
            return Place::Unproven(
                "the runtime's results name no network namespace of the runtime, or several",
            );
        };
        let Ok(namespace) = Namespace::open(&path) else { return Place::Ended };
        let Ok(id) = namespace.id() else { return Place::Ended };
        if id == own {
            return Place::Unproven("the runtime's results name the network namespace of this process");
        }
        // One that was made later has the name of one that has ended.
        if !namespace.made().is_ok_and(|made| made <= self.since) {
            return Place::Ended;
        }
        Place::Proven(namespace, id)
    }
}

/// libcni's file.
struct Cached {
    container: String,
    interface: String,
    json: Value,
}

impl Cached {
    /// `None` for what is no result.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let json: Value = serde_json::from_slice(bytes).ok()?;
        let text = |key: &str| json.get(key).and_then(Value::as_str).map(str::to_owned);
        Some(Self { container: text("containerId")?, interface: text("ifName")?, json })
    }

    /// The pod of Kubernetes; `None` for what other programs set up.
    fn pod(&self) -> Option<PodName> {
        let args = self.json.get("cniArgs")?.as_array()?;
        let value = |key: &str| {
            let found = args.iter().find_map(|pair| match pair.as_array()?.as_slice() {
                [name, value] if name.as_str() == Some(key) => value.as_str(),
                _ => None,
            });
            found.filter(|value| !value.is_empty()).map(str::to_owned)
        };
        Some(PodName {
            namespace: value("K8S_POD_NAMESPACE")?,
            name: value("K8S_POD_NAME")?,
            uid: value("K8S_POD_UID").unwrap_or_default(),
        })
    }

    /// The file names of network namespaces in it, empty for one that is in no directory of a runtime. An
    /// interface without one is the node's. libcni 1.2 and later write the namespace itself, too.
    fn namespaces(&self) -> impl Iterator<Item = String> {
        let interfaces = self.json.pointer("/result/interfaces").and_then(Value::as_array);
        let sandboxes = interfaces.into_iter().flatten().filter_map(|interface| interface.get("sandbox"));
        let paths = self.json.get("netns").into_iter().chain(sandboxes).filter(|path| !path.is_null());
        // What is no text names no directory of a runtime either.
        let paths = paths.map(|path| path.as_str().unwrap_or("?")).filter(|path| !path.is_empty());
        paths.map(Path::new).map(|path| {
            let is_of_runtime = path.parent().is_some_and(|dir| dir.ends_with("netns"));
            path.file_name().filter(|_| is_of_runtime).and_then(OsStr::to_str).unwrap_or_default().to_owned()
        })
    }

    fn annotations(&self) -> Option<BTreeMap<String, String>> {
        let all = self.json.get("capabilityArgs")?.get(POD_ANNOTATIONS)?.as_object()?;
        all.iter().map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    }
}

/// The containers that have a result, by its name alone: that of the network, the container's id and the
/// interface, with `-` between them.
pub(super) fn container(name: &str) -> Option<&str> {
    Some(name.rsplit_once('-')?.0.rsplit_once('-')?.1)
}

/// The sandboxes in a directory, one for each container, without those of these containers. What is no
/// result of a pod is skipped: the directory is libcni's.
///
/// # Errors
/// The directory cannot be read.
pub(super) fn read(dir: &Path, known: &BTreeSet<String>) -> Result<Vec<Sandbox>, InstallError> {
    let mut all: BTreeMap<String, Vec<(Cached, SystemTime)>> = BTreeMap::new();
    for name in files::names(dir)? {
        let text = name.to_string_lossy();
        if container(&text).is_some_and(|container| known.contains(container)) {
            continue;
        }
        let path = dir.join(&name);
        // Not the time after it was read: it may be written again meanwhile.
        let Ok(written) = fs::metadata(&path).and_then(|metadata| metadata.modified()) else { continue };
        let Ok(Some(bytes)) = files::read(&path) else { continue };
        let Some(cached) = Cached::parse(&bytes) else { continue };
        if !known.contains(&cached.container) {
            all.entry(cached.container.clone()).or_default().push((cached, written));
        }
    }
    Ok(all.into_values().filter_map(sandbox).collect())
}

/// The sandbox of a container, from all its results.
fn sandbox(mut results: Vec<(Cached, SystemTime)>) -> Option<Sandbox> {
    let named: BTreeSet<String> = results.iter().flat_map(|(cached, _)| cached.namespaces()).collect();
    results.retain(|(cached, _)| cached.interface != LOOPBACK);
    // Kubernetes calls it eth0, and further networks of multus net1 and so on.
    let (cached, since) = results.into_iter().min_by(|(a, _), (b, _)| a.interface.cmp(&b.interface))?;
    let mut named = named.into_iter();
    let netns = named.next().filter(|name| !name.is_empty() && named.next().is_none());
    Some(Sandbox {
        id: AttachmentId::new(&cached.container, &cached.interface).ok()?,
        pod: cached.pod()?,
        annotations: cached.annotations(),
        network: cached.json.get("networkName")?.as_str()?.to_owned(),
        since,
        netns,
    })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    /// As containerd 1.6 has written it, and others do.
    fn result(container: &str, interface: &str, sandbox: &Value) -> Value {
        json!({
            "kind": "cniCacheV1", "containerId": container, "config": "e30=", "ifName": interface, "networkName": "pods",
            "cniArgs": [["IgnoreUnknown", "1"], ["K8S_POD_UID", "u-1"], ["K8S_POD_NAMESPACE", "shop"], ["K8S_POD_NAME", "web"]],
            "capabilityArgs": {"io.kubernetes.cri.pod-annotations": {"a": "b"}, "portMappings": []},
            "result": {"cniVersion": "1.0.0", "interfaces": [{"name": "cni0"}, {"name": interface, "sandbox": sandbox}]}
        })
    }

    fn read_all(results: &[(&str, &Value)]) -> Vec<Sandbox> {
        let dir = tempfile::tempdir().unwrap();
        for (name, result) in results {
            fs::write(dir.path().join(name), result.to_string()).unwrap();
        }
        read(dir.path(), &BTreeSet::new()).unwrap()
    }

    #[test]
    fn sandbox_has_the_pod_of_its_result_and_the_namespace_of_all() {
        let eth0 = result("c1", "eth0", &json!("/var/run/netns/cni-1"));
        let found = read_all(&[("pods-c1-eth0", &eth0)]);
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(
            (one.pod.to_string(), one.pod.uid.as_str(), one.network.as_str()),
            ("shop/web".into(), "u-1", "pods")
        );
        assert_eq!((one.id.container.as_str(), one.id.interface.as_str()), ("c1", "eth0"));
        assert_eq!(one.annotations.as_ref().unwrap()["a"], "b");
        assert_eq!(one.netns.as_deref(), Some("cni-1"));
        // Calico's result names none; that of the loopback plugin does, and so does libcni 1.2.
        let mut without = result("c1", "eth0", &json!(null));
        let lo = result("c1", "lo", &json!("/run/netns/cni-1"));
        let found = read_all(&[("pods-c1-eth0", &without), ("cni-loopback-c1-lo", &lo)]);
        assert_eq!((found.len(), found[0].netns.as_deref()), (1, Some("cni-1")));
        assert_eq!(read_all(&[("pods-c1-eth0", &without)])[0].netns, None);
        without["netns"] = json!("/var/run/netns/cni-1");
        assert_eq!(read_all(&[("pods-c1-eth0", &without)])[0].netns.as_deref(), Some("cni-1"));
        // Not known which.
        let other = result("c1", "net1", &json!("/var/run/netns/cni-2"));
        let of_process = result("c1", "net1", &json!("/proc/1/ns/net"));
        for other in [other, of_process] {
            let found = read_all(&[("pods-c1-eth0", &eth0), ("more-c1-net1", &other)]);
            assert_eq!((found.len(), &found[0].netns, found[0].id.interface.as_str()), (1, &None, "eth0"));
        }
    }

    #[test]
    fn what_is_no_result_of_a_pod_is_skipped() {
        let eth0 = result("c1", "eth0", &json!("/var/run/netns/cni-1"));
        let mut of_podman = eth0.clone();
        of_podman["cniArgs"] = json!([["K8S_POD_NAME", "web"]]);
        let mut of_no_container = eth0.clone();
        of_no_container["containerId"] = json!("../x");
        for other in [of_podman, of_no_container, json!([]), json!({}), result("c1", "lo", &json!("/x/y"))] {
            assert!(read_all(&[("pods-c1-eth0", &other)]).is_empty(), "{other}");
        }
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("folder")).unwrap();
        fs::write(dir.path().join("pods-c1-eth0"), eth0.to_string()).unwrap();
        assert!(read(dir.path(), &["c1".to_owned()].into()).unwrap().is_empty());
        assert_eq!(read(dir.path(), &["c2".to_owned()].into()).unwrap().len(), 1);
        assert!(read(&dir.path().join("missing"), &BTreeSet::new()).is_err());
    }

    #[test]
    fn container_is_the_second_part_from_the_end() {
        for (name, wanted) in [
            ("cni-loopback-0a1b-lo", Some("0a1b")),
            ("pods-0a1b-eth0", Some("0a1b")),
            ("x", None),
            ("a-b", None),
        ] {
            assert_eq!(container(name), wanted);
        }
    }
}
