//! The URL of a request: the path, which adds to the proxy's environment, and the deadline.

use std::borrow::Cow;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio::time::Instant;

use super::request_error::RequestError;

const ROOT: &str = "/inject";
const ENV_SEPARATOR: &str = ":ENV:";
/// What API servers wait if nothing is configured.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// What can be configured at most.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);

/// Environment variables of the proxy, as name and value.
pub(crate) type Variables = Vec<(String, String)>;

/// Reads `/inject/<key>/<value>/...`, or the older `/inject/:ENV:<key>=<value>...`. As in Istio, percent
/// escapes are decoded before anything else, and a slash in a value is written `--slash--`.
/// Errors: another path, escapes that are not UTF-8 or a control character, a key that cannot be the name of
/// a variable.
pub(crate) fn variables(path: &str) -> Result<Variables, RequestError> {
    let decoded = decode(path)?;
    let rest = decoded.strip_prefix(ROOT).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let Some(rest) = rest else { return Err(RequestError::Path { path: decoded }) };
    let rest = rest.strip_prefix('/').unwrap_or(rest);
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    match rest.strip_prefix(ENV_SEPARATOR) {
        Some(pairs) => {
            let pairs = pairs.split(ENV_SEPARATOR).filter_map(|pair| pair.split_once('='));
            let pairs = pairs.filter(|(key, _)| !key.is_empty());
            pairs.map(|(key, value)| Ok((name(key)?, value.to_owned()))).collect()
        }
        None => from_segments(rest),
    }
}

fn from_segments(rest: &str) -> Result<Variables, RequestError> {
    let mut segments = rest.split('/');
    let mut variables = Vec::new();
    // As in Istio, a key without a value, and a value without a key, are ignored.
    while let (Some(key), Some(value)) = (segments.next(), segments.next()) {
        if !key.is_empty() {
            variables.push((name(key)?, value.replace("--slash--", "/")));
        }
    }
    Ok(variables)
}

/// What Kubernetes accepts as the name of a variable in every version.
fn name(key: &str) -> Result<String, RequestError> {
    let first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let any = |byte: u8| first(byte) || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    if !key.bytes().next().is_some_and(first) || !key.bytes().all(any) {
        return Err(RequestError::Variable {
            key: key.to_owned(),
            problem: "cannot be the name of a variable",
        });
    }
    Ok(match key {
        "cluster" => "ISTIO_META_CLUSTER_ID".to_owned(),
        "net" => "ISTIO_META_NETWORK".to_owned(),
        other => other.to_ascii_uppercase(),
    })
}

/// Decodes percent escapes.
fn decode(path: &str) -> Result<String, RequestError> {
    let hexadecimal = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let escaped = path.split('%').skip(1).all(|after| after.get(..2).is_some_and(hexadecimal));
    let text = percent_decode_str(path).decode_utf8().ok();
    let text = text.filter(|text| escaped && !text.contains(char::is_control));
    text.map(Cow::into_owned).ok_or_else(|| RequestError::Escape { path: path.to_owned() })
}

/// The deadline of a request that arrived now, from the query: `timeout=5s`.
/// Errors: a timeout that is not a positive duration.
pub(super) fn deadline(query: &str, now: Instant) -> Result<Instant, RequestError> {
    let given = query.split('&').find_map(|pair| pair.strip_prefix("timeout="));
    let Some(given) = given else { return Ok(now + DEFAULT_TIMEOUT) };
    let timeout = goduration::parse(given).and_then(|nanoseconds| u64::try_from(nanoseconds).ok());
    match timeout.map(Duration::from_nanos) {
        Some(timeout) if !timeout.is_zero() => Ok(now + timeout.min(MAX_TIMEOUT)),
        _ => Err(RequestError::Timeout { given: given.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str) -> String {
        match variables(path) {
            Ok(variables) => variables.iter().map(|(key, value)| format!("{key}={value};")).collect(),
            Err(error) => format!("{} {}", error.reason().status(), error.reason().slug()),
        }
    }

    #[test]
    fn paths_become_variables() {
        for (path, expected) in [
            ("/inject", ""),
            ("/inject/", ""),
            ("/inject/cluster/c1", "ISTIO_META_CLUSTER_ID=c1;"),
            ("/inject/cluster/c1/net/n1/", "ISTIO_META_CLUSTER_ID=c1;ISTIO_META_NETWORK=n1;"),
            ("/inject/rootpage/--slash--a--slash--b", "ROOTPAGE=/a/b;"),
            ("/inject/my_Key/a%20b", "MY_KEY=a b;"),
            ("/inject/:ENV:net=n1:ENV:root=/a/b", "ISTIO_META_NETWORK=n1;ROOT=/a/b;"),
            ("/inject/a//b/c", "A=;B=c;"),
            ("/inject/cluster", ""),
            ("/inject/cluster/c1/net", "ISTIO_META_CLUSTER_ID=c1;"),
            ("/inject/1a/b", "400 environment"),
            ("/inject/a=b/c", "400 environment"),
            ("/inject//a/b/c", "B=c;"),
            ("/inject/k%C3%A9/a", "400 environment"),
            ("/inject/:ENV:net:ENV:a=b", "A=b;"),
            ("/inject/:ENV:=x", ""),
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

    #[test]
    fn deadlines_from_the_query() {
        let now = Instant::now();
        let timeout = |query: &str| deadline(query, now).map(|deadline| (deadline - now).as_millis());
        for (query, expected) in [
            ("", 10_000),
            ("timeout=5s", 5_000),
            ("a=b&timeout=1.5s", 1_500),
            ("timeout=500ms&x", 500),
            ("timeout=1h", 30_000),
            ("xtimeout=1s", 10_000),
        ] {
            assert_eq!(timeout(query), Ok(expected), "{query}");
        }
        for bad in ["timeout=", "timeout=5", "timeout=-5s", "timeout=0s", "timeout=soon"] {
            assert!(timeout(bad).is_err(), "{bad}");
        }
    }
}
