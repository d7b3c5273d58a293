//! `/etc/passwd` and `/etc/group`, read directly: name services may ask the network, which a half-made pod
//! lacks.
//!
//! Lines count as for Go's `os/user`, which Istio's default build uses.

/// The number of `user` in the text of `/etc/passwd`.
#[must_use]
pub fn uid_of(passwd: &str, user: &str) -> Option<u32> {
    number_of(passwd, user, |fields| match fields {
        [_, _, uid, gid, _, _, _, ..] => is_number(gid).then_some(uid),
        _ => None,
    })
}

/// The number of `group` in the text of `/etc/group`.
#[must_use]
pub fn gid_of(group_file: &str, group: &str) -> Option<u32> {
    number_of(group_file, group, |fields| match fields {
        [_, _, gid, _, ..] => Some(gid),
        _ => None,
    })
}

/// The number in the first line that is complete and has the name in its first field. Other lines are
/// skipped, and so are comments, names with a sign in front (NIS), and a number that means "no id".
fn number_of(text: &str, name: &str, number: impl for<'a> Fn(&[&'a str]) -> Option<&'a str>) -> Option<u32> {
    let special = |line: &str| line.starts_with(['#', '+', '-', ':']);
    text.lines().map(str::trim).filter(|line| !special(line)).find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.first() == Some(&name)).then_some(())?;
        let number = number(&fields)?.parse().ok()?;
        (number != u32::MAX).then_some(number)
    })
}

/// Parses a number as Go's `strconv.Atoi` does.
fn is_number(text: &str) -> bool {
    text.parse::<i64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n\
                          # istio-proxy:x:7:7::/:\n\
                          broken\n\
                          half:x:\n\
                          noid:x:4294967295:0::/:\n\
                          istio-proxy:x:1338:1339::/:/bin/false\n\
                          istio-proxy:x:9:9::/:\n";

    #[test]
    fn the_first_line_with_the_name_counts() {
        assert_eq!(uid_of(PASSWD, "root"), Some(0));
        assert_eq!(uid_of(PASSWD, "istio-proxy"), Some(1338));
    }

    #[test]
    fn unknown_user_has_no_uid() {
        for name in ["", "nobody", "broken", "half", "noid", "istio", "# istio-proxy:x"] {
            assert_eq!(uid_of(PASSWD, name), None, "{name}");
        }
    }

    #[test]
    fn lines_count_as_for_go() {
        for (line, expected) in [
            ("istio-proxy:x:5:5::/:/bin/sh", Some(5)),
            ("  istio-proxy:x:5:5::/: ", Some(5)),
            ("istio-proxy:x:5:5::/", None),
            ("istio-proxy:x:5", None),
            ("istio-proxy:x:5:::/:", None),
            ("istio-proxy:x:5:g::/:", None),
            ("istio-proxy:x:five:5::/:", None),
            ("istio-proxy:x: 5:5::/:", None),
            ("istio-proxy:x:-5:5::/:", None),
            ("istio-proxy:x:5:-5::/:", Some(5)),
            ("#istio-proxy:x:5:5::/:", None),
            ("+istio-proxy:x:5:5::/:", None),
        ] {
            assert_eq!(uid_of(line, "istio-proxy"), expected, "{line:?}");
            // A line that does not count does not hide the next.
            let text = format!("{line}\nistio-proxy:x:6:6::/:\n");
            assert_eq!(uid_of(&text, "istio-proxy"), expected.or(Some(6)), "{line:?}");
        }
        for (line, expected) in
            [("java:x:7:", Some(7)), ("java:x:7", None), (" java:x:7:a", Some(7)), ("java:x::", None)]
        {
            assert_eq!(gid_of(line, "java"), expected, "{line:?}");
        }
    }

    #[test]
    fn groups_have_their_number_in_the_third_field_too() {
        let text = "root:x:0:\nadm:x:4:a,b\n";
        assert_eq!(gid_of(text, "adm"), Some(4));
        assert_eq!(gid_of(text, "a"), None);
        assert_eq!(gid_of("", "adm"), None);
    }
}
