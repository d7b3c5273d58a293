//! How much of a request is looked at. A value of a pod takes up to 1.5 KB while the pod is injected, and two in a request.

/// What a uid may have, in bytes: it goes back with each answer. Kubernetes' have 36.
pub const LONGEST_UID: usize = 256;

/// The most values that a pod may have: maps, lists and what is in them. A pod that etcd can keep has fewer.
pub const MOST_VALUES: usize = 50_000;

/// Whether a text, as JSON, has more values than a pod may have. They are told by what separates them.
#[must_use]
pub fn has_too_many_values(json: &str) -> bool {
    // Each takes two bytes at least, with its separator.
    json.len() >= 2 * MOST_VALUES && values(json) > MOST_VALUES
}

fn values(json: &str) -> usize {
    let (mut values, mut quoted, mut escaped) = (1, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            b',' | b'[' | b'{' if !quoted => values += 1,
            _ => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_separates_nothing() {
        for (json, expected) in
            [("7", 1), ("[1,2]", 3), (r#"{"a":{"b":[1,{"c":2}]},"d":3}"#, 7), (r#"["a,b","\"[,","\\",1]"#, 5)]
        {
            assert_eq!(values(json), expected, "{json}");
        }
    }

    #[test]
    fn the_last_that_is_not_too_many() {
        let pod = |values: usize| format!("[{}1]", "1,".repeat(values - 2));
        assert!(!has_too_many_values(&pod(MOST_VALUES)));
        assert!(has_too_many_values(&pod(MOST_VALUES + 1)));
    }
}
