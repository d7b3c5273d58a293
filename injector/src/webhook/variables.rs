//! The path of the URL: what it adds to the proxy's environment.

use super::fault::Fault;

const ROOT: &str = "/inject";
const OLD_MARK: &str = ":ENV:";

/// Environment variables of the proxy, as name and value.
pub type Variables = Vec<(String, String)>;

/// Reads `/inject/<key>/<value>/...`, or the older `/inject/:ENV:<key>=<value>...`. As in Istio the escapes of the URL
/// are undone before anything else, and a slash in a value is written `--slash--`.
///
/// # Errors
///
/// Another path, escapes that are no text or a control character, a key without a value, a key that cannot be the name of
/// a variable.
pub fn parse(path: &str) -> Result<Variables, Fault> {
    let decoded = decode(path)?;
    let rest = match decoded.strip_prefix(ROOT) {
        Some("") => return Ok(Vec::new()),
        Some(rest) => rest.strip_prefix('/'),
        None => None,
    };
    let Some(rest) = rest else {
        return Err(Fault::Path { path: decoded });
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.is_empty() {
        return Ok(Vec::new());
    }
    match rest.strip_prefix(OLD_MARK) {
        Some(pairs) => pairs.split(OLD_MARK).map(of_pair).collect(),
        None => of_parts(rest),
    }
}

fn of_parts(rest: &str) -> Result<Variables, Fault> {
    let mut parts = rest.split('/');
    let mut all = Vec::new();
    while let Some(key) = parts.next() {
        let Some(value) = parts.next() else {
            return Err(Fault::Variable { key: key.to_owned(), problem: "has no value" });
        };
        all.push((name(key)?, value.replace("--slash--", "/")));
    }
    Ok(all)
}

fn of_pair(pair: &str) -> Result<(String, String), Fault> {
    match pair.split_once('=') {
        Some((key, value)) => Ok((name(key)?, value.to_owned())),
        None => Err(Fault::Variable { key: pair.to_owned(), problem: "has no value" }),
    }
}

/// What Kubernetes takes for the name of a variable in every version.
fn name(key: &str) -> Result<String, Fault> {
    let first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let any = |byte: u8| first(byte) || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    if !key.bytes().next().is_some_and(first) || !key.bytes().all(any) {
        return Err(Fault::Variable { key: key.to_owned(), problem: "cannot be the name of a variable" });
    }
    Ok(match key {
        "cluster" => "ISTIO_META_CLUSTER_ID".to_owned(),
        "net" => "ISTIO_META_NETWORK".to_owned(),
        other => other.to_ascii_uppercase(),
    })
}

/// Undoes percent encoding. Control characters have no business in a variable.
fn decode(path: &str) -> Result<String, Fault> {
    let bad = || Fault::Escape { path: path.to_owned() };
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit().ok_or_else(bad)?, digit().ok_or_else(bad)?);
        bytes.push(u8::try_from(high << 4 | low).map_err(|_| bad())?);
    }
    let text = String::from_utf8(bytes).map_err(|_| bad())?;
    if text.contains(char::is_control) { Err(bad()) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> String {
        match parse(path) {
            Ok(all) => all.iter().map(|(key, value)| format!("{key}={value};")).collect(),
            Err(fault) => format!("{} {}", fault.status(), fault.slug()),
        }
    }

    #[test]
    fn paths_and_what_they_say() {
        for (path, expected) in [
            ("/inject", ""),
            ("/inject/", ""),
            ("/inject/cluster/c1", "ISTIO_META_CLUSTER_ID=c1;"),
            ("/inject/cluster/c1/net/n1/", "ISTIO_META_CLUSTER_ID=c1;ISTIO_META_NETWORK=n1;"),
            ("/inject/rootpage/--slash--a--slash--b", "ROOTPAGE=/a/b;"),
            ("/inject/my_Key/a%20b", "MY_KEY=a b;"),
            ("/inject/:ENV:net=n1:ENV:root=/a/b", "ISTIO_META_NETWORK=n1;ROOT=/a/b;"),
            ("/inject/a//b/c", "A=;B=c;"),
            ("/inject/cluster", "400 environment"),
            ("/inject/cluster/c1/net", "400 environment"),
            ("/inject/1a/b", "400 environment"),
            ("/inject/a=b/c", "400 environment"),
            ("/inject//a", "400 environment"),
            ("/inject/k%C3%A9/a", "400 environment"),
            ("/inject/:ENV:net", "400 environment"),
            ("/inject/:ENV:=x", "400 environment"),
            ("/inject/a/%", "400 escape"),
            ("/inject/a/%g0", "400 escape"),
            ("/inject/a/%ff", "400 escape"),
            ("/inject/net/%00", "400 escape"),
            ("/inject/net/a%0Ab", "400 escape"),
            ("/inject/%7f", "400 escape"),
            ("/inject/:ENV:a=%1b[0m", "400 escape"),
            ("/injected", "404 path"),
            ("/", "404 path"),
            ("", "404 path"),
            ("inject", "404 path"),
        ] {
            assert_eq!(read(path), expected, "{path}");
        }
    }
}
