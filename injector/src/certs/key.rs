//! Errors of private keys: the type of the key, and the accepted ones.

use rustls::pki_types::PrivateKeyDer;
use x509_parser::asn1_rs::{Any, FromDer as _, Integer, OctetString, Oid, Sequence};
use x509_parser::x509::AlgorithmIdentifier;

/// The keys that the crypto provider supports.
const ACCEPTED: &str =
    "RSA of 2048, 3072 or 4096 bits with exponent 65537, ECDSA on P-256 or P-384, or Ed25519";

/// The error of a text that is not a PEM key; `problem` is that of the parser.
pub(super) fn unreadable(pem: &[u8], problem: &str) -> String {
    let text = String::from_utf8_lossy(pem);
    if text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED") {
        return format!(
            "the key is encrypted, expected one without a passphrase (openssl pkey -in encrypted.key -out tls.key): {ACCEPTED}"
        );
    }
    format!("expected a private key in PEM (PKCS#8, PKCS#1 or SEC1), {ACCEPTED}: {problem}")
}

/// The error of a key that is parsed but not supported.
pub(super) fn unusable(key: &PrivateKeyDer<'_>) -> String {
    let what = match key {
        PrivateKeyDer::Pkcs1(der) => rsa(der.secret_pkcs1_der()),
        PrivateKeyDer::Pkcs8(der) => pkcs8(der.secret_pkcs8_der()),
        PrivateKeyDer::Sec1(der) => sec1(der.secret_sec1_der()),
        _ => None,
    };
    let what = what.unwrap_or_else(|| "a key that cannot be read".to_owned());
    format!("it is {what}, which is not supported: expected {ACCEPTED}")
}

fn rsa(der: &[u8]) -> Option<String> {
    let (_, key) = Sequence::from_der(der).ok()?;
    let (rest, _version) = Integer::from_der(&key.content).ok()?;
    let (rest, modulus) = Integer::from_der(rest).ok()?;
    let (_, exponent) = Integer::from_der(rest).ok()?;
    let bytes = modulus.as_ref();
    let zeros: u32 = bytes.iter().position(|byte| *byte != 0).map_or(0, |at| {
        u32::try_from(8 * at).unwrap_or_default() + bytes.get(at).map_or(0, |byte| byte.leading_zeros())
    });
    let bits = (8 * bytes.len()).saturating_sub(usize::try_from(zeros).ok()?);
    let exponent = exponent.as_u64().map_or_else(|_| "a large one".to_owned(), |number| number.to_string());
    Some(format!("an RSA key of {bits} bits with exponent {exponent}"))
}

fn pkcs8(der: &[u8]) -> Option<String> {
    let (_, key) = Sequence::from_der(der).ok()?;
    let (rest, _version) = Integer::from_der(&key.content).ok()?;
    let (rest, algorithm) = AlgorithmIdentifier::from_der(rest).ok()?;
    Some(match algorithm.algorithm.to_id_string().as_str() {
        "1.2.840.113549.1.1.1" => return rsa(OctetString::from_der(rest).ok()?.1.as_ref()),
        "1.2.840.113549.1.1.10" => "an RSA key for PSS only".to_owned(),
        "1.2.840.10045.2.1" => curve(algorithm.parameters?.oid().ok()?.to_id_string().as_str()),
        "1.2.840.10040.4.1" => "a DSA key".to_owned(),
        "1.3.101.112" => "an Ed25519 key that cannot be read".to_owned(),
        "1.3.101.113" => "an Ed448 key".to_owned(),
        other => format!("a key of algorithm {other}"),
    })
}

/// The curve is an optional element of the key, tagged 0.
fn sec1(der: &[u8]) -> Option<String> {
    let (_, key) = Sequence::from_der(der).ok()?;
    let (rest, _version) = Integer::from_der(&key.content).ok()?;
    let (rest, _secret) = OctetString::from_der(rest).ok()?;
    let (_, tagged) = Any::from_der(rest).ok()?;
    let (_, oid) = Oid::from_der(tagged.data).ok()?;
    Some(curve(oid.to_id_string().as_str()))
}

fn curve(oid: &str) -> String {
    let name = match oid {
        "1.2.840.10045.3.1.7" => "P-256",
        "1.3.132.0.10" => "secp256k1",
        "1.3.132.0.33" => "P-224",
        "1.3.132.0.34" => "P-384",
        "1.3.132.0.35" => "P-521",
        other => other,
    };
    format!("an ECDSA key on the curve {name}")
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use rustls::pki_types::{PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};

    use super::super::ServingCert;
    use super::*;

    fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x82], &length[..], &content].concat()
    }

    fn rsa_key(modulus: &[u8]) -> Vec<u8> {
        tlv(0x30, &[&[2, 1, 0], &tlv(2, &[modulus]), &[2, 1, 3]])
    }

    fn wrapped(algorithm: &[u8], key: &[u8]) -> PrivateKeyDer<'static> {
        let der = tlv(0x30, &[&[2, 1, 0], &tlv(0x30, &[algorithm]), &tlv(4, &[key])]);
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der))
    }

    #[test]
    fn an_unsupported_key_is_rejected_by_name() {
        const RSA: [u8; 13] = [6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0];
        const EC: [u8; 9] = [6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
        const P521: [u8; 7] = [6, 5, 0x2b, 0x81, 4, 0, 0x23];
        const ED448: [u8; 5] = [6, 3, 0x2b, 0x65, 0x71];
        let modulus = [&[0, 0x80][..], &[1; 127]].concat();
        let sec1 = tlv(0x30, &[&[2, 1, 1], &tlv(4, &[&[1; 66]]), &tlv(0xa0, &[&P521])]);
        for (key, name) in [
            (wrapped(&RSA, &rsa_key(&modulus)), "an RSA key of 1024 bits with exponent 3,"),
            (
                PrivateKeyDer::Pkcs1(PrivatePkcs1KeyDer::from(rsa_key(&modulus))),
                "an RSA key of 1024 bits with exponent 3,",
            ),
            (wrapped(&[&EC[..], &P521].concat(), &[]), "an ECDSA key on the curve P-521,"),
            (PrivateKeyDer::Sec1(PrivateSec1KeyDer::from(sec1)), "an ECDSA key on the curve P-521,"),
            (wrapped(&ED448, &[]), "an Ed448 key,"),
            (PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(vec![0x30, 1])), "a key that cannot be read,"),
        ] {
            let message = unusable(&key);
            assert!(message.contains(name) && message.contains(ACCEPTED), "{message}");
        }
    }

    #[test]
    fn an_encrypted_key_is_rejected_by_name() {
        let own = KeyPair::generate().unwrap();
        let cert =
            CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&own).unwrap().pem();
        let parse = |key: &str| ServingCert::parse("tls.crt", cert.as_bytes(), "tls.key", key.as_bytes());
        assert!(parse(&own.serialize_pem()).is_ok());
        for key in [
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n",
        ] {
            let message = parse(key).unwrap_err().to_string();
            assert!(message.starts_with("tls.key: the key is encrypted, expected one without"), "{message}");
        }
        let message = parse("nothing").unwrap_err().to_string();
        assert!(message.starts_with("tls.key: expected a private key in PEM"), "{message}");
    }
}
