//! Which uids and gids the user namespace maps.

use std::ops::RangeInclusive;

use super::procfs;

/// The ids of this process's user namespace; `kind` is `uid` or `gid`. `None` if `/proc` does not have them.
pub fn mapped(kind: &str) -> Option<Vec<RangeInclusive<u32>>> {
    procfs::read(format!("/proc/self/{kind}_map")).ok().map(|map| ranges(&map))
}

/// Each line has the first id inside, the first one outside, and their number.
fn ranges(map: &str) -> Vec<RangeInclusive<u32>> {
    let range = |line: &str| {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<u32>().ok());
        let (first, _outside, count) = (numbers.next()??, numbers.next()??, numbers.next()??);
        Some(first..=first.checked_add(count.checked_sub(1)?)?)
    };
    map.lines().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_a_map_are_inclusive() {
        let map = "         0     100000      65536\n     70000          0          1\n";
        assert_eq!(ranges(map), [0..=65_535, 70_000..=70_000]);
        assert_eq!(ranges("         0          0 4294967295\n"), [0..=4_294_967_294]);
        assert_eq!(ranges("0 0 0\nx\n"), []);
    }
}
