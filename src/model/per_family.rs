//! One value per address family.

use super::Family;

/// At most one value for each family, in the order of [`Family::ALL`]; the interface of a map.
///
/// A `BTreeMap` holds the same, but the code of every map of its own type costs several kilobytes of the
/// program, and two slots need no search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerFamily<T> {
    v4: Option<T>,
    v6: Option<T>,
}

impl<T> PerFamily<T> {
    /// No value for either family.
    #[must_use]
    pub const fn new() -> Self {
        Self { v4: None, v6: None }
    }

    /// The value of `family`.
    #[must_use]
    pub const fn get(&self, family: &Family) -> Option<&T> {
        match family {
            Family::V4 => self.v4.as_ref(),
            Family::V6 => self.v6.as_ref(),
        }
    }

    /// The value of `family`, and the default one where it has none.
    pub fn or_default(&mut self, family: Family) -> &mut T
    where
        T: Default,
    {
        self.slot(family).get_or_insert_default()
    }

    const fn slot(&mut self, family: Family) -> &mut Option<T> {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }

    /// Sets the value of `family`, and returns the one before.
    pub const fn insert(&mut self, family: Family, value: T) -> Option<T> {
        self.slot(family).replace(value)
    }

    /// Whether `family` has a value.
    #[must_use]
    pub const fn contains_key(&self, family: &Family) -> bool {
        self.get(family).is_some()
    }

    /// Whether no family has a value.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.v4.is_none() && self.v6.is_none()
    }

    /// The families that have a value.
    pub fn keys(&self) -> impl Iterator<Item = &Family> {
        self.iter().map(|(family, _)| family)
    }

    /// The values.
    pub fn values(&self) -> impl Iterator<Item = &T> + Clone {
        self.v4.iter().chain(&self.v6)
    }

    /// The families that have a value, with it, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&Family, &mut T)> {
        let v4 = self.v4.iter_mut().map(|value| (&Family::V4, value));
        v4.chain(self.v6.iter_mut().map(|value| (&Family::V6, value)))
    }

    /// The families that have a value, with it.
    pub fn iter(&self) -> impl Iterator<Item = (&Family, &T)> {
        let v4 = self.v4.iter().map(|value| (&Family::V4, value));
        v4.chain(self.v6.iter().map(|value| (&Family::V6, value)))
    }
}

impl<T> Default for PerFamily<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Extend<(Family, T)> for PerFamily<T> {
    fn extend<I: IntoIterator<Item = (Family, T)>>(&mut self, items: I) {
        for (family, value) in items {
            self.insert(family, value);
        }
    }
}

impl<T> FromIterator<(Family, T)> for PerFamily<T> {
    fn from_iter<I: IntoIterator<Item = (Family, T)>>(items: I) -> Self {
        let mut values = Self::new();
        values.extend(items);
        values
    }
}

impl<T, const N: usize> From<[(Family, T); N]> for PerFamily<T> {
    fn from(items: [(Family, T); N]) -> Self {
        items.into_iter().collect()
    }
}

impl<T> IntoIterator for PerFamily<T> {
    type Item = (Family, T);
    type IntoIter = std::iter::Flatten<std::array::IntoIter<Option<(Family, T)>, 2>>;

    fn into_iter(self) -> Self::IntoIter {
        let v4 = self.v4.map(|value| (Family::V4, value));
        [v4, self.v6.map(|value| (Family::V6, value))].into_iter().flatten()
    }
}

impl<'a, T> IntoIterator for &'a PerFamily<T> {
    type Item = (&'a Family, &'a T);
    type IntoIter = std::iter::Flatten<std::array::IntoIter<Option<(&'a Family, &'a T)>, 2>>;

    fn into_iter(self) -> Self::IntoIter {
        let v4 = self.v4.as_ref().map(|value| (&Family::V4, value));
        [v4, self.v6.as_ref().map(|value| (&Family::V6, value))].into_iter().flatten()
    }
}
