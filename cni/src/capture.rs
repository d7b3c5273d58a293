//! Turns annotations into capture options for the init binary's own parser.

use std::collections::BTreeMap;

use istio_iptables::cli::{Key, OptionValue, Origin, RawOptions};
use istio_iptables::config::{
    self, CAPTURE_ANNOTATION, PROXY_ID, Resolved, is_about_traffic, parse_bool, proxy_id,
    read_capture_annotation,
};
use istio_iptables::facts::Files;

use crate::netconf::{Defaults, KEY};
use crate::pod::{Pod, Proxy};

/// Ports of the proxy for metrics and health, which are never captured inbound.
const PROXY_PORTS: [&str; 3] = ["15020", "15021", "15090"];
/// Outbound ports that are excluded where the annotation is absent: as in Istio's plugin.
const OUTBOUND_EXCLUDED: &str = "15020";

/// The annotation that says how inbound traffic is captured.
pub const INTERCEPTION_MODE: &str = match Key::InboundInterceptionMode.spec().annotation {
    Some(annotation) => annotation,
    None => "",
};
/// The former name of the annotation about virtual interfaces.
const KUBEVIRT_INTERFACES: &str = "traffic.sidecar.istio.io/kubevirtInterfaces";

/// Variables of the proxy that set capture options.
pub const OPTION_VARIABLES: [(Key, &str); 3] = [
    (Key::RedirectDns, "ISTIO_META_DNS_CAPTURE"),
    (Key::DualStack, "ISTIO_DUAL_STACK"),
    (Key::DropInvalid, "INVALID_DROP"),
];

/// Capture options of a pod, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureOptions {
    values: BTreeMap<Key, String>,
    /// The source of a value, unless it is a default.
    names: BTreeMap<Key, String>,
}

impl CaptureOptions {
    fn set(&mut self, key: Key, text: impl Into<String>) {
        self.values.insert(key, text.into());
    }

    /// Sets the option to the annotation's value, if it is there.
    fn annotation(&mut self, pod: &Pod, key: Key, annotation: Option<&str>) {
        let Some(annotation) = annotation else { return };
        let Some(text) = pod.annotations.get(annotation) else { return };
        self.set(key, text.as_str());
        self.names.insert(key, format!("annotation {annotation}"));
    }

    /// The values, as options of the init binary.
    #[must_use]
    pub fn values(&self) -> &BTreeMap<Key, String> {
        &self.values
    }

    /// Options of these values, which were read once already.
    #[must_use]
    pub fn of_values(values: BTreeMap<Key, String>) -> Self {
        Self { values, names: BTreeMap::new() }
    }

    /// What they mean, beside the backend of the node.
    ///
    /// # Errors
    /// What is wrong with the first value that is, with the annotation that set it.
    pub fn resolve(&self, backend: Option<&(Key, OptionValue)>) -> Result<Resolved, String> {
        let given = |key: Key, text: &str| {
            (key, OptionValue { text: text.to_owned(), origin: Origin::Document(key) })
        };
        let of_pod = self.values.iter().map(|(key, text)| given(*key, text));
        let of_run = [given(Key::CniMode, "true"), given(Key::Verify, "true")];
        let raw = RawOptions::of(of_run.into_iter().chain(backend.cloned()).chain(of_pod));
        // The pod's files are not those of the node.
        let files = Files {
            passwd: String::new(),
            group: String::new(),
            resolv_conf: Err("not read by the plugin".to_owned()),
        };
        config::resolve(&raw, &files).map_err(|errors| {
            let first =
                errors.first().map(|error| error.calling(&|origin| self.name(origin))).unwrap_or_default();
            match errors.len() {
                0 | 1 => first,
                more => format!("{first} (and {} more)", more - 1),
            }
        })
    }

    /// What a user has to change to change the option.
    pub fn name(&self, origin: &Origin) -> String {
        match origin {
            Origin::Document(Key::Backend) => format!("{KEY}backend"),
            Origin::Document(key) => {
                self.names.get(key).cloned().unwrap_or_else(|| format!("option {}", key.spec().name))
            }
            Origin::Flag(_) | Origin::Packet(_) | Origin::Variable(_) => origin.to_string(),
        }
    }
}

/// Reads the annotation that our injector writes.
///
/// # Errors
/// The annotation is invalid.
pub fn of_own_annotation(text: &str) -> Result<CaptureOptions, String> {
    let read =
        read_capture_annotation(text).map_err(|error| format!("annotation {CAPTURE_ANNOTATION}: {error}"))?;
    let mut options = CaptureOptions::default();
    for (key, given) in read {
        options.set(key, given.text);
        options.names.insert(key, format!("annotation {CAPTURE_ANNOTATION}, option {}", key.spec().name));
    }
    capture_all_dns(&mut options);
    Ok(options)
}

/// The name servers are in the pod's resolv.conf, which does not exist yet: as in Istio's plugin, all DNS is
/// captured.
fn capture_all_dns(options: &mut CaptureOptions) {
    let captures =
        options.values.get(&Key::RedirectDns).and_then(|text| parse_bool(text.trim())) == Some(true);
    if captures {
        options.set(Key::CaptureAllDns, "true");
    }
}

/// Reads Istio's annotations, with its plugin's defaults.
///
/// # Errors
/// The interception mode is neither of the two; the other values are parsed with all options.
pub fn of_istio_annotations(pod: &Pod, defaults: &Defaults) -> Result<CaptureOptions, String> {
    // The init binary, as Istio's, takes any other word for REDIRECT.
    if let Some(mode) = pod.annotations.get(INTERCEPTION_MODE)
        && !matches!(mode.as_str(), "REDIRECT" | "TPROXY")
    {
        return Err(format!(
            "annotation {INTERCEPTION_MODE}: {mode:?} is not accepted, expected REDIRECT, TPROXY or NONE"
        ));
    }
    let mut options = CaptureOptions::default();
    options.set(Key::InboundInterceptionMode, "REDIRECT");
    options.set(Key::ServiceCidr, "*");
    options.set(Key::InboundPorts, "*");
    options.set(Key::LocalOutboundPortsExclude, OUTBOUND_EXCLUDED);
    for key in Key::ALL.iter().filter(|key| is_about_traffic(**key)) {
        options.annotation(pod, *key, key.spec().annotation);
    }
    // The deprecated one counts only where the other is absent.
    if !options.names.contains_key(&Key::KubeVirtInterfaces) {
        options.annotation(pod, Key::KubeVirtInterfaces, Some(KUBEVIRT_INTERFACES));
    }
    exclude_proxy_ports(&mut options);
    match &pod.containers {
        Some(containers) => of_proxy(&mut options, &containers.proxy),
        None => of_defaults(&mut options, defaults),
    }
    capture_all_dns(&mut options);
    Ok(options)
}

fn exclude_proxy_ports(options: &mut CaptureOptions) {
    let given = options.values.remove(&Key::LocalExcludePorts).unwrap_or_default();
    let mut ports: Vec<&str> = Vec::new();
    for port in given.split(',').map(str::trim).filter(|port| !port.is_empty()).chain(PROXY_PORTS) {
        if !ports.contains(&port) {
            ports.push(port);
        }
    }
    options.set(Key::LocalExcludePorts, ports.join(","));
}

/// From the proxy's container, as Istio's plugin does. What is not a boolean counts as false, with a warning.
fn of_proxy(options: &mut CaptureOptions, proxy: &Proxy) {
    options.set(Key::ProxyUid, proxy_id(proxy.uid).to_string());
    options.set(Key::ProxyGid, proxy_id(proxy.gid).to_string());
    for (key, name) in OPTION_VARIABLES {
        let Some(text) = proxy.env.get(name) else { continue };
        match parse_bool(text) {
            Some(true) => options.set(key, "true"),
            Some(false) => {}
            None => {
                // Its value may be a secret that was set in the wrong place.
                log::warn!(variable = name; "invalid boolean in the proxy's environment, treated as false")
            }
        }
    }
}

/// With TPROXY Istio's injector runs the proxy as root, in the group 1337, whatever user it gives to others.
fn of_defaults(options: &mut CaptureOptions, defaults: &Defaults) {
    let tproxy = options.values.get(&Key::InboundInterceptionMode).is_some_and(|mode| mode == "TPROXY");
    if tproxy && [defaults.uid, defaults.gid].into_iter().flatten().any(|id| id != PROXY_ID) {
        let id = |id: Option<u32>| id.unwrap_or(PROXY_ID);
        log::warn!(uid = id(defaults.uid), gid = id(defaults.gid);
            "{KEY}capture: uid and gid have no effect with TPROXY, {PROXY_ID} is used; for another user or group use the annotation {CAPTURE_ANNOTATION}");
    }
    let id = |id: Option<u32>| id.filter(|_| !tproxy).unwrap_or(PROXY_ID).to_string();
    options.set(Key::ProxyUid, id(defaults.uid));
    options.set(Key::ProxyGid, id(defaults.gid));
    for (key, wanted) in [(Key::RedirectDns, defaults.dns), (Key::DualStack, defaults.dual_stack)] {
        if wanted {
            options.set(key, "true");
        }
    }
}
