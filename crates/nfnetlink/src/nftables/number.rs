//! Numbers of `linux/netfilter/nf_tables.h`.

/// Subsystem of nfnetlink.
pub(crate) const NFNL_SUBSYS_NFTABLES: u16 = 10;
/// Length of `struct nfgenmsg`.
pub(crate) const NFGENMSG: usize = 4;

/// The message types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Kind {
    NewTable = 0,
    GetTable = 1,
    DelTable = 2,
    NewChain = 3,
    GetChain = 4,
    DelChain = 5,
    NewRule = 6,
    GetRule = 7,
    DelRule = 8,
    NewSet = 9,
    GetSet = 10,
    DelSet = 11,
    NewElements = 12,
    GetElements = 13,
    GetGeneration = 16,
}

impl Kind {
    pub(crate) const fn number(self) -> u16 {
        (NFNL_SUBSYS_NFTABLES << 8) | self as u16
    }
}

pub(crate) const LIST_ELEM: u16 = 1;
pub(crate) const GEN_ID: u16 = 1;
pub(crate) const GEN_PROCESS_ID: u16 = 2;
pub(crate) const GEN_PROCESS_NAME: u16 = 3;
/// The notice at the end of a transaction (`NFT_MSG_NEWGEN`).
pub(crate) const NEW_GENERATION: u16 = (NFNL_SUBSYS_NFTABLES << 8) | 15;

pub(crate) mod table {
    pub(crate) const NAME: u16 = 1;
    pub(crate) const USERDATA: u16 = 6;
}

pub(crate) mod chain {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const NAME: u16 = 3;
    pub(crate) const HOOK: u16 = 4;
    pub(crate) const POLICY: u16 = 5;
    pub(crate) const TYPE: u16 = 7;
    pub(crate) const HOOK_NUMBER: u16 = 1;
    pub(crate) const HOOK_PRIORITY: u16 = 2;
}

pub(crate) mod rule {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const CHAIN: u16 = 2;
    pub(crate) const HANDLE: u16 = 3;
    pub(crate) const EXPRESSIONS: u16 = 4;
    pub(crate) const USERDATA: u16 = 7;
}

pub(crate) mod set {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const NAME: u16 = 2;
    pub(crate) const FLAGS: u16 = 3;
    pub(crate) const KEY_TYPE: u16 = 4;
    pub(crate) const KEY_LENGTH: u16 = 5;
    pub(crate) const DESCRIPTION: u16 = 9;
    pub(crate) const ID: u16 = 10;
    pub(crate) const USERDATA: u16 = 13;
    pub(crate) const DESCRIPTION_SIZE: u16 = 1;
    pub(crate) const ANONYMOUS: u32 = 1;
    pub(crate) const CONSTANT: u32 = 2;
    pub(crate) const INTERVAL: u32 = 4;
}

pub(crate) mod elements {
    pub(crate) const TABLE: u16 = 1;
    pub(crate) const SET: u16 = 2;
    pub(crate) const ELEMENTS: u16 = 3;
    pub(crate) const SET_ID: u16 = 4;
}

pub(crate) mod element {
    pub(crate) const KEY: u16 = 1;
    pub(crate) const FLAGS: u16 = 3;
    pub(crate) const USERDATA: u16 = 6;
    pub(crate) const INTERVAL_END: u32 = 1;
}

pub(crate) mod expression {
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DATA: u16 = 2;
}

pub(crate) mod data {
    pub(crate) const VALUE: u16 = 1;
    pub(crate) const VERDICT: u16 = 2;
    pub(crate) const VERDICT_CODE: u16 = 1;
    pub(crate) const VERDICT_CHAIN: u16 = 2;
}

pub(crate) mod meta {
    pub(crate) const DREG: u16 = 1;
    pub(crate) const KEY: u16 = 2;
    pub(crate) const SREG: u16 = 3;
}

pub(crate) mod payload {
    pub(crate) const DREG: u16 = 1;
    pub(crate) const BASE: u16 = 2;
    pub(crate) const OFFSET: u16 = 3;
    pub(crate) const LENGTH: u16 = 4;
}

pub(crate) mod bitwise {
    pub(crate) const SREG: u16 = 1;
    pub(crate) const DREG: u16 = 2;
    pub(crate) const LENGTH: u16 = 3;
    pub(crate) const MASK: u16 = 4;
    pub(crate) const XOR: u16 = 5;
    pub(crate) const OPERATION: u16 = 6;
}

pub(crate) mod cmp {
    pub(crate) const SREG: u16 = 1;
    pub(crate) const OPERATOR: u16 = 2;
    pub(crate) const DATA: u16 = 3;
}

pub(crate) mod range {
    pub(crate) const SREG: u16 = 1;
    pub(crate) const OPERATOR: u16 = 2;
    pub(crate) const FROM: u16 = 3;
    pub(crate) const TO: u16 = 4;
}

pub(crate) mod lookup {
    pub(crate) const SET: u16 = 1;
    pub(crate) const SREG: u16 = 2;
    pub(crate) const SET_ID: u16 = 4;
    pub(crate) const FLAGS: u16 = 5;
    pub(crate) const INVERTED: u32 = 1;
}

pub(crate) mod ct {
    pub(crate) const DREG: u16 = 1;
    pub(crate) const KEY: u16 = 2;
    pub(crate) const SREG: u16 = 4;
}

pub(crate) mod counter {
    pub(crate) const BYTES: u16 = 1;
    pub(crate) const PACKETS: u16 = 2;
    pub(crate) const PADDING: u16 = 3;
}

pub(crate) mod immediate {
    pub(crate) const DREG: u16 = 1;
    pub(crate) const DATA: u16 = 2;
}

pub(crate) mod redir {
    pub(crate) const PROTO_MIN: u16 = 1;
    pub(crate) const PROTO_MAX: u16 = 2;
    pub(crate) const FLAGS: u16 = 3;
    /// `NF_NAT_RANGE_PROTO_SPECIFIED`.
    pub(crate) const PROTO_SPECIFIED: u32 = 2;
}

pub(crate) mod tproxy {
    pub(crate) const FAMILY: u16 = 1;
    pub(crate) const ADDRESS: u16 = 2;
    pub(crate) const PORT: u16 = 3;
}

pub(crate) mod socket {
    pub(crate) const KEY: u16 = 1;
    pub(crate) const DREG: u16 = 2;
}
