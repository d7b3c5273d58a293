//! Which container runtimes load drop-in files.

/// The first versions whose libcni does (1.3.0 and later), by their `go.mod`.
const SINCE: [(&str, [u64; 3]); 2] = [("containerd", [2, 1, 0]), ("cri-o", [1, 33, 0])];

/// Whether a runtime loads drop-in files, by the Node's `containerRuntimeVersion`: `containerd://2.1.4-k3s1`.
/// `None` for what is not known: another runtime, a version without numbers, and the pre-releases before the
/// first version.
#[must_use]
pub fn loads_drop_in_files(runtime: &str) -> Option<bool> {
    let (name, version) = runtime.split_once("://")?;
    let (_, since) = SINCE.into_iter().find(|(known, _)| *known == name)?;
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
    let (numbers, rest) = version.split_at(end);
    let numbers: Vec<u64> = numbers.split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [major, minor, patch] = *numbers.as_slice() else { return None };
    let pre_release = ["-alpha", "-beta", "-rc", "-dev"].iter().any(|part| rest.starts_with(part));
    if pre_release && [major, minor, patch] == since {
        return None;
    }
    Some([major, minor, patch] >= since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_known_by_name_and_version() {
        for (runtime, expected) in [
            ("containerd://1.6.20~ds1", Some(false)),
            ("containerd://1.7.28", Some(false)),
            ("containerd://2.0.5-k3s1", Some(false)),
            ("containerd://2.1.0", Some(true)),
            ("containerd://2.1.4-k3s1", Some(true)),
            ("containerd://2.10.0", Some(true)),
            ("containerd://10.0.0", Some(true)),
            ("containerd://2.2.0-rc.1", Some(true)),
            ("containerd://2.1.0-rc.0", None),
            ("cri-o://1.32.9", Some(false)),
            ("cri-o://1.33.0", Some(true)),
            ("cri-o://1.34.1-dev", Some(true)),
            ("cri-o://1.33.0-dev", None),
            ("docker://28.0.0", None),
            ("containerd://Unknown", None),
            ("containerd://2.1", None),
            ("containerd://2.1.99999999999999999999", None),
            ("containerd", None),
            ("", None),
        ] {
            assert_eq!(loads_drop_in_files(runtime), expected, "{runtime}");
        }
    }
}
