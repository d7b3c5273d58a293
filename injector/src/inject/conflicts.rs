//! Conflicts between a pod and its sidecar: names, ports, the sidecar of another mesh.

use std::collections::HashMap;

use serde_json::Value;

use super::InjectError;
use super::render::{Overlay, defines};
use crate::annotations::keys;
use crate::path::Lookup as _;
use crate::pod::list::{self, List, containers, find, name};
use crate::pod::strip::Stripped;
use crate::pod::{AUTO_IMAGE, PROXY, is_istio_container};

/// The ports that Istio fixes in a pod with a sidecar, and what each is for.
const PROXY_PORTS: [(i64, &str); 9] = [
    (15000, "the proxy's admin interface"),
    (15001, "captured outbound connections"),
    (15004, "the agent's debug interface"),
    (15006, "captured inbound connections"),
    (15008, "tunnels between proxies (HBONE)"),
    (15020, "the agent's probes and metrics"),
    (15021, "the proxy's health checks"),
    (DNS, "captured DNS queries"),
    (15090, "the proxy's metrics"),
];
/// The only one of them that is UDP, too.
const DNS: i64 = 15053;

/// Another mesh: its containers, and the label or annotation that keeps it from a pod.
struct Mesh {
    name: &'static str,
    containers: &'static [&'static str],
    key: &'static str,
    on: &'static [&'static str],
    off: &'static str,
}

const MESHES: [Mesh; 4] = [
    Mesh {
        name: "Linkerd",
        containers: &["linkerd-proxy", "linkerd-init"],
        key: "linkerd.io/inject",
        on: &["enabled", "ingress"],
        off: "disabled",
    },
    Mesh {
        name: "Kuma",
        containers: &["kuma-sidecar", "kuma-init"],
        key: "kuma.io/sidecar-injection",
        on: &["enabled", "true"],
        off: "disabled",
    },
    Mesh {
        name: "Consul",
        containers: &["consul-dataplane", "consul-connect-inject-init", "consul-connect-envoy-sidecar"],
        key: "consul.hashicorp.com/connect-inject",
        on: &["true"],
        off: "false",
    },
    Mesh {
        name: "Open Service Mesh",
        containers: &["osm-init"],
        key: "openservicemesh.io/sidecar-injection",
        on: &["enabled", "true", "yes"],
        off: "disabled",
    },
];

/// Warnings about a pod that gets a proxy; `before` is what it was with an earlier injection.
pub(super) fn warnings(
    before: &Value,
    stripped: &Stripped,
    overlays: &[Overlay],
    revision: &str,
) -> Vec<String> {
    if !defines(overlays, PROXY) {
        return Vec::new();
    }
    let pod = &stripped.pod;
    let is_copy = is_copy(stripped);
    let mut warnings = Vec::new();
    match &stripped.previous {
        None if is_copy => warnings.push(copy()),
        None => warnings.extend(own_containers(before, overlays)),
        Some(previous) => warnings.extend(other_revision(&previous.status.revision, revision)),
    }
    let is_app =
        |container: &&Value| !is_istio_container(name(container)) && !defines(overlays, name(container));
    for container in list::all_containers(pod).filter(is_app) {
        warnings.extend(ports(container));
        warnings.extend(probes(container).filter(|_| !is_copy));
    }
    warnings.extend(MESHES.iter().filter_map(|mesh| other_mesh(pod, mesh)));
    warnings
}

/// A variable that only an injection gives a proxy.
const INJECTED_VARIABLE: &str = "ISTIO_META_APP_CONTAINERS";

/// Whether the pod is a copy of an injected one without its annotations. Its containers take precedence, as
/// those that customize the sidecar do, and they are what an injection has made.
pub(super) fn is_copy(stripped: &Stripped) -> bool {
    let has_variable = |proxy: &Value| {
        let variables = proxy.lookup("env").and_then(Value::as_array);
        variables.into_iter().flatten().any(|one| name(one) == INJECTED_VARIABLE)
    };
    stripped.previous.is_none()
        && list::all_containers(&stripped.pod).any(|one| name(one) == PROXY && has_variable(one))
}

fn copy() -> String {
    format!(
        "annotation {}: missing, and container {PROXY} is that of an injected pod: a copy keeps its sidecar as it was; expected the \
         annotations of the copied pod (kubectl debug --copy-to: --keep-annotations)",
        keys::STATUS
    )
}

/// Containers with names of Istio's, and an image of their own: they may be customized ones, or have the name
/// by accident.
fn own_containers<'a>(pod: &'a Value, overlays: &'a [Overlay]) -> impl Iterator<Item = String> + 'a {
    let own = |container: &&Value| is_istio_container(name(container)) && defines(overlays, name(container));
    list::all_containers(pod).filter(own).filter_map(|container| {
        let image = container.lookup("image")?.as_str().filter(|image| !matches!(*image, "" | AUTO_IMAGE))?;
        Some(format!(
            "container {}: the pod has its own, with image {image}, and its fields take precedence over those of the template; \
             expected image: auto to customize the injected one, or another name",
            name(container)
        ))
    })
}

fn other_revision(previous: &str, own: &str) -> Option<String> {
    let own = if own.is_empty() { "default" } else { own };
    (!previous.is_empty() && previous != own).then(|| {
        format!(
            "annotation {}: revision {previous} has injected the pod, and revision {own} injects it again: if webhooks of both are \
             called for it, the last one wins; expected one of them, by label {}",
            keys::STATUS,
            keys::REVISION
        )
    })
}

fn purpose(port: &Value) -> Option<(i64, &'static str)> {
    let port = port.as_i64()?;
    PROXY_PORTS.into_iter().find(|(number, _)| *number == port)
}

fn ports(container: &Value) -> impl Iterator<Item = String> {
    let ports = container.lookup("ports").and_then(Value::as_array).into_iter().flatten();
    ports.filter_map(|port| {
        let protocol = port.lookup("protocol").and_then(Value::as_str).unwrap_or("TCP");
        let (number, purpose) = purpose(port.lookup("containerPort")?)?;
        (protocol == "TCP" || number == DNS && protocol == "UDP").then(|| {
            format!(
                "container {}: port {number} is Istio's ({purpose}): the app cannot listen on it, or the proxy cannot; expected \
                 another port",
                name(container)
            )
        })
    })
}

/// A probe of a port of Istio's is answered by the proxy or its agent, if at all.
fn probes(container: &Value) -> impl Iterator<Item = String> {
    ["startupProbe", "livenessProbe", "readinessProbe"].into_iter().filter_map(|key| {
        let probe = container.lookup(key)?;
        let mut actions = ["httpGet", "tcpSocket", "grpc"].into_iter();
        let port = actions.find_map(|kind| probe.lookup(kind)?.lookup("port"))?;
        let (number, purpose) = purpose(port)?;
        Some(format!(
            "container {}: {key} probes port {number}, which is Istio's ({purpose}): it does not test the app; expected a port \
             of the app",
            name(container)
        ))
    })
}

fn other_mesh(pod: &Value, mesh: &Mesh) -> Option<String> {
    let container = mesh.containers.iter().find(|container| {
        List::BOTH.into_iter().any(|list| find(containers(pod, list), container).is_some())
    });
    let asks = ["label", "annotation"].into_iter().find_map(|word| {
        let value = list::metadata(pod, &format!("{word}s"))?.get(mesh.key)?.as_str()?;
        mesh.on.contains(&value).then(|| format!("{word} {}: {value}", mesh.key))
    });
    let found = container.map(|container| format!("container {container}")).or(asks)?;
    Some(format!(
        "{found}: the pod has, or gets, the sidecar of {}, too: both redirect the same connections; expected {}: {} or {}: \"false\"",
        mesh.name,
        mesh.key,
        mesh.off,
        keys::INJECT
    ))
}

/// A volume of the pod's own whose name a template uses, too.
pub(super) struct OwnVolume {
    before: Value,
    /// The kinds of its source that a template takes away: by null, or by a directive.
    removed: Vec<String>,
    /// The templates that use its name.
    templates: Vec<String>,
}

/// The pod's own volumes whose names templates use, too; those of an earlier injection are not its own.
pub(super) fn own_volumes(stripped: &Stripped, overlays: &[Overlay]) -> Vec<OwnVolume> {
    let added = stripped.previous.as_ref().map_or(&[][..], |previous| &previous.status.volumes);
    let all = || overlays.iter().flat_map(|one| list::items(&one.patch, "volumes"));
    let mut clashing: HashMap<&str, Vec<String>> = HashMap::new();
    for overlay in overlays {
        for volume in list::items(&overlay.patch, "volumes") {
            clashing.entry(name(volume)).or_default().push(overlay.name.clone());
        }
    }
    for volume in added {
        clashing.remove(volume.as_str());
    }
    // Few templates do this.
    let removing = |item: &&Value| {
        let removes = |(key, value): (&String, &Value)| key == "$patch" || value.is_null();
        item.as_object().into_iter().flatten().any(removes)
    };
    let removing: Vec<&Value> = all().filter(removing).collect();
    let removed = |volume: &Value| {
        let removes = |item: &Value, source: &str| match item.lookup("$patch").and_then(Value::as_str) {
            Some("replace") => true,
            Some(_) => name(item) == name(volume),
            None => name(item) == name(volume) && item.lookup(source).is_some_and(Value::is_null),
        };
        let mut own = sources(volume);
        own.retain(|source| removing.iter().any(|item| removes(item, source)));
        own
    };
    let own = list::items(&stripped.pod, "volumes").iter().filter_map(|volume| {
        let templates = clashing.get(name(volume))?.clone();
        Some(OwnVolume { before: volume.clone(), removed: removed(volume), templates })
    });
    own.collect()
}

/// What has become of them: one with a source of another kind, beside or instead of its own, is an error; one
/// with other content a warning.
pub(super) fn changed_volumes(own: &[OwnVolume], injected: &Value) -> Result<Vec<String>, InjectError> {
    if own.is_empty() {
        return Ok(Vec::new());
    }
    let injected: HashMap<&str, &Value> =
        list::items(injected, "volumes").iter().map(|volume| (name(volume), volume)).collect();
    let mut warnings = Vec::new();
    for OwnVolume { before, removed, templates } in own {
        let volume = name(before);
        let Some(after) = injected.get(volume) else { continue };
        let mut sources = sources(before);
        sources.retain(|source| !removed.contains(source));
        for source in self::sources(after) {
            if !sources.contains(&source) {
                sources.push(source);
            }
        }
        if sources.len() > 1 {
            let (volume, templates) = (volume.to_owned(), templates.clone());
            return Err(InjectError::VolumeNameConflict { volume, sources, templates });
        }
        if *after != before {
            warnings.push(format!(
                "volume {volume}: the pod has its own, and that of template {} replaces what is in it; expected another name \
                 for the pod's own",
                templates.join(", ")
            ));
        }
    }
    Ok(warnings)
}

/// The kinds of sources of a volume: one, if Kubernetes is to accept it.
fn sources(volume: &Value) -> Vec<String> {
    let fields = volume.as_object().into_iter().flatten();
    fields.filter(|(key, value)| *key != "name" && !value.is_null()).map(|(key, _)| key.clone()).collect()
}
