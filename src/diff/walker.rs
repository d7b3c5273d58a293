//! A class of packets at some point in the rules.

use super::field::{Class, Field, UNTRACKED};
use super::program::Action;
use super::set::Set;

/// Most classes at a time. Beyond, a report would take too long.
pub(super) const MOST_CLASSES: usize = 100_000;

/// The rules make more classes than can be followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooManyClasses;

/// The number of a rule: of its chain, and in it.
pub(super) type RuleNumber = (usize, usize);

/// The current value of a field of all packets of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Value {
    /// What this field was in the beginning.
    Of(Field),
    /// One number for all packets.
    Constant(u128),
    /// Not known.
    Unknown,
}

/// Packets of a class, somewhere on their way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Walker {
    /// The packets, as they were in the beginning.
    pub(super) class: Class,
    now: [Value; Field::ALL.len()],
    pub(super) zone: u16,
    pub(super) is_untracked: bool,
    pub(super) is_translated: bool,
    pub(super) tproxy: Option<u16>,
    pub(super) redirect: Option<u16>,
    /// A rule that may have decided something else.
    pub(super) unsure: Option<RuleNumber>,
    /// What the caller wants to know again.
    pub(super) tag: usize,
}

impl Walker {
    pub(super) const fn new(class: Class, tag: usize) -> Self {
        Self {
            class,
            now: {
                let mut now = [Value::Unknown; Field::ALL.len()];
                let mut at = 0;
                while at < now.len() {
                    #[allow(clippy::indexing_slicing, reason = "both arrays have the same length")]
                    {
                        now[at] = Value::Of(Field::ALL[at]);
                    }
                    at += 1;
                }
                now
            },
            zone: 0,
            is_untracked: false,
            is_translated: false,
            tproxy: None,
            redirect: None,
            unsure: None,
            tag,
        }
    }

    #[allow(clippy::indexing_slicing, reason = "one place for each field")]
    pub(super) const fn now(&self, field: Field) -> Value {
        self.now[field as usize]
    }

    #[allow(clippy::indexing_slicing, reason = "one place for each field")]
    pub(super) const fn set(&mut self, field: Field, value: Value) {
        self.now[field as usize] = value;
    }

    /// Splits off the packets of which a field now has one of these values: those, and the others. Neither is
    /// there if it is empty.
    pub(super) fn split(self, field: Field, values: &Set, others: &Set) -> [Option<Self>; 2] {
        match self.now(field) {
            Value::Unknown => [Some(self.clone()), Some(self)],
            Value::Constant(value) if values.contains(value) => [Some(self), None],
            Value::Constant(_) => [None, Some(self)],
            Value::Of(original) => [values, others].map(|values| {
                let some = self.class.get(original).and(values);
                if some.is_empty() {
                    return None;
                }
                let mut part = self.clone();
                *part.class.get_mut(original) = some;
                Some(part)
            }),
        }
    }

    /// Whether no packet has one of these values.
    pub(super) fn misses(&self, field: Field, values: &Set) -> bool {
        match self.now(field) {
            Value::Unknown => false,
            Value::Constant(value) => !values.contains(value),
            Value::Of(original) => self.class.get(original).and(values).is_empty(),
        }
    }
}

/// What an action does that ends nothing.
pub(super) const fn changed(walker: &mut Walker, action: &Action) {
    match action {
        Action::Set(field, value) => walker.set(*field, Value::Constant(*value)),
        Action::Copy(to, from) => walker.set(*to, walker.now(*from)),
        Action::Obscure(field) => walker.set(*field, Value::Unknown),
        Action::Tproxy(port) => walker.tproxy = Some(*port),
        // The first one stays, also when the packet comes back over `lo`.
        Action::Zone(zone) => {
            if walker.zone == 0 && !walker.is_untracked {
                walker.zone = *zone;
            }
        }
        Action::Untrack => {
            if walker.zone == 0 {
                (walker.is_untracked, walker.is_translated) = (true, true);
                walker.set(Field::State, Value::Constant(UNTRACKED));
            }
        }
        Action::Accept
        | Action::Drop
        | Action::Goto(_)
        | Action::Jump(_)
        | Action::Redirect(_)
        | Action::Return
        | Action::Take(_) => {}
    }
}

/// Joins classes that differ in one field only.
pub(super) fn joined(mut walkers: Vec<Walker>) -> Result<Vec<Walker>, TooManyClasses> {
    if walkers.len() > MOST_CLASSES {
        return Err(TooManyClasses);
    }
    for field in Field::ALL {
        if walkers.len() < 2 {
            break;
        }
        let without = |mut walker: Walker| {
            let values = std::mem::replace(walker.class.get_mut(field), Set::none());
            (walker, values)
        };
        let mut apart: Vec<(Walker, Set)> = walkers.into_iter().map(without).collect();
        apart.sort();
        let mut alike: Vec<(Walker, Vec<Set>)> = Vec::new();
        for (walker, values) in apart {
            match alike.last_mut() {
                Some((last, others)) if *last == walker => others.push(values),
                _ => alike.push((walker, vec![values])),
            }
        }
        let whole = |(mut walker, values): (Walker, Vec<Set>)| {
            *walker.class.get_mut(field) = Set::any(values);
            walker
        };
        walkers = alike.into_iter().map(whole).collect();
    }
    Ok(walkers)
}
