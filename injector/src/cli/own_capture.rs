//! What captures the traffic of an injected pod: the options of its own init container, or those that the
//! CNI plugin reads.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use istio_cni::decide::{Decision, Refusal, decide};
use istio_cni::netconf::Defaults;
use istio_cni::pod::Pod as PluginPod;
use istio_iptables::cli::{Key, Origin};
use istio_iptables::config::{
    DnsChoice, FamilyChoice, GivenOption, Intent, Output, PacketQuery, Resolved, Sender,
};
use istio_iptables::explain;
use istio_iptables::facts::NameServers;
use istio_iptables::model::{InterfaceAddress, Network};
use serde_json::{Value, json};

use crate::annotations::{keys, shown};
use crate::config::Settings;
use crate::path::text;
use crate::pod::init_options::InitOptions;
use crate::pod::list::{annotation, metadata, proxy};
use crate::pod::{INIT, PROXY};

/// The name of the plugin in reports.
const PLUGIN: &str = "CNI plugin istio-cni";

/// Where the built-in templates and Istio's take the value of an option that no annotation sets.
const SOURCES: [(Key, Layer, &str); 9] = [
    (Key::InboundPorts, Layer::Values, "/global/proxy/includeInboundPorts"),
    (Key::LocalExcludePorts, Layer::Values, "/global/proxy/excludeInboundPorts"),
    (Key::ServiceCidr, Layer::Values, "/global/proxy/includeIPRanges"),
    (Key::ServiceExcludeCidr, Layer::Values, "/global/proxy/excludeIPRanges"),
    (Key::OutboundPorts, Layer::Values, "/global/proxy/includeOutboundPorts"),
    (Key::LocalOutboundPortsExclude, Layer::Values, "/global/proxy/excludeOutboundPorts"),
    (Key::LogOutputLevel, Layer::Values, "/global/logging/level"),
    (Key::InboundInterceptionMode, Layer::ProxyConfig, "/interceptionMode"),
    (Key::ProxyUid, Layer::Proxy, "/securityContext/runAsUser"),
];

#[derive(Clone, Copy)]
enum Layer {
    Values,
    ProxyConfig,
    Proxy,
}

/// Addresses for documentation.
const NAME_SERVER_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 53);
const NAME_SERVER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x53);

/// What captures a pod's traffic.
#[derive(Clone, Debug)]
pub(super) struct OwnCapture {
    /// The init container, or the plugin; with the reason if it captures nothing.
    pub(super) by: String,
    /// Options that differ from their defaults.
    pub(super) options: Vec<OwnOption>,
    /// What happens to each kind of traffic, as `istio-iptables explain` prints it; empty if that cannot be
    /// followed.
    pub(super) table: String,
    /// What happens to each kind of traffic, as JSON.
    pub(super) traffic: Value,
    /// What users may not expect.
    pub(super) warnings: Vec<String>,
}

/// An option.
#[derive(Clone, Debug)]
pub(super) struct OwnOption {
    pub(super) name: &'static str,
    pub(super) value: String,
    /// The annotation, value or container that it comes from.
    pub(super) from: String,
}

/// Reads an injected pod. `settings` name the values that its options may come from.
///
/// # Errors
/// The reason why the pod cannot start.
pub(super) fn of(pod: &Value, settings: &Settings) -> Result<OwnCapture, String> {
    match InitOptions::of(pod).filter(|init| init.container == INIT) {
        Some(init) => by_init_container(pod, settings, &init),
        None => by_plugin(pod),
    }
}

fn by_init_container(pod: &Value, settings: &Settings, init: &InitOptions) -> Result<OwnCapture, String> {
    let mut problems: Vec<String> = init.refused.iter().map(ToString::to_string).collect();
    problems.extend(init.unreadable.iter().map(ToString::to_string));
    if !problems.is_empty() {
        return Err(format!("container {INIT} refuses its options: {}", problems.join("; ")));
    }
    let mut warnings: Vec<String> = init
        .foreign
        .iter()
        .map(|problem| format!("container {INIT}: {problem}; its image must support it"))
        .collect();
    warnings.extend(
        init.elsewhere
            .iter()
            .map(|item| format!("{}: {}: {}", item.origin, shown(&item.given), item.unknown)),
    );
    warnings.extend(
        init.off().map(|(given, instead)| format!("{given} disables capture: the init container {instead}")),
    );
    let by = format!("container {INIT}");
    let Some(resolved) = &init.resolved else {
        warnings.push(format!("the effect of container {INIT} cannot be determined"));
        return Ok(OwnCapture {
            by,
            options: Vec::new(),
            table: String::new(),
            traffic: Value::Null,
            warnings,
        });
    };
    warnings.extend(without_effect(pod, resolved));
    let options = resolved.given.iter().map(|given| OwnOption {
        name: given.key.spec().name,
        value: given.text.clone(),
        from: origin(pod, settings, given),
    });
    let options = options.collect();
    let (table, traffic) = explained(pod, resolved, &mut warnings);
    Ok(OwnCapture { by, options, table, traffic, warnings })
}

/// The plugin's result for the annotations, which are all that the runtime passes.
fn by_plugin(pod: &Value) -> Result<OwnCapture, String> {
    let annotations: BTreeMap<String, String> = metadata(pod, "annotations")
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect();
    let nothing = |by: String| OwnCapture {
        by,
        options: Vec::new(),
        table: String::new(),
        traffic: Value::Null,
        warnings: Vec::new(),
    };
    match decide(&PluginPod { annotations, ..PluginPod::default() }, &Defaults::default()) {
        Decision::Refuse(Refusal::BadAnnotation(problem) | Refusal::Unknown(problem)) => {
            Err(format!("the {PLUGIN} refuses the pod: {problem}"))
        }
        Decision::NotCaptured(reason) => Ok(nothing(format!("nothing: {reason}"))),
        Decision::Capture(options) => {
            let resolved = options.resolve(None)?;
            let mut own = nothing(PLUGIN.to_owned());
            let all = options.values().iter();
            let all = all.map(|(key, value)| OwnOption {
                name: key.spec().name,
                value: value.clone(),
                from: match options.name(&Origin::Document(*key)) {
                    // Without an annotation.
                    name if name == format!("option {}", key.spec().name) => {
                        format!("default of the {PLUGIN}")
                    }
                    name => name,
                },
            });
            own.options = all.collect();
            (own.table, own.traffic) = explained(pod, &resolved, &mut own.warnings);
            Ok(own)
        }
    }
}

/// What happens to each kind of traffic, as text and as JSON.
fn explained(pod: &Value, resolved: &Resolved, warnings: &mut Vec<String>) -> (String, Value) {
    let addresses = addresses(pod);
    let network = if addresses.is_empty() {
        warnings.push("the pod's addresses are not known: those of the table are examples".to_owned());
        network(&examples(&resolved.intent))
    } else {
        network(&addresses)
    };
    let mut intent = resolved.intent.clone();
    if let DnsChoice::Servers(servers) = &mut intent.dns {
        warnings.push(
            "DNS queries to the name servers of the pod's /etc/resolv.conf are captured; that file is not known: the name \
             server of the table is an example"
                .to_owned(),
        );
        *servers = NameServers { v4: vec![NAME_SERVER_V4], v6: vec![NAME_SERVER_V6] };
    }
    let (config, notices) = intent.decide(&network);
    warnings.extend(
        notices
            .into_iter()
            .filter(|notice| notice.level() == log::Level::Warn)
            .map(|notice| notice.to_string()),
    );
    let report = |output: Output| {
        let about = explain::Pod { config: &config, given: &resolved.given, network: &network, live: None };
        explain::report(&PacketQuery { output, ..explain::query(Sender::App) }, &about).text
    };
    let traffic: Value = serde_json::from_str(&report(Output::Json)).unwrap_or_default();
    (report(Output::Text), traffic.get("traffic").cloned().unwrap_or_default())
}

fn addresses(pod: &Value) -> Vec<IpAddr> {
    let all = pod.pointer("/status/podIPs").and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|one| text(one, "/ip").parse().ok()).collect()
}

/// Addresses for documentation, of the families that the options can mean.
fn examples(intent: &Intent) -> Vec<IpAddr> {
    let v4 = IpAddr::from(Ipv4Addr::new(192, 0, 2, 10));
    let v6 = IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x10));
    match intent.family {
        FamilyChoice::Auto | FamilyChoice::Ipv4 => vec![v4],
        FamilyChoice::Dual | FamilyChoice::DualStack => vec![v4, v6],
        FamilyChoice::Ipv6 => vec![v6],
    }
}

fn network(addresses: &[IpAddr]) -> Network {
    let prefix = |address: &IpAddr| if address.is_ipv4() { 32 } else { 128 };
    let of = |address: &IpAddr| InterfaceAddress {
        interface: "eth0".to_owned(),
        address: *address,
        prefix: prefix(address),
    };
    Network { addresses: addresses.iter().map(of).collect(), ipv6: true }
}

/// Annotations that were changed after the injection: the arguments of the init container are what counts.
fn without_effect<'a>(pod: &'a Value, resolved: &'a Resolved) -> impl Iterator<Item = String> + 'a {
    Key::ALL.iter().filter_map(|key| {
        let spec = key.spec();
        let given = resolved.given.iter().find(|given| given.key == *key);
        let used = given.map_or(spec.default, |given| given.text.as_str());
        let name = spec.annotation?;
        let written = annotation(pod, name).filter(|written| !is_in(written, used))?;
        Some(format!(
            "annotation {name}: {} has no effect: the pod was injected with {}={}",
            shown(written),
            spec.name,
            shown(used)
        ))
    })
}

/// Whether a list has each item of another one.
fn is_in(items: &str, list: &str) -> bool {
    let of = |text: &str| -> Vec<String> {
        text.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect()
    };
    let all = of(list);
    of(items).iter().all(|item| all.contains(item))
}

/// The annotation or value that sets the option.
fn origin(pod: &Value, settings: &Settings, given: &GivenOption) -> String {
    if let Origin::Variable(variable) = &given.origin {
        let own =
            annotation(pod, keys::PROXY_CONFIG).is_some_and(|config| config.contains(variable.as_str()));
        let mesh = settings.mesh.proxy().get("proxyMetadata").and_then(|all| all.get(variable));
        return if own {
            format!("annotation {}: proxyMetadata.{variable}", keys::PROXY_CONFIG)
        } else if mesh.and_then(Value::as_str) == Some(&given.text) {
            format!("mesh config: defaultConfig.proxyMetadata.{variable}")
        } else {
            format!("variable {variable} of container {INIT}")
        };
    }
    let set = given.key.spec().annotation.filter(|name| {
        annotation(pod, name).is_some_and(|written| !written.is_empty() && is_in(written, &given.text))
    });
    if let Some(name) = set {
        return format!("annotation {name}");
    }
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let source = SOURCES.iter().filter(|(key, ..)| *key == given.key).find_map(|(_, layer, path)| {
        let dotted = path.trim_start_matches('/').replace('/', ".");
        let (value, name) = match layer {
            Layer::Values => (settings.values.pointer(path), format!("values {dotted}")),
            Layer::ProxyConfig => {
                (settings.mesh.proxy().get(&dotted), format!("mesh config: defaultConfig.{dotted}"))
            }
            Layer::Proxy => {
                (proxy(pod).and_then(|proxy| proxy.pointer(path)), format!("{dotted} of container {PROXY}"))
            }
        };
        value.is_some_and(|value| word(value) == given.text).then_some(name)
    });
    source.unwrap_or_else(|| format!("arguments of container {INIT}"))
}

/// The JSON of reports.
pub(super) fn as_json(own: &OwnCapture) -> Value {
    let option =
        |option: &OwnOption| json!({"name": option.name, "value": option.value, "from": option.from});
    json!({
        "by": own.by,
        "options": own.options.iter().map(option).collect::<Vec<_>>(),
        "traffic": own.traffic,
    })
}
