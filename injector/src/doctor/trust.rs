//! Whether the API server trusts what the injector serves.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, RootCertStore};
use serde_json::Value;

use super::cluster::{Cluster, list, name, text, title};
use super::hooks::{Installation, ServiceRef};
use super::serving::Backend;
use super::{Context, Diagnosis, Finding, Problem};
use crate::certs::serving_cert;

type Chain = Vec<CertificateDer<'static>>;

/// The fields of a certificate.
struct Facts {
    not_before: SystemTime,
    not_after: SystemTime,
    names: Vec<String>,
    dates: String,
}

pub(super) fn examine(context: &mut Context<'_>, installation: &Installation<'_>, backend: &Backend<'_>) {
    let (cluster, now, diagnosis) = (context.cluster, context.options.now, &mut context.diagnosis);
    let bundle = bundle(installation, diagnosis);
    let Some(called) = installation.service else {
        return;
    };
    let Some((secret, chain)) = served(cluster, called, backend) else {
        return unknown(context, called, bundle.as_ref(), installation);
    };
    let Some(facts) = chain.first().and_then(facts) else {
        return;
    };
    dates(installation, &title(secret), &facts, now, diagnosis);
    let host = called.host();
    if !facts.names.iter().any(|name| covers(name, &host)) {
        diagnosis.found(Finding {
            problem: Problem::CertificateNames,
            object: title(secret),
            seen: format!("the certificate is for {}", if facts.names.is_empty() { "no name".to_owned() } else { facts.names.join(", ") }),
            cause: format!("the API server calls {host} and rejects a certificate for another name (x509: certificate is valid for ..., not ...)"),
            fix: again(installation, secret),
        });
    }
    let Some(bundle) = bundle else { return };
    if !verifies(&bundle, &chain, &facts, &host) {
        return mismatch(installation, &title(secret), diagnosis);
    }
    // As in Go, a CA outside of its own validity is not trusted.
    let valid = bundle
        .into_iter()
        .filter(|der| self::facts(der).is_some_and(|ca| (ca.not_before..=ca.not_after).contains(&now)));
    if now <= facts.not_after && !verifies(&valid.collect(), &chain, &facts, &host) {
        diagnosis.found(Finding {
            problem: Problem::CertificateExpired,
            object: installation.title(),
            seen: "the CA in its caBundle that verifies the certificate is not valid now".to_owned(),
            cause: "the API server trusts no CA that has expired: every call fails".to_owned(),
            fix: again(installation, secret),
        });
    }
}

/// The command after which there is a new certificate.
fn again(installation: &Installation<'_>, secret: &Value) -> String {
    let namespace = text(secret, "/metadata/namespace");
    format!("kubectl -n {namespace} delete secret {} && {}", name(secret), installation.restart())
}

fn mismatch(installation: &Installation<'_>, whose: &str, diagnosis: &mut Diagnosis) {
    let annotations = installation.configuration.pointer("/metadata/annotations");
    let injected = annotations.is_some_and(|all| all.get("cert-manager.io/inject-ca-from").is_some());
    diagnosis.found(Finding {
        problem: Problem::CaMismatch,
        object: installation.title(),
        seen: format!("its caBundle does not verify the certificate of {whose}"),
        cause: "every call fails (x509: certificate signed by unknown authority): the caBundle is an old one, or that of another \
                writer, such as an istiod of the same revision"
            .to_owned(),
        fix: if injected {
            "kubectl -n cert-manager rollout restart deployment cert-manager-cainjector".to_owned()
        } else {
            installation.restart()
        },
    });
}

/// The certificates that the API server trusts: every webhook must have some.
fn bundle(installation: &Installation<'_>, diagnosis: &mut Diagnosis) -> Option<Chain> {
    let mut bundle = Vec::new();
    for webhook in &installation.webhooks {
        let encoded = text(webhook, "/clientConfig/caBundle");
        let finding = |problem: Problem, seen: String, cause: &str| Finding {
            problem,
            object: installation.title(),
            seen,
            cause: cause.to_owned(),
            fix: installation.restart(),
        };
        if encoded.is_empty() {
            diagnosis.found(finding(
                Problem::CaEmpty,
                "its caBundle is empty".to_owned(),
                "the API server trusts no certificate of the injector: every call fails (x509: certificate signed by unknown \
                 authority); the injector writes the caBundle when it starts, and something may have wiped it since",
            ));
            return None;
        }
        let decoded = STANDARD.decode(encoded).ok();
        let chain =
            decoded.as_deref().and_then(pem).filter(|chain| chain.iter().all(|der| facts(der).is_some()));
        let Some(chain) = chain else {
            let start: String = encoded.chars().take(24).collect();
            diagnosis.found(finding(
                Problem::CaUnreadable,
                format!("its caBundle is not base64 of PEM certificates: {start}..."),
                "the API server trusts no CA: every call fails",
            ));
            return None;
        };
        bundle.extend(chain.into_iter().filter(|der| !bundle.contains(der)).collect::<Vec<_>>());
    }
    Some(bundle)
}

/// The certificate that is served: of the Secret that is mounted, that the injector makes, or that fits.
fn served<'a>(
    cluster: &Cluster<'a>,
    called: ServiceRef<'_>,
    backend: &Backend<'_>,
) -> Option<(&'a Value, Chain)> {
    let mounted = backend.pod.map(|pod| list(pod, "/spec/volumes")).unwrap_or_default();
    let mounted = mounted.iter().map(|volume| text(volume, "/secret/secretName").to_owned());
    let made = format!("{}-tls", called.name);
    let read = |secret: &'a Value| {
        let decoded = STANDARD.decode(text(secret, "/data/tls.crt")).ok()?;
        Some((secret, pem(&decoded)?))
    };
    let by_name = mounted.chain([made]).filter(|name| !name.is_empty());
    let mut named = by_name.filter_map(|name| cluster.find("Secret", called.namespace, &name).and_then(read));
    named.next().or_else(|| {
        let mut fitting = cluster.within("Secret", called.namespace).filter_map(read);
        fitting.find(|(_, chain)| {
            let facts = chain.first().and_then(facts);
            facts.is_some_and(|facts| facts.names.iter().any(|name| covers(name, &called.host())))
        })
    })
}

/// Without the certificate: an istiod's root is also in a ConfigMap, and a bundle that has expired cannot be
/// right.
fn unknown(
    context: &mut Context<'_>,
    called: ServiceRef<'_>,
    bundle: Option<&Chain>,
    installation: &Installation<'_>,
) {
    let root = context.cluster.find("ConfigMap", called.namespace, "istio-ca-root-cert");
    let root = root.filter(|_| called.name.starts_with("istiod"));
    let roots = root.and_then(|map| pem(text(map, "/data/root-cert.pem").as_bytes()));
    match (bundle, roots) {
        (Some(bundle), Some(roots)) if !roots.iter().any(|root| bundle.contains(root)) => {
            mismatch(installation, &root.map(title).unwrap_or_default(), &mut context.diagnosis);
        }
        (_, Some(_)) => {}
        (_, None) => {
            // A list that was read has an object, or is an empty list.
            let is_read = context.options.read.is_none() || context.cluster.knows("Secret");
            let why = if is_read {
                format!("no Secret in {} with it among the objects", called.namespace)
            } else {
                format!("the Secrets in {} cannot be read", called.namespace)
            };
            context.diagnosis.not_checked(format!("the certificate that is served: {why}"));
        }
    }
}

fn dates(
    installation: &Installation<'_>,
    whose: &str,
    facts: &Facts,
    now: SystemTime,
    diagnosis: &mut Diagnosis,
) {
    let life = facts.not_after.duration_since(facts.not_before).unwrap_or(Duration::ZERO);
    let left = facts.not_after.duration_since(now).ok();
    let (problem, cause) = match left {
        Some(_) if now < facts.not_before => (
            Problem::CertificateExpired,
            "the API server rejects a certificate that is not valid yet: compare the clocks",
        ),
        None => (
            Problem::CertificateExpired,
            "the API server rejects it (x509: certificate has expired): it was not renewed, or not reloaded",
        ),
        // Every renewal happens long before.
        Some(left) if left < life / 10 => {
            (Problem::CertificateExpiring, "less than a tenth of its life is left, and it was not renewed")
        }
        Some(_) => return,
    };
    diagnosis.found(Finding {
        problem,
        object: whose.to_owned(),
        seen: format!("the certificate is valid {}", facts.dates),
        cause: cause.to_owned(),
        fix: installation.restart(),
    });
}

fn pem(bytes: &[u8]) -> Option<Chain> {
    let chain: Chain = CertificateDer::pem_slice_iter(bytes).collect::<Result<_, _>>().ok()?;
    (!chain.is_empty()).then_some(chain)
}

fn facts(der: &CertificateDer<'_>) -> Option<Facts> {
    let (_, parsed) = x509_parser::parse_x509_certificate(der).ok()?;
    let validity = parsed.validity();
    Some(Facts {
        not_before: serving_cert::instant(validity.not_before.timestamp()),
        not_after: serving_cert::instant(validity.not_after.timestamp()),
        names: serving_cert::names(&parsed),
        dates: format!("from {} to {}", validity.not_before, validity.not_after),
    })
}

/// Whether a name in a certificate matches a host; `*` matches its first label.
fn covers(name: &str, host: &str) -> bool {
    let wild = name.strip_prefix("*.").zip(host.split_once('.'));
    name.eq_ignore_ascii_case(host)
        || wild.is_some_and(|(rest, (_, domain))| rest.eq_ignore_ascii_case(domain))
}

/// Whether one of these signed it, or is it. Dates and names are checked elsewhere.
fn verifies(bundle: &Chain, chain: &Chain, facts: &Facts, host: &str) -> bool {
    let Some((leaf, between)) = chain.split_first() else {
        return false;
    };
    if bundle.contains(leaf) {
        return true;
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(bundle.iter().cloned());
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(serving_cert::provider()))
            .build();
    let (Ok(verifier), Ok(host)) = (verifier, ServerName::try_from(host.to_owned())) else {
        return false;
    };
    let since = facts.not_before.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let at = UnixTime::since_unix_epoch(since + Duration::from_secs(1));
    match verifier.verify_server_cert(leaf, between, &host, &[], at) {
        Ok(_) => true,
        Err(rustls::Error::InvalidCertificate(problem)) => matches!(
            problem,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
        ),
        Err(_) => false,
    }
}
