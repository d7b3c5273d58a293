//! The texts that Kubernetes accepts as names, keys, paths and addresses.

use std::net::IpAddr;

fn alphanumeric_ends(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    ends(text.chars().next()) && ends(text.chars().next_back())
}

/// A label of RFC 1123.
pub(super) fn dns_label(text: &str) -> bool {
    text.len() <= 63 && alphanumeric_ends(text) && text.chars().all(lower)
}

const fn lower(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'
}

/// A subdomain of RFC 1123.
pub(super) fn dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(|part| alphanumeric_ends(part) && part.chars().all(lower))
}

/// The name part of a label key, and the value of a label.
fn label_text(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.len() <= 63 && alphanumeric_ends(text) && text.chars().all(inner)
}

/// The value of a label.
pub(crate) fn label_value(text: &str) -> bool {
    text.is_empty() || label_text(text)
}

/// A key of a label, annotation or extended resource.
pub(crate) fn qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => dns_subdomain(prefix) && label_text(name),
        None => label_text(text),
    }
}

/// The name of a finalizer: those without a domain are Kubernetes' own.
pub(super) fn finalizer(text: &str) -> bool {
    qualified_name(text)
        && (text.contains('/') || matches!(text, "foregroundDeletion" | "kubernetes" | "orphan"))
}

/// What the API server appends letters to.
pub(super) fn generate_name(text: &str) -> bool {
    let begin = text.strip_suffix('-').unwrap_or(text);
    begin.is_empty() || dns_subdomain(begin)
}

/// Addresses with ports, with commas between them.
pub(super) fn host_ports(text: &str) -> bool {
    text.split(',')
        .all(|one| one.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && !port.is_empty()))
}

/// A key of an annotation: its case does not count.
pub(super) fn annotation_key(text: &str) -> bool {
    qualified_name(&text.to_ascii_lowercase())
}

/// A key with a domain.
pub(super) fn prefixed_key(text: &str) -> bool {
    text.contains('/') && qualified_name(text)
}

/// The name of an environment variable, as Kubernetes accepts it since 1.32.
pub(super) fn variable(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'=')
}

/// The name of a port: an IANA service name.
pub(super) fn port_name(text: &str) -> bool {
    text.len() <= 15
        && alphanumeric_ends(text)
        && text.chars().all(lower)
        && text.contains(|c: char| c.is_ascii_lowercase())
        && !text.contains("--")
}

/// A key of a ConfigMap or Secret.
pub(super) fn config_key(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.len() <= 253 && text != "." && !text.starts_with("..") && text.chars().all(inner)
}

/// An IP address.
pub(super) fn address(text: &str) -> bool {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => address.to_ipv4_mapped().is_none(),
        Ok(IpAddr::V4(_)) => true,
        Err(_) => false,
    }
}

/// The name of an HTTP header.
pub(super) fn header(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

/// A path below a directory.
pub(super) fn relative_path(text: &str) -> bool {
    !text.starts_with('/') && no_parent(text)
}

/// A path that no `..` leaves.
pub(super) fn no_parent(text: &str) -> bool {
    text.split('/').all(|part| part != "..")
}

/// The path of an AppArmor profile.
pub(super) fn profile_path(text: &str) -> bool {
    text.len() <= 4095 && trimmed(text)
}

/// The name of a CSI driver.
pub(super) fn csi_driver(text: &str) -> bool {
    text.len() <= 63 && dns_subdomain(&text.to_ascii_lowercase())
}

/// The name of a resource that a pod has as a whole.
pub(super) fn pod_resource(text: &str) -> bool {
    matches!(text, "cpu" | "memory") || text.starts_with("hugepages-")
}

/// How a claim is mounted.
pub(super) fn access_mode(text: &str) -> bool {
    matches!(text, "ReadOnlyMany" | "ReadWriteMany" | "ReadWriteOnce" | "ReadWriteOncePod")
}

/// The name of an iSCSI target or initiator.
pub(super) fn iscsi_name(text: &str) -> bool {
    let plain = |text: &str, count| text.len() == count && text.bytes().all(|c| c.is_ascii_alphanumeric());
    // In Go's patterns the dot behind these two is any character.
    let behind = |prefix: &str| text.strip_prefix(prefix)?.get(1..);
    behind("eui").is_some_and(|id| plain(id, 16))
        || behind("naa").is_some_and(|id| plain(id, 32))
        || text.strip_prefix("iqn.").is_some_and(iqn)
}

/// `YEAR-MONTH.NAME:NAME`
fn iqn(text: &str) -> bool {
    let date = |text: &str| {
        text.split_once('-').is_some_and(|(year, month)| {
            (year.len(), month.len()) == (4, 2)
                && (year.bytes().chain(month.bytes())).all(|c| c.is_ascii_digit())
        })
    };
    let is_part = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'))
    };
    text.split_once('.').is_some_and(|(begin, rest)| {
        date(begin)
            && rest.split_once(':').is_some_and(|(authority, name)| {
                is_part(authority)
                    && !name.is_empty()
                    && !name.contains(|c: char| c.is_ascii_whitespace() || ",;*&$|".contains(c))
            })
    })
}

/// A key of an option of a flexVolume: those of Kubernetes are its own.
pub(super) fn flex_option(text: &str) -> bool {
    let domain = format!(".{}", text.split('/').next().unwrap_or_default().to_ascii_lowercase());
    ![".kubernetes.io", ".k8s.io"].iter().any(|own| domain.ends_with(own))
}

/// An absolute path.
pub(super) fn absolute_path(text: &str) -> bool {
    text.starts_with('/')
}

/// Text without blanks around it.
pub(super) fn trimmed(text: &str) -> bool {
    text.trim() == text
}

/// A field of the pod that a variable takes.
pub(super) fn variable_field(text: &str) -> bool {
    const FIELDS: [&str; 9] = [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ];
    FIELDS.contains(&text) || subscript(text)
}

/// A field of the pod that a file takes.
pub(super) fn file_field(text: &str) -> bool {
    const FIELDS: [&str; 5] =
        ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
    FIELDS.contains(&text) || subscript(text)
}

/// `metadata.labels['key']` or `metadata.annotations['key']`.
fn subscript(text: &str) -> bool {
    let key = |prefix: &str| text.strip_prefix(prefix)?.strip_prefix("['")?.strip_suffix("']");
    key("metadata.labels").is_some_and(qualified_name)
        || key("metadata.annotations").is_some_and(annotation_key)
}

/// A resource of a container that a variable or file takes.
pub(super) fn resource_field(text: &str) -> bool {
    let name = text.strip_prefix("limits.").or_else(|| text.strip_prefix("requests."));
    name.is_some_and(|name| {
        matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-")
    })
}

/// The name of a resource of a container.
pub(super) fn resource(text: &str) -> bool {
    matches!(text, "cpu" | "memory" | "ephemeral-storage")
        || text.strip_prefix("hugepages-").is_some_and(|size| !size.is_empty())
        || prefixed_key(text) && !text.starts_with("requests.")
}

/// A DNS search domain.
pub(super) fn search_domain(text: &str) -> bool {
    let name = text.strip_suffix('.').unwrap_or(text);
    text == "." || dns_subdomain(&name.replace('_', "a"))
}

/// The name of a sysctl.
pub(super) fn sysctl(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    let segment = |part: &str| alphanumeric_ends(part) && part.chars().all(inner);
    text.len() <= 253 && text.split(['.', '/']).all(segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_accepted_as_kubernetes_accepts_them() {
        type Row = (fn(&str) -> bool, &'static [&'static str], &'static [&'static str]);
        let long = "a".repeat(64);
        let table: [Row; 19] = [
            (dns_label, &["a", "a-1", "1"], &["", "A", "a_b", "-a", "a-", "a.b"]),
            (dns_subdomain, &["a.b-c.1"], &["", "a..b", "A.b", "a.-b", ".a"]),
            (label_value, &["", "A_b.c-1"], &["-a", "a b", "a/b"]),
            (qualified_name, &["app", "a.b/C_d"], &["/a", "a/", "a/b/c", "A.b/c", "a b"]),
            (annotation_key, &["A.b/c"], &["a b"]),
            (variable, &["A", "a.b-c", "_x", "1A", "A B", ".."], &["A=B", "\u{e9}", "a\tb"]),
            (port_name, &["http", "a-1"], &["HTTP", "80", "a--b", "-a", "abcdefghijklmnop"]),
            (config_key, &["a.b", ".a"], &["..", "a b", "..a"]),
            (relative_path, &["a/b", "a..b"], &["/a", "a/../b", ".."]),
            (
                variable_field,
                &["status.podIP", "metadata.labels['a/b']"],
                &["spec.nodename", "metadata.labels"],
            ),
            (file_field, &["metadata.labels"], &["status.podIP"]),
            (sysctl, &["net.core.somaxconn", "net/ipv4/a_b"], &["net//a", "net.", "Net.a", "a._b"]),
            (address, &["10.0.0.1", "::1"], &["010.0.0.1", "::ffff:10.0.0.1", "localhost"]),
            (csi_driver, &["A.b"], &["a_b", "a..b"]),
            (pod_resource, &["cpu", "hugepages-2Mi"], &["ephemeral-storage", "example.com/gpu"]),
            (access_mode, &["ReadWriteOnce"], &["RWO"]),
            (
                iscsi_name,
                &["iqn.2001-04.com.example:a", "eui.0123456789abcdef"],
                &["a", "naa.123", "iqn.2001-04.com.example:a ", "iqn.2001-04.com.example", "iqn.1-04.a:b"],
            ),
            (flex_option, &["a", "example.com/fsType"], &["kubernetes.io/fsType", "A.K8s.io/x"]),
            (resource, &["cpu", "hugepages-2Mi", "nvidia.com/gpu"], &["cpus", "gpu"]),
        ];
        for (test, good, bad) in table {
            assert_eq!(good.iter().filter(|text| !test(text)).collect::<Vec<_>>(), [&""; 0]);
            assert_eq!(bad.iter().filter(|text| test(text)).collect::<Vec<_>>(), [&""; 0]);
        }
        assert!(!dns_label(&long) && !label_value(&long));
    }
}
