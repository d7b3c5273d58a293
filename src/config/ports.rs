//! The ports of the proxy, and warnings if two are equal. Istio accepts these and writes the same rules.

use crate::cli::Key;
use crate::model::{DNS_CAPTURE_PORT, Port};

use super::error::Warning;
use super::intent::DnsChoice;
use super::reader::Reader;
use super::run::Validation;
use super::{ProxyPorts, values};

const LOOP: &str =
    "what the proxy forwards to the pod's own address returns to the same listener, in a loop; use two ports";
const INBOUND_TUNNEL: &str =
    "captured inbound connections arrive at the HBONE listener, which accepts tunnels only; use two ports";
const OUTBOUND_TUNNEL: &str =
    "captured outbound connections arrive at the HBONE listener, which accepts tunnels only; use two ports";
const DNS: &str = "the proxy cannot open two listeners on one port; use another one";
const EXEMPT: &str =
    "the rules do not capture the proxy's packets to it, so that validation fails; use another probe port";

pub(super) fn read(reader: &mut Reader<'_>) -> Option<ProxyPorts> {
    let outbound = reader.value(Key::EnvoyPort, values::port);
    let inbound = reader.value(Key::InboundCapturePort, values::port);
    let tunnel = reader.value(Key::InboundTunnelPort, values::port);
    Some(ProxyPorts { outbound: outbound?, inbound: inbound?, tunnel: tunnel? })
}

/// Warns of each pair of ports that are the same.
pub(super) fn warn(reader: &mut Reader<'_>, ports: &ProxyPorts, dns: &DnsChoice, probe: Option<Validation>) {
    let ProxyPorts { outbound, inbound, tunnel } = *ports;
    let [p, z, e] =
        [(Key::EnvoyPort, outbound), (Key::InboundCapturePort, inbound), (Key::InboundTunnelPort, tunnel)];
    for (one, other, effect) in [(p, z, LOOP), (z, e, INBOUND_TUNNEL), (p, e, OUTBOUND_TUNNEL)] {
        same(reader, one, other, effect);
    }
    if let Some(Validation { port, timeout: _ }) = probe {
        same(reader, (Key::IptablesProbePort, port), e, EXEMPT);
    }
    for (key, port) in
        [p, z, e].into_iter().filter(|(_, port)| *dns != DnsChoice::Off && *port == DNS_CAPTURE_PORT)
    {
        let other = "DNS capture (--redirect-dns)".to_owned();
        reader.warnings.push(Warning::SamePort { origin: reader.origin(key), port, other, effect: DNS });
    }
}

/// Names the one that is given first: the other one may be a default.
fn same(reader: &mut Reader<'_>, one: (Key, Port), other: (Key, Port), effect: &'static str) {
    if one.1 != other.1 {
        return;
    }
    let (first, second) = if reader.given(one.0).is_some() { (one.0, other.0) } else { (other.0, one.0) };
    let (origin, other) = (reader.origin(first), reader.origin(second).to_string());
    reader.warnings.push(Warning::SamePort { origin, port: one.1, other, effect });
}
