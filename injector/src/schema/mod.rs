//! What the types of a pod are: which fields are strings, which lists merge by which key.
//!
//! One static table serves two masters: the strategic merge ([`crate::overlay`]) reads merge keys from it, and the
//! YAML reader ([`crate::yaml`]) reads types from it. It is no validation of pods: fields that it does not know are
//! left alone in a user's pod, because newer versions of Kubernetes have more of them.
//!
//! Starting points: [`POD`], [`POD_SPEC`], [`POD_TEMPLATE`], [`OBJECT_META`], [`CONTAINER`].

mod container;
mod meta;
mod pod;
mod volume;
mod workload;

pub use container::CONTAINER;
pub use meta::OBJECT_META;
pub use pod::{POD, POD_SPEC, POD_TEMPLATE};
pub use workload::workload;

/// A struct type of the API: its Go name and its fields by their JSON names.
#[derive(Debug)]
pub struct Struct {
    /// The Go type's name, as error messages print it: `Container`.
    pub name: &'static str,
    /// JSON field name and type, sorted by name.
    pub fields: &'static [(&'static str, Kind)],
}

impl Struct {
    /// The type of the field `name`, if this struct is known to have it.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&'static Kind> {
        let at = self.fields.binary_search_by(|(field, _)| (*field).cmp(name)).ok()?;
        self.fields.get(at).map(|(_, kind)| kind)
    }
}

/// The type of a field.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Anything: not looked into.
    Any,
    /// A boolean.
    Bool,
    /// An `int32` or `int64`.
    Int,
    /// An `intstr.IntOrString`.
    IntOrString,
    /// A list and how two of them merge.
    List(&'static Self, ListMerge),
    /// A map from strings.
    Map(&'static Self),
    /// A `resource.Quantity`: a string, or a number that means one.
    Quantity,
    /// A string; times are strings too.
    Str,
    /// A struct.
    Struct(&'static Struct),
}

/// How a patch's list meets the original's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListMerge {
    /// The patch's list replaces the original's.
    Atomic,
    /// Items are matched by this field.
    Key(&'static str),
    /// Scalars are united.
    Set,
}

const ANY: Kind = Kind::Any;
const BOOL: Kind = Kind::Bool;
const INT: Kind = Kind::Int;
const INT_OR_STRING: Kind = Kind::IntOrString;
const QUANTITY: Kind = Kind::Quantity;
const STR: Kind = Kind::Str;
const STR_LIST: Kind = Kind::List(&STR, ListMerge::Atomic);
const STR_MAP: Kind = Kind::Map(&STR);
const QUANTITY_MAP: Kind = Kind::Map(&QUANTITY);

const fn object(of: &'static Struct) -> Kind {
    Kind::Struct(of)
}

const fn atomic(of: &'static Kind) -> Kind {
    Kind::List(of, ListMerge::Atomic)
}

const fn keyed(of: &'static Kind, key: &'static str) -> Kind {
    Kind::List(of, ListMerge::Key(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_sorted(of: &'static Struct, seen: &mut Vec<&'static str>) {
        if seen.contains(&of.name) {
            return;
        }
        seen.push(of.name);
        for pair in of.fields.windows(2) {
            assert!(pair[0].0 < pair[1].0, "{}: {} before {}", of.name, pair[0].0, pair[1].0);
        }
        for (_, kind) in of.fields {
            let mut kind = kind;
            while let Kind::List(inner, _) | Kind::Map(inner) = kind {
                kind = inner;
            }
            if let Kind::Struct(inner) = kind {
                check_sorted(inner, seen);
            }
        }
    }

    #[test]
    fn every_struct_lists_its_fields_in_order() {
        let mut seen = Vec::new();
        check_sorted(&POD, &mut seen);
        check_sorted(&POD_TEMPLATE, &mut seen);
        for kind in ["Deployment", "CronJob", "ReplicationController"] {
            check_sorted(workload(kind).expect(kind), &mut seen);
        }
        assert!(seen.len() > 60, "{seen:?}");
    }
}
