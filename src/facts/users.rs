//! `/etc/passwd` and `/etc/group`, read directly: name services may ask the network, which a half-made pod lacks.

/// The number of `user` in the text of `/etc/passwd`.
#[must_use]
pub fn uid_of(passwd: &str, user: &str) -> Option<u32> {
    number_of(passwd, user)
}

/// The number of `group` in the text of `/etc/group`.
#[must_use]
pub fn gid_of(group_file: &str, group: &str) -> Option<u32> {
    number_of(group_file, group)
}

/// Both files have the name in the first field and the number in the third. Lines that lack one are skipped, as the C
/// library does; so is a number that means "no id".
fn number_of(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        if name.is_empty() || fields.next() != Some(name) {
            return None;
        }
        let number = fields.nth(1)?.parse().ok()?;
        (number != u32::MAX).then_some(number)
    })
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
    fn what_is_no_user_has_no_number() {
        for name in ["", "nobody", "broken", "half", "noid", "istio", "# istio-proxy:x"] {
            assert_eq!(uid_of(PASSWD, name), None, "{name}");
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
