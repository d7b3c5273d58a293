//! References of container images.

use std::str::FromStr;
use std::sync::LazyLock;

use regex_lite::Regex;

/// A reference to an image, as container runtimes read it. A value that exists is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image(String);

impl Image {
    /// The reference.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text that is not a reference to an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{given:?} is not accepted, expected [HOST[:PORT]/]PATH[:TAG][@sha256:DIGEST] with a path of a-z, 0-9, ., _, - and /"
)]
pub struct ImageError {
    given: String,
}

/// The longest host and path.
const LONGEST: usize = 255;

/// The grammar of distribution's references, which all container runtimes follow. Digests are those that are
/// registered.
static GRAMMAR: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let host = r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\])";
    let part = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*";
    let tag = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}";
    let digest = "(?:sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128})";
    Regex::new(&format!(r"\A((?:{host}(?::[0-9]+)?/)?{part}(?:/{part})*)(?::{tag})?(?:@{digest})?\z")).ok()
});

impl FromStr for Image {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Self, ImageError> {
        let found = GRAMMAR.as_ref().and_then(|grammar| grammar.captures(text));
        // 64 digits alone are an image's identity on one machine, and no name.
        let identity = text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        match found.and_then(|found| found.get(1)) {
            Some(name) if name.as_str().len() <= LONGEST && !identity => Ok(Self(text.to_owned())),
            _ => Err(ImageError { given: text.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_of_all_forms() {
        let digest = format!("example.com/a/b@sha256:{}", "0".repeat(64));
        let both = format!("b:1@sha512:{}", "f".repeat(128));
        let long_tag = format!("b:{}", "t".repeat(128));
        for good in [
            "a",
            "busybox:1.36",
            "localhost/i:0.1.0",
            "example.com/team/injector:v1.2.3-rc_1",
            "example.com:5000/i",
            "[::1]:5000/i:x",
            "10.0.0.1:5000/i",
            "a__b/c--d/e.f_g",
            "Example.com/i",
            "a:Tag",
            &digest,
            &both,
            &long_tag,
        ] {
            assert_eq!(good.parse::<Image>().map(|image| image.as_str().to_owned()), Ok(good.to_owned()));
        }
    }

    #[test]
    fn everything_else_is_reported() {
        let short = format!("a@sha256:{}", "0".repeat(63));
        let upper = format!("a@sha256:{}", "A".repeat(64));
        let long = format!("{}/a", "a".repeat(254));
        let long_tag = format!("b:{}", "t".repeat(129));
        let identity = "0".repeat(64);
        for bad in [
            "",
            " ",
            "a b",
            "x\ny",
            "a\n",
            "\ta",
            "a:",
            "a@",
            "a@sha256:",
            "a:b:c",
            "/a",
            "a/",
            "a//b",
            "-a",
            "a-",
            "a..b",
            "a___b",
            "A",
            "example.com/A",
            "https://example.com/a",
            "a:-b",
            "a\u{7f}",
            "\u{e4}",
            "${IMAGE}",
            "a@md5:00",
            "example.com:x/a",
            &short,
            &upper,
            &long,
            &long_tag,
            &identity,
        ] {
            let error = bad.parse::<Image>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{bad:?} is not accepted, expected [HOST")), "{error}");
        }
    }
}
