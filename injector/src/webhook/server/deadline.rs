//! Until when somebody waits for an answer.

use std::time::Duration;

use tokio::time::Instant;

/// What API servers wait if nothing is configured.
const DEFAULT: Duration = Duration::from_secs(10);
/// What can be configured at most, and what we wait for at most.
const LONGEST: Duration = Duration::from_secs(30);

/// The deadline of a request that came now, from the query of its URL: `timeout=5s`.
///
/// # Errors
///
/// What is accepted, if there is something else.
pub(super) fn of(query: &str, now: Instant) -> Result<Instant, String> {
    let given = query.split('&').find_map(|pair| pair.strip_prefix("timeout="));
    let Some(text) = given else { return Ok(now + DEFAULT) };
    let wait = goduration::parse(text).and_then(|nanoseconds| u64::try_from(nanoseconds).ok());
    match wait.map(Duration::from_nanos) {
        Some(wait) if !wait.is_zero() => Ok(now + wait.min(LONGEST)),
        _ => Err("timeout: expected a positive duration such as 5s or 500ms\n".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let now = Instant::now();
        let wait = |query: &str| of(query, now).map(|deadline| (deadline - now).as_millis());
        for (query, expected) in [
            ("", 10_000),
            ("timeout=5s", 5_000),
            ("a=b&timeout=1.5s", 1_500),
            ("timeout=500ms&x", 500),
            ("timeout=1h", 30_000),
            ("xtimeout=1s", 10_000),
        ] {
            assert_eq!(wait(query), Ok(expected), "{query}");
        }
        for bad in ["timeout=", "timeout=5", "timeout=-5s", "timeout=0s", "timeout=soon"] {
            assert!(wait(bad).is_err(), "{bad}");
        }
    }
}
