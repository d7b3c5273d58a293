//! A bundle as the data of a Secret.
//!
//! `tls.crt` and `tls.key` are the leaf, as type `kubernetes.io/tls` requires; `ca.crt` is everything that
//! callers must trust, where cert-manager's CA injector and people look for it: first the CA that signs, then
//! the announced one, then older ones. `ca.key` and `next-ca.key` belong to the first two.

use std::collections::BTreeMap;

use super::{Bundle, IssuedCert, Names, verify};
use crate::certs::CertError;

const END: &str = "-----END CERTIFICATE-----";

impl Bundle {
    /// The data of a Secret of type `kubernetes.io/tls`.
    #[must_use]
    pub fn to_secret_data(&self) -> BTreeMap<String, Vec<u8>> {
        let mut data = vec![
            ("tls.crt", self.leaf.cert.clone()),
            ("tls.key", self.leaf.key.clone()),
            ("ca.crt", self.trusted_pem()),
            ("ca.key", self.ca.key.clone()),
        ];
        data.extend(self.next.as_ref().map(|next| ("next-ca.key", next.key.clone())));
        data.into_iter().map(|(key, text)| (key.to_owned(), text.into_bytes())).collect()
    }

    /// Reads the data of a Secret. What has expired, or is for other names, is read all the same: it is
    /// renewed.
    ///
    /// # Errors
    ///
    /// The key that is missing, damaged, or does not belong to the others.
    pub fn from_secret_data(names: &Names, data: &BTreeMap<String, Vec<u8>>) -> Result<Self, CertError> {
        let trusted = text(data, "ca.crt")?;
        let mut certs = trusted.split_inclusive(END).map(|pem| format!("{}\n", pem.trim()));
        let mut certs = certs.by_ref().filter(|pem| pem.ends_with(&format!("{END}\n")));
        let ca = IssuedCert::parse(
            ("ca.crt", "ca.key"),
            &certs.next().unwrap_or_default(),
            text(data, "ca.key")?,
        )?;
        let next = match data.contains_key("next-ca.key") {
            true => Some(IssuedCert::parse(
                ("second certificate of ca.crt", "next-ca.key"),
                &certs.next().unwrap_or_default(),
                text(data, "next-ca.key")?,
            )?),
            false => None,
        };
        let previous = Some(certs.collect::<String>()).filter(|pem| !pem.is_empty());
        let leaf = IssuedCert::parse(("tls.crt", "tls.key"), text(data, "tls.crt")?, text(data, "tls.key")?)?;
        let bundle = Self { names: names.clone(), ca, next, previous, leaf };
        bundle.check()?;
        Ok(bundle)
    }

    /// The leaf is the CA's, whatever the time and whomever it is for; and all that is trusted can be read.
    fn check(&self) -> Result<(), CertError> {
        let Some(name) = self.leaf.names.first() else {
            let problem = "is for no host name".to_owned();
            return Err(CertError { subject: "tls.crt".to_owned(), problem });
        };
        let at = self.leaf.not_before.max(self.ca.not_before);
        verify(&self.leaf.cert, &self.ca.cert, name, at)?;
        verify(&self.leaf.cert, &self.trusted_pem(), name, at)
    }
}

fn text<'a>(data: &'a BTreeMap<String, Vec<u8>>, key: &str) -> Result<&'a str, CertError> {
    let bad = |problem: &str| CertError { subject: key.to_owned(), problem: problem.to_owned() };
    let bytes = data.get(key).ok_or_else(|| bad("is missing"))?;
    std::str::from_utf8(bytes).map_err(|_| bad("is not text; expected PEM"))
}
