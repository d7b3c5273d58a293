//! Base 64 and 32, checksums.

use super::{STR, made, text};
use crate::functions::Functions;
use crate::value::Value;
use base64::Engine as _;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

pub(crate) fn register(f: &mut Functions) {
    let changes: [(&str, super::Change); 8] = [
        ("b64enc", |s| base64::engine::general_purpose::STANDARD.encode(s)),
        ("b64dec", |s| {
            let clean: String = s.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
            match base64::engine::general_purpose::STANDARD.decode(clean) {
                Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                Err(error) => format!("illegal base64 data at input byte {}", bad_byte(&error, s.len())),
            }
        }),
        ("b32enc", base32_encode),
        ("b32dec", |s| {
            base32_decode(s).unwrap_or_else(|| {
                let bad = s.bytes().position(|b| !BASE32.contains(&b));
                format!("illegal base32 data at input byte {}", bad.unwrap_or(s.len() / 8 * 8))
            })
        }),
        ("sha1sum", |s| hex(&Sha1::digest(s.as_bytes()))),
        ("sha256sum", |s| hex(&Sha256::digest(s.as_bytes()))),
        ("sha512sum", |s| hex(&Sha512::digest(s.as_bytes()))),
        ("adler32sum", |s| adler32(s.as_bytes()).to_string()),
    ];
    for (name, change) in changes {
        f.add(name, &[STR], None, move |_, args| {
            let s = text(args, 0)?;
            // A checksum says nothing that could break out of anything, and neither do encoded bytes.
            if name.ends_with("dec") {
                made(change(s.as_str()), s)
            } else {
                Ok(Value::string(change(s.as_str())))
            }
        });
    }
}

/// Where decoding stopped.
const fn bad_byte(error: &base64::DecodeError, length: usize) -> usize {
    match error {
        base64::DecodeError::InvalidByte(at, _) => *at,
        base64::DecodeError::InvalidLastSymbol { offset, .. } => *offset,
        base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => length / 4 * 4,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn adler32(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1_u32, 0_u32), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (a + b) % 65_521)
    });
    (b << 16) | a
}

fn base32_encode(s: &str) -> String {
    let mut out = String::new();
    for chunk in s.as_bytes().chunks(5) {
        let mut block = [0; 5];
        for (to, from) in block.iter_mut().zip(chunk) {
            *to = *from;
        }
        let bits = block.iter().fold(0_u64, |bits, byte| (bits << 8) | u64::from(*byte));
        let used = (chunk.len() * 8).div_ceil(5);
        for i in 0..8 {
            let index = usize::try_from((bits >> (35 - 5 * i)) & 31).unwrap_or_default();
            out.push(if i < used { BASE32.get(index).copied().map_or('=', char::from) } else { '=' });
        }
    }
    out
}

fn base32_decode(s: &str) -> Option<String> {
    let clean: Vec<u8> = s.bytes().filter(|b| !matches!(b, b'\r' | b'\n')).collect();
    if !clean.len().is_multiple_of(8) {
        return None;
    }
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u64, 0);
    let end = clean.iter().position(|b| *b == b'=').unwrap_or(clean.len());
    let (digits, padding) = clean.split_at_checked(end)?;
    if padding.iter().any(|b| *b != b'=') || matches!(padding.len(), 2 | 5 | 7 | 8..) {
        return None;
    }
    for digit in digits {
        let value = BASE32.iter().position(|b| b == digit)?;
        bits = ((bits << 5) | u64::try_from(value).ok()?) & 0xffff;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 0xff).ok()?);
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
