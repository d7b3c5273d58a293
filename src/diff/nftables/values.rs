//! Values that fields are compared with, as nft writes them.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::super::field::{MAX_U32, address_number, interfaces, network};
use super::super::set::Range;
use crate::model::Interface;
use crate::parse;

pub(super) fn number(text: &str) -> Option<Range> {
    let value = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => text.parse().ok()?,
    };
    Some((value.into(), value.into()))
}

pub(super) fn id(text: &str) -> Option<Range> {
    range(text, |text| match text.trim_matches('"') {
        "root" => Some(0),
        number => number.parse::<u32>().ok().map(Into::into),
    })
}

pub(super) fn port(text: &str) -> Option<Range> {
    range(text, |text| text.parse::<u16>().ok().map(Into::into))
}

pub(super) fn protocol(text: &str) -> Option<Range> {
    range(text, |name| parse::protocol_number(name).map(Into::into))
}

fn range(text: &str, read: impl Fn(&str) -> Option<u128>) -> Option<Range> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    // A name may hold a dash.
    let (first, last) = match (read(first), read(last)) {
        (Some(first), Some(last)) => (first, last),
        _ => (read(text)?, read(text)?),
    };
    (first <= last).then_some((first, last))
}

pub(super) fn interface(text: &str) -> Option<Range> {
    let name = text.trim_start_matches('"');
    let name = match name.strip_suffix('*') {
        Some(prefix) => format!("{prefix}+"),
        // A plus sign at the end is a letter here.
        None if name.ends_with('+') => return None,
        None => name.to_owned(),
    };
    interfaces(&name.parse::<Interface>().ok()?).ranges().first().copied()
}

pub(super) fn address_v4(text: &str) -> Option<Range> {
    addresses(text).filter(|(_, last)| *last <= MAX_U32 && !text.contains(':'))
}

pub(super) fn address_v6(text: &str) -> Option<Range> {
    addresses(text).filter(|_| text.contains(':'))
}

fn addresses(text: &str) -> Option<Range> {
    let address = |text: &str| text.parse::<IpAddr>().ok().map(address_number);
    match text.split_once('-') {
        Some((first, last)) => Some((address(first)?, address(last)?)),
        None => text.parse::<IpNetwork>().ok().map(network),
    }
}
