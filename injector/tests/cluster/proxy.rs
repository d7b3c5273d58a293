//! API servers behind an HTTP proxy.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use serde_json::{Value, json};
use sidecar_injector::certs::{Bundle, Names, ServingCert, serving_cert};
use sidecar_injector::cluster::{client, fetch};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::fake::Fake;
use super::replica::{NAMESPACE, hooks};

/// No name server knows it: only the proxy leads there.
const HOST: &str = "kubernetes.default.svc";

/// A proxy that leads every CONNECT to one address.
struct Proxy {
    url: String,
    tunnels: Arc<AtomicUsize>,
    /// The header lines of the last request.
    head: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    async fn to(fake: &Fake) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let proxy = Self { url, tunnels: Arc::default(), head: Arc::default() };
        let (tunnels, head, server) = (Arc::clone(&proxy.tunnels), Arc::clone(&proxy.head), fake.address);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tunnels, head) = (Arc::clone(&tunnels), Arc::clone(&head));
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    let mut lines = Vec::new();
                    loop {
                        let mut line = String::new();
                        stream.read_line(&mut line).await.expect("a head");
                        match line.trim_end() {
                            "" => break,
                            line => lines.push(line.to_owned()),
                        }
                    }
                    *head.lock().expect("no panic") = lines;
                    tunnels.fetch_add(1, Ordering::SeqCst);
                    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.expect("written");
                    let mut server = TcpStream::connect(server).await.expect("the API server");
                    let _ = copy_bidirectional(&mut stream, &mut server).await;
                });
            }
        });
        proxy
    }

    fn tunnels(&self) -> usize {
        self.tunnels.load(Ordering::SeqCst)
    }
}

async fn behind_tls() -> Fake {
    let bundle =
        Bundle::fresh(&Names::service("kubernetes", "default"), SystemTime::now()).expect("a bundle");
    let leaf = bundle.leaf();
    let pair = ServingCert::parse("cert", leaf.cert.as_bytes(), "key", leaf.key.as_bytes()).expect("a pair");
    let tls = rustls::ServerConfig::builder_with_provider(Arc::new(serving_cert::provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from((*pair.certified).clone())));
    Fake::start_tls(tls, bundle.trusted_pem()).await
}

fn kubeconfig(fake: &Fake, proxy: Option<&str>) -> tempfile::NamedTempFile {
    let mut config: Value = serde_json::from_str(&fake.kubeconfig()).expect("JSON");
    let cluster = &mut config["clusters"][0]["cluster"];
    cluster["server"] = json!(format!("https://{HOST}:{}", fake.address.port()));
    if let Some(proxy) = proxy {
        cluster["proxy-url"] = json!(proxy);
    }
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), config.to_string()).expect("written");
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_of_the_kubeconfig_is_used() {
    let fake = behind_tls().await;
    fake.put("kubectl", hooks());
    let proxy = Proxy::to(&fake).await;
    let with_password = proxy.url.replace("http://", "http://user:secret@");
    for url in [&proxy.url, &with_password] {
        let file = kubeconfig(&fake, Some(url));
        let client = client(Some(file.path())).await.expect("a client");
        let (objects, notes) = fetch(&client, NAMESPACE).await;
        assert!(objects.iter().any(|object| object["kind"] == "MutatingWebhookConfiguration"), "{notes:?}");
    }
    assert!(proxy.tunnels() >= 2);
    let head = proxy.head.lock().expect("no panic").clone();
    assert!(head[0].starts_with(&format!("CONNECT {HOST}:")), "{head:?}");
    // user:secret
    assert!(
        head.iter().any(|line| line.to_lowercase() == "proxy-authorization: basic dxnlcjpzzwnyzxq="),
        "{head:?}"
    );
    let socks = kubeconfig(&fake, Some("socks5://user:secret@127.0.0.1:1080"));
    let error = client(Some(socks.path())).await.err().expect("an error").to_string();
    assert!(
        error.ends_with("proxy socks5://127.0.0.1:1080 is not accepted, expected http://HOST:PORT"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_count_as_for_kubernetes_own_client() {
    let fake = behind_tls().await;
    let proxy = Proxy::to(&fake).await;
    let file = kubeconfig(&fake, None);
    let run = async |variables: &[(&str, &str)], kubeconfig: &std::path::Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sidecar-injector"));
        command.env_clear().envs(variables.iter().copied());
        command.args(["manifests", "--revision", "canary", "--check", "--kubeconfig"]).arg(kubeconfig);
        let before = proxy.tunnels();
        let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic");
        let output = output.expect("the program");
        (output.status.code(), proxy.tunnels() > before, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let url = proxy.url.as_str();
    let bare = url.trim_start_matches("http://");
    for name in ["HTTPS_PROXY", "https_proxy"] {
        for value in [url, bare] {
            assert_eq!(
                run(&[(name, value)], file.path()).await,
                (Some(0), true, String::new()),
                "{name}={value}"
            );
        }
    }
    for list in ["*", HOST, ".svc", "example.com,default.svc,", "10.0.0.0/8, .SVC"] {
        let (code, used, error) = run(&[("HTTPS_PROXY", url), ("NO_PROXY", list)], file.path()).await;
        assert_eq!((code, used), (Some(69), false), "{list}: {error}");
    }
    let others = [("HTTPS_PROXY", url), ("no_proxy", "example.com,10.0.0.0/8,")];
    assert_eq!(run(&others, file.path()).await, (Some(0), true, String::new()));
    // The proxy of the kubeconfig takes precedence, and NO_PROXY does not concern it.
    let given = kubeconfig(&fake, Some(url));
    let variables = [("HTTPS_PROXY", "http://127.0.0.1:1"), ("NO_PROXY", "*")];
    assert_eq!(run(&variables, given.path()).await, (Some(0), true, String::new()));
    let socks = [("HTTPS_PROXY", "socks5://127.0.0.1:1080")];
    let (code, used, error) = run(&socks, file.path()).await;
    assert_eq!((code, used), (Some(69), false));
    assert!(
        error.contains("proxy socks5://127.0.0.1:1080 is not accepted, expected http://HOST:PORT"),
        "{error}"
    );
}

/// As a kubeconfig of kind or minikube has them.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_on_this_machine_needs_no_proxy() {
    let fake = Fake::start().await;
    let proxy = Proxy::to(&fake).await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), fake.kubeconfig()).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidecar-injector"));
    command.env_clear().env("HTTPS_PROXY", &proxy.url);
    command.args(["manifests", "--revision", "canary", "--check", "--kubeconfig"]).arg(file.path());
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic");
    assert_eq!((output.expect("the program").status.code(), proxy.tunnels()), (Some(0), 0));
}
