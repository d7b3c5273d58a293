//! Whether all kubelets support native sidecars.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;

/// Sidecar containers are generally available, and cannot be switched off, from this version of Kubernetes
/// on.
const NATIVE: (u32, u32) = (1, 33);

/// All that is kept of a node.
pub(super) fn kubelet_version(node: Node) -> String {
    let info = node.status.and_then(|status| status.node_info);
    info.map(|info| info.kubelet_version).unwrap_or_default()
}

/// Whether proxies are native sidecars, and why. Without nodes they are not: the next node may be an old one,
/// and other proxies run everywhere. A node whose kubelet has not registered yet is ignored.
pub(super) fn native_sidecars(versions: &BTreeMap<String, String>) -> (bool, String) {
    let known: Vec<_> = versions.iter().filter(|(_, version)| !version.is_empty()).collect();
    let old = known.iter().find(|(_, version)| parse(version).is_none_or(|version| version < NATIVE));
    let (major, minor) = NATIVE;
    match old {
        None if known.is_empty() => (false, "off by default: there are no nodes".to_owned()),
        None => (
            true,
            format!("on by default: all {} nodes run Kubernetes {major}.{minor} or later", known.len()),
        ),
        Some((node, version)) => (
            false,
            format!("off by default: node {node} runs Kubernetes {version:?}, older than {major}.{minor}"),
        ),
    }
}

/// Major and minor of `v1.33.2-gke.100`, `v1.34.0+k3s1`, `1.33+`.
fn parse(version: &str) -> Option<(u32, u32)> {
    let (major, rest) = version.trim().trim_start_matches('v').split_once('.')?;
    let minor = rest.split(|character: char| !character.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendor_versions_are_parsed() {
        for version in
            ["v1.33.2-gke.100", "v1.33.2+k3s1", "1.33+", "v1.33", "v1.33.0-rc.1", "v1.33.1-eks-b3126f4"]
        {
            assert_eq!(parse(version), Some((1, 33)), "{version}");
        }
        for version in ["", "v1", "v1.", "one.two", "v.33", "v1.x"] {
            assert_eq!(parse(version), None, "{version}");
        }
    }

    #[test]
    fn the_oldest_node_decides() {
        let native = |versions: &[&str]| {
            let name = |(number, version): (usize, &&str)| (format!("node-{number}"), (*version).to_owned());
            native_sidecars(&versions.iter().enumerate().map(name).collect())
        };
        assert!(native(&["v1.33.0", "v1.34.1", "v2.0.0"]).0 && native(&["v1.33.0", ""]).0);
        for (versions, why) in [
            (&["v1.33.0", "v1.32.9"][..], "node node-1 runs Kubernetes \"v1.32.9\""),
            (&["v1.33.0", "none"], "node node-1 runs Kubernetes \"none\""),
            (&[""], "there are no nodes"),
            (&["v0.99.0"], "node node-0"),
            (&[], "there are no nodes"),
        ] {
            let (is, reason) = native(versions);
            assert!(!is && reason.contains(why), "{reason}");
        }
    }
}
