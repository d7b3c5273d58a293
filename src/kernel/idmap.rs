//! Which uids and gids user namespaces map.

use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;

use super::netns::{Namespace, NamespaceId};
use super::{procfs, recording};

/// What the kernel gives in the place of an id that a user namespace does not map.
const OVERFLOW: u32 = 65534;

/// The ids of this process's user namespace; `kind` is `uid` or `gid`. `None` if `/proc` does not have them.
pub fn mapped(kind: &str) -> Option<Vec<RangeInclusive<u32>>> {
    let map = procfs::read(format!("/proc/self/{kind}_map")).ok()?;
    let range = |Extent { inside, count, .. }: Extent| Some(inside..=inside.checked_add(count - 1)?);
    Some(map.lines().filter_map(Extent::read).filter_map(range).collect())
}

/// Ids in the user namespace that the current thread's network namespace belongs to. Rules test these. Of
/// sockets, processes and policy rules the kernel gives a process the ids in its own user namespace.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OwnerIds {
    /// `None` if it is the user namespace of this process.
    maps: Option<Maps>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Maps {
    uids: Vec<Extent>,
    gids: Vec<Extent>,
}

impl OwnerIds {
    /// Reads how the ids of this process become those.
    ///
    /// # Errors
    /// No process of that user namespace is visible.
    pub fn read() -> io::Result<Self> {
        let text = recording::optional(|| {
            recording::text("ids of the user namespace of the network namespace", &mut maps_of_owner)
        })?;
        let maps = text.split_once(SEPARATOR).map(|(uids, gids)| {
            let [uids, gids] = [uids, gids].map(|map| map.lines().filter_map(Extent::read).collect());
            Maps { uids, gids }
        });
        Ok(Self { maps })
    }

    /// Whether the network namespace belongs to another user namespace than this process.
    #[must_use]
    pub const fn is_other_user_namespace(&self) -> bool {
        self.maps.is_some()
    }

    /// A uid of this process's user namespace.
    #[must_use]
    pub fn uid(&self, uid: u32) -> u32 {
        self.maps.as_ref().map_or(uid, |maps| translated(&maps.uids, uid))
    }

    /// A gid of the same.
    #[must_use]
    pub fn gid(&self, gid: u32) -> u32 {
        self.maps.as_ref().map_or(gid, |maps| translated(&maps.gids, gid))
    }

    /// From the first to the last uid of those in a range.
    #[must_use]
    pub fn uids(&self, (first, last): (u32, u32)) -> (u32, u32) {
        let Some(maps) = &self.maps else { return (first, last) };
        let part = |extent: &Extent| {
            let (from, to) =
                (first.max(extent.outside), last.min(extent.outside.saturating_add(extent.count - 1)));
            Some((extent.translate(from)?, extent.translate(to)?)).filter(|_| from <= to)
        };
        let parts = maps.uids.iter().filter_map(part);
        parts.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1))).unwrap_or((OVERFLOW, OVERFLOW))
    }
}

/// Between the maps of uids and of gids.
const SEPARATOR: &str = "--\n";

/// The maps of uids and gids of the user namespace that the network namespace belongs to; nothing if it is
/// the one of this process, or above it.
fn maps_of_owner() -> io::Result<String> {
    let namespace = Namespace::open(Path::new("/proc/thread-self/ns/net"));
    let Ok(owner) = namespace.map_err(io::Error::other).and_then(|namespace| namespace.user_namespace())
    else {
        return Ok(String::new());
    };
    let is_of_owner =
        |path: &Path| fs::metadata(path.join("ns/user")).is_ok_and(|found| NamespaceId::of(&found) == owner);
    if is_of_owner(Path::new("/proc/thread-self")) {
        return Ok(String::new());
    }
    let map = |path: &Path, name: &str| procfs::read(path.join(name));
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        if is_of_owner(&path)
            && let (Ok(uids), Ok(gids)) = (map(&path, "uid_map"), map(&path, "gid_map"))
        {
            return Ok([&uids, SEPARATOR, &gids].concat());
        }
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "no process of its user namespace is visible"))
}

/// Ids in a row that a user namespace maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    /// The first one inside.
    inside: u32,
    /// The first one in the user namespace of the reader.
    outside: u32,
    /// The number of ids; at least one.
    count: u32,
}

impl Extent {
    fn read(line: &str) -> Option<Self> {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<u32>().ok());
        let (inside, outside, count) = (numbers.next()??, numbers.next()??, numbers.next()??);
        (count > 0).then_some(Self { inside, outside, count })
    }

    fn translate(self, id: u32) -> Option<u32> {
        let at = id.checked_sub(self.outside).filter(|at| *at < self.count)?;
        self.inside.checked_add(at)
    }
}

fn translated(map: &[Extent], id: u32) -> u32 {
    map.iter().find_map(|extent| extent.translate(id)).unwrap_or(OVERFLOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extents(map: &str) -> Vec<Extent> {
        map.lines().filter_map(Extent::read).collect()
    }

    #[test]
    fn lines_that_are_no_extent_are_skipped() {
        assert_eq!(extents("0 0 0\nx\n"), []);
        let all = extents("         0          0 4294967295\n");
        assert_eq!(all, [Extent { inside: 0, outside: 0, count: u32::MAX }]);
    }

    #[test]
    fn ids_are_those_of_the_owner() {
        let uids = extents("         0     100000      65536\n     70000          7          1\n");
        let ids = OwnerIds { maps: Some(Maps { uids, gids: Vec::new() }) };
        assert_eq!(
            [100_000, 101_337, 165_535, 165_536, 7, 0].map(|uid| ids.uid(uid)),
            [0, 1337, 65_535, OVERFLOW, 70_000, OVERFLOW]
        );
        assert_eq!(ids.gid(100_000), OVERFLOW);
        assert_eq!(ids.uids((101_000, 101_001)), (1000, 1001));
        assert_eq!(ids.uids((0, u32::MAX)), (0, 70_000));
        assert_eq!(ids.uids((1, 2)), (OVERFLOW, OVERFLOW));
        let same = OwnerIds::default();
        assert_eq!((same.uid(5), same.gid(6), same.uids((1, 2))), (5, 6, (1, 2)));
    }
}
