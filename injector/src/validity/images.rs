//! References of images, as kubelet and the container runtimes parse them.

/// Whether a text is `[DOMAIN[:PORT]/]PATH[:TAG][@DIGEST]`.
pub(super) fn reference(text: &str) -> bool {
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (text, None),
    };
    // A colon before the last slash precedes a port.
    let last = rest.rfind('/').map_or(0, |at| at + 1);
    let (name, tag) = match rest.get(last..).and_then(|end| end.split_once(':')) {
        Some((end, tag)) => (rest.get(..last + end.len()).unwrap_or_default(), Some(tag)),
        None => (rest, None),
    };
    let (domain, path) = match name.split_once('/') {
        Some((first, path)) if is_domain(first) => (Some(first), path),
        _ => (None, name),
    };
    domain.is_none_or(valid_domain)
        && path.len() <= 255
        && path.split('/').all(component)
        && tag.is_none_or(valid_tag)
        && digest.is_none_or(valid_digest)
}

/// Whether the first part of a name is a registry, and not a folder of the default one.
fn is_domain(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first.chars().any(|c| c.is_ascii_uppercase())
}

fn valid_domain(domain: &str) -> bool {
    let (host, port) = match domain.rsplit_once(':') {
        Some((host, port)) if !domain.ends_with(']') => (host, Some(port)),
        _ => (domain, None),
    };
    let label = |part: &str| {
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        ends(part.chars().next())
            && ends(part.chars().next_back())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = match address {
        Some(address) => address.chars().all(|c| c.is_ascii_hexdigit() || c == ':'),
        None => host.split('.').all(label),
    };
    host && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Letters and digits, between them `.`, `_`, `__` or any number of `-`.
fn component(part: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut words = part.split(inner).filter(|separator| !separator.is_empty());
    part.starts_with(inner)
        && part.ends_with(inner)
        && words.all(|word| matches!(word, "." | "_" | "__") || word.bytes().all(|byte| byte == b'-'))
}

fn valid_tag(tag: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.len() <= 128 && tag.starts_with(word) && tag.chars().all(|c| word(c) || matches!(c, '.' | '-'))
}

fn valid_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let known = match algorithm {
        "sha256" => hex.len() == 64,
        "sha512" => hex.len() == 128,
        _ => hex.len() >= 32,
    };
    let separator = |c: char| matches!(c, '+' | '.' | '-' | '_');
    known
        && algorithm.split(separator).all(|part| part.starts_with(|c: char| c.is_ascii_alphabetic()))
        && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_parsed_as_runtimes_do() {
        let sha = format!("sha256:{}", "0a".repeat(32));
        let good = [
            "nginx",
            "nginx:1.27",
            "library/nginx",
            "docker.io/istio/proxyv2:1.28.0-distroless",
            "localhost/istio-iptables:0.1.0",
            "localhost:5000/a/b_c/d__e/f---g.h:v_1.2-3",
            "[::1]:5000/a",
            "Registry/a",
            "gcr.io/a",
        ];
        let with_digest = ["nginx@", "gcr.io/a/b:tag@"].map(|name| format!("{name}{sha}"));
        for text in good.into_iter().chain(with_digest.iter().map(String::as_str)) {
            assert!(reference(text), "{text}");
        }
        let long = format!("a:{}", "t".repeat(129));
        for text in [
            "<no value>",
            "/proxyv2",
            "/proxyv2:1",
            "docker.io/istio/:1",
            "proxyv2:",
            "docker.io/istio/proxyv2:",
            "docker.io/Istio/proxyv2",
            "Nginx",
            "https://example.com/a:1",
            "example.com/a b:1",
            "a:b:c",
            "a..b",
            "a/-b",
            "a___b",
            "a@sha256:0a",
            "a@latest",
            "example.com:/a",
            &long,
        ] {
            assert!(!reference(text), "{text}");
        }
    }
}
