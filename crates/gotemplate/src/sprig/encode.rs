//! Base 64 and 32, checksums.

use super::{STR, add_changes, text};
use crate::functions::Functions;
use crate::value::Value;
use data_encoding::{BASE32, BASE64, Encoding, HEXLOWER};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

pub(crate) fn register(f: &mut Functions) {
    add_changes(
        f,
        [("b64dec", |s| decode(&BASE64, "base64", s)), ("b32dec", |s| decode(&BASE32, "base32", s))],
    );
    // A checksum or encoded bytes cannot break out of a YAML scalar: they have no origin.
    let encodings: [(&str, super::Change); 6] = [
        ("b64enc", |s| BASE64.encode(s.as_bytes())),
        ("b32enc", |s| BASE32.encode(s.as_bytes())),
        ("sha1sum", |s| HEXLOWER.encode(&Sha1::digest(s.as_bytes()))),
        ("sha256sum", |s| HEXLOWER.encode(&Sha256::digest(s.as_bytes()))),
        ("sha512sum", |s| HEXLOWER.encode(&Sha512::digest(s.as_bytes()))),
        ("adler32sum", |s| adler32(s.as_bytes()).to_string()),
    ];
    for (name, encode) in encodings {
        f.add(name, &[STR], None, move |_, args| Ok(Value::string(encode(text(args, 0)?.as_str()))));
    }
}

/// Bits that are left over, and line breaks, do not matter, as in Go.
fn decode(encoding: &Encoding, name: &str, s: &str) -> String {
    let mut lenient = encoding.specification();
    lenient.check_trailing_bits = false;
    lenient.ignore.push_str("\r\n");
    let encoding = lenient.encoding().unwrap_or_else(|_| encoding.clone());
    match encoding.decode(s.as_bytes()) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("illegal {name} data at input byte {}", error.position),
    }
}

fn adler32(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1_u32, 0_u32), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (a + b) % 65_521)
    });
    (b << 16) | a
}
