//! The program under load: a process of its own with certificates and files of its own.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;

use crate::Options;
use crate::client::Client;

/// A running webhook.
pub(crate) struct Server {
    child: Child,
    /// Where reviews go.
    pub(crate) address: SocketAddr,
    /// How clients trust it.
    pub(crate) tls: Arc<ClientConfig>,
    folder: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

/// Files that are watched.
#[derive(Clone, Copy)]
pub(crate) enum Watched {
    /// Only the certificate.
    Certificate,
    /// The config too.
    Config,
}

impl Server {
    /// Starts it and waits until it responds.
    pub(crate) fn start(options: &Options, watched: Watched) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().map_err(|error| error.to_string())?;
        let authority = CertifiedIssuer::self_signed(params, key).map_err(|error| error.to_string())?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(authority.der().to_vec())).map_err(|error| error.to_string())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (address, monitoring) = (free_address()?, free_address()?);
        let mut command = Command::new(&options.bin);
        command.args(["webhook", "--log-level=error", "--drain-delay=0"]).args(&options.server_args);
        command.arg(format!("--https-addr={address}")).arg(format!("--monitoring-addr={monitoring}"));
        let path = |name: &str| folder.path().join(name);
        command.arg("--tls-cert").arg(path("tls.crt")).arg("--tls-key").arg(path("tls.key"));
        if matches!(watched, Watched::Config) {
            std::fs::write(path("config.yaml"), sidecar_injector::config::BUILTIN_CONFIG)
                .map_err(|error| error.to_string())?;
            command.arg("--inject-config").arg(path("config.yaml"));
        }
        issue(&authority, folder.path())?;
        let child = command.stdout(Stdio::null()).stdin(Stdio::null()).spawn();
        let child = child.map_err(|error| format!("{}: {error}", options.bin.display()))?;
        let mut server = Self { child, address, tls: Arc::new(tls), folder, authority };
        server.wait()?;
        Ok(server)
    }

    fn wait(&mut self) -> Result<(), String> {
        let limit = Instant::now() + Duration::from_secs(10);
        loop {
            let asked = Client::connect(self.address, &self.tls)
                .and_then(|mut client| client.ask(&crate::reviews::good()));
            match asked {
                Ok(response) if response.status == 200 => return Ok(()),
                Ok(response) => {
                    return Err(format!("the response to the first review was {}", response.status));
                }
                Err(error) if Instant::now() > limit => return Err(format!("it does not respond: {error}")),
                Err(_) => {}
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("it ended: {status}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Puts another certificate in place.
    pub(crate) fn rotate(&self) -> Result<(), String> {
        issue(&self.authority, self.folder.path())
    }

    /// Puts another config in place.
    pub(crate) fn configure(&self, text: &str) -> Result<(), String> {
        std::fs::write(self.config(), text).map_err(|error| error.to_string())
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("config.yaml")
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Resident memory now and at its peak, in KiB.
    pub(crate) fn memory(&self) -> (u64, u64) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        (field("VmRSS:").unwrap_or(0), field("VmHWM:").unwrap_or(0))
    }

    /// Processor time it has used so far.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks: u64 =
            after_name.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 10) // 100 ticks a second, on every Linux that Rust runs on
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A new key and certificate, written beside the old and renamed over them: key first, then the certificate.
fn issue(authority: &CertifiedIssuer<'static, KeyPair>, folder: &Path) -> Result<(), String> {
    let names = vec!["localhost".to_owned()];
    let key = KeyPair::generate().map_err(|error| error.to_string())?;
    let params = CertificateParams::new(names).map_err(|error| error.to_string())?;
    let leaf = params.signed_by(&key, authority).map_err(|error| error.to_string())?;
    for (name, text) in [("tls.key", key.serialize_pem()), ("tls.crt", leaf.pem())] {
        let new = folder.join(format!("{name}.new"));
        std::fs::write(&new, text).map_err(|error| error.to_string())?;
        std::fs::rename(&new, folder.join(name)).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// A free address: bound, and released.
fn free_address() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    listener.local_addr().map_err(|error| error.to_string())
}
