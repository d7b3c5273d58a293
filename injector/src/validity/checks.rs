//! Checks that several types share, and the form in which tables of types are written.

use super::Check::{self, Range, Text};
use super::text::{dns_label, dns_subdomain, relative_path};

pub(super) const LABEL: Check =
    Text(dns_label, "a-z, 0-9 and -, at most 63 of them, with a letter or digit at both ends");
pub(super) const SUBDOMAIN: Check =
    Text(dns_subdomain, "a-z, 0-9, - and ., with a letter or digit at both ends of each part");
pub(super) const RELATIVE: Check = Text(relative_path, "a relative path without ..");
pub(super) const MODE: Check = Range(0, 0o777);
pub(super) const USER: Check = Range(0, i32::MAX as i64);

/// A type: its fields, each with checks and what is inside, then its rules.
macro_rules! rules {
    (@inner) => { Inner::Leaf };
    (@inner object($of:expr)) => { Inner::Object(&$of) };
    (@inner list($of:expr, $key:literal)) => { Inner::List(&$of, $key) };
    ($($name:ident { $($key:literal: [$($check:expr),*] $($inner:ident ($($of:tt)*))?;)* } [$($rule:expr),*])*) => {
        $(pub(super) static $name: Type = Type {
            fields: &[$(Row { key: $key, checks: &[$($check),*], inner: rules!(@inner $($inner($($of)*))?) }),*],
            rules: &[$($rule),*],
        };)*
    };
}
pub(super) use rules;
