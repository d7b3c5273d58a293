//! Expressions: the instructions of which a rule consists.

use std::fmt;

use super::Family;

/// A register of 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Register(pub u32);

impl Register {
    /// The first register for data; register 0 holds verdicts.
    pub const ONE: Self = Self(1);
    /// The second one.
    pub const TWO: Self = Self(2);
}

/// An enum whose variants are numbers of the kernel.
macro_rules! numbered {
    ($(#[$doc:meta])+ $name:ident { $($(#[$variant_doc:meta])+ $variant:ident = $number:literal,)+ }) => {
        $(#[$doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_doc])+ $variant,)+
        }

        impl $name {
            /// The kernel's number.
            #[must_use]
            pub const fn number(self) -> u32 {
                match self {
                    $(Self::$variant => $number,)+
                }
            }

            /// The value with this number, if it is supported.
            #[must_use]
            pub const fn of(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

numbered! {
    /// A property of a packet outside of its bytes.
    MetaKey {
        /// The packet's mark, 4 bytes in host byte order.
        Mark = 3,
        /// Index of the interface the packet came in by.
        InInterfaceIndex = 4,
        /// Index of the interface the packet leaves by.
        OutInterfaceIndex = 5,
        /// Name of the interface the packet came in by: 16 bytes, padded with zeros.
        InInterface = 6,
        /// Name of the interface the packet leaves by.
        OutInterface = 7,
        /// User of the socket's file, 4 bytes in host byte order. A packet without such a file ends the rule.
        SocketUid = 10,
        /// Group of the socket's file, 4 bytes in host byte order. A packet without such a file ends the
        /// rule.
        SocketGid = 11,
        /// The network protocol, one byte: [`libc::NFPROTO_IPV4`] or [`libc::NFPROTO_IPV6`].
        NetworkProtocol = 15,
        /// The transport protocol, one byte.
        TransportProtocol = 16,
    }
}

numbered! {
    /// A property of the packet's connection.
    CtKey {
        /// A bit for its state, 4 bytes in host byte order.
        State = 0,
        /// The direction of the packet.
        Direction = 1,
        /// The status bits of the connection.
        Status = 2,
        /// The mark of the connection, 4 bytes in host byte order.
        Mark = 3,
        /// The zone of the connection, 2 bytes in host byte order.
        Zone = 17,
    }
}

numbered! {
    /// A property of the socket that a packet is for.
    SocketKey {
        /// Whether the socket is transparent, one byte.
        Transparent = 0,
        /// The mark of the socket, 4 bytes in host byte order.
        Mark = 1,
        /// Whether it is bound to every address, one byte.
        Wildcard = 2,
    }
}

numbered! {
    /// What an offset into a packet counts from.
    Base {
        /// The link layer header.
        Link = 0,
        /// The network header.
        Network = 1,
        /// The transport header.
        Transport = 2,
    }
}

numbered! {
    /// A comparison; bytes are compared as unsigned numbers in network byte order.
    Operator {
        /// Equal.
        Equal = 0,
        /// Not equal.
        NotEqual = 1,
        /// Less than.
        Less = 2,
        /// Less than or equal.
        LessOrEqual = 3,
        /// Greater than.
        Greater = 4,
        /// Greater than or equal.
        GreaterOrEqual = 5,
    }
}

/// What happens to a packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Leaves the base chain, and passes its hook.
    Accept,
    /// Discards the packet.
    Drop,
    /// Goes on in another chain and comes back.
    Jump(String),
    /// Goes on in another chain and does not come back.
    Goto(String),
    /// Leaves the chain.
    Return,
    /// Goes on with the next rule.
    Continue,
}

/// One instruction of a rule. Values are in the byte order in which the kernel compares them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expression {
    /// Loads a property of the packet.
    Meta {
        /// Which.
        key: MetaKey,
        /// Into this register.
        register: Register,
    },
    /// Sets a property of the packet.
    SetMeta {
        /// Which.
        key: MetaKey,
        /// From this register.
        register: Register,
    },
    /// Loads bytes of the packet.
    Payload {
        /// What the offset counts from.
        base: Base,
        /// Offset in bytes.
        offset: u32,
        /// Number of bytes.
        length: u32,
        /// Into this register.
        register: Register,
    },
    /// `destination = (source & mask) ^ xor`.
    Bitwise {
        /// From this register.
        source: Register,
        /// Into this register.
        destination: Register,
        /// As long as `xor`.
        mask: Vec<u8>,
        /// As long as `mask`.
        xor: Vec<u8>,
    },
    /// Ends the rule unless the comparison holds.
    Compare {
        /// The left side.
        register: Register,
        /// The comparison.
        operator: Operator,
        /// The right side.
        value: Vec<u8>,
    },
    /// Ends the rule unless the register is in a range, or outside of it.
    Range {
        /// The register.
        register: Register,
        /// Whether it has to be outside.
        inverted: bool,
        /// First value of the range.
        from: Vec<u8>,
        /// Last value of the range.
        to: Vec<u8>,
    },
    /// Ends the rule unless the register is in a set, or not in it.
    Lookup {
        /// Name of the set.
        set: String,
        /// The register.
        register: Register,
        /// Whether it must not be in the set.
        inverted: bool,
    },
    /// Loads a property of the connection. A packet without a connection ends the rule, except for the state.
    Ct {
        /// Which.
        key: CtKey,
        /// Into this register.
        register: Register,
    },
    /// Sets a property of the connection.
    SetCt {
        /// Which.
        key: CtKey,
        /// From this register.
        register: Register,
    },
    /// Counts packets. What it begins with can be given.
    Counter {
        /// Number of packets.
        packets: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// Loads a constant.
    Immediate {
        /// Into this register.
        register: Register,
        /// The constant.
        value: Vec<u8>,
    },
    /// Decides about the packet.
    Verdict(Verdict),
    /// Changes the destination to the machine itself.
    Redirect {
        /// Register that holds the port, 2 bytes in network byte order; `None` keeps the port.
        port: Option<Register>,
    },
    /// Hands the packet to a transparent socket. Without one the rule ends, as if it did not match.
    Tproxy {
        /// The family to which it is limited; `inet` for both.
        family: Family,
        /// Register that holds the port, 2 bytes in network byte order.
        port: Register,
    },
    /// Loads a property of the socket that the packet is for. Without one the rule ends.
    Socket {
        /// Which.
        key: SocketKey,
        /// Into this register.
        register: Register,
    },
    /// An expression, or a form of one, that this crate does not know.
    Foreign {
        /// The name of the expression.
        name: String,
        /// The attributes of the expression, as they were read.
        data: Vec<u8>,
    },
}

impl Expression {
    /// A counter that begins with 0.
    #[must_use]
    pub const fn counter() -> Self {
        Self::Counter { packets: 0, bytes: 0 }
    }

    /// Compares register 1 for equality.
    #[must_use]
    pub fn equal(value: impl Into<Vec<u8>>) -> Self {
        Self::Compare { register: Register::ONE, operator: Operator::Equal, value: value.into() }
    }

    /// Loads a property of the packet into register 1.
    #[must_use]
    pub const fn meta(key: MetaKey) -> Self {
        Self::Meta { key, register: Register::ONE }
    }

    /// Loads a property of the connection into register 1.
    #[must_use]
    pub const fn ct(key: CtKey) -> Self {
        Self::Ct { key, register: Register::ONE }
    }

    /// Loads bytes of the packet into register 1.
    #[must_use]
    pub const fn payload(base: Base, offset: u32, length: u32) -> Self {
        Self::Payload { base, offset, length, register: Register::ONE }
    }

    /// Loads a constant into register 1.
    #[must_use]
    pub fn immediate(value: impl Into<Vec<u8>>) -> Self {
        Self::Immediate { register: Register::ONE, value: value.into() }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept => f.write_str("accept"),
            Self::Drop => f.write_str("drop"),
            Self::Jump(chain) => write!(f, "jump {chain}"),
            Self::Goto(chain) => write!(f, "goto {chain}"),
            Self::Return => f.write_str("return"),
            Self::Continue => f.write_str("continue"),
        }
    }
}
