//! Checks and types that several types share, and the form in which tables of types are written.

use super::Check::{self, Items, Keys, OneOf, Range, Text, Values};
use super::Rule::{Relation, Required};
use super::text::{
    annotation_key, dns_label, dns_subdomain, finalizer, label_value, qualified_name, relative_path,
};
use super::{Inner, Row, Type, relations};

pub(super) const QUALIFIED: &str = "[DOMAIN/]NAME, the name at most 63 letters, digits, -, _ and .";
pub(super) const LABEL_KEYS: Check = Keys(qualified_name, QUALIFIED);
pub(super) const LABEL_VALUES: Check =
    Values(label_value, "at most 63 letters, digits, -, _ and ., with a letter or digit at both ends");
pub(super) const ANNOTATION_KEYS: Check = Keys(annotation_key, QUALIFIED);
const SELECTOR_OPERATORS: Check = OneOf(&["In", "NotIn", "Exists", "DoesNotExist"]);
pub(super) const FINALIZERS: Check =
    Items(finalizer, "DOMAIN/NAME, foregroundDeletion, orphan or kubernetes");

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

rules! {
    SELECTOR { "matchLabels": [LABEL_KEYS, LABEL_VALUES]; "matchExpressions": [] list(REQUIREMENT, "key"); } []
    REQUIREMENT { "key": [Text(qualified_name, QUALIFIED)]; "operator": [SELECTOR_OPERATORS]; }
        [Required(&["key", "operator"]), Relation(relations::requirement)]
}
