//! Numbers of the attributes; they are those of linux/netfilter/nfnetlink_conntrack.h.

/// `CTA_*`.
pub(super) mod root {
    pub(in super::super) const TUPLE_ORIGINAL: u16 = 1;
    pub(in super::super) const TUPLE_REPLY: u16 = 2;
    pub(in super::super) const STATUS: u16 = 3;
    pub(in super::super) const PROTOCOL_INFO: u16 = 4;
    pub(in super::super) const TIMEOUT: u16 = 7;
    pub(in super::super) const MARK: u16 = 8;
    pub(in super::super) const ID: u16 = 12;
    pub(in super::super) const ZONE: u16 = 18;
    pub(in super::super) const MARK_MASK: u16 = 21;
    pub(in super::super) const STATUS_MASK: u16 = 26;
}

/// `CTA_TUPLE_*`.
pub(super) mod tuple {
    pub(in super::super) const IP: u16 = 1;
    pub(in super::super) const PROTOCOL: u16 = 2;
    pub(in super::super) const ZONE: u16 = 3;
}

/// `CTA_IP_*`.
pub(super) mod ip {
    pub(in super::super) const V4_SOURCE: u16 = 1;
    pub(in super::super) const V4_DESTINATION: u16 = 2;
    pub(in super::super) const V6_SOURCE: u16 = 3;
    pub(in super::super) const V6_DESTINATION: u16 = 4;
}

/// `CTA_PROTO_*`.
pub(super) mod protocol {
    pub(in super::super) const NUMBER: u16 = 1;
    pub(in super::super) const SOURCE_PORT: u16 = 2;
    pub(in super::super) const DESTINATION_PORT: u16 = 3;
}

/// `CTA_PROTOINFO_*`.
pub(super) mod tcp {
    pub(in super::super) const INFO: u16 = 1;
    pub(in super::super) const STATE: u16 = 1;
    pub(in super::super) const FLAGS_ORIGINAL: u16 = 4;
    pub(in super::super) const FLAGS_REPLY: u16 = 5;
}

/// `CTA_STATS_*` of the namespace as a whole.
pub(super) mod stats {
    pub(in super::super) const ENTRIES: u16 = 1;
}
