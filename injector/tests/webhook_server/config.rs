//! Config that changes while serving.

use sidecar_injector::config::{BUILTIN_CONFIG, BUILTIN_VALUES};

use super::load::Load;
use super::server::{Ca, Server, Volume, pair_volume, run_to_end};

/// The built-in config with an annotation of its own, by which its patches are known.
fn marked(mark: &str) -> String {
    let with = format!("injectedAnnotations: {{mark: \"{mark}\"}}");
    let text = BUILTIN_CONFIG.replace("injectedAnnotations: {}", &with);
    assert_ne!(text, BUILTIN_CONFIG);
    text
}

async fn patch(server: &Server) -> String {
    use base64::Engine as _;
    let answer = server.http2().await.inject("which config").await;
    let patch = answer.json()["response"]["patch"].as_str().unwrap_or_default().to_owned();
    String::from_utf8(base64::engine::general_purpose::STANDARD.decode(patch).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_config_is_rejected_and_a_valid_one_loaded_under_load() {
    let files = |config: &str| [("config", config.to_owned()), ("values", BUILTIN_VALUES.to_owned())];
    let mut volume =
        Volume::new(&files(&marked("one")).each_ref().map(|(name, text)| (*name, text.as_str())));
    let swap = |volume: &mut Volume, config: &str| {
        volume.swap(&files(config).each_ref().map(|(name, text)| (*name, text.as_str())));
    };
    let (config, values) = (volume.path("config"), volume.path("values"));
    let mut server = Server::start(&["--inject-config", &config, "--values", &values]);
    let load = Load::on(&server);
    load.go_on(50).await;
    assert!(patch(&server).await.contains("one"));

    let mut errors = 0.0;
    for broken in ["templates: {sidecar: '{{ if }}'}", "a: [", "", "policy: enable\ntemplates: {}"] {
        swap(&mut volume, broken);
        errors += 1.0;
        server.wait_for_metric("sidecar_injector_config_load_errors_total", |count| count == errors).await;
        assert_eq!(server.metric("sidecar_injector_config_stale").await, Some(1.0), "{broken}");
        assert_eq!(server.metric("sidecar_injector_config_generation").await, Some(1.0), "{broken}");
        assert_eq!(server.ask("/readyz").await.0, 200, "{broken}");
        assert!(patch(&server).await.contains("one"), "{broken}");
    }
    let line = server.wait_for_line("config rejected");
    assert!(line["detail"].as_str().unwrap().contains(&config), "{line}");

    swap(&mut volume, &marked("two"));
    server.wait_for_metric("sidecar_injector_config_generation", |generation| generation == 2.0).await;
    assert_eq!(server.metric("sidecar_injector_config_stale").await, Some(0.0));
    assert!(patch(&server).await.contains("two"));

    std::fs::remove_file(volume.dir.path().join("config")).unwrap();
    server.wait_for_metric("sidecar_injector_config_stale", |stale| stale == 1.0).await;
    assert!(patch(&server).await.contains("two"));
    std::os::unix::fs::symlink("..data/config", volume.dir.path().join("config")).unwrap();
    server.wait_for_metric("sidecar_injector_config_stale", |stale| stale == 0.0).await;
    assert_eq!(server.metric("sidecar_injector_config_generation").await, Some(2.0));
    load.go_on(50).await;
    load.end().await;
}

#[test]
fn an_invalid_config_at_the_start_exits_with_every_problem() {
    let pair = pair_volume(&Ca::new().leaf());
    let volume = Volume::new(&[("config", "templates: {a: '{{ if }}', b: '{{ nope }}'}"), ("values", "[]")]);
    let (config, values) = (volume.path("config"), volume.path("values"));
    let (code, output) =
        run_to_end(&pair, &["--inject-config", &config, "--values", &values, "--tls-key", &config]);
    assert_eq!(code, Some(65), "{output}");
    let problems: Vec<&str> = output.lines().filter(|line| line.starts_with("error: ")).collect();
    for (file, what) in [
        (&config, "template a"),
        (&config, "template b"),
        (&values, "map of values"),
        (&config, "private key"),
    ] {
        let message = problems.iter().any(|line| line.contains(file.as_str()) && line.contains(what));
        assert!(message, "{file} {what}: {output}");
    }
    assert!(!output.contains("listening"), "{output}");
    let (code, output) =
        run_to_end(&pair, &["--inject-config", "/nowhere/config", "--mesh-config", "/nowhere/mesh"]);
    assert_eq!(code, Some(66), "{output}");
    for problem in ["--inject-config /nowhere/config: No such file", "--mesh-config /nowhere/mesh: No such"] {
        assert!(output.contains(&format!("error: {problem}")), "{output}");
    }
}

/// Puts a pipe in the place of a file of a volume, or the file back.
fn pipe(volume: &Volume, name: &str) {
    let path = volume.dir.path().join(name);
    std::fs::remove_file(&path).unwrap();
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
}

fn link(volume: &Volume, name: &str) {
    let path = volume.dir.path().join(name);
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(format!("..data/{name}"), path).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn named_pipes_instead_of_files_are_rejected_and_block_nothing() {
    let ca = Ca::new();
    let (old, new) = (ca.leaf(), ca.leaf());
    let mut pair = pair_volume(&old);
    let one = marked("one");
    let mut volume = Volume::new(&[("config", &one), ("values", BUILTIN_VALUES)]);
    let (config, values) = (volume.path("config"), volume.path("values"));
    let mut server = Server::start_with(&ca, &pair, &["--inject-config", &config, "--values", &values]);
    for (volume, names) in [(&volume, ["config", "values"]), (&pair, ["tls.crt", "tls.key"])] {
        names.iter().for_each(|name| pipe(volume, name));
    }
    let line = server.wait_for_line("config rejected");
    let detail = line["detail"].as_str().unwrap();
    assert!(
        detail.contains(&config) && detail.contains("is a named pipe, expected a regular file"),
        "{line}"
    );
    let line = server.wait_for_line("certificate rejected, the last valid one stays active");
    let detail = line["detail"].as_str().unwrap();
    assert!(detail.contains("tls.crt") && detail.contains("is a named pipe"), "{line}");
    assert!(server.metric("sidecar_injector_config_load_errors_total").await >= Some(1.0));
    assert!(server.metric("sidecar_injector_certificate_errors_total").await >= Some(1.0));
    assert_eq!(server.ask("/readyz").await.0, 200);
    assert!(patch(&server).await.contains("one"));

    volume.swap(&[("config", &marked("two")), ("values", BUILTIN_VALUES)]);
    pair.swap(&[("tls.crt", &new.cert), ("tls.key", &new.key)]);
    for (volume, names) in [(&volume, ["config", "values"]), (&pair, ["tls.crt", "tls.key"])] {
        names.iter().for_each(|name| link(volume, name));
    }
    server.wait_for_metric("sidecar_injector_config_generation", |generation| generation == 2.0).await;
    server.wait_for_line("certificate loaded");
    assert!(patch(&server).await.contains("two"));
    assert_eq!(server.http2().await.certificate, new.der);
}

#[test]
fn a_named_pipe_at_the_start_exits_with_the_problem() {
    let pair = pair_volume(&Ca::new().leaf());
    pipe(&pair, "tls.key");
    let (code, output) = run_to_end(&pair, &[]);
    assert_eq!(code, Some(65), "{output}");
    assert!(
        output.contains("tls.key") && output.contains("is a named pipe, expected a regular file"),
        "{output}"
    );
}
