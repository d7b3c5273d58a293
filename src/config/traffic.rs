//! The options that decide which traffic is captured.

use ipnetwork::{IpNetwork, Ipv4Network};

use crate::cli::Key;
use crate::facts::{self, Files};
use crate::model::{Mark, Port};

use super::error::{ConfigError, Expected, Warning};
use super::ranges::{self, Range};
use super::reader::{Items, Reader, is_everything};
use super::values;
use super::{InboundPorts, Mode, Outbound, OutboundRanges, OwnerGroups, PROXY_ID, ProxyOwner, Tproxy};

/// Owner groups that Istio allows.
const MOST_GROUPS: usize = 64;
/// Owner groups that fit in one iptables rule: the tools read at most 255 words of a line, five for each
/// group.
const MOST_GROUPS_IN_A_RULE: usize = 49;

pub(super) fn proxy(reader: &mut Reader<'_>, files: &Files) -> ProxyOwner {
    const EMPTY: &str =
        "the proxy's own traffic would be redirected back to it in a loop; omit the option for the default";
    let ids = |reader: &mut Reader<'_>, key| {
        reader.given(key)?;
        let ids = reader.list(key, |_, item| values::id(item));
        Some(ids)
    };
    for key in [Key::ProxyUid, Key::ProxyGid] {
        if reader.given(key).is_some() && matches!(reader.items(key), Items::These(items) if items.is_empty())
        {
            reader.refuse_empty(key, EMPTY);
        }
    }
    reader.no_effect_if(reader.given(Key::ProxyUid).is_some(), Key::EnvoyUser, "--proxy-uid (-u) is given");
    let uids = ids(reader, Key::ProxyUid).unwrap_or_else(|| {
        // As in Istio, an empty name matches no user; it does not mean the default.
        let user =
            reader.raw.given(Key::EnvoyUser).map_or(Key::EnvoyUser.spec().default, |given| given.text.trim());
        vec![facts::uid_of(&files.passwd, user).unwrap_or(PROXY_ID)]
    });
    let gids = ids(reader, Key::ProxyGid).unwrap_or_else(|| uids.clone());
    ProxyOwner { uids, gids }
}

pub(super) fn mode(reader: &mut Reader<'_>) -> Option<Mode> {
    let is_tproxy = reader.value(Key::InboundInterceptionMode, |text| {
        let expected = Expected::new("REDIRECT or TPROXY");
        match text.to_ascii_uppercase().as_str() {
            "REDIRECT" => Ok(false),
            "TPROXY" => Ok(true),
            "NONE" => Err(expected.hint(
                "to capture nothing, leave --istio-inbound-ports (-b) and --istio-service-cidr (-i) empty, or do not \
                 run this at all",
            )),
            _ => Err(expected),
        }
    });
    // Without TPROXY neither is used: a number that could not be is worth a warning only, as in Istio.
    let unused = is_tproxy == Some(false);
    let mark = reader.value(Key::InboundTproxyMark, |text| match values::number(text) {
        Some(number) if unused => Ok(Mark(number)),
        _ => values::mark(text),
    });
    let table = reader.value(Key::InboundTproxyRouteTable, |text| match values::number(text) {
        Some(number) if unused => Ok(number),
        _ => values::table(text),
    });
    for key in [Key::InboundTproxyMark, Key::InboundTproxyRouteTable] {
        // A template that always passes the defaults means nothing by it.
        let differs = reader.text(key) != key.spec().default;
        reader.no_effect_if(
            differs && is_tproxy == Some(false),
            key,
            "it is for TPROXY mode (-m TPROXY) only",
        );
    }
    let (mark, table) = (mark?, table?);
    Some(if is_tproxy? { Mode::Tproxy(Tproxy { mark, table }) } else { Mode::Redirect })
}

fn port_list(reader: &mut Reader<'_>, key: Key) -> Vec<Port> {
    reader.list(key, |_, item| values::port(item))
}

pub(super) fn inbound(reader: &mut Reader<'_>) -> InboundPorts {
    let except = port_list(reader, Key::LocalExcludePorts);
    let key = Key::InboundPorts;
    let inbound = match reader.items(key) {
        Items::All => return InboundPorts::All { except },
        Items::These(items) if items.is_empty() => {
            if reader.given(key).is_some() {
                reader.refuse_empty(
                    key,
                    "leave it out to capture no inbound port, or list ports, or `*` for all",
                );
            }
            InboundPorts::None
        }
        Items::These(_) => InboundPorts::Only(port_list(reader, key)),
    };
    reader.no_effect_if(true, Key::LocalExcludePorts, "inbound exclusions apply only with -b '*'");
    inbound
}

/// The range, with a warning if bits had to be cleared.
fn noted_range(reader: &mut Reader<'_>, key: Key, item: &str) -> Result<IpNetwork, Expected> {
    let Range { network, masked, loopback: _ } = ranges::range(item)?;
    if masked {
        reader.warnings.push(Warning::HostBits {
            origin: reader.origin(key),
            given: item.to_owned(),
            used: network.to_string(),
        });
    }
    Ok(network)
}

pub(super) fn outbound(reader: &mut Reader<'_>, files: &Files) -> Outbound {
    let mut loopback = false;
    let ranges = match reader.items(Key::ServiceCidr) {
        Items::All => OutboundRanges::All,
        Items::These(items) if items.is_empty() => {
            reader.warn_if_empty(Key::ServiceCidr);
            OutboundRanges::None
        }
        Items::These(items) => OutboundRanges::Only(reader.each(Key::ServiceCidr, &items, |reader, item| {
            loopback |= ranges::range(item).is_ok_and(|range| range.loopback);
            noted_range(reader, Key::ServiceCidr, item)
        })),
    };
    let excluded_ranges = reader.list(Key::ServiceExcludeCidr, |reader, item| {
        if item == "*" || is_everything(item) {
            return Err(Expected::new("ranges to exclude").hint(
                "to capture no outbound traffic, leave --istio-service-cidr (-i) and --istio-outbound-ports (-q) \
                 empty",
            ));
        }
        noted_range(reader, Key::ServiceExcludeCidr, item)
    });
    let ports = port_list(reader, Key::OutboundPorts);
    reader.no_effect_if(
        ranges == OutboundRanges::None && ports.is_empty(),
        Key::ServiceExcludeCidr,
        "no outbound traffic is captured (-i and -q are empty)",
    );
    let outbound = Outbound {
        ranges,
        loopback,
        excluded_ranges,
        ports,
        excluded_ports: port_list(reader, Key::LocalOutboundPortsExclude),
        owners: owners(reader, files),
    };
    if let Some(ranges) = outbound.wide_exclusion() {
        reader
            .warnings
            .push(Warning::WideExclusion { origin: reader.origin(Key::ServiceExcludeCidr), ranges });
    }
    outbound
}

fn owners(reader: &mut Reader<'_>, files: &Files) -> OwnerGroups {
    let key = Key::OutboundOwnerGroups;
    let group = |_: &mut Reader<'_>, item: &str| group(item, files);
    let except = reader.list(Key::OutboundOwnerGroupsExclude, group);
    let blank = reader.raw.given(key).is_some() && reader.given(key).is_none();
    let items = match reader.items(key) {
        Items::All if !blank => return OwnerGroups::All { except },
        Items::All => Vec::new(),
        Items::These(items) => items,
    };
    if items.is_empty() {
        reader.refuse_empty(
            key,
            "no outbound traffic would be captured; omit it, or set it to `*`, to capture all groups",
        );
    }
    reader.no_effect_if(
        true,
        Key::OutboundOwnerGroupsExclude,
        "exclusions apply only when all groups are captured (ISTIO_OUTBOUND_OWNER_GROUPS='*')",
    );
    let groups = reader.each(key, &items, group);
    let (most, reason) = if groups.len() > MOST_GROUPS {
        (MOST_GROUPS, "give the processes a common group")
    } else {
        (
            MOST_GROUPS_IN_A_RULE,
            "the iptables tools cannot read a rule with more; give the processes a common group",
        )
    };
    if groups.len() > most {
        reader.errors.push(ConfigError::TooMany {
            origin: reader.origin(key),
            given: groups.len(),
            most,
            reason,
        });
    }
    OwnerGroups::Only(groups)
}

/// A gid, or the name of a group in `/etc/group`.
fn group(item: &str, files: &Files) -> Result<u32, Expected> {
    if item.starts_with(|c: char| c.is_ascii_digit()) && !item.contains(|c: char| c.is_ascii_alphabetic()) {
        return values::id(item);
    }
    facts::gid_of(&files.group, item).ok_or_else(|| {
        let expected = Expected::new("the name of a group in /etc/group, or a number from 0 to 4294967294");
        match item {
            "*" => expected.hint(
                "`*` means all groups with ISTIO_OUTBOUND_OWNER_GROUPS only, and must be the only item",
            ),
            _ => expected,
        }
    })
}

pub(super) fn loopback(reader: &mut Reader<'_>) -> Option<Ipv4Network> {
    let key = Key::OutboundIpv4LoopbackCidr;
    // Unlike elsewhere, an empty text is not the default here.
    let text = reader.raw.given(key).map_or(key.spec().default, |given| given.text.trim());
    match ranges::loopback(text) {
        Ok(Range { network, masked, loopback: _ }) => {
            if masked {
                reader.warnings.push(Warning::HostBits {
                    origin: reader.origin(key),
                    given: text.to_owned(),
                    used: network.to_string(),
                });
            }
            Some(network)
        }
        Err(expected) => {
            reader.refuse(key, text, expected);
            None
        }
    }
}
